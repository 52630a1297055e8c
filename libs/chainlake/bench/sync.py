"""Sync beside a straightforward service that keeps one row per stream in PostgreSQL: planning after a restart, passes, and gaps.

Both ask the same node over loopback, check the same hashes and keep the same notifications. The peer goes stream by stream, one
transaction each, as such services do; it keeps no history and can go back to nothing.
"""

import resource
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.bench.pg_sync import SyncService, postgres
from chainlake.bench.report import Result
from chainlake.bench.scratch import scratch, stage_seconds
from chainlake.demo.river_node import StreamNode
from chainlake.demo.river_server import RiverServer
from chainlake.errors import LakeError
from chainlake.lake import Lake, Output, open_lake
from chainlake.lake.chains import Chain
from chainlake.lake.runner import LaneRun, Timings
from chainlake.sync.fold import FOLDED, STATE, fold
from chainlake.sync.rules import Delivery, Mark, State, advance

CHAIN = "bench"
STAGES = ("raw.sync", "bronze.sync", "gold.sync")
STREAM = ["_chain", "stream_id"]
GEN, AHEAD = 100, 3


@dataclass(frozen=True)
class Size:
    """How much work."""

    persisted: int
    streams: int
    passes: int
    gap_streams: int
    gap_miniblocks: int
    gap_events: int


FULL = Size(persisted=1_000_000, streams=1_000, passes=5, gap_streams=100, gap_miniblocks=200, gap_events=50)
QUICK = Size(persisted=50_000, streams=100, passes=2, gap_streams=20, gap_miniblocks=50, gap_events=20)


def run(home: str, quick: bool, size: int | None = None) -> Iterator[Result]:
    """All measurements, in a lake of its own that is removed afterwards. `size` is how many streams are persisted."""
    chosen = QUICK if quick else FULL
    with scratch(home) as (prefix, directory):
        lake = open_lake(home, schema_prefix=prefix)
        with postgres() as peer:
            yield from planning(lake, peer, size or chosen.persisted)
            yield from steady(lake, peer, chosen, directory)
            yield from recovery(lake, peer, chosen, directory)


def planning(lake: Lake, peer: SyncService | None, streams: int) -> Iterator[Result]:
    """Every stream has a state, its node has answered: what is to be done with each?"""
    chain = f"{CHAIN}-plan"
    lake.chains.add(Chain(chain, "river", "made up", {}))
    states = _states(lake, chain, streams)
    _persist(lake, chain, states)
    began = time.monotonic()
    state = lake.snapshot(["gold.stream_sync_state"]).state("gold.stream_sync_state", {chain: 1})
    answered = _answers(lake, chain, streams)
    rows = state.select(*STREAM, F.struct(*STATE).alias("state")).join(answered, STREAM)
    cases = rows.mapInArrow(fold, FOLDED).select(F.explode("passes").alias("one")).groupBy("one.case").count().collect()
    seconds = time.monotonic() - began
    if sum(row["count"] for row in cases) != streams:
        raise LakeError(f"planned {cases}, expected {streams} streams")
    theirs = peer.plan(streams) if peer else None
    yield Result(f"plan after a restart, {streams:,} persisted streams", seconds, "s", "PostgreSQL, one process", theirs)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Result("the same, most memory of the planning process", peak, "MiB")


def synthetic(number: int) -> tuple[State, Delivery]:
    """The state and the answer of a made-up stream: most stand still, one in ten has grown."""
    last, grown = number.to_bytes(32, "big"), AHEAD if number % 10 == 0 else 0
    marks = [Mark(0, GEN - 1, last, bytes(32))]
    for ahead in range(grown):
        before = marks[-1]
        marks.append(Mark(ahead + 1, before.number + 1, bytes([ahead + 1]) + last[1:], before.hash))
    return State(GEN, last, GEN - 10, 0, last), Delivery(tuple(marks), live=True)


class Nothing:
    """No history is needed where answers follow."""

    def held(self, number: int, hash_: bytes) -> bool:
        return False

    def knows(self, number: int) -> bool:
        return False


def plan_one(number: int) -> str:
    """The peer's loop body: the same rule."""
    return advance(*synthetic(number), Nothing()).case


def _states(lake: Lake, chain: str, streams: int) -> DataFrame:
    numbers = lake.spark.range(streams)
    last = F.unhex(F.lpad(F.hex("id"), 64, "0"))
    return numbers.select(
        F.lit(chain).alias("_chain"),
        F.lit(1).cast("long").alias("_height"),
        last.alias("stream_id"),
        F.lit(GEN - 10).alias("snapshot_miniblock"),
        F.lit(GEN).alias("minipool_gen"),
        last.alias("prev_miniblock_hash"),
        F.lit(0).alias("first_miniblock"),
        last.alias("genesis_hash"),
        F.lit(None).cast("string").alias("reset_reason"),
        F.lit(None).cast("string").alias("stopped"),
        F.current_timestamp().alias("updated_at"),
    )


