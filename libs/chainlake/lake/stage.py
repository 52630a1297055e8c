"""What the author of a stage writes: one function from a batch of blocks to one DataFrame per table.

The kernel does the rest: lease, batch bounds, lineage, appends, the commit, metrics, progress.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from chainlake.errors import BadInput
from chainlake.lake.reader import Snapshot

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake
    from chainlake.lake.runner import LaneRun

SMALL_ROW_GROUPS = {"parquet.block.size": str(512 << 10), "parquet.page.size": str(64 << 10)}
"""Write settings of tables that readers search by key without Spark: they then read little beside what they look for."""

SMALL_ROWS = {"spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1)}
"""Settings (`session.settings`) for handing many small rows to Python. Unless there is no limit, Spark adds up the bytes of all
columns after every row. The number of rows at once is limited all the same."""


@dataclass(frozen=True)
class Output:
    """What a stage made of a batch: a frame per table, or None where it knows that there is nothing to write, which saves a job;
    per chain the state roots after its last block; and a last `check`, asked when the rows are written and before they exist. It
    raises `BrokenPromise` if they may not, for what one sees best while they are made."""

    tables: Mapping[str, DataFrame | None]
    roots: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Batch:
    """Blocks to process: heights in (from, to] of each chain, and the inputs and state to process them with."""

    spark: SparkSession
    snapshot: Snapshot
    ranges: Mapping[str, tuple[int, int]]
    options: Mapping[str, Mapping[str, str]]

    def read(self, table: str) -> DataFrame:
        """Rows of an input table in this batch, with `_chain` and `_height`."""
        return self.snapshot.between(table, self.ranges).drop("_commit")

    def state(self, table: str, keys: DataFrame | None = None) -> DataFrame:
        """A state table as it was before this batch, with `_chain` and `_height`; give `keys` to load only those."""
        before = {chain: low for chain, (low, _) in self.ranges.items()}
        return self.snapshot.state(table, before, keys).drop("_commit", "_deleted")

    def rows(self, table: str) -> int:
        """How many rows `read` gives at most, by the ledger alone: a stage may plan by it."""
        return self.snapshot.rows_at_most(table, self.ranges)

    def versions(self, table: str, keys: DataFrame | None = None) -> DataFrame:
        """Rows of a state table before this batch, of which the newest of each key counts, unless it is `_deleted`."""
        before = {chain: low for chain, (low, _) in self.ranges.items()}
        return self.snapshot.versions(table, before, keys).drop("_commit")

    def versions_at_most(self, table: str) -> int:
        """How many rows `versions` without keys gives at most, by the ledger alone."""
        return self.snapshot.rows_at_most(table, {chain: (-1, low) for chain, (low, _) in self.ranges.items()})

    def keep(self, frame: DataFrame) -> DataFrame:
        """The frame computed once, for a stage that uses it several times. (A cached frame would be planned again at each
        later write to the tables it reads; this one no longer knows them.)"""
        return frame.localCheckpoint()

    @property
    def blocks(self) -> int:
        """Blocks in the batch, all chains together."""
        return sum(high - low for low, high in self.ranges.values())


@dataclass(frozen=True)
class OrphanLimit:
    """How many rows of some tables attempts that never committed may leave: writers slow down from half of it on, then stop."""

    what: str
    tables: tuple[str, ...]
    most: int


@dataclass(frozen=True)
class Stage:
    """One step of a pipeline."""

    name: str
    kind: str
    tables: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    advance: Callable[[Batch], Output] | None = None
    lane_of: Callable[[str], str] = lambda chain: chain
    max_blocks: int = 1000
    max_rows: int = 2_000_000
    write_settings: Mapping[str, str] = field(default_factory=dict)
    runner: "type[LaneRun] | None" = None
    verify: "Callable[[Lake, str], list[str]] | None" = None
    orphan_limits: tuple[OrphanLimit, ...] = ()
    """Limits of its own, beside those of the lake as a whole."""
    as_needed: bool = False
    """It commits only when there is something to do, and is never behind."""

    @property
    def is_source(self) -> bool:
        """A source stage reads blocks from outside."""
        return not self.inputs


class Stages:
    """The stages that a lake knows, by name."""

    def __init__(self, stages: tuple[Stage, ...] = ()) -> None:
        self._by_name: dict[str, Stage] = {}
        for stage in stages:
            self.add(stage)

    def add(self, stage: Stage) -> None:
        for name in stage.inputs:
            self.get(name)
        self._by_name[stage.name] = stage

    def get(self, name: str) -> Stage:
        if name not in self._by_name:
            raise BadInput(f"unknown stage {name!r}: there are {', '.join(sorted(self._by_name))}")
        return self._by_name[name]

    def all(self) -> list[Stage]:
        return list(self._by_name.values())

    def downstream(self, name: str) -> list[Stage]:
        """The stage itself and every stage that consumes it, furthest downstream first."""
        reached = {name}
        for stage in self._by_name.values():
            if reached & set(stage.inputs):
                reached.add(stage.name)
        return [stage for stage in reversed(self._by_name.values()) if stage.name in reached]

    def upstream(self, name: str) -> list[Stage]:
        """Every stage that this one consumes, directly or not, nearest first."""
        wanted, found = list(self.get(name).inputs), []
        while wanted:
            stage = self.get(wanted.pop(0))
            if stage not in found:
                found.append(stage)
                wanted.extend(stage.inputs)
        return found
