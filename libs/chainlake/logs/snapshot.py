"""What one query sees: the head, the active segments of the index, and the files that hold them. Immutable.

The head is that of gold.logs, or lower if bronze.logs was rolled back since gold.logs consumed it. A commit of gold.logs is a
segment of the index; a merge replaces the segments that it covers, unless gold.logs was rolled back under it.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock
from typing import Any

import numpy as np

from chainlake.lake.visibility import Commit, History, LedgerView
from chainlake.serve.arrays import Longs
from chainlake.serve.embedded import EmbeddedLake, LedgerReader
from chainlake.serve.table_log import TableLog
from chainlake.serve.visible import Limits, VisibleFiles, select

RAW, BRONZE, GOLD, MERGES = "raw.logs", "bronze.logs", "gold.logs", "gold.log_merges"
MERGED = "merged"
LOGS, BLOCKS, PAYLOADS = "bronze.evm_logs", "gold.block_meta", "raw.blocks"
PARTS = ("tails", "manifests", "chunks")
KEYS = {
    **{LOGS: "log_id", BLOCKS: "block_number", PAYLOADS: "_height"},
    **{f"gold.log_{part}{suffix}": "stream" for part in PARTS for suffix in ("", "_merged")},
}
"""The tables that queries read, and the column that each is sorted by."""


@dataclass(frozen=True)
class BlockRef:
    """A block by its place in the chain."""

    number: int
    hash: bytes
    parent_hash: bytes


@dataclass(frozen=True)
class Segment:
    """The part of the index that one commit wrote, of the blocks in (base, height]."""

    commit_id: int
    base: int
    height: int
    merged: bool


@dataclass(frozen=True)
class IndexFiles:
    """Files of one index table, with the blocks that the segments in each file cover."""

    files: VisibleFiles
    first: Longs
    last: Longs
    of_commit: Mapping[int, Sequence[int]]
    """Places of the files that may have rows of a commit."""

    def covering(self, first: int, last: int) -> list[int]:
        """Places of the files with segments that overlap the blocks from `first` to `last`."""
        return [int(place) for place in ((self.first <= last) & (self.last >= first)).nonzero()[0]]


@dataclass(frozen=True)
class IndexSnapshot:
    """The index at one moment, from the block `first` to the block `head`."""

    chain: str
    version: int
    """Grows with every change, also with a rollback."""
    first: int
    head: BlockRef
    committed_at: datetime
    segments: tuple[Segment, ...]
    limits: Mapping[str, Limits]
    files: Mapping[str, VisibleFiles]
    index: Mapping[str, IndexFiles]

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The segments that overlap the blocks from `first` to `last`: places of the first one, and of the one after the last."""
        start = bisect_left(self.segments, first, key=lambda segment: segment.height)
        return start, max(start, bisect_left(self.segments, last, key=lambda segment: segment.base))


class Follower:
    """The newest snapshot. New commits are looked for when it is asked for, but not more often than every so many seconds.

    `name_head` gives the head of a snapshot its hashes.
    """

    def __init__(
        self, lake: EmbeddedLake, chain: str, follow_seconds: float, name_head: Callable[[IndexSnapshot], BlockRef]
    ) -> None:
        self._ledger = LedgerReader(lake, chain, (RAW, BRONZE, GOLD, MERGES))
        self._logs = {table: lake.log(table, key) for table, key in KEYS.items()}
        self._chain = chain
        self._every = follow_seconds
        self._name_head = name_head
        self._looked: float | None = None
        self._revision = -1
        self._lock = Lock()
        self._current: IndexSnapshot | None = None

    def snapshot(self) -> IndexSnapshot | None:
        """The newest state; None while no block can be seen. While one thread looks for news, others go on with what is known."""
        looked = self._looked
        if looked is not None and time.monotonic() - looked < self._every:
            return self._current
        if not self._lock.acquire(blocking=looked is None):
            return self._current
        try:
            self._look()
            self._looked = time.monotonic()
            return self._current
        finally:
            self._lock.release()

    def with_present_files(self, snapshot: IndexSnapshot) -> IndexSnapshot:
        """The same state read from the files that hold it now: OPTIMIZE replaces files and VACUUM deletes the old ones."""
        with self._lock:
            self._refresh_logs()
            renewed = replace(snapshot, **_files(snapshot.chain, snapshot.limits, snapshot.segments, self._logs))
            if self._current is not None and self._current.version == snapshot.version:
                self._current = renewed
            return renewed

    def _look(self) -> None:
        """The ledger is read before the tables, so that what it names is there."""
        if self._ledger.has_news():
            self._ledger.refresh()
        if self._ledger.revision != self._revision:
            self._refresh_logs()
            found = _snapshot(self._ledger.view, self._chain, self._ledger.revision, self._logs)
            self._current = replace(found, head=self._name_head(found)) if found is not None else None
            self._revision = self._ledger.revision

    def _refresh_logs(self) -> None:
        for log in self._logs.values():
            log.refresh()


