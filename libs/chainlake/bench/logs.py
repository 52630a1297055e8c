"""The log index beside PostgreSQL with its indexes and DuckDB on the same Parquet files: loading, size, and queries of each kind.

Everything is measured in one run on the same logs. Answers are compared before anything is timed.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from chainlake.bench.log_copy import copy_seconds
from chainlake.bench.log_queries import COLUMNS, QueryClass, workload
from chainlake.bench.log_serving import answers_over_http
from chainlake.bench.peers import DuckDb, Peer
from chainlake.bench.pg_cluster import AS_INSTALLED, SETTINGS
from chainlake.bench.postgres import Postgres
from chainlake.bench.report import Result, percentile_ms
from chainlake.bench.scratch import scratch, stage_seconds
from chainlake.cli.show import emit
from chainlake.demo import evm_scale
from chainlake.errors import LakeError, Unavailable
from chainlake.lake import Lake, open_lake
from chainlake.logs.filter import LogFilter
from chainlake.logs.python_rows import python_rows
from chainlake.logs.query import LogIndex
from chainlake.serve.embedded import EmbeddedLake

CHAIN = "bench"
LOGS, QUICK_LOGS = 2_000_000, 100_000
STAGES = ("raw.logs", "bronze.logs", "gold.logs")
PERCENTS = (50, 95, 99)
ENOUGH_SECONDS = 4.0
"""Filters of a class are asked for so long; then those that were asked so far have to do."""
TARGET = 50_000

P = TypeVar("P", bound=Peer)


def run(home: str, quick: bool, size: int | None = None) -> Iterator[Result]:
    """All measurements, in a lake of its own that is removed afterwards."""
    logs = size or (QUICK_LOGS if quick else LOGS)
    with scratch(home) as (prefix, directory):
        lake = open_lake(home, schema_prefix=prefix)
        tenth, _ = _rate(lake, directory, logs // 10, 100)
        yield _of_shape(logs // 10, 100, tenth)
        for per_block in (10, 1000):
            rate, chain = _rate(lake, directory, logs // 2, per_block)
            yield _of_shape(logs // 2, per_block, rate)
            for name, theirs in _loaded(chain):
                yield _beside_loading(f"raw to gold, {chain.logs:,} logs, {per_block:,} per block", rate, name, theirs)
        written = evm_scale.write(directory / CHAIN, evm_scale.Scale(logs=logs))
        yield from Bench(lake, Path(home), prefix, directory, written).all(tenth)


def _rate(lake: Lake, directory: Path, logs: int, per_block: int) -> tuple[float, evm_scale.Written]:
    """Logs a second from raw to gold, of a chain of its own. What comes first also warms up what is measured next."""
    name = f"bench-{per_block}"
    chain = evm_scale.write(directory / name, evm_scale.Scale(logs=logs, logs_per_block=per_block))
    seconds = _ingest(lake, name, directory / name)
    return logs / (seconds["bronze.logs"] + seconds["gold.logs"]), chain


def _of_shape(logs: int, per_block: int, rate: float) -> Result:
    name = f"raw to gold, {logs:,} logs, {per_block:,} per block"
    return Result(name, rate, "logs/s", "target", TARGET, higher_is_better=True)


def _ingest(lake: Lake, chain: str, source: Path) -> dict[str, float]:
    """Seconds of each stage."""
    lake.add_chain(chain, "evm", str(source))
    return {stage: stage_seconds(lake, stage, chain) for stage in STAGES}


class Bench:
    """One chain, loaded everywhere."""

    def __init__(self, lake: Lake, home: Path, prefix: str, directory: Path, written: evm_scale.Written) -> None:
        self.lake, self.home, self.prefix = lake, home, prefix
        self.directory, self.written = directory, written
        assert written.parquet is not None
        self.logs = written.parquet

    def all(self, rate_of_tenth: float) -> Iterator[Result]:
        with _if_installed("PostgreSQL", Postgres) as postgres:
            yield from self.loading(postgres, rate_of_tenth)
            yield from self.sizes(postgres)
            with _if_installed("DuckDB", self.duckdb) as duck:
                yield from self.queries(duck, postgres)
        yield from answers_over_http(self.home, self.prefix, CHAIN, self.logs)

    def loading(self, postgres: Postgres | None, rate_of_tenth: float) -> Iterator[Result]:
        """From files to what can be asked for, and whether ten times as much takes ten times as long."""
        seconds = _ingest(self.lake, CHAIN, self.directory / CHAIN)
        logs = self.written.logs
        theirs: list[tuple[str, float | None]] = [*_loaded(self.written, postgres)] if postgres is not None else []
        for name, stages in (("raw to gold", STAGES[1:]), ("files to gold", STAGES)):
            rate = logs / sum(seconds[stage] for stage in stages)
            for peer, their_rate in theirs or [("", None)]:
                yield _beside_loading(f"{name}, {logs:,} logs", rate, peer, their_rate)
        for stage in STAGES:
            yield Result(f"  {stage}", logs / seconds[stage], "logs/s", higher_is_better=True)
        rate = logs / (seconds["bronze.logs"] + seconds["gold.logs"])
        yield _of_shape(logs, 100, rate)
        copy = logs / sum(self.copied(stage) for stage in STAGES[1:])
        yield Result("raw to gold, and a mere copy", rate, "logs/s", "the same rows copied by Spark", copy, higher_is_better=True)
        yield Result("raw to gold, ten times as many logs", rate, "logs/s", "a tenth", rate_of_tenth, higher_is_better=True)

    def copied(self, name: str) -> float:
        """Seconds that Spark takes to write what a stage made, if that is all it does."""
        stage = self.lake.stages.get(name)
        return copy_seconds(self.lake.spark, stage, {table: self.files(table) for table in stage.tables}, self.directory / "copy")

    def sizes(self, postgres: Peer | None) -> Iterator[Result]:
        """Bytes on disk of the logs and everything needed to find them."""
        tables = ("bronze.evm_logs", "gold.log_chunks", "gold.log_manifests", "gold.log_tails", "gold.block_meta")
        sizes = {name: sum(path.stat().st_size for path in self.files(name)) / self.written.logs for name in tables}
        peer = postgres.bytes() / self.written.logs if postgres is not None else None
        yield Result("logs and index on disk", sum(sizes.values()), "bytes/log", "PostgreSQL", peer)
        yield Result("  index alone", sum(sizes.values()) - sizes["bronze.evm_logs"], "bytes/log")

    def files(self, table: str) -> list[Path]:
        """The Parquet files of a table that hold this chain: whole files, since a commit writes files of its own."""
        commits = {c.commit_id for c in self.lake.ledger.read().commits() if c.chain == CHAIN}
        log = EmbeddedLake(self.home, self.prefix).log(table)
        log.refresh()
        return [Path(file.path) for file in log.files if file.low.get("_commit") in commits]

    def index(self) -> LogIndex:
        return LogIndex(self.home, CHAIN, prefix=self.prefix)

    def duckdb(self) -> DuckDb:
        """On the lake's own files."""
        duck = DuckDb(self.directory / "duck")
        duck.open(self.files("bronze.evm_logs"))
        return duck

    def queries(self, duck: DuckDb | None, postgres: Peer | None) -> Iterator[Result]:
        """Each class cold (a new reader beside a new connection) and warm, at p50, p95 and p99. Peers hand logs over in their own
        ways: DuckDB as Arrow, PostgreSQL as tuples of Python values. We do the same beside each."""
        kinds = workload(pq.read_table(self.logs, columns=list(COLUMNS)))
        gc.collect()
        gc.freeze()  # else what this process made so far is searched for garbage in the middle of answers, ours and theirs
        for kind in kinds:
            self._compare(kind, [peer for peer in (duck, postgres) if peer is not None])
            cold = [_timed(_arrow(self.index(), kind), one) for one in _in_time(kind.filters)]
            theirs = [_cold(duck, kind, one) for one in kind.filters[: len(cold)]] if duck is not None else None
            yield from _percentiles(f"{kind.name}, cold", cold, duck, theirs)
            index = self.index()
            yield from _beside(kind, kind.name, _arrow(index, kind), duck)
            yield from _beside(kind, f"{kind.name}, as Python rows", _python(index, kind), postgres)

    def _compare(self, kind: QueryClass, peers: Sequence[Peer]) -> None:
        index = self.index()
        for one in kind.filters[:5]:
            logs = index.query(one, max_results=kind.max_results).logs
            ours = list(zip(logs["block_number"].to_pylist(), logs["log_index"].to_pylist(), strict=True))
            for peer in peers:
                if [tuple(key) for key in peer.keys(one, kind.max_results)] != ours:
                    raise LakeError(f"{kind.name}: {peer.name} and the index give different answers to {one}")


