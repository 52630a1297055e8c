"""Reading as of one ledger snapshot. Everything read through one `Snapshot` belongs to the same moment, for as long as one likes.

Two axes of time: by block (`height`), and by what the lake believed when (`seq`, `at`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from chainlake.errors import BadInput, some_of
from chainlake.lake.clock import commit_time, now
from chainlake.lake.ddl import Table
from chainlake.lake.maintenance import records
from chainlake.lake.names import physical
from chainlake.lake.visibility import ADVANCE, Commit, History, LedgerView, Visible

if TYPE_CHECKING:
    from chainlake.lake.catalog import Catalog

FEW = 32
EVER = datetime.min.replace(tzinfo=timezone.utc)


class Snapshot:
    """The lake at one moment."""

    def __init__(self, spark: SparkSession, catalog: "Catalog", ledger: LedgerView) -> None:
        self._spark = spark
        self._catalog = catalog
        self.control = catalog.control
        self.ledger = ledger

    def table(
        self,
        name: str,
        *,
        chain: str | None = None,
        height: int | None = None,
        seq: int | None = None,
        at: datetime | None = None,
    ) -> DataFrame:
        """What the view of the same name shows, at the head or as of a block, a ledger seq or a time."""
        table = self._catalog.table(name)
        if table.is_control:
            return self._spark.table(self._catalog.namespace.control(name.split(".")[1]))
        histories = self._histories(table, chain, seq, at)
        self._check_height(table, histories, chain, height)
        versioned = seq is not None or at is not None
        frame = self._stored(table, histories, versioned)
        if table.kind == "state":
            bases = {} if versioned else self._bases(histories, height)
            return shown(table, _newest(table, *self._held(table, frame, _visible(histories, height), bases, None)))
        return shown(table, self._visible(frame, _visible(histories, height), {}))

    def history(self, name: str, *, chain: str | None = None) -> DataFrame:
        """Every visible row of a table with its `_height`: for state tables all after-images, deletions included."""
        table = self._catalog.table(name)
        frame = self._spark.table(self._catalog.namespace.store(name))
        return self._visible(frame, _visible(self._histories(table, chain, None, None), None), {})

    def between(self, name: str, ranges: Mapping[str, tuple[int, int]]) -> DataFrame:
        """Visible rows of heights in (from, to] of each chain, with the kernel's `_chain` and `_height`."""
        table = self._catalog.table(name)
        live = [v for chain, (low, high) in ranges.items() for v in self._written(table, chain, high) if v.limit > low]
        lower = {chain: low for chain, (low, _) in ranges.items()}
        return self._visible(self._spark.table(self._catalog.namespace.store(name)), live, lower)

    def rows_at_most(self, name: str, ranges: Mapping[str, tuple[int, int]]) -> int:
        """How many rows `between` gives at most; no job is run for it."""
        table, stored = self._catalog.table(name), physical(name)
        commits = {
            v.commit.commit_id: v.commit.rows.get(stored, 0)
            for chain, (low, high) in ranges.items()
            for v in self._history(table, chain).visible(high)
            if v.limit > low
        }
        return sum(commits.values())

    def state(self, name: str, heights: Mapping[str, int], keys: DataFrame | None = None) -> DataFrame:
        """State rows as of a height per chain, with the kernel's columns; with `keys` (`_chain` and the key, or some columns of
        it), only those."""
        table = self._catalog.table(name)
        return _newest(table, *self._held_at(table, heights, keys))

    def versions(self, name: str, heights: Mapping[str, int], keys: DataFrame | None = None) -> DataFrame:
        """What `state` chooses from: rows of which the newest of each key, that with the greatest `_height`, is its state unless
        it is deleted. Whoever looks at all rows of a key anyway spares Spark the sorting."""
        tail, base = self._held_at(self._catalog.table(name), heights, keys)
        return tail if base is None else tail.unionByName(base)

    def _held_at(self, table: Table, heights: Mapping[str, int], keys: DataFrame | None) -> tuple[DataFrame, DataFrame | None]:
        histories = {chain: self._history(table, chain) for chain in heights}
        live = [v for chain, height in heights.items() for v in self._written(table, chain, height)]
        bases = {c: b for c, h in heights.items() if (b := histories[c].base(h)) is not None}
        return self._held(table, self._spark.table(self._catalog.namespace.store(table.name)), live, bases, keys)

    def _held(
        self,
        table: Table,
        frame: DataFrame,
        live: Sequence[Visible],
        bases: Mapping[str, Commit],
        keys: DataFrame | None,
    ) -> tuple[DataFrame, DataFrame | None]:
        """The rows of a state table since its bases, and those of the bases, if there are any."""
        lower = {chain: commit.height for chain, commit in bases.items()}
        tail = self._visible(frame, [v for v in live if v.limit > lower.get(v.commit.chain, -1)], lower)
        base = self._base_rows(table, bases) if bases else None
        if keys is None:
            return tail, base
        wanted = [name for name in ("_chain", *table.state_key) if name in keys.columns]
        only = F.broadcast(keys.select(*wanted).distinct())
        return tail.join(only, wanted, "left_semi"), None if base is None else base.join(only, wanted, "left_semi")

    def _base_rows(self, table: Table, bases: Mapping[str, Commit]) -> DataFrame:
        frame = self._spark.table(self._catalog.namespace.base(table.name))
        live = [Visible(commit, commit.height) for commit in bases.values()]
        return self._visible(frame, live, {})

    def _visible(self, frame: DataFrame, live: Sequence[Visible], lower: Mapping[str, int]) -> DataFrame:
        """Rows of the given commits up to their limits. The ranges in front let Delta skip files."""
        if not live:
            return frame.filter(F.lit(False))
        ids = [v.commit.commit_id for v in live]
        lows = [lower.get(v.commit.chain, -1) for v in live]
        chains = sorted({v.commit.chain for v in live})
        frame = frame.filter(F.col("_commit").between(min(ids), max(ids)))
        frame = frame.filter((F.col("_height") > min(lows)) & (F.col("_height") <= max(v.limit for v in live)))
        if len(chains) <= 64:
            frame = frame.filter(F.col("_chain").isin(chains))
        rows = [(v.commit.chain, v.commit.commit_id, low, v.limit) for v, low in zip(live, lows, strict=True)]
        if len(rows) <= FEW:
            return frame.filter(reduce(or_, [_inside(*map(F.lit, row)) for row in rows]))
        allowed = self._spark.createDataFrame(rows, "v_chain string, v_commit long, v_low long, v_limit long")
        return frame.join(F.broadcast(allowed), _inside(*map(F.col, allowed.columns)), "left_semi")

    def _stored(self, table: Table, histories: Mapping[str, History], versioned: bool) -> DataFrame:
        """The physical table: as of the recorded Delta version where one is asked for and retention still has it. A version that
        `lake restore` went back behind may hold the damage, so the present table is read in its place."""
        full = self._catalog.namespace.store(table.name)
        if not versioned:
            return self._spark.table(full)
        stored = physical(table.name)
        made = [
            (c.delta_versions[stored], c.committed_at, commit_time(c.commit_id))
            for h in histories.values()
            for c in h.commits
            if c.kind == ADVANCE and stored in c.delta_versions  # others repeat the versions that they found
        ]
        version, committed_at, begun_at = max(made, default=(0, EVER, EVER))
        if committed_at <= now() - table.retention or self._left_behind(stored, version, begun_at):
            return self._spark.table(full)
        return _with_later_columns(table, self._spark.sql(f"SELECT * FROM {full} VERSION AS OF {version}"))

    def _left_behind(self, stored: str, version: int, begun_at: datetime) -> bool:
        """Whether a restore took the table to an older version after this one was begun."""
        restores = [row for row in records(self.control, "restore") if row["state"] == "started" and row["at"] >= begun_at]
        return any(row["details"]["tables"].get(stored, version) < version for row in restores)

    def _histories(self, table: Table, chain: str | None, seq: int | None, at: datetime | None) -> dict[str, History]:
        chains = self.ledger.chains(table.stages)
        if chain is not None and chain not in chains:
            raise BadInput(f"unknown chain {chain!r} for {table.name}: there are {some_of(chains)}")
        if seq is not None and chain is None:
            raise BadInput("a seq counts the commits of one chain: name the chain too")
        found = {c: self._history(table, c) for c in chains if chain in (None, c)}
        if seq is not None:
            top = max(history.seq() for history in found.values())
            if not 1 <= seq <= top:
                raise BadInput(f"seq {seq} of {table.name} {chain} does not exist: there are 1 to {top}")
            found = {c: history.as_of_seq(seq) for c, history in found.items()}
        if at is not None:
            moment = at if at.tzinfo else at.replace(tzinfo=timezone.utc)  # as everywhere: UTC where nothing else is said
            found = {c: history.as_of_time(moment) for c, history in found.items()}
        return found

    def _history(self, table: Table, chain: str) -> History:
        return History(c for stage in table.stages for c in self.ledger.of(stage, chain).commits)

    def _written(self, table: Table, chain: str, height: int) -> list[Visible]:
        """The commits up to a height that wrote to a table. Where there is none, Spark need not look, nor plan what follows."""
        stored = physical(table.name)
        return [v for v in self._history(table, chain).visible(height) if v.commit.rows.get(stored) != 0]

    def _bases(self, histories: Mapping[str, History], height: int | None) -> dict[str, Commit]:
        return {chain: base for chain, h in histories.items() if (base := h.base(height)) is not None}

    def _check_height(self, table: Table, histories: Mapping[str, History], chain: str | None, height: int | None) -> None:
        if height is None:
            return
        heads = [head.height for history in histories.values() if (head := history.head()) is not None]
        if height < 0 or not heads or height > max(heads):
            where = f"{table.name} {chain}" if chain else table.name
            raise BadInput(f"height {height} of {where} is not there: the head is {max(heads, default='none')}")


