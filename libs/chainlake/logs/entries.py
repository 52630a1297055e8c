"""Sets of entries (log ids or block numbers): one roaring bitmap of local parts per shard."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from pyroaring import BitMap

from chainlake.logs.codec import bitmap_of, values_of
from chainlake.logs.index_rows import Ints
from chainlake.logs.streams import LOCAL_BITS, Longs
from chainlake.serve.arrays import Flags

Entries = Mapping[int, BitMap]
SHARD = 1 << LOCAL_BITS


@dataclass(frozen=True)
class Window:
    """Entries from `low` up to, not including, `high`."""

    low: int
    high: int

    @property
    def size(self) -> int:
        return max(self.high - self.low, 0)

    def holds(self, values: Longs) -> Flags:
        """Which of some entries are inside."""
        return np.asarray((values >= self.low) & (values < self.high), np.bool_)

    def in_shard(self, shard: int) -> tuple[int, int]:
        """Its local parts in a shard: the first, and the one after the last."""
        base = shard << LOCAL_BITS
        return max(self.low - base, 0), min(self.high - base, SHARD)


@dataclass(frozen=True)
class Refs:
    """Chunks that one manifest lists: of one stream and shard in one segment."""

    table: str
    commit: int
    stream: int
    shard: int
    seqs: Longs
    low: Ints
    high: Ints
    counts: Ints

    @property
    def nbytes(self) -> int:
        return self.seqs.nbytes + self.low.nbytes + self.high.nbytes + self.counts.nbytes


@dataclass(frozen=True)
class Wanted:
    """Some chunks of a manifest, by their places in it."""

    refs: Refs
    places: Longs


@dataclass(frozen=True)
class Postings:
    """Where any of some values occurs: what the tails say at once, and which chunks say the rest."""

    tails: dict[int, list[Ints]] = field(default_factory=dict)
    refs: list[Refs] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        tails = sum(part.nbytes for parts in self.tails.values() for part in parts)
        return tails + sum(refs.nbytes for refs in self.refs)

    def own(self) -> "Postings":
        """The same in memory of its own, not in that of the row groups that it was read from."""
        refs = [
            replace(one, seqs=one.seqs.copy(), low=one.low.copy(), high=one.high.copy(), counts=one.counts.copy())
            for one in self.refs
        ]
        return Postings({shard: [np.concatenate(parts)] for shard, parts in self.tails.items()}, refs)

    def estimate(self, window: Window) -> int:
        """About how many entries are in a window: tails are counted, chunks that it cuts count by the part that is inside."""
        total = sum(len(values) for values in self.tail_values(window).values())
        return total + sum(_estimate(refs, *window.in_shard(refs.shard)) for refs in self.refs)

    def tail_values(self, window: Window) -> dict[int, Ints]:
        """Entries of the tails in a window, in no order."""
        found = {}
        for shard, parts in self.tails.items():
            first, end = window.in_shard(shard)
            values = parts[0] if len(parts) == 1 else np.concatenate(parts)
            inside = values[(values >= first) & (values < end)]
            if len(inside):
                found[shard] = inside
        return found

    def chunks(self, window: Window, among: Entries | None = None) -> list[Wanted]:
        """The chunks that may hold entries of a window, or those among some candidates if given."""
        found = []
        values = {shard: values_of(bitmap) for shard, bitmap in among.items()} if among is not None and self.refs else {}
        for refs in self.refs:
            if among is None:
                first, end = window.in_shard(refs.shard)
                hit = (refs.low < end) & (refs.high >= first)
            else:
                near = values.get(refs.shard, np.empty(0, np.uint32))
                hit = np.searchsorted(near, refs.high, side="right") > np.searchsorted(near, refs.low)
            if hit.any():
                found.append(Wanted(refs, np.flatnonzero(hit)))
        return found


def united(tails: Mapping[int, Ints], chunks: Mapping[int, list[BitMap]]) -> dict[int, BitMap]:
    """All entries of tails and chunks."""
    found = {}
    for shard in tails.keys() | chunks.keys():
        bitmaps = [*chunks.get(shard, ()), *([bitmap_of(tails[shard])] if shard in tails else ())]
        found[shard] = bitmaps[0] if len(bitmaps) == 1 else BitMap.union(*bitmaps)
    return found


def clipped(entries: Entries, window: Window) -> dict[int, BitMap]:
    """Those inside a window."""
    ranges = {shard: window.in_shard(shard) for shard in entries}
    return _without_empty(
        {shard: entries[shard] & BitMap(range(first, end)) for shard, (first, end) in ranges.items() if first < end}
    )


def common(tails: Mapping[int, Ints], chunks: Mapping[int, list[BitMap]], among: Entries) -> dict[int, BitMap]:
    """Those candidates that tails and chunks have. Each chunk is compared with them before anything is put together: mostly there
    are a few candidates, and chunks of thousands of entries."""
    found = {}
    for shard, candidates in among.items():
        parts = [bitmap & candidates for bitmap in chunks.get(shard, ())]
        if shard in tails:
            parts.append(bitmap_of(tails[shard]) & candidates)
        if parts:
            found[shard] = parts[0] if len(parts) == 1 else BitMap.union(*parts)
    return _without_empty(found)


def count(entries: Entries) -> int:
    return sum(len(bitmap) for bitmap in entries.values())


def numbers(entries: Entries) -> Longs:
    """The entries as numbers, ascending."""
    parts = [values_of(entries[shard]).astype(np.int64) | shard << LOCAL_BITS for shard in sorted(entries)]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


def entries_of(values: Longs) -> dict[int, BitMap]:
    """The set of some ascending numbers."""
    shards = values >> LOCAL_BITS
    return {int(shard): bitmap_of(values[shards == shard] & (SHARD - 1)) for shard in np.unique(shards)}


def _without_empty(entries: dict[int, BitMap]) -> dict[int, BitMap]:
    return {shard: bitmap for shard, bitmap in entries.items() if bitmap}


def _estimate(refs: Refs, first: int, end: int) -> int:
    low, high = refs.low.astype(np.int64), refs.high.astype(np.int64)
    inside = np.minimum(high, end - 1) - np.maximum(low, first) + 1
    hit = inside > 0
    parts = np.ceil(refs.counts[hit] * (inside[hit] / (high[hit] - low[hit] + 1)))
    return int(np.minimum(parts, inside[hit]).sum())
