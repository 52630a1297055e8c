"""A shard as a file: it comes back as it was and goes on alike; what was changed in it is found."""

import hashlib
import io
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.demo import comet
from chainlake.encoding import to_hex
from chainlake.errors import BadInput, CheckFailed, LakeError
from chainlake.lake.visibility import Head
from chainlake.shards import snapshot
from chainlake.shards.importing import check_options, refuse_known
from chainlake.shards.machine import Shard
from chainlake.shards.nodes import SNAPSHOT
from chainlake.sources.wire import to_varint, varint
from tests.unit.shards_making import REGISTRY, conflicting_blocks

CHAIN = conflicting_blocks(11, 10, transactions=20)
RESULT = {"tx_index": 0, "code": 0, "log": "OK", "message": "", "events": []}


def made(height: int = 7, mode: str = "tree") -> Shard:
    shard = Shard(REGISTRY, mode)
    for number, sent in enumerate(CHAIN[:height], start=1):
        shard.run(number, sent)
    return shard


def written(shard: Shard, size: int = 400) -> bytes:
    header, _ = snapshot.make(shard, "metadata-shard-0000000000000000", None, [])
    chunks = list(snapshot.chunks_of(shard.streams.values(), shard.registry, size))
    sizes = tuple(snapshot.Chunk(len(one), hashlib.sha256(one).digest()) for one in chunks)
    return b"".join(snapshot.pieces_of(replace(header, chunks=sizes), chunks))


@pytest.mark.parametrize("mode", ["tree", "placeholder"])
def test_a_shard_comes_back_from_its_snapshot_and_goes_on_alike(mode: str) -> None:
    shard = made(7, mode)
    header, again = snapshot.read(io.BytesIO(written(shard)))
    assert len(header.chunks) > 3 and header.height == 7
    assert (again.streams, again.height, again.app_hash, again.state_root) == (shard.streams, 7, shard.app_hash, shard.state_root)
    for number, sent in enumerate(CHAIN[7:], start=8):
        assert again.run(number, sent) == shard.run(number, sent)
    assert snapshot.read(io.BytesIO(written(Shard(REGISTRY, mode, 3))))[1].streams == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:40],
        lambda data: data + b"\0",
        lambda data: b"something else" + data,
        lambda data: data.replace(b'"format":2', b'"format":1'),
        lambda data: data.replace(b'"height":7', b'"height":6'),
        lambda data: data.replace(b'"stream_count":', b'"stream_count":1'),
        lambda data: data.replace(b'"state_root":"0x', b'"state_root":"0xff', 1),
        lambda data: data.replace(b'"app_hash_mode":"tree"', b'"app_hash_mode":"none"'),
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    ],
)
def test_a_snapshot_that_was_changed_is_refused(change: Callable[[bytes], bytes]) -> None:
    good = written(made())
    bad = change(good)
    assert bad != good
    with pytest.raises((BadInput, CheckFailed)):
        snapshot.read(io.BytesIO(bad))


def test_another_root_over_whole_chunks_is_refused() -> None:
    """Chunks that fit their hashes, but are not the state that the header claims."""
    header, chunks = snapshot.make(made(7), "c", None, [])
    other, _ = snapshot.make(made(6), "c", None, [])
    with pytest.raises(CheckFailed, match="do not use it"):
        snapshot.restore(replace(header, state_root=other.state_root), chunks)
    with pytest.raises(CheckFailed, match="node that its registry does not have"):
        snapshot.restore(replace(header, registry=header.registry[:1]), chunks)


def test_chunks_that_are_missing_at_the_end_are_told_as_such() -> None:
    shard = made(7)
    chunks = list(snapshot.chunks_of(shard.streams.values(), shard.registry, 400))
    sizes = tuple(snapshot.Chunk(len(one), hashlib.sha256(one).digest()) for one in chunks)
    header = replace(snapshot.make(shard, "c", None, [])[0], chunks=sizes)
    with pytest.raises(CheckFailed, match=f"has {len(chunks) - 1} chunks, its header says {len(chunks)}: it is truncated"):
        snapshot.restore(header, chunks[:-1])


def test_every_byte_of_a_snapshot_matters() -> None:
    good = written(made(4))
    for place in range(0, len(good), 7):
        bad = good[:place] + bytes([good[place] ^ 0x20]) + good[place + 1 :]
        with pytest.raises(LakeError):
            snapshot.read(io.BytesIO(bad))


