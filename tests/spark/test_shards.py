"""Metadata shards from files to roots: what Spark makes of many chains at once is what each shard does block by block."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chainlake.demo import comet
from chainlake.lake import Lake
from chainlake.lake.verify import verify
from chainlake.merkle.smt_fold import Tree, Update
from chainlake.shards.machine import Finalized, Shard
from chainlake.shards.state import StreamState
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


def test_many_chains_in_one_lane_equal_shards_run_block_by_block(full_lake: Lake, chain: str, tmp_path: Path) -> None:
    sources = {f"{chain}-{n}": Source(tmp_path, f"s{n}", seed, count) for n, (seed, count) in enumerate([(5, 12), (6, 7)])}
    for name, source in sources.items():
        full_lake.ingest(name, "comet", str(source.path), source.options)
    run(full_lake, list(sources), max_blocks=5)
    commits = full_lake.ledger.read(["silver.shards"])
    one, two = (commits.of("silver.shards", name).commits for name in sources)
    assert [c.commit_id for c in two] == [c.commit_id for c in one[:2]], "both chains are in the same commits"
    for name, source in sources.items():
        count = len(source.chain)
        assert streams_at(full_lake, name) == source.streams[-1]
        assert streams_at(full_lake, name, 6) == source.streams[6]
        assert tree_at(full_lake, name) == expected_tree(source.streams[-1])
        assert roots_of(full_lake, name) == expected_roots(source, count)
        check_results(full_lake, name, source)
        check_placement(full_lake, name, source.streams[-1])
        head = full_lake.ledger.read(["silver.shards"]).of("silver.shards", name).head()
        assert head is not None and head.roots == {"state": source.finalized[-1].state_root}
    assert [f.what for stage in STAGES for f in verify(full_lake, stage) if chain in f.what] == []

    first, source = next(iter(sources.items()))
    full_lake.rollback("silver.shards", first, 8, why="a test")
    assert streams_at(full_lake, first) == source.streams[8] and roots_of(full_lake, first) == expected_roots(source, 8)
    assert tree_at(full_lake, first) == expected_tree(source.streams[8])
    check_placement(full_lake, first, source.streams[8])
    run(full_lake, [first], max_blocks=1, stages=STAGES[1:])
    assert streams_at(full_lake, first) == source.streams[-1] and roots_of(full_lake, first) == expected_roots(source, 12)
    check_placement(full_lake, first, source.streams[-1])
