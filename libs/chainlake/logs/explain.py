"""What a query did and why: for people who wonder, for metrics, and for tests."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from chainlake.serve.row_groups import Reads

INDEX, CHECK, BLOCK_FILTER, NOT_NEEDED = "index", "exact check", "block filter", "not needed"


@dataclass
class ClauseReport:
    """One clause of a filter: what the planner expected of it, what it held, and how it was used."""

    field: str
    values: int
    estimate: int | None = None
    """Entries expected in the range; None if the index was not asked."""
    actual: int | None = None
    """Entries found, among the candidates if there were some already; None if they were not loaded."""
    order: int | None = None
    used: str = NOT_NEEDED

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass
class Explain:
    """The plan of one query and what it took."""

    plan: str = "empty"
    """`index`, `scan`, or `empty` if it was clear at once that nothing matches."""
    first_block: int | None = None
    last_block: int | None = None
    log_ids: int = 0
    """Logs in the range."""
    segments: int = 0
    """Segments of the index that overlap the range."""
    clauses: list[ClauseReport] = field(default_factory=list)
    windows: int = 0
    """Parts of the range that were looked at, one after the other."""
    candidates: int = 0
    """Logs that the index could not exclude and that were compared with the filter."""
    results: int = 0
    more: bool = False
    reads: Reads = field(default_factory=Reads)
    steps: dict[str, float] = field(default_factory=dict)
    """Milliseconds."""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count the time of what happens inside."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.steps[name] = self.steps.get(name, 0.0) + (time.perf_counter() - started) * 1000

    @property
    def chunks_read(self) -> int:
        """Chunks decoded from storage; further ones came from the cache."""
        return self.reads.misses.get("chunks", 0)

    @property
    def milliseconds(self) -> float:
        return sum(self.steps.values())

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        kinds = sorted(self.reads.hits.keys() | self.reads.misses.keys())
        return {
            "plan": self.plan,
            "first_block": self.first_block,
            "last_block": self.last_block,
            "log_ids": self.log_ids,
            "segments": self.segments,
            "clauses": [clause.to_dict() for clause in self.clauses],
            "windows": self.windows,
            "candidates": self.candidates,
            "results": self.results,
            "more": self.more,
            "chunks_read": self.chunks_read,
            "row_groups_read": self.reads.row_groups,
            "bytes_read": self.reads.bytes,
            "cache": {k: {"hits": self.reads.hits.get(k, 0), "misses": self.reads.misses.get(k, 0)} for k in kinds},
            "steps": {name: round(spent, 3) for name, spent in self.steps.items()},
            "milliseconds": round(self.milliseconds, 3),
        }

    def __str__(self) -> str:
        """For a terminal."""
        lines = [
            f"{self.plan}: blocks {self.first_block} to {self.last_block}, {self.log_ids:,} logs, {self.segments} segments",
            *(_clause_line(clause) for clause in sorted(self.clauses, key=lambda c: (c.order is None, c.order or 0))),
            f"  {self.candidates:,} candidates in {self.windows} windows, {self.results:,} results{' and more' * self.more}",
            f"  read {self.chunks_read} chunks, {self.reads.row_groups} row groups, {self.reads.bytes:,} bytes; from caches "
            + (", ".join(f"{hits} {kind}" for kind, hits in sorted(self.reads.hits.items()) if hits) or "nothing"),
            f"  {self.milliseconds:.2f} ms: " + ", ".join(f"{name} {spent:.2f}" for name, spent in self.steps.items()),
        ]
        return "\n".join(lines)


def _clause_line(clause: ClauseReport) -> str:
    order = "-" if clause.order is None else str(clause.order)
    estimate = "not asked" if clause.estimate is None else f"about {clause.estimate:,}"
    actual = "" if clause.actual is None else f", found {clause.actual:,}"
    return f"  {order} {clause.field} in {clause.values} values: {estimate}{actual}; {clause.used}"
