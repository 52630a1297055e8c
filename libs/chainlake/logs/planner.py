"""How to find what a filter asks for: which clauses go through the index, in which order, and when a plain scan is cheaper.

Costs are milliseconds on a machine of two cores. They only decide between ways that all give the same answer.
"""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from chainlake.errors import LakeError
from chainlake.logs.entries import Entries, Postings, Window
from chainlake.logs.explain import BLOCK_FILTER, CHECK, INDEX, ClauseReport, Explain
from chainlake.logs.index import IndexReader
from chainlake.logs.settings import Settings
from chainlake.logs.snapshot import IndexSnapshot
from chainlake.logs.streams import TOPIC_KINDS, Kind, streams_of

if TYPE_CHECKING:
    from chainlake.logs.filter import LogFilter

CHUNK_MS = 0.02
"""Loading a chunk: from its row group, checksum and all."""
GROUP_MS = 0.3
"""Fetching candidates out of one row group of logs."""
SCAN_MS = 0.15
"""Looking through one row group of logs."""
LOOKUP_MS = 0.01
"""Looking for one stream in one segment."""
CHECK_MS = 0.0005
"""Comparing one candidate with the filter."""
BLOCKS_MS = 0.1
"""Finding the blocks of candidates."""
WORTH_A_BLOCK_FILTER = 16
"""Chunks of a signature from which on it is asked whether its blocks would do."""
CHEAP_MS = 1.0
"""What a query may spend on chunks without asking whether fewer would do."""

OFTEN_RARE = (Kind.TOPIC3, Kind.TOPIC2, Kind.TOPIC1, Kind.ADDRESS, Kind.TOPIC0)
"""Which clauses are asked about first: users and tokens are mostly rarer than contracts, and those than signatures."""


class QueryTooBroad(LakeError):
    """A clause lists more values than one query may look up."""


@dataclass(frozen=True)
class Clause:
    """Values of which a log must have one, at one place; with what the index knows about them once it was asked."""

    kind: Kind
    values: tuple[bytes, ...]
    report: ClauseReport
    indexed: bool = True
    postings: Postings = field(default_factory=Postings)

    @property
    def estimate(self) -> int:
        return self.report.estimate or 0

    def chunks(self, window: Window, among: Entries | None = None) -> int:
        """How many chunks may hold entries of a window, or of some candidates."""
        return sum(len(wanted.places) for wanted in self.postings.chunks(window, among))


@dataclass(frozen=True)
class Plan:
    """What to do: scan the window, or intersect the clauses in their order. `unindexed` are left to the exact check."""

    window: Window
    scan: bool
    clauses: tuple[Clause, ...] = ()
    unindexed: tuple[Clause, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.window.size or not (self.scan or self.clauses)


def clauses_of(wanted: "LogFilter", settings: Settings) -> list[Clause]:
    """The clauses of a filter. A list of values that is too long is refused or not looked up, as the settings say."""
    given = [(Kind.ADDRESS, "address", wanted.addresses)]
    given += [(kind, f"topic{i}", values) for i, (kind, values) in enumerate(zip(TOPIC_KINDS, wanted.topics, strict=False))]
    found = []
    for kind, name, values in given:
        broad = len(set(values)) > settings.max_or_terms
        if broad and settings.too_broad == "error":
            raise QueryTooBroad(
                f"query too broad: {name} lists {len(values)} values, at most {settings.max_or_terms} are allowed"
            )
        if values:
            found.append(Clause(kind, values, ClauseReport(name, len(values)), not broad))
    return found


class Planner:
    """Makes plans from what the index says about the clauses, and from how much there is to look through."""

    def __init__(self, index: IndexReader, settings: Settings) -> None:
        self._index = index
        self._group_rows = settings.group_rows
        self._few = settings.few_candidates

    def plan(
        self, snapshot: IndexSnapshot, clauses: list[Clause], blocks: tuple[int, int], window: Window, explain: Explain
    ) -> Plan:
        """Ask the index about each clause, unless looking through all logs of the window costs less than asking, or until one
        leaves so few candidates that comparing them does."""
        scan = Plan(window, scan=True, unindexed=tuple(clauses))
        usable = [clause for clause in clauses if clause.indexed]
        lookups = sum(len(clause.values) for clause in usable) * max(explain.segments, 1)
        if not usable or self.scan_ms(window) <= lookups * LOOKUP_MS + GROUP_MS:
            return scan
        asked: list[Clause] = []
        unasked = [clause for clause in clauses if not clause.indexed]
        for clause in sorted(usable, key=lambda clause: OFTEN_RARE.index(clause.kind)):
            if any(before.estimate <= self._few for before in asked):
                unasked.append(clause)
                continue
            streams = streams_of(clause.kind, clause.values)
            postings = self._index.postings(snapshot, streams, *blocks, explain.reads)
            clause.report.estimate = postings.estimate(window)
            if clause.estimate == 0:
                return Plan(window, scan=False)
            asked.append(replace(clause, postings=postings))
        asked.sort(key=lambda clause: clause.estimate)
        if self.scan_ms(window) <= asked[0].chunks(window) * CHUNK_MS:
            return scan
        return Plan(window, False, tuple(asked), tuple(unasked))

    def late_use(
        self, candidates: int, window: Window, share: float, chunks: int, by_block: tuple[float, int] | None = None
    ) -> str:
        """How to use a clause once there are candidates: in the way that makes loading, fetching and comparing cheapest.

        `share` of all logs have it, and `chunks` would be loaded to know which; `by_block` is the same for blocks, if given.
        """
        ways = {INDEX: (share, chunks * CHUNK_MS), CHECK: (1.0, 0.0)}
        if by_block is not None:
            ways[BLOCK_FILTER] = (by_block[0], by_block[1] * CHUNK_MS + BLOCKS_MS)
        costs = {
            way: loading + self.fetch_ms(candidates * left, window) + candidates * left * CHECK_MS
            for way, (left, loading) in ways.items()
        }
        return min(costs, key=costs.__getitem__)

    def first_width(self, plan: Plan, limit: int | None) -> int:
        """How much of the window to look at first so that a limited query finds enough, probably, without loading all chunks."""
        size = plan.window.size
        if limit is None or plan.clauses[0].chunks(plan.window) * CHUNK_MS <= CHEAP_MS:
            return size
        matches = size * math.prod(min(1.0, clause.estimate / size) for clause in plan.clauses)
        return min(size, max(4 * self._group_rows, math.ceil(size * 2 * (limit + 1) / max(matches, 1e-9))))

    def fetch_ms(self, candidates: float, window: Window) -> float:
        """Fetching candidates that are spread evenly over a window."""
        groups = self._groups(window)
        return GROUP_MS * groups * -math.expm1(-candidates / groups)

    def scan_ms(self, window: Window) -> float:
        return SCAN_MS * self._groups(window)

    def _groups(self, window: Window) -> float:
        return window.size / self._group_rows + 1


def windows(window: Window, width: int, descending: bool) -> list[Window]:
    """A window in parts, each twice as wide as the one before, from the end where the answer starts."""
    parts, done = [], 0
    while done < window.size:
        step = min(width, window.size - done)
        low = window.high - done - step if descending else window.low + done
        parts.append(Window(low, low + step))
        done, width = done + step, width * 2
    return parts
