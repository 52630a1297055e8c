"""Sync beside a straightforward service that keeps one row per stream in PostgreSQL: planning after a restart, passes, and gaps.

Both ask the same node over loopback, check the same hashes and keep the same notifications. The peer goes stream by stream, one
transaction each, as such services do; it keeps no history and can go back to nothing.
"""

import json
import multiprocessing
import secrets
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from chainlake.bench.memory import peak_memory
from chainlake.bench.pg_sync import SyncService, postgres
from chainlake.bench.report import Result
from chainlake.bench.scratch import scratch, stage_seconds
from chainlake.bench.sync_planning import persist, plan
from chainlake.demo.river_server import serve_alone
from chainlake.errors import LakeError
from chainlake.lake import Lake, server
from chainlake.lake.home import Home
from chainlake.rehearsal import open_part

CHAIN = "bench"
STAGES = ("raw.sync", "bronze.sync", "gold.sync")


@dataclass(frozen=True)
class Size:
    """How much work."""

    persisted: int
    streams: int
    passes: int
    gap_streams: int
    gap_miniblocks: int
    gap_events: int


FULL = Size(persisted=1_000_000, streams=5_000, passes=2, gap_streams=100, gap_miniblocks=200, gap_events=50)
QUICK = Size(persisted=50_000, streams=100, passes=2, gap_streams=20, gap_miniblocks=50, gap_events=20)


def run(home: str, quick: bool, size: int | None = None) -> Iterator[Result]:
    """All measurements, in a lake of its own that is removed afterwards. `size` is how many streams are persisted."""
    chosen = QUICK if quick else FULL
    with scratch(home) as (prefix, directory):
        lake = open_part(STAGES, home, schema_prefix=prefix)
        with postgres() as peer:
            yield from planning(lake, home, peer, size or chosen.persisted)
            yield from steady(lake, peer, chosen, directory)
            yield from recovery(lake, peer, chosen, directory)


def planning(lake: Lake, home: str, peer: SyncService | None, streams: int) -> Iterator[Result]:
    """Every stream has a state, its node has answered: what is to be done with each?"""
    chain = f"{CHAIN}-plan"
    persist(lake, chain, streams)
    running = server.running(Home(Path(home)))
    with peak_memory(running.pid if running else 0) as peak:
        began = time.monotonic()
        planned = plan(lake, chain)
        seconds = time.monotonic() - began
    if planned != streams:
        raise LakeError(f"planned {planned}, expected {streams} streams")
    theirs = peer.plan(streams) if peer else None
    yield Result(f"plan after a restart, {streams:,} persisted streams", seconds, "s", "PostgreSQL, one process", theirs)
    yield Result("the same, memory: Spark and its workers at most", peak.total, "MiB")
    yield Result("the same, memory: a Python worker at most", peak.worker, "MiB")


def steady(lake: Lake, peer: SyncService | None, size: Size, directory: Path) -> Iterator[Result]:
    """Streams that grow by a miniblock between passes."""
    events = 4
    with _served(size.streams, directory) as node:
        chain = f"{CHAIN}-steady"
        lake.add_chain(chain, "river", node.url, {"streams": str(node.file)})
        _run(lake, chain)
        if peer:
            peer.follow(node.url, node.streams)
        ours = theirs = 0.0
        for _ in range(size.passes):
            node.grow(1, events)
            ours += sum(_run(lake, chain).values())
            theirs += peer.follow(node.url, node.streams) if peer else 0.0
        idle = sum(_run(lake, chain).values())
        idle_beside = peer.follow(node.url, node.streams) if peer else None
        _same(lake, chain, peer)
        miniblocks = size.streams * size.passes
        beside = miniblocks / theirs if theirs else None
        what = f"steady state, {size.streams:,} streams"
        yield Result(f"{what}, miniblocks", miniblocks / ours, "1/s", "PostgreSQL", beside, higher_is_better=True)
        beside = beside * events if beside else None
        yield Result(f"{what}, events", miniblocks * events / ours, "1/s", "PostgreSQL", beside, higher_is_better=True)
        yield Result(f"a pass over {size.streams:,} streams that stand still", idle, "s", "PostgreSQL", idle_beside)


def recovery(lake: Lake, peer: SyncService | None, size: Size, directory: Path) -> Iterator[Result]:
    """Streams that went on for long while nobody looked."""
    with _served(size.gap_streams, directory) as node:
        chain = f"{CHAIN}-gap"
        lake.add_chain(chain, "river", node.url, {"streams": str(node.file)})
        _run(lake, chain)
        if peer:
            peer.follow(node.url, node.streams)
        node.grow(size.gap_miniblocks, size.gap_events)
        took = _run(lake, chain)
        theirs = peer.follow(node.url, node.streams) if peer else None
        _same(lake, chain, peer)
        events = size.gap_streams * size.gap_miniblocks * size.gap_events
        ours = sum(took.values())
        yield Result(f"recovery of a gap of {events:,} events", ours, "s", "PostgreSQL", theirs)
        for stage, seconds in took.items():
            yield Result(f"of which {stage}", seconds, "s")
        beside = events / theirs if theirs else None
        yield Result("the same, events", events / ours, "1/s", "PostgreSQL", beside, higher_is_better=True)


@dataclass(frozen=True)
class Served:
    """A node in a process of its own: whoever asks it shares no interpreter with it."""

    url: str
    streams: list[bytes]
    file: Path

    def grow(self, miniblocks: int, events: int) -> None:
        """Every stream goes on."""
        told = json.dumps({"miniblocks": miniblocks, "events": events}).encode()
        urllib.request.urlopen(f"{self.url}/control/grow", told).close()


@contextmanager
def _served(streams: int, directory: Path) -> Iterator[Served]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_alone, args=(streams, theirs), daemon=True)
    process.start()
    try:
        url, ids = ours.recv()
        path = directory / f"{secrets.token_hex(4)}.txt"
        path.write_text("".join(f"{stream_id.hex()}\n" for stream_id in ids), encoding="utf-8")
        yield Served(url, ids, path)
    finally:
        process.terminate()
        process.join()


def _run(lake: Lake, chain: str) -> dict[str, float]:
    """Seconds by stage."""
    return {stage: stage_seconds(lake, stage, chain) for stage in STAGES}


def _same(lake: Lake, chain: str, peer: SyncService | None) -> None:
    """Both hold the same events; the peer forgets them for the next measurement."""
    ours = lake.table("gold.notifications", chain=chain).count()
    if peer and (theirs := peer.forget()) != ours:
        raise LakeError(f"{chain}: the lake has {ours} notifications, PostgreSQL {theirs}")