def test_a_height_that_no_root_covers_is_under_the_hash_of_its_chunk() -> None:
    header, (chunk,) = snapshot.make(made(7), "c", None, [])
    size, start = varint(chunk, 0)
    created = start + size
    assert 1 <= chunk[created] <= 7
    earlier = chunk[:created] + bytes([chunk[created] - 1]) + chunk[created + 1 :]
    with pytest.raises(CheckFailed, match="chunk 0 of the snapshot has another hash"):
        snapshot.restore(header, [earlier])
    assert snapshot.read(io.BytesIO(resealed(header, [earlier])))[1].state_root == header.state_root


def resealed(header: snapshot.Header, chunks: list[bytes], **changed: object) -> bytes:
    """A file whose hashes all fit, although its header or chunks are not what was exported."""
    sizes = tuple(snapshot.Chunk(len(one), hashlib.sha256(one).digest()) for one in chunks)
    return b"".join(snapshot.pieces_of(replace(header, **{"chunks": sizes, **changed}), chunks))  # type: ignore[arg-type]


def test_a_forger_who_mends_the_hashes_is_found_by_what_contradicts_itself() -> None:
    header, (chunk,) = snapshot.make(made(7), "c", None, [])
    late = replace(header.registry[0], from_height=7)
    size, start = varint(chunk, 0)
    first = start + size + 2  # both heights are below 128
    loose = to_varint(size + 2) + chunk[start : start + size] + b"\x40\x00" + chunk[start + size : first]
    forged: list[tuple[list[bytes], dict[str, object], str]] = [
        ([chunk], {"registry": (late, *header.registry[1:])}, "node that its registry does not have"),
        ([chunk], {"registry": header.registry[::-1]}, "not as it is written"),
        ([chunk], {"registry": (replace(header.registry[0], from_height=8), *header.registry[1:])}, "not as it is written"),
        ([chunk + chunk[:first]], {}, "not where its id belongs"),
        ([chunk[first:] + chunk[:first]], {}, "not where its id belongs"),
        ([loose + chunk[first:]], {}, "canonical form"),
        ([chunk[: first - 1] + b"\x08" + chunk[first:]], {}, "changed after block 7"),
        ([chunk[:-1]], {}, "in the middle of a number"),
        ([chunk], {"results": [{"tx_index": 0}]}, "cannot be read"),
        ([chunk], {"results": [{**RESULT, "tx_index": False}], "block": {}}, "cannot be read"),
        ([chunk], {"results": [{**RESULT, "code": 0.0}], "block": {}}, "cannot be read"),
        ([chunk], {"block": []}, "not as it is written"),
    ]
    for chunks, changed, why in forged:
        with pytest.raises((BadInput, CheckFailed), match=why):
            snapshot.read(io.BytesIO(resealed(header, chunks, **changed)))
    deep = header.to_bytes().replace(b'"block":null', b'"block":' + b"[" * 300 + b"]" * 300)
    with pytest.raises(BadInput, match="cannot be read"):
        snapshot.parse_header(deep)


@pytest.mark.parametrize("place", ['"format":2', '"registry":[{', '"address":"0x', '"permanent_index":', '"chunks":[{'])
def test_a_header_nested_as_deeply_as_json_may_be_is_bad_input_like_any_other(place: str) -> None:
    """A validator reads the headers of strangers, and an error that it does not expect would end it."""
    header = snapshot.make(made(7), "c", None, [])[0].to_bytes().decode()
    before, found, after = header.partition(place)
    assert found
    deep = place.partition(":")[0] + ":" + "[" * 1000 + "]" * 1000 + ',"rest":' + place.partition(":")[2]
    with pytest.raises(BadInput):
        snapshot.parse_header((before + deep + after).encode())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"stream_id": b"\x10"}, "stream_id must be 32 bytes"),
        ({"stream_id": b"\x11" * 32}, "has no stream's id"),
        ({"nodes": (10, 10)}, "a node twice"),
        ({"nodes": ()}, "nodes required"),
        ({"replication_factor": (1 << 32) - 1}, "cannot exceed number of nodes"),
        ({"last_miniblock_num": -1}, "must be >= 0"),
    ],
)
def test_a_snapshot_of_streams_that_no_block_could_make_is_refused_though_its_root_is_right(
    changed: dict[str, Any], why: str
) -> None:
    """Tables have no room for some of them, and others would break their keys."""
    good = next(iter(made().streams.values()))
    header, chunks = snapshot.make(Shard(REGISTRY, height=7, streams=[good._replace(**changed)]), "c", None, [])
    with pytest.raises(CheckFailed, match=why):
        snapshot.restore(header, chunks)


