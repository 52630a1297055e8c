"""Carrying out a plan: candidates window by window, then the logs themselves, until there are enough."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from chainlake.errors import LakeError
from chainlake.logs.blocks import BlockReader
from chainlake.logs.entries import Entries, Postings, Window, count, entries_of, numbers
from chainlake.logs.explain import BLOCK_FILTER, CHECK, INDEX, Explain
from chainlake.logs.index import IndexReader
from chainlake.logs.match import Matcher
from chainlake.logs.planner import WORTH_A_BLOCK_FILTER, Clause, Plan, Planner, windows
from chainlake.logs.rows import NOTHING, LogReader, reversed_rows
from chainlake.logs.snapshot import IndexSnapshot
from chainlake.logs.streams import Kind, Longs, streams_of

FIRST_SLICE, LONGEST_SLICE = 64, 1 << 16


class QueryTimedOut(LakeError):
    """A query took longer than the settings allow."""


@dataclass(frozen=True)
class Readers:
    """What an execution asks and reads through."""

    planner: Planner
    index: IndexReader
    blocks: BlockReader
    logs: LogReader


@dataclass
class Execution:
    """One query on its way."""

    readers: Readers
    snapshot: IndexSnapshot
    plan: Plan
    blocks: tuple[int, int]
    matcher: Matcher
    limit: int | None
    descending: bool
    explain: Explain
    deadline: float | None = None
    _block_postings: Postings | None = None

    def run(self) -> tuple[pa.Table, bool]:
        """The logs in order, and whether there are more than the limit."""
        found: list[pa.Table] = []
        total = 0
        for rows in self._scan() if self.plan.scan else self._search():
            found.extend([rows] if rows.num_rows else [])
            total += rows.num_rows
            if self.limit is not None and total > self.limit:
                break
        rows = pa.concat_tables(found) if found else NOTHING
        return (rows, False) if self.limit is None or total <= self.limit else (rows.slice(0, self.limit), True)

    def _check_time(self) -> None:
        if self.deadline is not None and time.perf_counter() > self.deadline:
            raise QueryTimedOut("the query takes too long: ask for fewer blocks, or give more of address and topics")

    def _scan(self) -> Iterator[pa.Table]:
        """Every log of the window is compared."""
        self.explain.windows = 1
        for clause in self.plan.unindexed:
            clause.report.used = CHECK
        tables = self.readers.logs.scan(self.snapshot, self.plan.window, self.matcher, self.descending, self.explain.reads)
        while True:
            self._check_time()
            with self.explain.step("scan"):
                found = next(tables, None)
            if found is None:
                return
            self.explain.candidates += found[1]
            yield found[0]

    def _search(self) -> Iterator[pa.Table]:
        """The index gives candidates, and each of them is compared."""
        for order, clause in enumerate(self.plan.clauses, 1):
            clause.report.order = order
        for clause in self.plan.unindexed:
            clause.report.used = CHECK
        width = self.readers.planner.first_width(self.plan, self.limit)
        for window in windows(self.plan.window, width, self.descending):
            self._check_time()
            self.explain.windows += 1
            with self.explain.step("index"):
                ids, sure = self._candidates(window)
            yield from self._fetch(ids, sure)

    def _candidates(self, window: Window) -> tuple[Longs, bool]:
        """Logs of a window that the index cannot exclude, and whether all clauses were applied to find them."""
        first, *others = self.plan.clauses
        found: Entries = self._entries(first, window, None)
        sure = not self.plan.unindexed
        for clause in others:
            if not found:
                break
            found, applied = self._narrow(clause, window, found)
            sure = sure and applied
        return numbers(found), sure

    def _narrow(self, clause: Clause, window: Window, found: Entries) -> tuple[Entries, bool]:
        """Apply a further clause to candidates, if that pays; and whether it was."""
        chunks = clause.chunks(window, found)
        if chunks == 0:
            return self._entries(clause, window, found), True
        share = min(1.0, clause.estimate / self.plan.window.size)
        worth_it = clause.kind == Kind.TOPIC0 and chunks >= WORTH_A_BLOCK_FILTER
        by_block = self._block_cost(clause) if worth_it else None
        use = self.readers.planner.late_use(count(found), window, share, chunks, by_block)
        if use == INDEX:
            return self._entries(clause, window, found), True
        clause.report.used = use
        return (self._in_blocks_of(clause, found) if use == BLOCK_FILTER else found), False

    def _entries(self, clause: Clause, window: Window, among: Entries | None) -> dict[int, BitMap]:
        found = self.readers.index.entries(self.snapshot, clause.postings, window, among, self.explain.reads)
        clause.report.used = INDEX
        clause.report.actual = (clause.report.actual or 0) + count(found)
        return found

    def _block_cost(self, clause: Clause) -> tuple[float, int]:
        """Which share of the blocks has one of the signatures, and how many chunks say so."""
        whole = Window(self.blocks[0], self.blocks[1] + 1)
        postings = self._blocks_with(clause)
        return min(1.0, postings.estimate(whole) / whole.size), sum(len(one.places) for one in postings.chunks(whole))

    def _blocks_with(self, clause: Clause) -> Postings:
        if self._block_postings is None:
            streams = streams_of(Kind.TOPIC0_BLOCK, clause.values)
            self._block_postings = self.readers.index.postings(self.snapshot, streams, *self.blocks, self.explain.reads)
        return self._block_postings

    def _in_blocks_of(self, clause: Clause, found: Entries) -> Entries:
        """Candidates in blocks that have one of the signatures."""
        ids = numbers(found)
        blocks = self.readers.blocks.numbers_of(self.snapshot, ids, *self.blocks, self.explain.reads)
        distinct = np.unique(blocks)
        whole = Window(self.blocks[0], self.blocks[1] + 1)
        among = entries_of(distinct)
        having = self.readers.index.entries(self.snapshot, self._blocks_with(clause), whole, among, self.explain.reads)
        return entries_of(ids[np.isin(blocks, numbers(having))])

    def _fetch(self, ids: Longs, sure: bool) -> Iterator[pa.Table]:
        """The candidates that match, in slices that grow."""
        size = LONGEST_SLICE if self.limit is None else max(self.limit + 1, FIRST_SLICE)
        left, keep = ids, self.limit is not None or self.readers.logs.may_keep(ids)
        while len(left):
            self._check_time()
            part, left = (left[-size:], left[:-size]) if self.descending else (left[:size], left[size:])
            self.explain.candidates += len(part)
            with self.explain.step("fetch"):
                rows = self.readers.logs.fetch(self.snapshot, part, self.matcher, sure, keep, self.explain.reads)
                rows = reversed_rows(rows) if self.descending else rows
            size = min(size * 2, LONGEST_SLICE)
            if rows.num_rows:
                yield rows
