"""Streams and proofs from files alone: at every block, through commits and rollbacks, by Python, command line and HTTP."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from chainlake.cli.main import main
from chainlake.errors import BadInput, BrokenPromise
from chainlake.merkle.smt import Proof, verify
from chainlake.serve import shards as shard_routes
from chainlake.serve.control import LakeControl
from chainlake.serve.embedded import EmbeddedLake
from chainlake.serve.gateway import Gateway
from chainlake.serve.no_logs import NoLogs
from chainlake.serve.router import Request, Response
from chainlake.serve.settings import Settings
from chainlake.serve.shards import ShardRoutes, placed
from chainlake.shards import reader as shards_reader
from chainlake.shards.codes import Refused
from chainlake.shards.placement import chain_id_of, shard_of
from chainlake.shards.query import Page, answer, count_streams, get_stream, list_streams, read_page
from chainlake.shards.reader import ShardReader, ShardView
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.state import metadata_of, value_of
from tests.unit.shards_lake import ShardsLake
from tests.unit.shards_making import NODES, REGISTRY, space
from tests.unit.test_serve_lake import add_chain


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> ShardsLake:
    made = ShardsLake(tmp_path_factory.mktemp("lake"), seed=4)
    for count in (3, 1, 5):
        made.advance(count)
    made.rollback(6)
    made.tables = _replayed(made, 6)
    made.advance(20)
    add_chain(made.home, made.chain, "comet")
    return made


def _replayed(lake: ShardsLake, height: int) -> Any:
    """The tables as they were at a block, so that blocks after a rollback go on from there."""
    other = ShardsLake(lake.home / "other", seed=4)
    other.advance(height)
    return other.tables


@pytest.fixture(scope="module")
def reader(lake: ShardsLake) -> ShardReader:
    return ShardReader(lake.home, lake.chain)


def test_streams_and_roots_of_every_block_are_those_of_the_shard(lake: ShardsLake, reader: ShardReader) -> None:
    assert reader.root().height == 12
    for height in range(1, 13):
        root = reader.root(height)
        assert (root.app_hash, root.stream_count) == (lake.finalized[height - 1].app_hash, len(lake.states[height]))
        assert {one.stream_id: one for one in reader.streams(height)} == lake.states[height]
    for bad in (0, 13):
        with pytest.raises(BadInput, match="there are 1 to 12"):
            reader.root(bad)


def test_every_stream_is_proven_there_or_not_there_at_every_block(lake: ShardsLake, reader: ShardReader) -> None:
    asked = [*lake.shard.streams, space("nobody"), bytes(32), b"\xff" * 32]
    shown = 0
    for height in (1, 2, 5, 6, 7, 12):
        root = lake.finalized[height - 1].state_root
        for stream_id in asked:
            proven = reader.prove(stream_id, height)
            state = lake.states[height].get(stream_id)
            value = None if state is None else value_of(state, REGISTRY)
            assert (proven.root.state_root, proven.value) == (root, value)
            assert verify(root, stream_id, value, Proof.from_bytes(proven.proof.to_bytes()))
            assert not verify(root, stream_id, b"other" if value is None else None, proven.proof)
            shown += value is not None
    assert shown > 50


def test_a_rollback_to_every_height_restores_streams_root_and_proofs(tmp_path: Path) -> None:
    lake = ShardsLake(tmp_path, seed=5)
    for count in (4, 1, 7):
        lake.advance(count)
    reader = ShardReader(tmp_path, lake.chain)
    for height in range(11, 0, -1):
        lake.rollback(height)
        state_root = lake.finalized[height - 1].state_root
        assert reader.root() == (height, state_root, state_root, len(lake.states[height]))
        assert {one.stream_id: one for one in reader.streams()} == lake.states[height]
        for stream_id in (*list(lake.shard.streams)[:3], space("nobody")):
            proven = reader.prove(stream_id)
            assert (proven.value is not None) == (stream_id in lake.states[height])
            assert verify(state_root, stream_id, proven.value, proven.proof)
        with pytest.raises(BadInput, match=f"there are 1 to {height}"):
            reader.root(height + 1)


def test_a_tree_that_does_not_belong_to_the_root_proves_nothing(tmp_path: Path) -> None:
    lake = ShardsLake(tmp_path, seed=4)
    lake.advance(12)
    import pyarrow as pa
    from deltalake import DeltaTable

    path = tmp_path / "warehouse/store/silver_streams"
    rows = DeltaTable(path).to_pyarrow_table()
    position = rows.schema.get_field_index("last_miniblock_num")
    other = pa.array([number.as_py() + 1 for number in rows["last_miniblock_num"]], pa.int64())
    write_deltalake(path, rows.set_column(position, rows.schema.field(position), other), mode="overwrite")
    reader = ShardReader(tmp_path, lake.chain)
    with pytest.raises(BrokenPromise, match="run lake verify"):
        reader.prove(next(iter(lake.shard.streams)))


def test_queries_answer_lists_counts_and_streams(lake: ShardsLake, reader: ShardReader) -> None:
    view, states = ShardView(reader), lake.states[12]
    ordered = [metadata_of(states[key], REGISTRY) for key in sorted(states)]
    assert list_streams(view).streams == ordered[:100]
    assert list_streams(view, Page(2, 3)).streams == ordered[2:5]
    assert get_stream(view, ordered[0].stream_id) == ordered[0]
    assert count_streams(view) == len(ordered) > 10
    for node in NODES:
        held = [one for one in ordered if node in one.nodes]
        assert list_streams(view, node=node).streams == held and count_streams(view, node) == len(held) > 0
    assert count_streams(view, b"\x77" * 20) == 0
    early = ShardView(reader, 1)
    assert count_streams(early) == len(lake.states[1]) < len(ordered)


def test_a_page_asks_for_the_nodes_once(reader: ShardReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read from files: for each of 10,000 streams that would take longer than the streams."""
    asked: list[int | None] = []

    def registry(self: ShardReader, height: int | None = None) -> NodeRegistry:
        asked.append(height)
        return REGISTRY

    monkeypatch.setattr(ShardReader, "registry", registry)
    assert len(list_streams(ShardView(reader)).streams) > 10 and asked == [12]