def test_the_block_of_a_snapshot_is_of_its_chain_and_height_with_all_results() -> None:
    shard = Shard(REGISTRY)
    block = next(comet.linked(CHAIN[:1], shard, 0, random.Random(1)))
    chain_id = block["block"]["header"]["chain_id"]
    results = [
        {"tx_index": index, "code": int(one.code), "log": one.log, "message": one.message, "events": []}
        for index, one in enumerate(Shard(REGISTRY).run(1, CHAIN[0]).block.results)
    ]
    header, _ = snapshot.make(shard, chain_id, block, results)
    assert snapshot.parse_header(header.to_bytes()) == header
    assert snapshot.check_block(header).height == 1
    for other in (replace(header, height=2), replace(header, chain_id="x"), replace(header, results=results[1:])):
        with pytest.raises(CheckFailed, match="do not use it"):
            snapshot.check_block(other)
    wrapped = {"result": block, "block": {"header": {"chain_id": "another"}}}
    assert snapshot.check_block(replace(header, block=wrapped)).payload == snapshot.check_block(header).payload
    assert snapshot.check_block(replace(header, block={"result": block})).height == 1
    with pytest.raises(BadInput, match="has no block"):
        snapshot.check_block(replace(header, block=None))


def test_options_that_contradict_a_snapshot_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    header, _ = snapshot.make(made(7), "c", None, [])
    file = tmp_path / "nodes.jsonl"
    lines = [
        json.dumps({"address": to_hex(one.address), "permanent_index": one.permanent_index, "from_height": one.from_height})
        for one in header.registry
    ]
    to_come = json.dumps({"address": "0x" + "cc" * 20, "permanent_index": 5000, "from_height": 8})
    file.write_text("\n".join([*lines, to_come]), encoding="utf-8")
    check_options(header, {"registry": str(file), "app_hash": "tree"})
    with pytest.raises(BadInput, match="leave the option out"):
        check_options(header, {"app_hash": "placeholder"})
    for bad in (lines[1:], [*lines, to_come.replace("8}", "7}")]):
        file.write_text("\n".join(bad), encoding="utf-8")
        with pytest.raises(CheckFailed, match="must be that of the snapshot"):
            check_options(header, {"registry": str(file)})


def test_only_an_interrupted_import_of_the_same_snapshot_may_be_run_again() -> None:
    shard = Shard(REGISTRY)
    block = next(comet.linked([[]], shard, 0, random.Random(1)))
    header, _ = snapshot.make(shard, block["block"]["header"]["chain_id"], block, [])
    raw = snapshot.check_block(header)

    def refuse(begun: bool, **held: Head) -> None:
        heads = {f"{stage}.shards": head for stage, head in held.items()}
        read = lambda stages: SimpleNamespace(of=lambda stage, _: SimpleNamespace(head=lambda: heads.get(stage)))  # noqa: E731
        chains = {"c": SimpleNamespace(options={SNAPSHOT: "1"} if begun else {})}
        known = SimpleNamespace(all=lambda: chains)
        lake: Any = SimpleNamespace(ledger=SimpleNamespace(read=read), chains=known, chain=chains.__getitem__)
        refuse_known(lake, "c", header, raw)

    ours, with_root = Head(1, raw.hash, 1, {}), Head(1, raw.hash, 1, {"state": header.state_root})
    refuse(True)
    refuse(True, raw=ours)
    refuse(True, raw=ours, silver=with_root)
    others: list[dict[str, Head]] = [
        {"raw": Head(2, raw.hash, 1, {})},
        {"raw": Head(1, b"\x01" * 32, 1, {})},
        {"raw": ours, "silver": Head(1, raw.hash, 1, {"state": b"\x01" * 32})},
    ]
    for held in others:
        with pytest.raises(BadInput, match="import under another name"):
            refuse(True, **held)
    with pytest.raises(BadInput, match="import under another name"):
        refuse(False, raw=ours)
