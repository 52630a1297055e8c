"""Demo chains: deterministic, linked, and true to the formats that they stand for."""

import json
import os
import random
from pathlib import Path

import cbor2
import pytest
import xxhash

from chainlake.demo import cardano, comet, evm, raft, river
from chainlake.demo.write import SIZES, write_demo
from chainlake.errors import BadInput
from chainlake.sources import wire
from chainlake.sources.base import ZERO_HASH, RawBlock
from chainlake.sources.formats import DOMAIN_OF, check_options, format_of
from tests.unit.sources_reading import good, read_batch


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_writing_again_gives_the_same_bytes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    first = write_demo(tmp_path / "a", size="tiny")
    once = _bytes(tmp_path / "a")
    assert write_demo(tmp_path / "a", size="tiny") == first
    write_demo(tmp_path / "b", size="tiny")
    assert _bytes(tmp_path / "a") == once == _bytes(tmp_path / "b")
    assert not [name for name in once if ".draft" in name]


def test_small_chains_have_the_promised_names_lengths_and_links(tmp_path: Path) -> None:
    chains = write_demo(tmp_path)
    assert [chain.name for chain in chains] == [
        "demo-evm",
        "demo-shard-0",
        "demo-shard-1",
        "demo-cardano",
        "demo-replica-a",
        "demo-replica-b",
        "demo-replica-c",
        "demo-river",
    ]
    for chain in chains:
        check_options(chain.kind, chain.options)
        assert chain.domain == DOMAIN_OF[chain.kind]
        blocks = good(read_batch(chain.kind, format_of(chain.kind).expand(str(chain.path))))
        kept = {block.hash: block for block in blocks}
        tip: RawBlock | None = blocks[-1]
        length = 0
        while tip is not None:
            length, tip = length + 1, kept.get(tip.parent_hash)
        assert length == chain.blocks == SIZES["small"][chain.domain]


def test_one_domain_alone_and_unknown_ones(tmp_path: Path) -> None:
    names = [f"demo-replica-{replica}" for replica in "abc"]
    assert [chain.name for chain in write_demo(tmp_path, "replica", "tiny")] == names
    assert sorted(os.listdir(tmp_path)) == [*names, "sizes.json"]
    with pytest.raises(BadInput, match="'cats' is not a domain: choose one of logs, shards"):
        write_demo(tmp_path, "cats")
    with pytest.raises(BadInput, match="'vast' is not a demo size: choose one of tiny"):
        write_demo(tmp_path, size="vast")


def test_chains_grow_keep_their_size_and_never_shrink(tmp_path: Path) -> None:
    """A lake may have taken in all blocks of a file: a shorter one would contradict it."""
    (tiny,) = write_demo(tmp_path, "cage", "tiny")
    short = tiny.path.read_bytes()
    (small,) = write_demo(tmp_path, "cage", "small")
    long = small.path.read_bytes()
    assert long.startswith(short) and len(long) > len(short)
    for domain in ("cage", None):
        with pytest.raises(BadInput, match=r"are small, and tiny would cut off .* leave --size out, or choose another place"):
            write_demo(tmp_path, domain, "tiny")
    assert write_demo(tmp_path, "cage") == [small] and small.path.read_bytes() == long
    assert sorted(os.listdir(tmp_path)) == ["demo-cardano", "sizes.json"], "nothing was written before the refusal"
    (tmp_path / "sizes.json").write_text("[]")
    assert write_demo(tmp_path, "cage") == [small], "without a record the usual size"


@pytest.mark.parametrize("module", [evm, comet, river])
def test_a_longer_chain_begins_with_the_shorter_one(module: object) -> None:
    blocks = module.blocks  # type: ignore[attr-defined]
    assert list(blocks(8))[:5] == list(blocks(5))


def test_evm_logs_are_numbered_and_blooms_hold() -> None:
    kinds = set()
    for line in evm.blocks(40):
        logs = line["logs"] if "logs" in line else [log for receipt in line["receipts"] for log in receipt["logs"]]
        assert [int(log["logIndex"], 16) for log in logs] == list(range(len(logs)))
        assert line["block"]["logsBloom"] == evm.bloom(logs)
        kinds |= {len(log["topics"]) for log in logs} | {tuple(line)[1], "empty" if not logs else "full"}
    assert kinds == {0, 1, 3, 4, "logs", "receipts", "empty", "full"}


def test_few_contracts_make_most_logs() -> None:
    addresses = [log["address"] for line in evm.blocks(60) if "logs" in line for log in line["logs"]]
    top = sorted({address: addresses.count(address) for address in set(addresses)}.values(), reverse=True)
    assert sum(top[:20]) > len(addresses) / 2
    assert len(top) > 100


