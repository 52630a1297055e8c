"""What the ledger costs, beside the usual way: MERGE into tables of current state, RESTORE to go back.

Both do the same work on the same rows: five tables, a batch of upserts per commit. Ours also keeps history, moves all tables as
one, and can go back to any block.
"""

import itertools
import secrets
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame

from chainlake.bench.report import Result, side_by_side, timed
from chainlake.bench.scratch import scratch
from chainlake.lake import Lake, Output, Stage, open_lake
from chainlake.lake.chains import Chain
from chainlake.lake.clock import new_commit_id
from chainlake.lake.compaction import compact
from chainlake.lake.lease import Lease
from chainlake.lake.progress import Progress
from chainlake.lake.runner import LaneRun, Timings
from chainlake.lake.visibility import Commit

TABLES = [f"silver.bench_{number}" for number in range(5)]
CHAIN = "bench"
WARM = 10  # reads that do not count: the JVM compiles what it runs often
WARM_COMMITS = 2
FEW_COMMITS = 10
TELL_EVERY = 500
MEASURED = 100  # appends to the ledger, of the first and of the last; some of them pack it
DDL = """-- A benchmark table.
-- kind: state
-- key: chain, id
-- stages: silver.bench
-- retention: 30 days
CREATE TABLE {name} (
  id BIGINT NOT NULL COMMENT 'Key',
  value STRING COMMENT 'What it holds'
)
CLUSTER BY (_chain, _height);
"""


@dataclass(frozen=True)
class Size:
    """How much work."""

    keys: int
    changes: int
    repeat: int
    ledger_rows: int
    history: int


FULL = Size(keys=20_000, changes=2_000, repeat=7, ledger_rows=10_000, history=150)
QUICK = Size(keys=2_000, changes=500, repeat=3, ledger_rows=1_000, history=80)


def run(home: str, quick: bool, rows: int | None = None) -> Iterator[Result]:
    """All measurements of the kernel, in a lake of its own that is removed afterwards. `rows` is how long the ledger grows."""
    size = QUICK if quick else FULL
    size = replace(size, ledger_rows=rows or size.ledger_rows)
    with scratch(home) as (prefix, directory):
        bench = Bench(home, prefix, directory, size)
        yield from bench.commits()
        yield from bench.reads()
        yield from bench.growth()
        yield from bench.rollbacks()