def _inside(chain: Column, commit: Column, low: Column, limit: Column) -> Column:
    """A row belongs to the commit and chain, and its height is in (low, limit]."""
    own = (F.col("_commit") == commit) & (F.col("_chain") == chain)
    return own & (F.col("_height") > low) & (F.col("_height") <= limit)


def _with_later_columns(table: Table, frame: DataFrame) -> DataFrame:
    """A Delta version from before a migration lacks the columns that it added. In the present table its rows have NULL there."""
    present = set(frame.columns)
    later = [column for column in table.stored if column.name not in present]
    if not later:
        return frame
    return frame.select("*", *[F.lit(None).cast(column.type).alias(column.name) for column in later])


def _newest(table: Table, tail: DataFrame, base: DataFrame | None) -> DataFrame:
    """The state: of each key its newest row, unless that is deleted. Base rows are older than those of the tail."""
    on = ["_chain", *table.state_key]
    newest = Window.partitionBy(*on).orderBy(F.col("_height").desc())
    tail = tail.withColumn("_newest", F.row_number().over(newest)).filter("_newest = 1").drop("_newest")
    if base is None:
        return tail.filter("NOT _deleted")
    untouched = base.join(tail.select(*on), on, "left_anti")
    return tail.filter("NOT _deleted").unionByName(untouched)


def shown(table: Table, frame: DataFrame) -> DataFrame:
    """The columns of the reader's view."""
    kernel = [F.col("_chain").alias("chain")]
    if table.kind != "state":
        kernel.append(F.col("_height").alias("height"))
    return frame.select(*kernel, *[F.col(column.name) for column in table.columns])


def _visible(histories: Mapping[str, History], height: int | None) -> list[Visible]:
    return [v for history in histories.values() for v in history.visible(height)]