def test_lists_of_many_blocks_are_kept_in_bounds(lake: ShardsLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for one block after another must not fill the memory of the gateway; one list is kept whatever its length."""
    most = len(lake.states[12])
    for bound in (most + len(lake.states[1]), 1):
        monkeypatch.setattr(shards_reader, "KEPT_STREAMS", bound)
        reader = ShardReader(lake.home, lake.chain)
        for height in (*range(1, 13), 1, 12):
            assert {one.stream_id: one for one in reader.streams(height)} == lake.states[height]
            assert reader.streams(height) is reader.streams(height), "paging through a list reads it once"
            assert reader._listed() <= max(bound, len(lake.states[height]))
        assert len(reader._lists) == (2 if bound > most else 1)


def test_readers_of_many_shards_are_kept_in_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_routes, "KEPT_READERS", 2)
    lake = ShardsLake(tmp_path, seed=4)
    lake.advance(2)
    for name in (lake.chain, "b", "c"):
        add_chain(tmp_path, name, "comet")
    control = LakeControl(EmbeddedLake(tmp_path))
    gateway = Gateway("shard", NoLogs(), control, Settings())
    routes = ShardRoutes(gateway, tmp_path, "", control)
    for name in (lake.chain, "b", lake.chain, "c", lake.chain, "b"):
        found = asyncio.run(routes.query(Request("GET", "/streams/count", {}, {"chain": name})))
        assert found.status == (200 if name == lake.chain else 400)
    assert list(routes._readers) == [lake.chain, "b"], "those that were asked last"
    gateway.close()


def test_answers_are_those_of_the_protocol(lake: ShardsLake, reader: ShardReader) -> None:
    view, states = ShardView(reader), lake.states[12]
    sealed = next(one for one in states.values() if one.sealed and one.last_miniblock_num)
    plain = next(one for one in states.values() if not one.sealed and not one.last_miniblock_num)
    found = answer(view, f"/stream/{sealed.stream_id.hex()}", {})
    assert base64.b64decode(found["streamId"]) == sealed.stream_id and found["sealed"] is True
    assert found["lastMiniblockNum"] == str(sealed.last_miniblock_num)
    assert [base64.b64decode(one) for one in found["nodes"]] == [REGISTRY.address_of(one) for one in sealed.nodes]
    assert set(answer(view, f"/stream/0x{plain.stream_id.hex()}", {})) == {
        "streamId",
        "lastMiniblockHash",
        "nodes",
        "replicationFactor",
    }
    assert set(answer(view, "/streams", {"limit": "1"})) == {"streams", "offset", "limit", "count"}
    node = "0x" + NODES[0].hex()
    listed = answer(view, f"/streams/node/{node}", {"offset": "1", "limit": "2"})
    assert (listed["node"], listed["offset"], listed["limit"], len(listed["streams"])) == (node, 1, 2, 2)
    assert answer(view, "/streams/count", {}) == {"count": len(states)}
    assert answer(view, f"/streams/count/{node}", {})["count"] == listed["count"]
    for path, query, code, message in [
        ("/streams", {"offset": "-1"}, 3, "offset must be >= 0"),
        ("/streams", {"offset": "x"}, 3, "invalid offset"),
        ("/streams", {"limit": "1.5"}, 3, "invalid limit"),
        ("/streams", {"offset": "-1", "limit": "x"}, 3, "offset must be >= 0"),
        ("/streams", {"offset": str(1 << 63)}, 3, "invalid offset"),
        ("/nowhere", {}, 3, "unsupported query path"),
        ("/streams/other", {}, 3, "unsupported query path"),
        (f"/stream/{space('nobody').hex()}", {}, 5, "stream not found"),
        ("/stream/12", {}, 3, "stream_id must be 32 bytes"),
        ("/streams/node/0x12", {}, 3, "node address must be 20 bytes"),
    ]:
        with pytest.raises(Refused) as refused:
            answer(view, path, query)
        assert (int(refused.value.code), refused.value.message) == (code, message)
    assert answer(view, "/streams", {"offset": str((1 << 63) - 1)})["streams"] == []
    assert [read_page({"limit": text}).limit for text in ("0", "-5", "", "7", "99999")] == [100, 100, 100, 7, 10_000]


def test_http_answers_the_same_with_heights_chains_and_proofs(lake: ShardsLake, reader: ShardReader) -> None:
    control = LakeControl(EmbeddedLake(lake.home))
    gateway = Gateway("shard", NoLogs(), control, Settings())
    ShardRoutes(gateway, lake.home, "", control)

    def get(path: str, **query: str) -> Response:
        found = gateway.router.find("GET", path)
        assert not isinstance(found, Response), path
        handler, params = found
        return asyncio.run(_call(handler, Request("GET", path, params, query)))

    stream_id = reader.streams()[0].stream_id
    assert json.loads(get("/streams", limit="2").body) == answer(ShardView(reader), "/streams", {"limit": "2"})
    assert json.loads(get("/streams/count", height="1").body) == {"count": len(lake.states[1])}
    proof = json.loads(get(f"/stream/{stream_id.hex()}/proof", height="12", chain="shard").body)
    shown = Proof.from_json(proof["proof"])
    assert verify(lake.finalized[-1].state_root, stream_id, bytes.fromhex(proof["value"][2:]), shown)
    assert get(f"/stream/{stream_id.hex()}/proof", raw="true").body == shown.to_bytes()
    absent = json.loads(get(f"/stream/{space('nobody').hex()}/proof").body)
    assert absent["exists"] is False and absent["value"] is None
    for path, query, status, message in [
        (f"/stream/{space('nobody').hex()}", {}, 404, "stream not found"),
        ("/streams", {"height": "x"}, 400, "invalid height"),
        ("/streams", {"height": "99"}, 400, "height 99 of shard is not there: there are 1 to 12"),
        ("/streams", {"chain": "other"}, 400, "unknown shard 'other': there are shard"),
        ("/streams/unknown", {}, 400, "unsupported query path"),
    ]:
        refused = get(path, **query)
        assert (refused.status, json.loads(refused.body)["message"]) == (status, message)
    gateway.close()


def test_a_stream_is_looked_for_in_the_shard_that_its_id_belongs_to() -> None:
    stream_id = space("a")
    own = chain_id_of(shard_of(stream_id))
    chains = {"x": {"options": {}}, own: {"options": None}, "y": {"options": {"chain_id": chain_id_of(5), "mask": "0"}}}
    assert placed(chains, stream_id) == own
    assert placed({"z": {"options": {"chain_id": own}}}, stream_id) == "z"
    assert placed({"x": {"options": {}}}, stream_id) is None


async def _call(handler: Any, request: Request) -> Response:
    found: Response = await handler(request)
    return found


def test_the_command_proves_and_refuses_in_one_line(
    lake: ShardsLake, reader: ShardReader, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    stream_id = reader.streams()[0].stream_id
    at = ["--home", str(lake.home)]
    assert main(["prove", "shards", "shard", stream_id.hex(), "--height", "12", *at]) == 0
    found = json.loads(capfdbinary.readouterr().out)
    assert found["exists"] and found["stateRoot"] == "0x" + lake.finalized[-1].state_root.hex()
    assert main(["prove", "shards", "shard", stream_id.hex(), "--raw", *at]) == 0
    raw = capfdbinary.readouterr().out
    assert verify(lake.finalized[-1].state_root, stream_id, bytes.fromhex(found["value"][2:]), Proof.from_bytes(raw))
    unknown = "unknown comet chain 'other': there are shard"
    for command, why in (
        (["prove", "shards", "other", stream_id.hex()], unknown),
        (["snapshot", "export", "other", "file"], unknown),
        (["prove", "shards", "shard", "0x12"], "64 hex digits"),
        (["prove", "shards", "shard", stream_id.hex(), "--height", "77"], "there are 1 to 12"),
    ):
        assert main([*command, *at]) == 2
        said = capfdbinary.readouterr().err.decode()
        assert why in said and said.count("\n") == 1
