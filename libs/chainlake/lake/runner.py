"""Running a stage over the chains of one lane until it has caught up with its inputs.

Each round: follow rollbacks of the inputs, choose a batch, let the stage make its frames, append, commit. A batch that breaks a
promise degrades its chain and leaves nothing visible. A chain with input that is no use waits until the next run.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from chainlake.errors import BadInput, BrokenPromise
from chainlake.lake import stopping
from chainlake.lake.clock import new_commit_id, now
from chainlake.lake.commit import Appended, append_all
from chainlake.lake.failpoint import failpoint
from chainlake.lake.going_back import hashes_at, rollback_row, wide_views
from chainlake.lake.lease import Lease
from chainlake.lake.maintenance import Maintenance
from chainlake.lake.progress import Progress
from chainlake.lake.reader import Snapshot
from chainlake.lake.session import settings
from chainlake.lake.stage import Batch, Output, Stage
from chainlake.lake.visibility import ADVANCE, Commit, Head, LedgerView

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

PACK_EVERY = 50
LEFT_OUT = "left out"


@dataclass
class ChainSummary:
    """What a run did to one chain."""

    stage: str
    chain: str
    from_height: int | None = None
    height: int | None = None
    blocks: int = 0
    rows: int = 0
    commits: int = 0
    rollbacks: int = 0
    seconds: float = 0.0
    status: str = "ok"
    error: str = ""


@dataclass
class Timings:
    """Seconds per phase of one batch."""

    started_at: datetime = field(default_factory=now)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started


class LaneRun:
    """One run of one stage over one lane, under one lease."""

    def __init__(
        self,
        lake: "Lake",
        stage: Stage,
        chains: Sequence[str],
        lease: Lease,
        max_blocks: int,
        max_rows: int,
        to_height: int | None = None,
    ) -> None:
        self.lake = lake
        self.stage = stage
        self.lease = lease
        self.max_blocks = max_blocks
        self.max_rows = max_rows
        self.to_height = to_height
        self.run_id = secrets.token_hex(8)
        self.summaries = {chain: ChainSummary(stage.name, chain) for chain in chains}
        self.progress = Progress(stage.name)
        self.view = LedgerView(())
        self.to_pack: set[str] = set()
        self.options = {chain: lake.chain(chain).options for chain in chains}

    def has_work(self) -> bool:
        """A look before the lease is taken: a run with nothing to do writes nothing at all."""
        self.refresh()
        self.check_lane()
        return self.stage.is_source or self.has_more()

    def run(self) -> None:
        """Go on until caught up, stopped, or broken."""
        started = time.monotonic()
        try:
            self.refresh()
            self.check_lane()
            self.prepare()
            while True:
                stopping.check()
                self.lease.check()
                if not self.step():
                    if self.stage.is_source:
                        break
                    self.refresh()
                    if not self.has_more():
                        break
            self.pack()
            self.tell_left_out()
        finally:
            self.progress.close()
            for summary in self.summaries.values():
                summary.seconds = round(time.monotonic() - started, 2)

    def pack(self) -> None:
        """Pack the small files of tables that have had many appends since they were packed last."""
        with settings(self.lake.spark, self.stage.write_settings):
            for stored in sorted(self.to_pack):
                Maintenance(self.lake).optimize(self.lake.catalog.full_name(stored), stored)

    def summary(self) -> list[ChainSummary]:
        """What was done to each chain, and where it stands."""
        for summary in self.summaries.values():
            head = self.head(summary.chain)
            summary.height = head.height if head else None
        return list(self.summaries.values())

    def check_lane(self) -> None:
        """A chain stays in the lane that it started in: its seq belongs to it."""
        for chain in self.summaries:
            lane = self.view.lane_of(self.stage.name, chain)
            if self.view.of(self.stage.name, chain).commits and lane != self.lease.lane:
                raise BadInput(
                    f"{self.stage.name} {chain} was committed in lane {lane}, not {self.lease.lane}: keep lane_of as it was"
                )

    def prepare(self) -> None:
        """What a kind of run needs before its first step."""

    def refresh(self) -> None:
        """Look at the ledger again."""
        self.view = self.lake.ledger.read([self.stage.name, *(s.name for s in self.lake.stages.upstream(self.stage.name))])

    def has_more(self) -> bool:
        """Inputs moved since the last look."""
        return bool(self.overtaken() or self.available())

    def step(self) -> bool:
        """One batch; False when there is nothing to do."""
        timings = Timings()
        targets = self.overtaken()
        if targets:
            self.roll_back(targets)
        with timings.phase("plan"):
            ranges = self.plan()
        if not ranges:
            return False
        self.advance(ranges, timings)
        return True

    def active(self) -> list[str]:
        return [chain for chain, summary in self.summaries.items() if summary.status == "ok"]

    def head(self, chain: str) -> Head | None:
        return self.view.of(self.stage.name, chain).head()

    def overtaken(self) -> dict[str, tuple[int, str]]:
        """Chains of which an input went back below what this stage consumed: the common ancestor, and why."""
        targets: dict[str, tuple[int, str]] = {}
        for chain in self.active():
            history = self.view.of(self.stage.name, chain)
            head = history.head()
            for name in self.stage.inputs:
                low = self.view.of(name, chain).lowest_rollback_after(history.consumed(name))
                if head is not None and low is not None and low < targets.get(chain, (head.height, ""))[0]:
                    targets[chain] = (low, f"{name} was rolled back to {low}")
        return targets

    def roll_back(self, targets: Mapping[str, tuple[int, str]]) -> None:
        """One ledger row per chain: everything above the height is gone from every table at once."""
        rows = [
            rollback_row(self.view, self.lake, self.stage, chain, height, why, self.lease.epoch, self.run_id, self.inputs(chain))
            for chain, (height, why) in targets.items()
        ]
        timings = Timings()
        with timings.phase("ledger"), wide_views(self.lake, self.view, rows):
            self.commit(rows)
        for row in rows:
            self.note(row, 0, {}, timings)
            self.summaries[row.chain].rollbacks += 1
            self.tell("rollback", timings.seconds["ledger"], row.chain, row, why=row.why)

    def plan(self) -> dict[str, tuple[int, int]]:
        """The next heights of each chain: at most `max_blocks` a chain and about `max_rows` in all."""
        ranges = self.available()
        return self.bounded(ranges) if ranges else {}

    def available(self) -> dict[str, tuple[int, int]]:
        """What the inputs have for each chain, at most `max_blocks` of it."""
        ranges = {}
        for chain in self.active():
            heads = [self.view.of(name, chain).head() for name in self.stage.inputs]
            bases = [self.view.of(name, chain).first_height() for name in self.stage.inputs]
            if not heads or any(head is None for head in heads):
                continue
            own = self.head(chain)
            low = own.height if own else max(base for base in bases if base is not None)
            high = self.bound(low, min(head.height for head in heads if head))
            if high > low:
                ranges[chain] = (low, high)
        return ranges

    def bound(self, low: int, available: int) -> int:
        """How far a batch from `low` may go."""
        high = min(available, low + self.max_blocks)
        return high if self.to_height is None else min(high, self.to_height)

    def bounded(self, ranges: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Cut the ranges so that their input rows fit; a single block is never cut."""
        if self.rows_at_most(ranges) <= self.max_rows:
            return ranges
        counts: dict[int, int] = {}
        snapshot, names = self.snapshot(), self.lake.input_tables(self.stage)
        places = [snapshot.between(name, ranges).select("_chain", "_height") for name in names]
        for chain, height, count in reduce(DataFrame.unionByName, places).groupBy("_chain", "_height").count().collect():
            offset = height - ranges[chain][0]
            counts[offset] = counts.get(offset, 0) + count
        total, cut = 0, 1
        for offset in sorted(counts):
            total += counts[offset]
            if total > self.max_rows and offset > 1:
                break
            cut = offset
        longest = max(high - low for low, high in ranges.values())
        cut = longest if total <= self.max_rows else cut
        return {chain: (low, min(high, low + cut)) for chain, (low, high) in ranges.items()}

    def rows_at_most(self, ranges: Mapping[str, tuple[int, int]]) -> int:
        """An upper bound of the input rows in the ranges, from the ledger alone."""
        commits = {
            v.commit.commit_id: sum(v.commit.rows.values())
            for chain, (low, high) in ranges.items()
            for name in self.stage.inputs
            for v in self.view.of(name, chain).visible(high)
            if v.limit > low
        }
        return sum(commits.values())

    def snapshot(self) -> Snapshot:
        return Snapshot(self.lake.spark, self.lake.catalog, self.view)

    def inputs(self, chain: str) -> dict[str, int]:
        return {name: self.view.of(name, chain).seq() for name in self.stage.inputs}

    def advance(self, ranges: Mapping[str, tuple[int, int]], timings: Timings) -> None:
        """Process one batch and commit it."""
        assert self.stage.advance is not None
        batch = Batch(self.lake.spark, self.snapshot(), ranges, self.options)
        try:
            with timings.phase("transform"):
                output = self.stage.advance(batch)
                hashes = self.hashes_at({chain: high for chain, (_, high) in ranges.items()})
            self.write(ranges, output, hashes, timings)
        except BrokenPromise as error:
            before = {chain: (low, error.height - 1) for chain, (low, _) in ranges.items() if error.height is not None}
            if len(before) == 1 and all(high > low for low, high in before.values()):
                self.advance(before, Timings())
            self.degrade(error, list(ranges), timings)
        except BadInput as error:
            self.leave_out(error, list(ranges))

    def leave_out(self, error: BadInput, chains: Sequence[str]) -> None:
        """What was given for some chains of the lane is no use: the others go on, and it is told at the end. They stay healthy,
        and go on by themselves once it is mended."""
        named = [chain for chain in chains if chain in error.chains]
        if not named:
            raise error
        for chain in named:
            self.summaries[chain].status = LEFT_OUT
            self.summaries[chain].error = str(error)

    def tell_left_out(self) -> None:
        """`BadInput` if chains were left out."""
        told = sorted({summary.error for summary in self.summaries.values() if summary.status == LEFT_OUT})
        if told:
            raise BadInput(told[0] + (f" (and {len(told) - 1} more)" if len(told) > 1 else ""))

    def degrade(self, error: BrokenPromise, chains: Sequence[str], timings: Timings) -> None:
        """Fail closed: nothing of the batch is visible, and the chains wait for an operator."""
        self.lake.runs.add(
            run_id=self.run_id,
            stage=self.stage.name,
            lane=self.lease.lane,
            chains=len(chains),
            kind="failed",
            blocks=0,
            rows=0,
            bytes=0,
            retries=0,
            seconds=dict(timings.seconds),
            error=str(error),
            started_at=timings.started_at,
        )
        broken = [chain for chain in chains if chain in error.chains] or list(chains)
        for chain in broken:
            self.lake.health.degrade(self.stage.name, chain, str(error), self.run_id)
            self.summaries[chain].status = "degraded"
            self.summaries[chain].error = str(error)
            seconds = sum(timings.seconds.values())
            self.progress.phase("degraded", seconds, chain=chain, height=error.height, epoch=self.lease.epoch, error=str(error))

    def write(
        self, ranges: Mapping[str, tuple[int, int]], output: Output, hashes: Mapping[str, bytes | None], timings: Timings
    ) -> None:
        """Append all frames, then the ledger row that makes them exist."""
        if set(output.tables) != set(self.stage.tables):
            raise BadInput(
                f"{self.stage.name} made {sorted(output.tables)}, declared are {sorted(self.stage.tables)}: fix the stage"
            )
        commit_id = new_commit_id()
        with timings.phase("append"), settings(self.lake.spark, self.stage.write_settings):
            appended = append_all(self.lake.catalog, output.tables, commit_id, ranges)
            output.check()
        rows = [
            Commit(
                stage=self.stage.name,
                lane=self.lease.lane,
                chain=chain,
                seq=self.view.lane_seq(self.stage.name, self.lease.lane) + 1,
                commit_id=commit_id,
                kind=ADVANCE,
                base_height=low,
                height=high,
                block_hash=hashes.get(chain),
                roots=output.roots.get(chain, {}),
                inputs=self.inputs(chain),
                delta_versions={name: one.version for name, one in appended.items()},
                rows={name: one.rows for name, one in appended.items()},
                checksums={name: one.checksum for name, one in appended.items()},
                epoch=self.lease.epoch,
                run_id=self.run_id,
                committed_at=now(),
            )
            for chain, (low, high) in ranges.items()
        ]
        with timings.phase("ledger"):
            self.commit(rows)
        self.to_pack |= {name for name, one in appended.items() if one.version % PACK_EVERY == 0 and not self._is_index(name)}
        self.report(rows, appended, timings)

    def _is_index(self, stored: str) -> bool:
        """Rows of an index lie in sorted runs, one a commit, which packing would mix."""
        return self.lake.catalog.declared(stored).kind == "index"

    def commit(self, rows: Sequence[Commit]) -> None:
        """The moment at which it happens, or does not."""
        self.lease.check()
        failpoint("before_ledger")
        self.lake.ledger.append(rows, self.lease.confirm)
        failpoint("after_ledger")
        self.view = self.view.with_commits(rows)

    def report(self, rows: Sequence[Commit], appended: Mapping[str, Appended], timings: Timings) -> None:
        first = rows[0]
        blocks = sum(row.height - row.base_height for row in rows)
        written = sum(one.rows for one in appended.values())
        for row in rows:
            summary = self.summaries[row.chain]
            summary.commits += 1
            summary.blocks += row.height - row.base_height
            summary.rows += written if len(rows) == 1 else 0
            summary.from_height = row.base_height if summary.from_height is None else summary.from_height
        name = first.chain if len(rows) == 1 else f"{len(rows)} chains"
        for phase, seconds in timings.seconds.items():
            self.tell(phase, seconds, name, first)
        self.progress.advance(blocks, self.expected())
        self.note(first, blocks, appended, timings, len(rows))

    def tell(self, phase: str, seconds: float, chain: str, commit: Commit, **more: object) -> None:
        """A line of the log."""
        fields = {"height": commit.height, "commit": commit.commit_id, "epoch": commit.epoch, "seq": commit.seq}
        self.progress.phase(phase, seconds, chain=chain, **fields, **more)

    def note(self, first: Commit, blocks: int, appended: Mapping[str, Appended], timings: Timings, chains: int = 1) -> None:
        """A row of control.runs."""
        self.lake.runs.add(
            run_id=self.run_id,
            stage=self.stage.name,
            lane=self.lease.lane,
            chains=chains,
            commit_id=first.commit_id,
            seq=first.seq,
            epoch=first.epoch,
            kind=first.kind,
            blocks=blocks,
            rows=sum(one.rows for one in appended.values()),
            bytes=sum(one.bytes for one in appended.values()),
            retries=sum(one.retries for one in appended.values()),
            seconds=dict(timings.seconds),
            started_at=timings.started_at,
        )

    def expected(self) -> int | None:
        """Blocks that this run will have done when it has caught up."""
        total = 0
        for chain, summary in self.summaries.items():
            heads = [head.height for name in self.stage.inputs if (head := self.view.of(name, chain).head())]
            firsts = [low for name in self.stage.inputs if (low := self.view.of(name, chain).first_height()) is not None]
            own = self.head(chain)
            low = own.height if own else max(firsts, default=0)
            total += summary.blocks + max(0, min(heads, default=low) - low)
        return total if self.stage.inputs else None

    def hash_at(self, chain: str, height: int) -> bytes | None:
        return self.hashes_at({chain: height}).get(chain)

    def hashes_at(self, heights: Mapping[str, int]) -> Mapping[str, bytes]:
        return hashes_at(self.view, self.lake, self.stage, heights)