def test_streams_belong_to_their_shard() -> None:
    shard = comet.Shard(1, random.Random(1), comet.node_addresses())
    assert [xxhash.xxh64_intdigest(shard.new_id()) % 1024 for _ in range(3)] == [1, 1, 1]


def test_miniblocks_of_a_stream_chain_across_blocks(tmp_path: Path) -> None:
    last: dict[bytes, tuple[int, bytes]] = {}
    updates = 0
    for block in good(read_batch("comet", [str(comet.write(tmp_path, 40)[0])])):
        for one in block.transactions:
            if one.payload.startswith(b"\xff"):
                continue
            for created in wire.messages(wire.message(one.payload, 1), 1):
                last.setdefault(wire.message(created, 1), (wire.number(created, 3), wire.message(created, 2)))
            for update in wire.messages(wire.message(one.payload, 2), 1):
                stream, number = wire.message(update, 1), wire.number(update, 3)
                assert wire.message(update, 2) == last[stream][1]
                if number == last[stream][0] + 1:
                    last[stream] = number, wire.message(update, 4)
                    updates += 1
    assert updates > 100


def test_cardano_payments_spend_outputs_of_their_own_branch(tmp_path: Path) -> None:
    states = {ZERO_HASH: set(cardano.genesis())}
    tagged = set()
    blocks = good(read_batch("cardano", [str(cardano.write(tmp_path, 30)[0])]))
    for block in blocks:
        era, (_, bodies, witnesses, _, invalid) = cbor2.loads(block.payload)
        state = states[block.parent_hash]
        for body, one in zip(bodies, block.transactions, strict=True):
            tagged.add(type(body[0]).__name__)
            spent = {(bytes(source), index) for source, index in body[0]}
            assert spent <= state
            state = (state - spent) | {(one.hash, index) for index in range(len(body[1]))}
        states[block.hash] = state
        assert (era, len(witnesses), list(invalid)) == (7, len(bodies), [])
    assert len(tagged) == 2
    assert [block.height for block in blocks] == [*range(7), *range(6, 20), *range(15, 30)]


@pytest.mark.parametrize(
    ("user", "shard"),
    [("alice", 0), ("bob", 17), ("user123", 21), ("user1", 11), ("user2", 30), ("user_456", 8), ("", 15)],
)
def test_users_are_routed_by_siphash(user: str, shard: int) -> None:
    assert raft.group_of(user) == f"data:user:{shard:02d}"


def test_replicas_receive_the_same_logs_in_different_order() -> None:
    logs = []
    for replica in ("a", "b", "c"):
        seen: dict[str, list[str]] = {}
        for delivery in raft.blocks(60, replica=replica):
            for entry in delivery["entries"]:
                log = seen.setdefault(entry["group"], [])
                if entry["log_index"] <= len(log):
                    assert log[entry["log_index"] - 1] == json.dumps(entry)
                    continue
                assert entry["log_index"] == len(log) + 1
                log.append(json.dumps(entry))
        logs.append(seen)
    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0]) > 8
    assert list(raft.blocks(60, replica="a")) != list(raft.blocks(60, replica="b"))


def test_a_replica_that_hears_of_meta_last_receives_data_before_its_watermark() -> None:
    meta, early = 0, 0
    for delivery in raft.blocks(60, replica="b"):
        for entry in delivery["entries"]:
            meta = max(meta, entry["log_index"]) if entry["group"] == "meta" else meta
            early += entry["command"].get("required_meta_index", 0) > meta
    assert early > 20


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (b"Hello, World!", "c6252c41c99028ea8600a2d9818d8dcfdf13ab69f9d4df54cbc1d1ed1a475592"),
        (b"Hello, Universe!", "b8c5bb634af3b0191b7aa98c38d3baceeb0651b15cf252cacad2e0a8cda7f040"),
    ],
)
def test_river_hashes_are_the_real_ones(text: bytes, digest: str) -> None:
    assert river.river_hash(text).hex() == digest


def test_river_miniblocks_link_count_their_events_and_answers_overlap() -> None:
    ends: dict[bytes, int] = {}
    for answers in river.blocks(6):
        for stream_id, answer in answers.items():
            previous = None
            for raw in wire.messages(wire.message(answer, 1), 3):
                envelope = wire.message(raw, 2)
                header = wire.message(wire.message(envelope, 3), 100)
                hashes = [river.river_hash(wire.message(event, 3)) for event in wire.messages(raw, 1)]
                assert wire.messages(header, 4) == hashes
                if previous is None:
                    assert wire.number(header, 1) <= ends.get(stream_id, 0)
                else:
                    assert wire.message(header, 2) == previous
                previous, ends[stream_id] = wire.message(envelope, 1), wire.number(header, 1) + 1
