"""The lake's own log index behind the gateway's interface."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict

from chainlake.errors import BrokenPromise
from chainlake.logs.explain import Explain
from chainlake.logs.filter import LogFilter
from chainlake.logs.query import BlockNotFound, BlockRef, CorruptChunk, LogIndex, NothingIndexed, QueryTooBroad
from chainlake.logs.snapshot import IndexSnapshot
from chainlake.serve.engine import Block, Damaged, Found, Position, Snapshot, TooBroad, UnknownBlock


class IndexEngine:
    """A `LogIndex` as a `LogEngine`."""

    def __init__(self, index: LogIndex) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._totals = {"queries": 0, "chunks_read": 0, "row_groups_read": 0, "bytes_read": 0, "candidates_checked": 0}

    def snapshot(self) -> Snapshot | None:
        with _our_errors():
            try:
                found = self._index.snapshot()
            except NothingIndexed:
                return None
        return Snapshot(found.first, _block(found.head), found.version, found.committed_at, found)

    def query(
        self,
        snapshot: Snapshot,
        wanted: LogFilter,
        *,
        max_results: int,
        descending: bool = False,
        after: Position | None = None,
    ) -> Found:
        seen: IndexSnapshot = snapshot.token
        with _our_errors():
            answer = self._index.query(wanted, max_results=max_results, descending=descending, after=after, snapshot=seen)
        explain = answer.explain
        self._count(explain)
        took = {"plan": explain.plan, "candidates": explain.candidates, "bytes_read": explain.reads.bytes}
        return Found(answer.logs, answer.more, _candidates(explain), took, explain.to_dict)

    def block_by_number(self, snapshot: Snapshot, number: int) -> Block | None:
        with _our_errors():
            return _maybe_block(self._index.block_by_number(number, snapshot.token))

    def block_by_hash(self, snapshot: Snapshot, block_hash: bytes) -> Block | None:
        with _our_errors():
            return _maybe_block(self._index.block_by_hash(block_hash, snapshot.token))

    def payload(self, snapshot: Snapshot, number: int) -> bytes | None:
        with _our_errors():
            block = self._index.block_by_number(number, snapshot.token)
            return self._index.payload(block, snapshot.token) if block is not None else None

    def caches(self) -> Mapping[str, Mapping[str, float]]:
        return {name: asdict(counts) for name, counts in self._index.caches().items()}

    def totals(self) -> Mapping[str, float]:
        with self._lock:
            return dict(self._totals)

    def _count(self, explain: Explain) -> None:
        with self._lock:
            self._totals["queries"] += 1
            self._totals["chunks_read"] += explain.chunks_read
            self._totals["row_groups_read"] += explain.reads.row_groups
            self._totals["bytes_read"] += explain.reads.bytes
            self._totals["candidates_checked"] += explain.candidates


def _candidates(explain: Explain) -> list[tuple[str, int]]:
    """Entries per clause: those found, or those expected where the index was asked but not read."""
    counts = ((clause.field, clause.estimate if clause.actual is None else clause.actual) for clause in explain.clauses)
    return [(field, count) for field, count in counts if count is not None]


def _block(block: BlockRef) -> Block:
    return Block(block.number, block.hash, block.parent_hash)


def _maybe_block(block: BlockRef | None) -> Block | None:
    return None if block is None else _block(block)


@contextmanager
def _our_errors() -> Iterator[None]:
    """The index's errors as those that the gateway knows."""
    try:
        yield
    except BlockNotFound as error:
        raise UnknownBlock(str(error)) from error
    except QueryTooBroad as error:
        raise TooBroad(str(error)) from error
    except (CorruptChunk, BrokenPromise) as error:
        raise Damaged(str(error)) from error
