"""The log index as readers use it: `LogIndex(home, chain).query(filter)`. No Spark, no JVM.

Answers are exact and reflect one snapshot of the ledger, whatever is committed or rolled back meanwhile.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from chainlake.errors import BadInput, Unavailable
from chainlake.logs.blocks import BlockNotFound, BlockReader, BlockRow, not_found
from chainlake.logs.entries import Window
from chainlake.logs.executor import Execution, QueryTimedOut, Readers
from chainlake.logs.explain import Explain
from chainlake.logs.index import CorruptChunk, IndexReader
from chainlake.logs.match import Matcher
from chainlake.logs.planner import Planner, QueryTooBroad, clauses_of
from chainlake.logs.rows import NOTHING, LogReader
from chainlake.logs.settings import Settings
from chainlake.logs.snapshot import BlockRef, Follower, IndexSnapshot
from chainlake.serve.cache import CacheCounts
from chainlake.serve.embedded import EmbeddedLake
from chainlake.serve.row_groups import Reads, RowGroupFiles

if TYPE_CHECKING:
    from chainlake.logs.filter import LogFilter

__all__ = [
    "Answer",
    "BlockNotFound",
    "BlockRef",
    "CorruptChunk",
    "LogIndex",
    "NothingIndexed",
    "QueryTimedOut",
    "QueryTooBroad",
    "Settings",
]

ATTEMPTS = 3

T = TypeVar("T")


class NothingIndexed(BadInput):
    """The chain has no block that can be seen, or does not exist."""


@dataclass(frozen=True)
class Answer:
    """Logs by block and log index (the other way round if asked for descending), and the state that they reflect."""

    logs: pa.Table
    """Columns of bronze.evm_logs, without the kernel's."""
    head: BlockRef
    from_block: BlockRef | None
    """First block of the range that was answered for; None if nothing of the range asked for is indexed."""
    to_block: BlockRef | None
    more: bool
    """Stopped at max_results with more to come."""
    explain: Explain