def active_segments(gold: History, merges: History) -> tuple[Segment, ...]:
    """Merges that hold, and the commits of gold.logs that none of them covers; oldest first."""
    head = gold.head()
    merged = [
        Segment(seen.commit.commit_id, seen.commit.base_height, seen.commit.height, True)
        for seen in merges.visible()
        if MERGED in seen.commit.roots and seen.limit == seen.commit.height and head and _stands(seen.commit, gold, head.height)
    ]
    plain = [
        Segment(seen.commit.commit_id, seen.commit.base_height, seen.commit.height, False)
        for seen in gold.visible()
        if not any(one.base <= seen.commit.base_height and seen.commit.height <= one.height for one in merged)
    ]
    return tuple(sorted(merged + plain, key=lambda segment: segment.base))


def _stands(merge: Commit, gold: History, head: int) -> bool:
    """Whether what a merge holds is still what gold.logs says: not beyond its head, nor rolled back since."""
    back = gold.lowest_rollback_after(merge.inputs.get(GOLD, 0))
    return merge.height <= head and (back is None or merge.height <= back)


def visible_head(bronze: History, gold: History) -> int | None:
    """The last block that both the index and the logs have, in the same version of the chain; None if there is none."""
    heads = [history.head() for history in (bronze, gold)]
    back = bronze.lowest_rollback_after(gold.consumed(BRONZE))
    heights = [head.height for head in heads if head] + ([back] if back is not None else [])
    first = gold.first_height()
    return min(heights) if all(heads) and first is not None and min(heights) > first else None


def _snapshot(ledger: LedgerView, chain: str, version: int, logs: Mapping[str, TableLog]) -> IndexSnapshot | None:
    """What the ledger says, with the files that hold it; the head has no hashes yet."""
    raw, bronze, gold, merges = (ledger.of(stage, chain) for stage in (RAW, BRONZE, GOLD, MERGES))
    head = visible_head(bronze, gold)
    if head is None:
        return None
    segments = active_segments(gold, merges)
    limits = {table: _limits(history, head) for table, history in ((PAYLOADS, raw), (LOGS, bronze), (BLOCKS, gold))}
    for merged, suffix in ((False, ""), (True, "_merged")):
        index = Limits({one.commit_id: one.height for one in segments if one.merged == merged})
        limits.update({f"gold.log_{part}{suffix}": index for part in PARTS})
    seen = [each.commit for each in gold.visible(head)]
    return IndexSnapshot(
        chain=chain,
        version=version,
        first=seen[0].base_height + 1,
        head=BlockRef(head, b"", b""),
        committed_at=seen[-1].committed_at,
        segments=segments,
        limits=limits,
        **_files(chain, limits, segments, logs),
    )


def _limits(history: History, head: int) -> Limits:
    return Limits({seen.commit.commit_id: seen.limit for seen in history.visible(head)})


def _files(chain: str, limits: Mapping[str, Limits], segments: Sequence[Segment], logs: Mapping[str, TableLog]) -> dict[str, Any]:
    files = {table: select(log.files, chain, limits[table], KEYS[table]) for table, log in logs.items()}
    return {"files": files, "index": {table: _covered(files[table], segments) for table, key in KEYS.items() if key == "stream"}}


def _covered(files: VisibleFiles, segments: Sequence[Segment]) -> IndexFiles:
    """The blocks that the segments in each file cover, from the lowest to the highest."""
    by_commit = {segment.commit_id: segment for segment in segments}
    of_commit: dict[int, list[int]] = {}
    for place, source in enumerate(files.sources):
        for commit in source.commits.commits.tolist():
            of_commit.setdefault(commit, []).append(place)
    held = [[by_commit[commit] for commit in source.commits.commits.tolist()] for source in files.sources]
    return IndexFiles(
        files,
        np.array([min(one.base for one in each) + 1 for each in held], np.int64),
        np.array([max(one.height for one in each) for each in held], np.int64),
        of_commit,
    )