def _persist(lake: Lake, chain: str, states: DataFrame) -> None:
    """One commit of gold.sync that holds these states."""
    stage = lake.stages.get("gold.sync")
    with lake.lease(stage.name, chain) as lease:
        writing = LaneRun(lake, stage, [chain], lease, 1, 1)
        writing.refresh()
        tables = {name: lake.spark.table(lake.namespace.store(name)).filter("false") for name in stage.tables}
        tables["gold.stream_sync_state"] = states
        writing.write({chain: (0, 1)}, Output(tables), {}, Timings())


def _answers(lake: Lake, chain: str, streams: int) -> DataFrame:
    """The answers as the gold stage sees them: one pass, a mark or a few per stream."""
    kinds = (
        "_chain string, stream_id binary, answers array<struct<_height: bigint, pages: int, snapshot_index: int,"
        " is_whole: boolean, catch_up: boolean, live: boolean, passed_at: timestamp>>, marks array<struct<_height: bigint,"
        " tx_index: int, miniblock_num: bigint, miniblock_hash: binary, prev_miniblock_hash: binary, timestamp: timestamp,"
        " has_snapshot: boolean, problem: string>>, ours array<struct<miniblock_num: bigint, miniblock_hash: binary>>"
    )

    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [_row(chain, number) for number in batch.column("id").to_pylist()]
            yield pa.RecordBatch.from_pylist(rows)

    return lake.spark.range(streams).mapInArrow(make, kinds)


def _row(chain: str, number: int) -> dict[str, object]:
    state, delivery = synthetic(number)
    told = {"_height": 2, "pages": 0, "snapshot_index": 0, "is_whole": True, "catch_up": False, "live": True}
    marks = [
        {
            "_height": 2,
            "tx_index": mark.place,
            "miniblock_num": mark.number,
            "miniblock_hash": mark.hash,
            "prev_miniblock_hash": mark.prev_hash,
            "timestamp": None,
            "has_snapshot": False,
            "problem": None,
        }
        for mark in delivery.marks
    ]
    answer = {**told, "passed_at": None}
    return {"_chain": chain, "stream_id": state.prev_miniblock_hash, "answers": [answer], "marks": marks, "ours": []}


def steady(lake: Lake, peer: SyncService | None, size: Size, directory: Path) -> Iterator[Result]:
    """Streams that grow by a miniblock between passes."""
    events = 4
    with _served(size.streams, directory) as (node, server, streams):
        chain = f"{CHAIN}-steady"
        lake.add_chain(chain, "river", server.url, {"streams": str(streams)})
        _run(lake, chain)
        if peer:
            peer.follow(server.url, list(node.streams))
        ours = theirs = 0.0
        for _ in range(size.passes):
            for stream_id in node.streams:
                node.grow(stream_id, 1, events)
            ours += _run(lake, chain)
            theirs += peer.follow(server.url, list(node.streams)) if peer else 0.0
        _same(lake, chain, peer)
        miniblocks = size.streams * size.passes
        beside = miniblocks / theirs if theirs else None
        what = f"steady state, {size.streams:,} streams"
        yield Result(f"{what}, miniblocks", miniblocks / ours, "1/s", "PostgreSQL", beside, higher_is_better=True)
        beside = beside * events if beside else None
        yield Result(f"{what}, events", miniblocks * events / ours, "1/s", "PostgreSQL", beside, higher_is_better=True)


def recovery(lake: Lake, peer: SyncService | None, size: Size, directory: Path) -> Iterator[Result]:
    """Streams that went on for long while nobody looked."""
    with _served(size.gap_streams, directory) as (node, server, streams):
        chain = f"{CHAIN}-gap"
        lake.add_chain(chain, "river", server.url, {"streams": str(streams)})
        _run(lake, chain)
        if peer:
            peer.follow(server.url, list(node.streams))
        for stream_id in node.streams:
            node.grow(stream_id, size.gap_miniblocks, size.gap_events)
        ours = _run(lake, chain)
        theirs = peer.follow(server.url, list(node.streams)) if peer else None
        _same(lake, chain, peer)
        events = size.gap_streams * size.gap_miniblocks * size.gap_events
        yield Result(f"recovery of a gap of {events:,} events", ours, "s", "PostgreSQL", theirs)


@contextmanager
def _served(streams: int, directory: Path) -> Iterator[tuple[StreamNode, RiverServer, Path]]:
    node = StreamNode(streams)
    path = directory / f"{secrets.token_hex(4)}.txt"
    path.write_text("".join(f"{stream_id.hex()}\n" for stream_id in node.streams), encoding="utf-8")
    server = RiverServer(node).start()
    try:
        yield node, server, path
    finally:
        server.stop()


def _run(lake: Lake, chain: str) -> float:
    return sum(stage_seconds(lake, stage, chain) for stage in STAGES)


def _same(lake: Lake, chain: str, peer: SyncService | None) -> None:
    """Both hold the same events; the peer forgets them for the next measurement."""
    ours = lake.table("gold.notifications", chain=chain).count()
    if peer and (theirs := peer.forget()) != ours:
        raise LakeError(f"{chain}: the lake has {ours} notifications, PostgreSQL {theirs}")