def _loaded(chain: evm_scale.Written, tuned: Postgres | None = None) -> Iterator[tuple[str, float]]:
    """Logs a second that PostgreSQL takes, in each of its ways: the first of them into a server that is there, if it is."""
    with ExitStack() as stack:
        try:
            first = tuned or stack.enter_context(closing(Postgres()))
            plain, reading = (stack.enter_context(closing(Postgres(settings))) for settings in (AS_INSTALLED, SETTINGS))
        except Unavailable as error:
            emit(f"without PostgreSQL: {error}")
            return
        for name, server in (("PostgreSQL, a COPY per block", first), ("the same with the settings that it comes with", plain)):
            batches = pq.ParquetFile(chain.parquet).iter_batches(100_000)
            yield name, chain.logs / server.load(pa.Table.from_batches([batch]) for batch in batches)
        yield "PostgreSQL, a COPY per block, from the same JSON", chain.logs / reading.load_lines(_lines(chain))


def _lines(chain: evm_scale.Written) -> Iterator[bytes]:
    for path in chain.lines:
        with open(path, "rb") as file:
            yield from file


def _beside_loading(name: str, rate: float, peer: str, their_rate: float | None) -> Result:
    return Result(name, rate, "logs/s", peer, their_rate, higher_is_better=True)