class LogIndex:
    """The index of one chain in one lake directory. For many threads."""

    def __init__(self, lake_dir: Path, chain: str, *, prefix: str = "", settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.chain = chain
        self.lake = EmbeddedLake(lake_dir, prefix)
        self._files = RowGroupFiles(self.settings.footer_bytes, self.settings.threads)
        index = IndexReader(self._files, self.settings)
        blocks = BlockReader(self._files, index, self.settings)
        self._readers = Readers(Planner(index, self.settings), index, blocks, LogReader(self._files, self.settings))
        self._follower = Follower(self.lake, chain, self.settings.follow_seconds, blocks.head)

    def snapshot(self) -> IndexSnapshot:
        """What is indexed now. New commits are noticed after at most `follow_seconds`."""
        found = self._follower.snapshot()
        if found is None:
            raise NothingIndexed(f"no block of chain {self.chain!r} is indexed: see lake status, then lake run logs")
        return found

    def query(
        self,
        filter: "LogFilter",
        *,
        max_results: int | None = None,
        descending: bool = False,
        after: tuple[int, int] | None = None,
        snapshot: IndexSnapshot | None = None,
    ) -> Answer:
        """The logs that a filter asks for, within what is indexed.

        At most `max_results` of them, from behind the log `after` (block number, log index) in the direction asked for.
        """
        started = time.perf_counter()
        deadline = None if self.settings.query_seconds is None else started + self.settings.query_seconds
        seen = snapshot or self.snapshot()
        waited = (time.perf_counter() - started) * 1000
        return self._read(
            seen,
            lambda now: self._answer(now, filter, max_results, descending, after, deadline, Explain(steps={"snapshot": waited})),
        )

    def block_by_number(self, number: int, snapshot: IndexSnapshot | None = None) -> BlockRef | None:
        """The block at a height; None if it is not indexed."""
        row = self._read(snapshot or self.snapshot(), lambda now: self._readers.blocks.by_number(now, number, Reads()))
        return row and row.ref

    def block_by_hash(self, block_hash: bytes, snapshot: IndexSnapshot | None = None) -> BlockRef | None:
        """The block with a hash; None if it is not indexed."""
        row = self._read(snapshot or self.snapshot(), lambda now: self._readers.blocks.by_hash(now, block_hash, Reads()))
        return row and row.ref

    def payload(self, block: BlockRef, snapshot: IndexSnapshot | None = None) -> bytes | None:
        """A block as its source gave it; None if the raw layer does not have it."""
        return self._read(snapshot or self.snapshot(), lambda now: self._readers.blocks.payload(now, block, Reads()))

    def caches(self) -> Mapping[str, CacheCounts]:
        """How each cache has done."""
        index, blocks, logs = self._readers.index, self._readers.blocks, self._readers.logs
        kept = {group.kind: group.cache.counts() for group in (index.tails, index.manifests, index.chunk_groups)}
        kept |= {"blocks": blocks.groups.cache.counts(), "logs": logs.groups.cache.counts()}
        return kept | {"chunks": index.chunks.counts(), "postings": index.known.counts(), "footers": self._files.footers.counts()}

    def _read(self, snapshot: IndexSnapshot, read: Callable[[IndexSnapshot], T]) -> T:
        """Read from a snapshot; again if files that it names were replaced meanwhile."""
        for _ in range(ATTEMPTS - 1):
            try:
                return read(snapshot)
            except FileNotFoundError:
                snapshot = self._follower.with_present_files(snapshot)
        try:
            return read(snapshot)
        except FileNotFoundError as error:
            raise Unavailable(f"a file of the index is gone: {error}; run lake verify") from None

    def _answer(
        self,
        snapshot: IndexSnapshot,
        wanted: "LogFilter",
        limit: int | None,
        descending: bool,
        after: tuple[int, int] | None,
        deadline: float | None,
        explain: Explain,
    ) -> Answer:
        clauses = clauses_of(wanted, self.settings)
        explain.clauses = [clause.report for clause in clauses]
        matcher = Matcher(wanted)
        with explain.step("range"):
            ends = self._range(snapshot, wanted, explain.reads)
            window = self._window(snapshot, ends, after, descending, explain.reads)
        if ends is None:
            return Answer(NOTHING, snapshot.head, None, None, False, explain)
        blocks = (ends[0].number, ends[1].number)
        explain.first_block, explain.last_block, explain.log_ids = *blocks, window.size
        start, end = snapshot.span(*blocks)
        explain.segments = end - start
        with explain.step("plan"):
            plan = self._readers.planner.plan(snapshot, clauses, blocks, window, explain)
        explain.plan = "empty" if plan.empty else "scan" if plan.scan else "index"
        rows, more = NOTHING, False
        if explain.plan != "empty":
            run = Execution(self._readers, snapshot, plan, blocks, matcher, limit, descending, explain, deadline)
            rows, more = run.run()
        explain.results, explain.more = rows.num_rows, more
        return Answer(rows, snapshot.head, ends[0].ref, ends[1].ref, more, explain)

    def _range(self, snapshot: IndexSnapshot, wanted: "LogFilter", reads: Reads) -> tuple[BlockRow, BlockRow] | None:
        """The first and last block that a filter asks for, clipped to what is indexed; None if that is nothing."""
        blocks, head = self._readers.blocks, snapshot.head.number
        if wanted.block_hash is not None:
            row = blocks.by_hash(snapshot, wanted.block_hash, reads)
            if row is None:
                raise not_found(wanted.block_hash)
            return row, row
        first = max(head if wanted.from_block is None else wanted.from_block, snapshot.first)
        last = min(head if wanted.to_block is None else wanted.to_block, head)
        if first > last:
            return None
        rows = blocks.rows(snapshot, (first, last), reads)
        return rows[first], rows[last]

    def _window(
        self,
        snapshot: IndexSnapshot,
        ends: tuple[BlockRow, BlockRow] | None,
        after: tuple[int, int] | None,
        descending: bool,
        reads: Reads,
    ) -> Window:
        """The log ids of a range of blocks, from behind the cursor."""
        if ends is None:
            return Window(0, 0)
        low, high = ends[0].first_log_id, ends[1].end_log_id
        if after is not None and after[0] > ends[1].number:
            return Window(low, high) if descending else Window(high, high)
        if after is not None and after[0] < ends[0].number:
            return Window(low, low) if descending else Window(low, high)
        if after is not None:
            block = self._readers.blocks.rows(snapshot, [after[0]], reads)[after[0]]
            low, high = _behind(block, after[1], low, high, descending)
        return Window(low, high)


def _behind(block: BlockRow, log_index: int, low: int, high: int, descending: bool) -> tuple[int, int]:
    if descending:
        return low, max(low, min(high, block.first_log_id + min(max(log_index, 0), block.log_count)))
    return max(low, min(high, block.first_log_id + min(max(log_index + 1, 0), block.log_count))), high
