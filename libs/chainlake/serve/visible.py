"""Which files of a table a snapshot of the ledger sees, and which of their rows.

Usually a file belongs to one commit and all of its rows count. After OPTIMIZE it may mix commits, some of them rolled back or
never committed: then its rows are filtered. Only statistics decide which of the two it is; what they do not say is unknown.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chainlake.serve.arrays import Flags, Longs, longs, to_arrow_binary, to_arrow_flags
from chainlake.serve.table_log import DataFile

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
KERNEL = ("_chain", "_height", "_commit")


class Limits:
    """Up to which height the rows of each commit can be seen. Commits that are not here cannot."""

    def __init__(self, limits: Mapping[int, int]) -> None:
        pairs = sorted(limits.items())
        self.commits: Longs = np.array([commit for commit, _ in pairs], np.int64)
        self.heights: Longs = np.array([height for _, height in pairs], np.int64)

    def within(self, low: int, high: int) -> "Limits":
        """Those of the commits from `low` to `high`."""
        part = slice(*np.searchsorted(self.commits, (low, high + 1 if high < HIGHEST else high)))
        found = Limits({})
        found.commits, found.heights = self.commits[part], self.heights[part]
        return found

    def shows(self, commits: Longs, heights: Longs) -> Flags:
        """Which rows of these commits and heights can be seen."""
        place = np.minimum(np.searchsorted(self.commits, commits), max(len(self.commits) - 1, 0))
        if not len(self.commits):
            return np.zeros(len(commits), np.bool_)
        return np.asarray((self.commits[place] == commits) & (heights <= self.heights[place]), np.bool_)

    def digest(self) -> bytes:
        """The same for the same limits only: what was filtered by them can be kept under it."""
        return hashlib.blake2b(self.commits.tobytes() + self.heights.tobytes(), digest_size=16).digest()

    def __len__(self) -> int:
        return len(self.commits)


@dataclass(frozen=True)
class Source:
    """A file as one snapshot sees it."""

    file: DataFile
    commits: Limits
    """Of the commits that may have rows here."""
    filtered: bool
    """Some rows may be of other commits or above the limits."""
    chain: str | None
    """Set if some rows may be of other chains."""
    key: tuple[str, bytes]
    """What the rows that can be seen depend on."""

    @property
    def path(self) -> str:
        return self.file.path

    def last_height(self) -> int:
        """No row that can be seen is of a later block."""
        return int(min(self.file.high.get("_height", HIGHEST), self.commits.heights.max()))

    def kernel_columns(self) -> tuple[str, ...]:
        """The columns that `seen` looks at."""
        return (*(("_chain",) if self.chain else ()), *(("_height", "_commit") if self.filtered else ()))

    def seen(self, rows: pa.Table) -> pa.Table:
        """The rows that can be seen."""
        if self.chain:
            rows = rows.filter(pc.is_in(rows["_chain"], to_arrow_binary([self.chain.encode()], pa.string())))
        if self.filtered:
            flags = self.commits.shows(longs(rows["_commit"]), longs(rows["_height"]))
            rows = rows if flags.all() else rows.filter(to_arrow_flags(flags))
        return rows


@dataclass(frozen=True)
class VisibleFiles:
    """The files of a table in one snapshot, with the bounds of the column that the table is sorted by."""

    sources: Sequence[Source]
    low: Longs
    high: Longs

    def overlapping(self, low: int, high: int) -> list[Source]:
        """Files that may hold keys from `low` to `high`, both included, in order of their keys."""
        found = np.flatnonzero((self.low <= high) & (self.high >= low))
        return [self.sources[place] for place in found[np.argsort(self.low[found], kind="stable")]]


def select(files: Iterable[DataFile], chain: str, limits: Limits, key: str) -> VisibleFiles:
    """The files that may hold rows of the chain within the limits."""
    listed = list(files)
    low = np.array([file.low.get("_commit", LOWEST) for file in listed], np.int64)
    high = np.array([file.high.get("_commit", HIGHEST) for file in listed], np.int64)
    first = np.searchsorted(limits.commits, low)
    held = np.flatnonzero((first < len(limits)) & (np.append(limits.commits, HIGHEST)[first] <= high))
    sources = [_source(listed[place], chain, limits) for place in held if _may_have(listed[place], chain)]
    return VisibleFiles(
        sources=sources,
        low=np.array([source.file.low.get(key, LOWEST) for source in sources], np.int64),
        high=np.array([source.file.high.get(key, HIGHEST) for source in sources], np.int64),
    )


def _may_have(file: DataFile, chain: str) -> bool:
    """Delta cuts long texts in statistics, so the greatest is compared by its beginning."""
    low, high = file.low.get("_chain", ""), file.high.get("_chain")
    return low <= chain and (high is None or chain[: len(high)] <= high)


def _source(file: DataFile, chain: str, limits: Limits) -> Source:
    low, high = file.low.get("_commit", LOWEST), file.high.get("_commit", HIGHEST)
    commits = limits.within(low, high)
    whole = low == high and file.high.get("_height", HIGHEST) <= commits.heights[0]
    mixed = not (file.low.get("_chain") == file.high.get("_chain") == chain)
    return Source(
        file=file,
        commits=commits,
        filtered=not whole,
        chain=chain if mixed else None,
        key=(file.path, b"" if whole else commits.digest()),
    )
