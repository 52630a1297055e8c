"""Streams from nodes to notifications: what Spark delivers is what the pure rules deliver, whatever the servers did."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from chainlake.demo import river
from chainlake.demo.river_node import StreamNode
from chainlake.demo.river_server import RiverServer
from chainlake.errors import Unavailable
from chainlake.lake import Lake
from chainlake.lake.home import Home
from chainlake.lake.verify import verify
from chainlake.serve.embedded import EmbeddedLake
from chainlake.sync import stages
from chainlake.sync.checks import delivery_problems
from chainlake.sync.feed import Feed
from chainlake.sync.miniblock import open_miniblock
from chainlake.sync.passes import PassRun
from chainlake.sync.service import Refused
from tests.unit.sync_model import Held, Synced

STAGES = ("raw.sync", "bronze.sync", "gold.sync")
CASES = ("a", "b", "c", "rewound", "recreated", "trimmed", "damaged", "minipool", "still", "gone")
TABLES = ("raw.blocks", "gold.stream_sync_state", "gold.notifications")


class Lab:
    """Two nodes over the same streams, a lake that follows them, and the pure rules beside it."""

    def __init__(self, lake: Lake, chain: str, folder: Path, **options: str) -> None:
        self.lake, self.chain = lake, chain
        self.node = StreamNode(len(CASES), page_limit=6)
        self.ids = dict(zip(CASES, sorted(self.node.streams), strict=True))
        self.models = {stream_id: Synced() for stream_id in self.ids.values()}
        for stream_id in self.ids.values():
            self.node.grow(stream_id, 12)
        self.servers = [RiverServer(self.node).start() for _ in range(2)]
        streams = folder / "streams.txt"
        streams.write_text("".join(f"{stream_id.hex()}\n" for stream_id in self.ids.values()))
        self.source = ",".join(server.url for server in self.servers)
        self.options = {"streams": str(streams), "timeout": "5", "retries": "1", **options}

    def follow(self) -> Any:
        return self.lake.ingest(self.chain, "river", self.source, self.options)

    def run(self) -> None:
        for stage in STAGES:
            self.lake.run_stage(stage, chains=self.chain)

    def model(self) -> None:
        for stream_id, model in self.models.items():
            try:
                model.sync(self.node, stream_id)
            except Refused:
                assert stream_id == self.ids["gone"]

    def notes(self) -> dict[bytes, list[tuple[Any, ...]]]:
        rows = self.lake.table("gold.notifications", chain=self.chain).orderBy("offset").collect()
        assert [row["offset"] for row in rows] == list(range(1, len(rows) + 1))
        found: dict[bytes, list[tuple[Any, ...]]] = {stream_id: [] for stream_id in self.ids.values()}
        for row in rows:
            values = (row["miniblock_num"], row["event_index"], bytes(row["event_hash"]), row["historical"], row["duplicate"])
            found[bytes(row["stream_id"])].append(values)
        return found

    def compare(self) -> None:
        """The lake holds what the rules say, and its checks find nothing."""
        assert self.notes() == {stream_id: model.notes for stream_id, model in self.models.items()}
        states = {bytes(row["stream_id"]): row for row in self.lake.table("gold.stream_sync_state", chain=self.chain).collect()}
        for stream_id, model in self.models.items():
            if model.state is not None:
                held = {name: states[stream_id][name] for name in model.state.__slots__}
                assert held == {name: getattr(model.state, name) for name in model.state.__slots__}
        assert delivery_problems(self.lake, self.chain) == []

    def count(self, table: str) -> int:
        return self.lake.history(table, chain=self.chain).count()


@pytest.fixture
def lab(full_lake: Lake, chain: str, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(full_lake, chain, tmp_path)
    yield made
    for server in made.servers:
        server.stop()


def test_recordings_are_delivered_like_live_streams(
    full_lake: Lake, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    river.write(tmp_path / "a", 6)
    full_lake.ingest(chain, "river", str(tmp_path / "a"))
    for stage in STAGES[1:]:
        full_lake.run_stage(stage, chains=chain, max_blocks=4)
    streams = {stream.stream_id: stream for stream in demo_streams(6)}
    assert len(streams) == river.STREAMS
    notes = full_lake.table("gold.notifications", chain=chain).orderBy("offset").collect()
    for stream_id, stream in streams.items():
        found = [bytes(row["event_hash"]) for row in notes if bytes(row["stream_id"]) == stream_id]
        known = [event.hash for one in stream.miniblocks for event in open_miniblock(one.raw).events]
        known += [envelope[2:34] for envelope in stream.minipool]
        assert found == known[len(known) - len(found) :] and len(found) == len(set(found)) > 5
    assert full_lake.table("gold.sync_gaps", chain=chain).count() == 0
    full_lake.rollback("bronze.sync", chain, 3, why="a test")
    monkeypatch.setattr("chainlake.sync.stages.FEW", 0)  # as if the batch were large
    for stage in STAGES[1:]:
        full_lake.run_stage(stage, chains=chain)
    assert full_lake.table("gold.notifications", chain=chain).orderBy("offset").collect() == notes
    assert [f.what for stage in STAGES for f in verify(full_lake, stage) if chain in f.what] == []


def test_a_chain_goes_on_from_nodes_where_its_recordings_end(full_lake: Lake, chain: str, tmp_path: Path) -> None:
    node = StreamNode(4, page_limit=4)
    node.earlier = 5
    damaged, gone_back, _still, grown = ids = list(node.streams)
    for stream_id in ids:
        node.grow(stream_id, 11, minipool=1)
    record(node, tmp_path / "a" / "1")
    server, streams = RiverServer(node).start(), tmp_path / "streams.txt"
    streams.write_text("".join(f"{stream_id.hex()}\n" for stream_id in ids))
    node.back_up()
    for stream_id in (damaged, gone_back):
        node.grow(stream_id, 6)
    server.control("damage", {"stream": damaged.hex(), "miniblock": 14})
    record(node, tmp_path / "a" / "2")
    full_lake.ingest(chain, "river", str(tmp_path / "a"))
    node.streams[gone_back] = node._backup[gone_back]  # type: ignore[index]
    node.streams[gone_back].rng = random.Random("another way")
    for stream_id in (gone_back, grown):
        node.grow(stream_id, 30, minipool=1)
    server.control("mend", {})
    try:
        full_lake.add_chain(chain, "river", server.url, {"streams": str(streams), "page_size": "4", "retries": "0"})
        for stage in STAGES:
            full_lake.run_stage(stage, chains=chain)
        rows = full_lake.table("gold.notifications", chain=chain).orderBy("offset").collect()
        for stream_id in ids:
            came = [bytes(row["event_hash"]) for row in rows if bytes(row["stream_id"]) == stream_id]
            events = [event.hash for one in node.streams[stream_id].miniblocks[10:] for event in open_miniblock(one.raw).events]
            events += [envelope[2:34] for envelope in node.streams[stream_id].minipool]
            assert [one for one in came if one in events] == events and len(set(came)) == len(came), ids.index(stream_id)
        assert full_lake.table("gold.sync_gaps", chain=chain).count() == 0
        states = {bytes(row["stream_id"]): row for row in full_lake.table("gold.stream_sync_state", chain=chain).collect()}
        assert [states[one]["minipool_gen"] for one in ids] == [len(node.streams[one].miniblocks) for one in ids]
        assert [states[one]["reset_reason"] for one in ids] == [None, "rewound", None, None]
        assert {row["stopped"] for row in states.values()} == {None} and delivery_problems(full_lake, chain) == []
        brought = full_lake.table("gold.sync_passes", chain=chain).orderBy("height").collect()
        assert len(brought) == 3 and brought[2]["streams"] == 3, "a stream that stands where its recording ended brings nothing"
        for stream_id in ids:
            node.grow(stream_id, 2)
        record(node, tmp_path / "b" / "4")
        full_lake.ingest(chain, "river", str(tmp_path / "b"))
        node.grow(grown, 20)
        full_lake.add_chain(chain, "river", server.url, {"streams": str(streams)})
        for stage in STAGES:
            full_lake.run_stage(stage, chains=chain)
        rows = full_lake.table("gold.notifications", chain=chain).orderBy("offset").collect()
        events = [event.hash for one in node.streams[grown].miniblocks[10:] for event in open_miniblock(one.raw).events]
        assert [bytes(row["event_hash"]) for row in rows if bytes(row["stream_id"]) == grown] == events
        assert full_lake.table("gold.sync_gaps", chain=chain).count() == 0 and delivery_problems(full_lake, chain) == []
    finally:
        server.stop()


def test_an_unsound_event_of_a_minipool_is_quarantined_alone_and_comes_with_its_miniblock(
    full_lake: Lake, chain: str, tmp_path: Path
) -> None:
    node = StreamNode(2)
    bad, good = node.streams
    for stream_id in node.streams:
        node.grow(stream_id, 2, minipool=2)
    events = {stream_id: [one[2:34] for one in stream.minipool] for stream_id, stream in node.streams.items()}
    record(node, tmp_path / "a" / "1")
    answer = tmp_path / "a" / "1" / f"{bad.hex()}.bin"
    answer.write_bytes(answer.read_bytes().replace(b"message", b"massage", 1))
    full_lake.ingest(chain, "river", str(tmp_path / "a"))
    for stage in STAGES[1:]:
        full_lake.run_stage(stage, chains=chain)
    (held,) = full_lake.table("gold.sync_quarantine", chain=chain).collect()
    assert (bytes(held["stream_id"]), held["tx_index"], held["event_index"], bytes(held["hash"])) == (bad, -1, 0, events[bad][0])
    pools = full_lake.table("gold.notifications", chain=chain).filter("minipool").orderBy("offset").collect()
    assert {bytes(row["event_hash"]) for row in pools} == {events[bad][1], *events[good]}
    assert full_lake.table("gold.stream_sync_state", chain=chain).filter("stopped IS NOT NULL").count() == 0
    for stream in node.streams.values():
        stream.make_miniblock()
    record(node, tmp_path / "a" / "2")
    for stage in STAGES:
        full_lake.run_stage(stage, chains=chain)
    notes = full_lake.table("gold.notifications", chain=chain).orderBy("offset").collect()
    assert [bytes(row["event_hash"]) for row in notes[len(notes) - 1 :]] == [events[bad][0]], "the one that was still missing"
    assert delivery_problems(full_lake, chain) == []


def record(node: StreamNode, folder: Path) -> None:
    """A pass over all streams of a node."""
    folder.mkdir(parents=True)
    for stream_id in node.streams:
        (folder / f"{stream_id.hex()}.bin").write_bytes(node.answer(stream_id))


def test_every_case_at_once_against_live_nodes(lab: Lab, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, node = lab.ids, lab.node
    lab.follow()
    lab.model()
    node.back_up()
    for name in ("c", "rewound"):
        node.grow(ids[name], 1)
    node.grow(ids["a"], 1)
    node.grow(ids["b"], 20, minipool=2)
    node.grow(ids["minipool"], 0, minipool=2)
    lab.servers[0].failing = 3
    lab.run()
    lab.model()
    lab.compare()
    before = {table: lab.count(table) for table in TABLES}
    lab.lake.run_stage("raw.sync", chains=lab.chain)
    assert {table: lab.count(table) for table in TABLES} == before, "nothing new writes nothing"

    kept = {name: node.streams[ids[name]] for name in CASES}
    node.restore()
    node.streams |= {ids[name]: kept[name] for name in CASES if name not in ("c", "rewound")}
    node.grow(ids["rewound"], 9)
    node.create(ids["recreated"])
    node.grow(ids["recreated"], 15)
    node.grow(ids["trimmed"], 30)
    node.streams[ids["trimmed"]].trim(24)
    node.grow(ids["damaged"], 3)
    lab.servers[0].control("damage", {"stream": ids["damaged"].hex(), "miniblock": 14})
    node.grow(ids["a"], 1)
    lab.servers[0].control("damage", {"stream": ids["a"].hex(), "miniblock": 13})
    node.streams[ids["minipool"]].make_miniblock()
    gone = node.streams.pop(ids["gone"])
    done = lab.lake.run_stage("raw.sync", chains=lab.chain)
    assert done["status"][0] == "ok" and "1 of 10 streams could not be had" in done["error"][0]
    assert "3 streams no longer follow what was seen of them" in done["error"][0]
    lab.model()
    cases = {name: lab.models[ids[name]].cases[-1] for name in CASES}
    assert cases["c"] == "behind" and cases["rewound"] == "rewound" and cases["recreated"] == "recreated"
    node.streams[ids["gone"]] = gone
    lab.servers[0].control("mend", {})
    lab.servers[1].failing = 2
    lab.run()
    lab.model()
    lab.compare()
    gaps = lab.lake.table("gold.sync_gaps", chain=lab.chain).collect()
    assert [(bytes(g["stream_id"]), g["from_miniblock"], g["to_miniblock"], g["reason"]) for g in gaps] == [
        (ids["trimmed"], 13, 24, "trimmed")
    ]
    bad = lab.lake.table("gold.sync_quarantine", chain=lab.chain).collect()
    assert {(bytes(b["stream_id"]), b["miniblock_num"]) for b in bad} == {(ids["damaged"], 14), (ids["a"], 13)}
    assert all("does not have the hash" in b["reason"] for b in bad) and len(bad) == 2
    writes = lab.count("gold.stream_sync_state")
    assert writes == sum(model.writes for model in lab.models.values()), "no state row more than the rules ask for"

    feed = Feed(EmbeddedLake(home.path, lab.lake.namespace.prefix), lab.chain)
    read, offset = [], 0
    while page := feed.after(offset, 7):
        read, offset = read + page, page[-1].offset
    assert read == lab.lake.notifications(1, 10_000, lab.chain) and read[3:5] == lab.lake.notifications(4, 2, lab.chain)
    assert len(read) == sum(len(model.notes) for model in lab.models.values())
    monkeypatch.setattr("chainlake.sync.query.MOST_BYTES", 1)
    assert lab.lake.notifications(4, 5, lab.chain) == read[3:4], "large ones come one by one"


def test_what_comes_when_our_history_is_gone_is_flagged_and_all_of_it_comes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    stream_id = lab.ids["rewound"]
    lab.follow()
    lab.model()
    lab.node.back_up()
    lab.node.grow(stream_id, 6)
    lab.run()
    lab.model()
    lab.compare()
    before = len(lab.models[stream_id].notes)
    remembered = stages.streams_of
    forgotten = "filter(ours, one -> false)"
    monkeypatch.setattr(stages, "streams_of", lambda batch: remembered(batch).withColumn("ours", F.expr(forgotten)))
    monkeypatch.setattr(PassRun, "_held_hashes", lambda run, hashes: set())
    monkeypatch.setattr(Synced, "_in_raw", lambda model, hashes: set())
    for model in lab.models.values():
        model.history = Held()
    lab.node.restore()
    lab.node.grow(stream_id, 9)
    lab.run()
    lab.model()
    lab.compare()
    notes = lab.models[stream_id].notes
    assert lab.models[stream_id].cases == ["first", "follows", "duplicate"]
    assert len(notes) - before == 2 * 21 and all(note[4] for note in notes[before:]), "from the genesis on"
    assert {note[2] for note in notes[:before]} & {note[2] for note in notes[before:]}, "what was delivered comes again"


def test_what_came_flagged_does_not_come_again_without_in_one_batch_or_in_two(
    full_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = "_chain string, _height bigint, stream_id binary, minipool boolean, tx_index int, event_index int"
    rows = [("c", 1, b"s", False, 0, 0, b"e", True, True), ("c", 2, b"s", True, -1, 0, b"e", False, False)]
    due = full_lake.spark.createDataFrame(rows, f"{kinds}, event_hash binary, historical boolean, duplicate boolean")
    batch: Any = None
    monkeypatch.setattr(stages, "_ever", lambda _: due.limit(0))
    assert [row["duplicate"] for row in stages._unseen(batch, due).collect()] == [True]
    monkeypatch.setattr(stages, "_ever", lambda _: due.filter("duplicate"))
    assert [row["duplicate"] for row in stages._unseen(batch, due).collect()] == [True]
    assert stages._unseen(batch, due.filter("NOT duplicate")).collect() == []


KILLED = """
import os, sys
from chainlake.lake import open_lake
home, prefix, chain, stage, failpoint = sys.argv[1:]
lake = open_lake(home, schema_prefix=prefix)
os.environ["LAKE_FAILPOINT"] = failpoint
lake.run_stage(stage, chains=chain)
"""
POINTS = (
    ("raw.sync", "after_append:2"),
    ("raw.sync", "before_ledger"),
    ("raw.sync", "after_ledger:2"),
    ("bronze.sync", "before_ledger"),
    ("bronze.sync", "after_ledger"),
    ("gold.sync", "after_append:3"),
    ("gold.sync", "before_ledger"),
    ("gold.sync", "after_ledger"),
)
"""A stage that a process runs, and where it is killed: with some tables written, with all of them, and right after the commit.
What was killed is left for the next one to find, so each stage has something to do."""


def test_killed_at_every_step_of_a_recovery_and_still_each_event_comes_once(
    full_lake: Lake, home: Home, chain: str, tmp_path: Path
) -> None:
    lab = Lab(full_lake, chain, tmp_path, max_gap_commit="40", page_size="5")
    try:
        lab.follow()
        lab.run()
        first = {stream_id: stream.snapshot for stream_id, stream in lab.node.streams.items()}
        for number, (stage, failpoint) in enumerate(POINTS):
            for stream_id in lab.ids.values():
                lab.node.grow(stream_id, 11 if number == 0 else 1, minipool=1)
            command = [sys.executable, "-c", KILLED, str(home.path), full_lake.namespace.prefix, chain, stage, failpoint]
            ended = subprocess.run(command, capture_output=True, timeout=400, check=False)
            assert ended.returncode == -9, (stage, failpoint, ended.stderr[-500:])
        lab.run()
        notes = lab.notes()
        for stream_id, stream in lab.node.streams.items():
            blocks = [open_miniblock(one.raw) for one in stream.miniblocks[first[stream_id] :]]
            expected = [event.hash for block in blocks for event in block.events]
            assert [note[2] for note in notes[stream_id]] == [*expected, *(one[2:34] for one in stream.minipool)]
        sizes = full_lake.table("raw.transactions", chain=chain).groupBy("height").count().collect()
        assert len(sizes) > 3 and max(row["count"] for row in sizes[1:]) <= 200
        assert delivery_problems(full_lake, chain) == []
    finally:
        for server in lab.servers:
            server.stop()
    with pytest.raises(Unavailable, match=r"no stream of .* can be had"):
        full_lake.run_stage("raw.sync", chains=chain)


def demo_streams(count: int) -> list[river.Stream]:
    """The streams behind the demo recordings, as they are after the last pass."""
    made: list[river.Stream] = []
    original = river.Stream

    class Seen(original):  # type: ignore[misc, valid-type]
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            made.append(self)

    river.Stream = Seen  # type: ignore[misc]
    try:
        list(river.blocks(count))
    finally:
        river.Stream = original  # type: ignore[misc]
    return made
