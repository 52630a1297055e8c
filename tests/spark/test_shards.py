"""Metadata shards from files to roots: what Spark makes of many chains at once is what each shard does block by block."""

import base64
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chainlake.cli.main import main
from chainlake.demo import comet
from chainlake.lake import Lake
from chainlake.lake.home import Home
from chainlake.lake.sql import query
from chainlake.lake.verify import verify
from chainlake.merkle import smt as prove
from chainlake.merkle.smt import Proof
from chainlake.merkle.smt_fold import Tree, Update
from chainlake.shards.machine import Finalized, Shard
from chainlake.shards.reader import ShardReader
from chainlake.shards.state import StreamState, placeholder_app_hash
from chainlake.shards.verify import shard_problems
from tests.unit.shards_making import REGISTRY, conflicting_blocks

STAGES = ("bronze.shards", "silver.shards", "gold.shards")


def write_registry(path: Path) -> Path:
    rows = [
        {"address": "0x" + one.address.hex(), "permanent_index": one.permanent_index, "from_height": one.from_height}
        for one in REGISTRY.records
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


class Source:
    """Random blocks on disk, and what each of them comes to."""

    def __init__(self, directory: Path, name: str, seed: int, count: int, mode: str = "tree") -> None:
        self.chain = conflicting_blocks(seed, count)
        self.path = directory / f"{name}.jsonl"
        self.options = {"registry": str(write_registry(directory / "registry.jsonl")), "app_hash": mode}
        blocks = comet.linked(self.chain, Shard(REGISTRY, mode), seed, random.Random(seed))
        self.lines = [json.dumps(block) for block in blocks]
        self.path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        shard = Shard(REGISTRY, mode)
        self.finalized: list[Finalized] = []
        self.streams: list[dict[bytes, StreamState]] = [{}]
        for height, sent in enumerate(self.chain, start=1):
            self.finalized.append(shard.run(height, sent))
            self.streams.append(dict(shard.streams))


def run(lake: Lake, chains: Sequence[str], max_blocks: int | None = None, stages: Sequence[str] = STAGES) -> None:
    for stage in stages:
        done = lake.run_stage(stage, chains=chains, max_blocks=max_blocks)
        assert set(done["status"]) <= {"ok"}, list(done["error"])


def streams_at(lake: Lake, chain: str, height: int | None = None) -> dict[bytes, StreamState]:
    rows = lake.table("silver.streams", chain=chain, height=height).drop("chain").collect()
    found = [StreamState(bytes(row["stream_id"]), bytes(row["last_miniblock_hash"]), *_rest(row)) for row in rows]
    return {one.stream_id: one for one in found}


def _rest(row: Any) -> tuple[Any, ...]:
    fields = ("replication_factor", "sealed", "created_height", "updated_height")
    return (row["last_miniblock_num"], tuple(row["nodes"]), *(row[name] for name in fields))


def tree_at(lake: Lake, chain: str) -> set[tuple[Any, ...]]:
    rows = lake.table("silver.shard_tree", chain=chain).select("prefix", "leaves", "hash", "key").collect()
    return {(row[0], row[1], bytes(row[2]), row[3] and bytes(row[3])) for row in rows}


def expected_tree(streams: dict[bytes, StreamState]) -> set[tuple[Any, ...]]:
    shard = Shard(REGISTRY)
    updates = [shard._update(one, 1) for one in streams.values()]
    return {tuple(node[1:]) for node in Tree().fold(Update(*one) for one in updates).nodes}


def roots_of(lake: Lake, chain: str) -> list[tuple[int, bytes, int]]:
    rows = lake.table("silver.shard_roots", chain=chain).select("height", "app_hash", "stream_count").collect()
    return sorted((row[0], bytes(row[1]), row[2]) for row in rows)


def expected_roots(source: Source, height: int) -> list[tuple[int, bytes, int]]:
    return [(h, source.finalized[h - 1].app_hash, len(source.streams[h])) for h in range(1, height + 1)]


def check_results(lake: Lake, chain: str, source: Source) -> None:
    results = [result for one in source.finalized for result in one.block.results]
    rows = lake.table("silver.shard_tx_results", chain=chain).select("height", "tx_index", "code", "log", "message").collect()
    assert sorted(map(tuple, rows)) == [(r.height, r.tx_index, int(r.code), r.log, r.message) for r in results]
    events = lake.table("silver.shard_events", chain=chain).collect()
    found = [
        (e["height"], e["tx_index"], e["event_index"], e["type"], tuple((a["key"], a["value"]) for a in e["attributes"]))
        for e in events
    ]
    assert sorted(found) == [(r.height, r.tx_index, n, *event) for r in results for n, event in enumerate(r.events)]


def check_placement(lake: Lake, chain: str, streams: dict[bytes, StreamState]) -> None:
    rows = lake.table("gold.streams_by_node", chain=chain).collect()
    found = {(row["permanent_index"], bytes(row["stream_id"]), row["position"], row["replication_factor"]) for row in rows}
    assert len(found) == len(rows)
    assert found == {
        (node, one.stream_id, place, one.replication_factor) for one in streams.values() for place, node in enumerate(one.nodes)
    }
    assert {bytes(row["address"]) for row in rows} == {REGISTRY.address_of(row["permanent_index"]) for row in rows}


def reported(source: Source, wrong: int) -> list[dict[str, Any]]:
    """What the chain says of its blocks in /block_results; of one block something else than the truth."""
    found = []
    for one in source.finalized:
        results = [
            {
                "code": int(result.code),
                "log": result.log,
                "codespace": "towns",
                "events": [
                    {"type": event.type, "attributes": [{"key": key, "value": value} for key, value in event.attributes]}
                    for event in result.events
                ],
            }
            for result in one.block.results
        ]
        if one.block.height == wrong:
            results[0] = {**results[0], "code": 77}
        app_hash = base64.b64encode(one.app_hash).decode()
        found.append({"height": str(one.block.height), "txs_results": results or None, "app_hash": app_hash})
    return found


def tables_of(lake: Lake, chain: str) -> dict[str, list[Any]]:
    """Everything that silver and gold hold of a chain, after-images included."""
    found = {}
    for stage in STAGES:
        for name in lake.stages.get(stage).tables:
            rows = lake.history(name, chain=chain).drop("_chain", "_commit").collect()
            found[name] = sorted(map(repr, rows))
    return found


def test_many_chains_in_one_lane_equal_shards_run_block_by_block(full_lake: Lake, home: Home, chain: str, tmp_path: Path) -> None:
    one, two = Source(tmp_path, "one", 5, 12), Source(tmp_path, "two", 6, 7, "placeholder")
    liar = Source(tmp_path, "liar", 7, 6)
    liar.lines[4] = liar.lines[4].replace(liar.finalized[3].app_hash.hex().upper(), "AB" * 32)
    liar.path.write_text("\n".join(liar.lines) + "\n", encoding="utf-8")
    results = tmp_path / "results.json"
    results.write_text(json.dumps(reported(two, wrong=3)), encoding="utf-8")
    names = {f"{chain}-one": one, f"{chain}-two": two, f"{chain}-liar": liar}
    for name, source in names.items():
        options = {**source.options, **({"results": str(results)} if source is two else {})}
        full_lake.ingest(name, "comet", str(source.path), options)
    replica = f"{chain}-replica"
    full_lake.ingest(replica, "comet", str(one.path), one.options)

    first, second, broken = names
    run(full_lake, list(names), max_blocks=5, stages=STAGES[:1])
    done = full_lake.run_stage("silver.shards", chains=list(names), max_blocks=5)
    assert dict(zip(done["chain"], done["status"], strict=True)) == {first: "ok", second: "ok", broken: "degraded"}
    assert "the header of block 5 says that block 4 left" in "".join(done["error"])
    run(full_lake, [first, second], max_blocks=5, stages=STAGES[2:])
    ledger = full_lake.ledger.read(["silver.shards"])
    ids = [[c.commit_id for c in ledger.of("silver.shards", name).commits] for name in (first, second)]
    assert ids[1] == ids[0][:2], "both chains are in the same commits"
    prefix = full_lake.namespace.prefix
    for name, source in ((first, one), (second, two)):
        count = len(source.chain)
        assert streams_at(full_lake, name, 6) == source.streams[6]
        assert tree_at(full_lake, name) == expected_tree(source.streams[-1])
        assert roots_of(full_lake, name) == expected_roots(source, count)
        check_results(full_lake, name, source)
        check_placement(full_lake, name, source.streams[-1])
        check_reader(ShardReader(home.path, name, prefix=prefix), source, count)
        head = ledger.of("silver.shards", name).head()
        assert head is not None and head.roots == {"state": source.finalized[-1].state_root}
    differences = full_lake.table("silver.shard_differences").collect()
    found = [tuple(row) for row in differences if row["chain"].startswith(chain)]
    assert [row[:5] for row in found] == [(second, 3, 0, None, "code")] and found[0][6] == "77"
    findings = [f.what for f in verify(full_lake, "silver.shards") if chain in f.what]
    assert findings == [f"1 times the chain {second} reported another code than ours: see silver.shard_differences"]
    assert [f.what for f in verify(full_lake, "gold.shards") if chain in f.what] == []

    run(full_lake, [replica])
    assert tables_of(full_lake, replica) == tables_of(full_lake, first), "batches do not matter"

    reader = ShardReader(home.path, first, prefix=prefix)
    for height in (11, 8, 5, 1):
        full_lake.rollback("silver.shards", first, height, why="a test")
        check_reader(reader, one, height)
    check_placement(full_lake, first, one.streams[1])
    run(full_lake, [first], max_blocks=7, stages=STAGES[1:])
    check_reader(reader, one, 12)
    assert tables_of(full_lake, replica) == tables_of(full_lake, first), "a chain that went back comes to the same"

    stream_id = reader.streams()[0].stream_id
    rows = query(full_lake, f"SELECT * FROM prove_stream('{first}', '{stream_id.hex()}', 12)").collect()
    proof = Proof.from_bytes(bytes(rows[0]["proof"]))
    assert prove.verify(one.finalized[-1].state_root, stream_id, bytes(rows[0]["value"]), proof)


def check_reader(reader: ShardReader, source: Source, height: int) -> None:
    """The reader without Spark agrees, at the head and below it."""
    assert reader.root() == (height, *source.finalized[height - 1][3:1:-1], len(source.streams[height]))
    for at in range(1, height + 1):
        assert {one.stream_id: one for one in reader.streams(at)} == source.streams[at]
    for stream_id in [*list(source.streams[height])[:5], bytes(32)]:
        proven = reader.prove(stream_id, height)
        assert prove.verify(source.finalized[height - 1].state_root, stream_id, proven.value, proven.proof)
        assert (proven.value is not None) == (stream_id in source.streams[height])


def test_a_registry_that_changes_the_past_stops_the_chain(full_lake: Lake, chain: str, tmp_path: Path) -> None:
    source = Source(tmp_path, "one", 9, 6)
    full_lake.ingest(chain, "comet", str(source.path), source.options)
    run(full_lake, [chain], stages=STAGES[:1])
    assert list(full_lake.run_stage("silver.shards", chains=chain, to_height=3)["status"]) == ["ok"]
    lines = (tmp_path / "registry.jsonl").read_text().splitlines()
    (tmp_path / "registry.jsonl").write_text("\n".join(lines[1:]) + "\n", encoding="utf-8")
    done = full_lake.run_stage("silver.shards", chains=chain)
    assert list(done["status"]) == ["degraded"] and "was in the registry" in done["error"][0]


def test_a_snapshot_begins_another_chain_that_comes_to_the_same(
    full_lake: Lake, home: Home, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, file = Source(tmp_path, "one", 12, 8), tmp_path / "shard.snapshot"
    full_lake.ingest(chain, "comet", str(source.path), source.options)
    run(full_lake, [chain], stages=STAGES[:2])
    monkeypatch.setenv("LAKE_PREFIX", full_lake.namespace.prefix)
    at = ["--home", str(home.path)]
    assert main(["snapshot", "export", chain, str(file), "--height", "5", *at]) == 0
    rest = tmp_path / "rest.jsonl"
    rest.write_text("\n".join(source.lines[5:]) + "\n", encoding="utf-8")
    options = ["--from", str(rest), "--option", f"registry={source.options['registry']}"]
    good = file.read_bytes()
    for bad in (good[:-3], good[:-1] + bytes([good[-1] ^ 1]), b"nothing"):
        file.write_bytes(bad)
        assert main(["snapshot", "import", str(file), "--chain", f"{chain}-new", *options, *at]) in (1, 2)
    file.write_bytes(good)
    assert main(["snapshot", "import", str(file), "--chain", f"{chain}-new", "--root", "0x" + "11" * 32, *options, *at]) == 1
    assert main(["snapshot", "import", str(file), "--chain", f"{chain}-new", *options, *at]) == 0
    assert main(["snapshot", "import", str(file), "--chain", chain, *options, *at]) == 2
    reader = ShardReader(home.path, f"{chain}-new", prefix=full_lake.namespace.prefix)
    assert {one.stream_id: one for one in reader.streams(5)} == source.streams[5]
    assert reader.root().state_root == source.finalized[4].state_root
    run(full_lake, [f"{chain}-new"], stages=("raw.shards", *STAGES))
    assert {one.stream_id: one for one in reader.streams()} == source.streams[8]
    assert [reader.root(h).state_root for h in (6, 7, 8)] == [source.finalized[h - 1].state_root for h in (6, 7, 8)]
    assert shard_problems(full_lake, f"{chain}-new") == []


RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data" / "cometbft" / "sample_md"


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"the recorded blocks are not at {RECORDED}")
def test_recorded_blocks_of_a_real_node_run_through_the_lake(full_lake: Lake, home: Home, chain: str, tmp_path: Path) -> None:
    registry = tmp_path / "registry.jsonl"
    row = {"address": "0x" + "01" * 20, "permanent_index": 1, "from_height": 1}
    registry.write_text(json.dumps(row) + "\n", encoding="utf-8")
    results = str(RECORDED / "block_results.json")
    options = {"registry": str(registry), "app_hash": "placeholder", "results": results}
    full_lake.ingest(chain, "comet", str(RECORDED / "blocks.json"), options)
    run(full_lake, [chain])
    reader = ShardReader(home.path, chain, prefix=full_lake.namespace.prefix)
    assert reader.root()[:2] == (121, placeholder_app_hash(121)) and reader.root().stream_count == 6
    assert [one.last_miniblock_num for one in sorted(reader.streams(), key=lambda s: s.created_height)] == [1, 0, 0, 0, 0, 0]
    rows = full_lake.table("silver.shard_differences", chain=chain).select("height", "what").collect()
    assert [tuple(row) for row in rows] == [(121, "event")]