@contextmanager
def _if_installed(name: str, make: Callable[[], P]) -> Iterator[P | None]:
    """A peer, or None with a reason where it is not installed."""
    try:
        peer = make()
    except Unavailable as error:
        emit(f"without {name}: {error}")
        yield None
        return
    try:
        yield peer
    finally:
        peer.close()


def _beside(kind: QueryClass, name: str, ours: Callable[[LogFilter], object], peer: Peer | None) -> Iterator[Result]:
    """The percentiles of a class of queries, warm; beside a peer's, if there is one."""
    taken = _all(ours, kind.filters)
    theirs = _all(_asking(peer, kind), kind.filters) if peer is not None else None
    yield from _percentiles(name, taken, peer, theirs)


def _percentiles(name: str, taken: Sequence[float], peer: Peer | None, theirs: Sequence[float] | None) -> Iterator[Result]:
    for percent in PERCENTS:
        beside = (peer.name, percentile_ms(theirs, percent)) if peer is not None and theirs is not None else ()
        yield Result(f"{name}: p{percent}", percentile_ms(taken, percent), "ms", *beside)


def _arrow(index: LogIndex, kind: QueryClass) -> Callable[[LogFilter], object]:
    return lambda one: index.query(one, max_results=kind.max_results).logs


def _python(index: LogIndex, kind: QueryClass) -> Callable[[LogFilter], object]:
    return lambda one: python_rows(index.query(one, max_results=kind.max_results).logs)


def _asking(peer: Peer, kind: QueryClass) -> Callable[[LogFilter], object]:
    return lambda one: peer.query(one, kind.max_results)


def _cold(duck: DuckDb, kind: QueryClass, one: LogFilter) -> float:
    """Seconds that a new connection takes for its first answer."""
    with closing(duck.fresh()) as fresh:
        return _timed(_asking(fresh, kind), one)


def _all(ask: Callable[[LogFilter], object], filters: Sequence[LogFilter]) -> list[float]:
    """Seconds of each filter that there is time for, three times, after all of them were asked once."""
    asked = []
    for one in _in_time(filters):
        ask(one)
        asked.append(one)
    return [_timed(ask, one) for one in asked for _ in range(3)]


def _in_time(filters: Iterable[LogFilter], seconds: float = ENOUGH_SECONDS) -> Iterator[LogFilter]:
    """The filters, until time is up; at least one."""
    until = time.monotonic() + seconds
    for one in filters:
        yield one
        if time.monotonic() > until:
            return


def _timed(ask: Callable[[LogFilter], object], one: LogFilter) -> float:
    began = time.perf_counter()
    ask(one)
    return time.perf_counter() - began
