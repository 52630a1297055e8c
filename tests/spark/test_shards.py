"""Metadata shards from files to roots: what Spark makes of many chains at once is what each shard does block by block."""

import base64
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chainlake.bench.shards_floor import copy_seconds
from chainlake.cli.main import main
from chainlake.demo import comet
from chainlake.lake import Lake
from chainlake.lake.compaction import rebuild
from chainlake.lake.home import Home
from chainlake.lake.names import physical
from chainlake.lake.sql import query
from chainlake.lake.stage import Batch
from chainlake.merkle import smt as prove
from chainlake.merkle.smt import Proof
from chainlake.raw import many
from chainlake.serve.embedded import EmbeddedLake, LedgerReader
from chainlake.serve.state_rows import KeyedRows
from chainlake.serve.visible import Limits
from chainlake.shards.machine import Finalized, Shard
from chainlake.shards.reader import ShardReader
from chainlake.shards.stages import shard_stages
from chainlake.shards.state import StreamState, placeholder_app_hash
from chainlake.shards.verify import placement_problems, shard_problems
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


class Tables:
    """The visible rows of a chain, read from files: a test asks for many tables, and Spark takes its time with each."""

    def __init__(self, lake: Lake, home: Home, chain: str) -> None:
        self._lake = EmbeddedLake(home.path, lake.namespace.prefix)
        self._chain, self._catalog = chain, lake.catalog
        self._ledger = LedgerReader(self._lake, chain, STAGES)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All visible rows, after-images included, with `_height` and without what tells one attempt from another."""
        self._ledger.refresh()
        table = self._catalog.table(name)
        visible = self._ledger.view.of(table.stages[0], self._chain).visible()
        keyed = KeyedRows(self._lake, name, "_height", [column.name for column in table.stored])
        found = keyed.read(self._chain, Limits({v.commit.commit_id: v.limit for v in visible}))
        rows = [row for part in found for row in part.drop_columns(["_chain", "_commit"]).to_pylist()]
        return sorted(rows, key=repr)

    def all(self) -> dict[str, list[dict[str, Any]]]:
        return {name: self.rows(name) for stage in shard_stages() for name in stage.tables}


def newest(rows: list[dict[str, Any]], key: tuple[str, ...]) -> list[dict[str, Any]]:
    """The state that after-images add up to."""
    found = {tuple(row[name] for name in key): row for row in sorted(rows, key=lambda row: row["_height"])}
    return [row for row in found.values() if not row["_deleted"]]


def check_tables(tables: Tables, source: Source) -> None:
    """Tree, roots, results, events and placement are those of the shard run in order."""
    streams, results = source.streams[-1], [result for one in source.finalized for result in one.block.results]
    tree = newest(tables.rows("silver.shard_tree"), ("prefix",))
    shard = Shard(REGISTRY, "tree", 1, streams.values())
    assert {(n["prefix"], n["leaves"], n["hash"], n["key"]) for n in tree} == {tuple(node[1:]) for node in shard.rows.values()}
    roots = [
        (row["_height"], row["app_hash"], row["state_root"], row["stream_count"]) for row in tables.rows("silver.shard_roots")
    ]
    assert sorted(roots) == [
        (one.block.height, one.app_hash, one.state_root, len(source.streams[one.block.height])) for one in source.finalized
    ]
    rows = tables.rows("silver.shard_tx_results")
    found: list[Any] = [(row["_height"], row["tx_index"], row["code"], row["log"], row["message"]) for row in rows]
    assert sorted(found) == [(r.height, r.tx_index, int(r.code), r.log, r.message) for r in results]
    found = [
        (e["_height"], e["tx_index"], e["event_index"], e["type"], tuple((a["key"], a["value"]) for a in e["attributes"]))
        for e in tables.rows("silver.shard_events")
    ]
    assert sorted(found) == [(r.height, r.tx_index, n, *event) for r in results for n, event in enumerate(r.events)]
    check_placement(tables, streams)


def check_placement(tables: Tables, streams: dict[bytes, StreamState]) -> None:
    rows = newest(tables.rows("gold.streams_by_node"), ("permanent_index", "stream_id"))
    found = {(row["permanent_index"], row["stream_id"], row["position"], row["replication_factor"]) for row in rows}
    assert found == {
        (node, one.stream_id, place, one.replication_factor) for one in streams.values() for place, node in enumerate(one.nodes)
    }
    assert all(row["address"] == REGISTRY.address_of(row["permanent_index"]) for row in rows)


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


def test_many_chains_in_one_lane_equal_shards_run_block_by_block(
    full_lake: Lake, home: Home, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Source(tmp_path, "one", 5, 12), Source(tmp_path, "two", 6, 7, "placeholder")
    liar = Source(tmp_path, "liar", 7, 6)
    liar.lines[4] = liar.lines[4].replace(liar.finalized[3].app_hash.hex().upper(), "AB" * 32)
    liar.path.write_text("\n".join(liar.lines) + "\n", encoding="utf-8")
    results = tmp_path / "results.json"
    results.write_text(json.dumps(reported(two, wrong=3)), encoding="utf-8")
    first, second, broken, replica = names = [f"{chain}-{name}" for name in ("one", "two", "liar", "replica")]
    for name, source in zip(names, (one, two, liar, one), strict=True):
        options = {**source.options, **({"results": str(results)} if source is two else {})}
        full_lake.add_chain(name, "comet", str(source.path), options)
    monkeypatch.setattr(many, "PARALLEL", 1)
    run(full_lake, names, stages=("raw.shards",))
    commits = [full_lake.ledger.read(["raw.shards"]).of("raw.shards", name).commits for name in names]
    (commit_id,) = {c.commit_id for some in commits for c in some}  # all chains are in one commit
    for table in full_lake.stages.get("raw.shards").tables:
        log = EmbeddedLake(home.path, full_lake.namespace.prefix).log(table)
        assert log.refresh() and sum(file.low["_commit"] == commit_id for file in log.files) == 1, "and in few files"

    run(full_lake, names[:3], max_blocks=5, stages=STAGES[:1])
    done = full_lake.run_stage("silver.shards", chains=names[:3], max_blocks=5)
    assert dict(zip(done["chain"], done["status"], strict=True)) == {first: "ok", second: "ok", broken: "degraded"}
    assert "the header of block 5 says that block 4 left" in "".join(done["error"])
    run(full_lake, [first, second], max_blocks=5, stages=STAGES[2:])
    prefix = full_lake.namespace.prefix
    reader = ShardReader(home.path, first, prefix=prefix)
    check_tables(Tables(full_lake, home, first), one)
    check_tables(Tables(full_lake, home, second), two)
    check_reader(reader, one, 12)
    head = full_lake.ledger.read(["silver.shards"]).of("silver.shards", first).head()
    assert head is not None and head.roots == {"state": one.finalized[-1].state_root}
    view = full_lake.table("silver.streams", chain=first, height=6).collect()
    assert {bytes(row["stream_id"]): row["updated_height"] for row in view} == {
        key: state.updated_height for key, state in one.streams[6].items()
    }
    differences = Tables(full_lake, home, second).rows("silver.shard_differences")
    assert [(row["_height"], row["tx_index"], row["what"], row["theirs"]) for row in differences] == [(3, 0, "code", "77")]
    assert shard_problems(full_lake, first) == placement_problems(full_lake, first) == []
    assert shard_problems(full_lake, second) == [
        f"1 times the chain {second} reported another code than ours: see silver.shard_differences"
    ]

    run(full_lake, [replica])
    expected = Tables(full_lake, home, replica).all()
    assert Tables(full_lake, home, first).all() == expected, "batches do not matter"
    for height in (8, 5, 1):
        full_lake.rollback("silver.shards", first, height, why="a test")
        check_reader(reader, one, height)
    check_placement(Tables(full_lake, home, first), one.streams[1])
    run(full_lake, [first], max_blocks=7, stages=STAGES[1:])
    assert Tables(full_lake, home, first).all() == expected, "a chain that went back comes to the same"

    stream_id = reader.streams()[0].stream_id
    rows = query(full_lake, f"SELECT * FROM prove_stream('{first}', '{stream_id.hex()}', 12)").collect()
    proof = Proof.from_bytes(bytes(rows[0]["proof"]))
    assert prove.verify(one.finalized[-1].state_root, stream_id, bytes(rows[0]["value"]), proof)


def test_streams_looked_up_and_streams_read_as_a_whole_come_to_the_same(
    full_lake: Lake, home: Home, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, found = Source(tmp_path, "one", 11, 6), []
    for name, held in ((f"{chain}-looked-up", 1 << 62), (f"{chain}-whole", 0)):
        monkeypatch.setattr(Batch, "versions_at_most", lambda batch, table, held=held: held)
        full_lake.ingest(name, "comet", str(source.path), source.options)
        run(full_lake, [name], max_blocks=3)
        tables = Tables(full_lake, home, name)
        check_tables(tables, source)
        found.append(tables.all())
    assert found[0] == found[1]


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
    for bad in (good[:-3], good[:-1] + bytes([good[-1] ^ 1]), good.replace(b'"log"', b'"lag"', 1), b"nothing"):
        file.write_bytes(bad)
        assert main(["snapshot", "import", str(file), "--chain", f"{chain}-new", *options, *at]) in (1, 2)
    file.write_bytes(good)
    for trusted in ("--root", "--hash"):
        assert main(["snapshot", "import", str(file), "--chain", f"{chain}-new", trusted, "0x" + "11" * 32, *options, *at]) == 1
    assert main(["snapshot", "import", str(file), "--chain", f"{chain}-new", *options, *at]) == 0
    assert main(["snapshot", "import", str(file), "--chain", chain, *options, *at]) == 2
    reader = ShardReader(home.path, f"{chain}-new", prefix=full_lake.namespace.prefix)
    assert {one.stream_id: one for one in reader.streams(5)} == source.streams[5]
    assert reader.root().state_root == source.finalized[4].state_root
    full_lake.chains.look_again()
    with full_lake.lease("silver.shards", "shards") as lease:
        assert [one.height for one in rebuild(full_lake, "silver.shards", f"{chain}-new", lease)] == [5]
    run(full_lake, [f"{chain}-new"], stages=("raw.shards", *STAGES))
    assert {one.stream_id: one for one in reader.streams()} == source.streams[8]
    assert [reader.root(h).state_root for h in (6, 7, 8)] == [source.finalized[h - 1].state_root for h in (6, 7, 8)]
    assert shard_problems(full_lake, f"{chain}-new") == placement_problems(full_lake, f"{chain}-new") == []


def test_what_spark_alone_takes_is_told_of_every_row_above_a_block(full_lake: Lake, chain: str, tmp_path: Path) -> None:
    source = Source(tmp_path, "one", 3, 4)
    full_lake.ingest(chain, "comet", str(source.path), source.options)
    run(full_lake, [chain], stages=STAGES[:1])
    assert copy_seconds(full_lake, STAGES[:1], 2, tmp_path) > 0
    for table in full_lake.stages.get(STAGES[0]).tables:
        copied = full_lake.spark.read.format("delta").load(str(tmp_path / f"delta_{physical(table)}"))
        stored = full_lake.spark.table(full_lake.namespace.store(table)).filter("_height > 2")
        assert copied.count() == stored.count() > 0
        assert copied.exceptAll(stored).isEmpty()


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