class Bench:
    """A lake and the same tables kept by MERGE."""

    def __init__(self, home: str, prefix: str, directory: Path, size: Size) -> None:
        for name in TABLES:
            path = directory / f"{name.replace('.', '/')}.sql"
            path.parent.mkdir(exist_ok=True)
            path.write_text(DDL.format(name=name), encoding="utf-8")
        stage = Stage("silver.bench", "bench", tuple(TABLES))
        self.home, self.prefix, self.directory, self.size = home, prefix, directory, size
        self.lake: Lake = open_lake(home, schema_prefix=prefix, stages=[stage], directories=[directory], standard=False)
        self.lake.chains.add(Chain(CHAIN, "bench", "made up", {}))
        self.spark = self.lake.spark
        self.numbers = itertools.count(1)
        self.lease = Lease(self.lake.control, self.lake.ledger, self.lake.catalog.control_log("leases"), stage.name, CHAIN)
        self.lease.__enter__()
        self.run = LaneRun(self.lake, stage, [CHAIN], self.lease, 1, 1)
        self.run.progress.phase = lambda *_, **__: None  # type: ignore[method-assign]
        self.current = [f"{self.lake.namespace.schema('store')}.current_{n}" for n in range(len(TABLES))]
        for name in self.current:
            self.spark.sql(
                f"CREATE TABLE {name} (id BIGINT, value STRING) USING DELTA LOCATION '{self._path(home, prefix, name)}'"
            )
        self.commit(self.rows(size.keys))
        self.merge(self.rows(size.keys))

    def _path(self, home: str, prefix: str, name: str) -> Path:
        return Path(home).absolute() / "warehouse" / f"{prefix}store" / name.rpartition(".")[2]

    def rows(self, count: int) -> DataFrame:
        """Changes to `count` keys, spread over the key space, new values each time."""
        number = next(self.numbers)
        step = max(1, self.size.keys // count)
        frame = self.spark.range(count).selectExpr(
            f"(id * {step} + {number}) % {self.size.keys} AS id", f"concat('v{number}-', id) AS value"
        )
        return frame.coalesce(1)

    def commit(self, rows: DataFrame) -> None:
        """One block, five tables, one commit; then tables are packed where a run would do it at its end."""
        head = self.run.head(CHAIN)
        low = head.height if head else 0
        frame = rows.selectExpr(f"'{CHAIN}' AS _chain", f"{low + 1}L AS _height", "id", "value")
        self.run.write({CHAIN: (low, low + 1)}, Output(dict.fromkeys(TABLES, frame)), {}, Timings())
        self.run.pack()
        self.run.to_pack.clear()

    def merge(self, rows: DataFrame) -> None:
        """The usual way: MERGE into five tables of current state, in parallel too."""
        view = f"changes_{secrets.token_hex(4)}"
        rows.createOrReplaceTempView(view)

        def one(table: str) -> None:
            self.spark.sql(
                f"MERGE INTO {table} t USING {view} s ON t.id = s.id"
                f" WHEN MATCHED THEN UPDATE SET value = s.value WHEN NOT MATCHED THEN INSERT *"
            ).collect()

        with ThreadPoolExecutor(len(self.current)) as pool:
            list(pool.map(one, self.current))

    def commits(self) -> Iterator[Result]:
        """Overhead of a commit."""
        ours = timed(lambda: self.commit(self.rows(self.size.changes)), self.size.repeat)
        peer = timed(lambda: self.merge(self.rows(self.size.changes)), self.size.repeat)
        self.few = ours
        yield Result(f"commit of {self.size.changes:,} rows to five tables", ours, "s", "MERGE into five tables", peer)
        empty = timed(lambda: self.commit(self.rows(1)), self.size.repeat)
        yield Result("overhead of a commit: one row to each of five tables", empty, "s", "budget", 3.0)

    def reads(self) -> Iterator[Result]:
        """Current state, as history grows ten times, with and without compaction."""
        view, plain = self.lake.namespace.view(TABLES[0]), self.current[0]

        def by_view() -> object:
            return self.spark.sql(f"SELECT count(*), max(value) FROM {view}").collect()

        def by_table() -> object:
            return self.lake.table(TABLES[0]).selectExpr("count(*)", "max(value)").collect()

        def of_plain() -> object:
            return self.spark.sql(f"SELECT count(*), max(value) FROM {plain}").collect()

        def read(what: str, ours: Callable[[], object]) -> Result:
            seconds, peer = side_by_side(ours, of_plain, self.size.repeat, warm=WARM)
            return Result(f"current state by {what}", seconds, "s", "plain table kept by MERGE", peer)

        history = len(self.run.view.of("silver.bench", CHAIN).commits)
        yield read(f"view, {history} commits", by_view)
        yield read(f"lake.table, {history} commits", by_table)
        for _ in range(max(0, self.size.history - history)):
            self.commit(self.rows(self.size.changes))
        more = self.size.history
        yield read(f"view, {more} commits, not compacted", by_view)
        yield read(f"lake.table, {more} commits, not compacted", by_table)
        self.compact()
        yield read(f"view, {more} commits, compacted", by_view)
        yield read(f"lake.table, {more} commits, compacted", by_table)
        old = timed(lambda: self.lake.table(TABLES[0], chain=CHAIN, height=history).selectExpr("count(*)").collect(), 3)
        yield Result(f"state as of block {history}, below the base", old, "s")

    def compact(self) -> None:
        self.lease.__exit__(None)
        compact(self.lake, "silver.bench")
        self.lease.__enter__()
        self.run.refresh()

    def growth(self) -> Iterator[Result]:
        """The same commit with thousands of rows in the ledger, and in a lake beside it that has ten; both take turns."""
        few = Bench(self.home, f"{self.prefix}few_", self.directory, self.size)
        for _ in range(FEW_COMMITS):
            few.commit(few.rows(1))
        last, first = self._fill_ledger(self.size.ledger_rows)
        yield Result(f"append to the ledger after {self.size.ledger_rows:,} others", last, "s", "the first ones", first)
        after, before = side_by_side(
            lambda: self.commit(self.rows(1)), lambda: few.commit(few.rows(1)), self.size.repeat, warm=WARM_COMMITS
        )
        few.lease.__exit__(None)
        rows = len(self.run.view.of("silver.bench", CHAIN).commits)
        yield Result(f"commit overhead at {rows:,} ledger rows", after, "s", "the same at few rows", before)
        view, plain = (
            f"SELECT count(*), max(value) FROM {name}" for name in (self.lake.namespace.view(TABLES[0]), self.current[0])
        )
        seconds, peer = side_by_side(
            lambda: self.spark.sql(view).collect(), lambda: self.spark.sql(plain).collect(), self.size.repeat, warm=WARM
        )
        yield Result(f"current state by view at {rows:,} ledger rows", seconds, "s", "plain table kept by MERGE", peer)

    def _fill_ledger(self, rows: int) -> tuple[float, float]:
        """Thousands of commits that wrote nothing, one after the other, as the ledger gets them: each is a version of it. Median
        seconds of an append at the end, and at first."""
        last: Commit = self.run.view.of("silver.bench", CHAIN).commits[-1]
        head = self.run.head(CHAIN)
        assert head is not None
        taken = []
        progress = Progress("ledger", rows, unit="rows")
        for n in progress.over(range(1, rows + 1)):
            made = replace(
                last,
                kind="advance",
                seq=last.seq + n,
                commit_id=new_commit_id(),
                base_height=head.height + n - 1,
                height=head.height + n,
                rows={},
                checksums={},
            )
            taken.append(timed(lambda made=made: self.lake.ledger.append([made]), 1))  # type: ignore[misc]
            if n % TELL_EVERY == 0:
                progress.phase("fill", sum(taken[-TELL_EVERY:]), rows=n, of=rows)
        self.run.refresh()
        return statistics.median(taken[-MEASURED:]), statistics.median(taken[:MEASURED])

    def rollbacks(self) -> Iterator[Result]:
        """Going back by depth: one ledger row, whatever the depth."""
        for depth in (1, 100, self.size.ledger_rows // 2):
            head = self.run.head(CHAIN)
            assert head is not None
            target = head.height - depth
            ours = timed(lambda target=target: self.lake.rollback("silver.bench", CHAIN, target, why="bench"), 1)  # type: ignore[misc]
            self.run.refresh()
            peer = timed(lambda: self._restore_current(1), 1) if depth == 1 else None
            yield Result(f"rollback by {depth:,} blocks", ours, "s", "RESTORE of five tables by one version", peer)

    def _restore_current(self, versions: int) -> None:
        for name in self.current:
            top = self.spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0][0]
            self.spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {top - versions}").collect()
