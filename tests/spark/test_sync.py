"""Streams from nodes to notifications: what Spark delivers is what the pure rules deliver, whatever the servers did."""

import os
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
from chainlake.errors import BadInput, Unavailable
from chainlake.lake import Lake
from chainlake.lake.home import Home
from chainlake.lake.verify import verify
from chainlake.sync.service import Refused
from tests.unit.sync_model import Synced

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
        """The lake holds what the rules say, and `lake verify` finds nothing."""
        assert self.notes() == {stream_id: model.notes for stream_id, model in self.models.items()}
        states = {bytes(row["stream_id"]): row for row in self.lake.table("gold.stream_sync_state", chain=self.chain).collect()}
        for stream_id, model in self.models.items():
            if model.state is not None:
                held = {name: states[stream_id][name] for name in model.state.__slots__}
                assert held == {name: getattr(model.state, name) for name in model.state.__slots__}
        assert [f.what for stage in STAGES for f in verify(self.lake, stage) if self.chain in f.what] == []

    def count(self, table: str) -> int:
        return self.lake.history(table, chain=self.chain).count()


@pytest.fixture
def lab(full_lake: Lake, chain: str, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(full_lake, chain, tmp_path)
    yield made
    for server in made.servers:
        server.stop()


def test_every_case_at_once_against_live_nodes(lab: Lab) -> None:
    ids, node = lab.ids, lab.node
    lab.follow()
    lab.run()
    lab.model()
    lab.compare()
    before = {table: lab.count(table) for table in TABLES}
    lab.run()
    assert {table: lab.count(table) for table in TABLES} == before, "nothing new writes nothing"

    node.back_up()
    node.grow(ids["a"], 1)
    node.grow(ids["b"], 20, minipool=2)
    for name in ("c", "rewound"):
        node.grow(ids[name], 1)
    node.grow(ids["minipool"], 0, minipool=2)
    lab.servers[0].failing = 3
    lab.run()
    lab.model()
    lab.compare()

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
    node.streams[ids["minipool"]].make_miniblock()
    gone = node.streams.pop(ids["gone"])
    done = lab.lake.run_stage("raw.sync", chains=lab.chain)
    assert done["status"][0] == "ok" and "1 of 10 streams could not be had" in done["error"][0]
    lab.run()
    lab.model()
    lab.compare()
    cases = {name: lab.models[ids[name]].cases[-1] for name in CASES}
    assert cases["c"] == "behind" and cases["rewound"] == "rewound" and cases["recreated"] == "recreated"
    gaps = lab.lake.table("gold.sync_gaps", chain=lab.chain).collect()
    assert [(bytes(g["stream_id"]), g["from_miniblock"], g["to_miniblock"], g["reason"]) for g in gaps] == [
        (ids["trimmed"], 13, 24, "trimmed")
    ]
    bad = lab.lake.table("gold.sync_quarantine", chain=lab.chain).collect()
    assert [(bytes(b["stream_id"]), b["miniblock_num"]) for b in bad] == [(ids["damaged"], 14)]
    assert "does not have the hash" in bad[0]["reason"]

    node.streams[ids["gone"]] = gone
    lab.servers[0].control("mend", {})
    lab.servers[1].failing = 2
    lab.run()
    lab.model()
    lab.compare()
    writes = lab.count("gold.stream_sync_state")
    assert writes == sum(model.writes for model in lab.models.values()), "no state row more than the rules ask for"

    notes = lab.notes()
    lab.lake.rollback("raw.sync", lab.chain, 1, why="a test")
    assert sum(map(len, lab.notes().values())) < sum(map(len, notes.values()))
    lab.run()
    again = lab.notes()
    for name in ("a", "b", "damaged", "gone", "still"):
        assert [note[2] for note in again[ids[name]]] == [note[2] for note in notes[ids[name]]], name
