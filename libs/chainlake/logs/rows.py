"""Logs out of bronze.evm_logs: by their ids, or all of a window in order.

Row groups that a query needs are decoded once and kept. A query that needs more of them than the cache should hold for it reads
those that find no room there in long runs, on all threads and past the cache: broad queries do not push out what others use. A
query that needs many for the first time does so as well: to put logs into the form in which they are kept takes as long as to
read them, and pays only for those that are asked for again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from chainlake.errors import BrokenPromise
from chainlake.logs.entries import Window
from chainlake.logs.match import Matcher
from chainlake.logs.packed import SCHEMA, PackedLogs, data_at, few_of, joined, pack, records_at, unpack
from chainlake.logs.settings import Settings
from chainlake.logs.snapshot import LOGS, IndexSnapshot
from chainlake.serve.arrays import Longs, longs, to_arrow, to_arrow_flags
from chainlake.serve.cache import ByteCache
from chainlake.serve.row_groups import DecodedGroups, Reads, RowGroupFiles, holding
from chainlake.serve.visible import Source

COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
NOTHING = pa.Table.from_batches([], SCHEMA)
USUAL_LOG_BYTES = 320
CACHED_SHARE = 0.5
"""A query may fill at most this share of the cache."""
SHORT_RUN, LONGEST_RUN = 4, 32
SOME_ROWS = 4
"""Rows per row group from which on operations on arrays pick them faster than Python does one by one."""
PASSED_BY = 1 << 17
"""Row groups of which it is remembered that a query read them and did not keep them."""

Found = tuple[pa.Table, int]
"""Rows that match, and how many rows were looked at to find them."""


class Hit(NamedTuple):
    """A row group that may hold the wanted ids from place `start` up to `end`."""

    source: Source
    group: int
    start: int = 0
    end: int = 0


Wanted = Callable[[Sequence[Hit], Longs], Longs]
"""Which places of a run are asked for, given the ids that it has."""


class LogReader:
    """Reads of bronze.evm_logs. For many threads."""

    def __init__(self, files: RowGroupFiles, settings: Settings) -> None:
        self._files = files
        self._group_rows = settings.group_rows
        self._group_bytes = settings.group_rows * USUAL_LOG_BYTES
        self._most_cached = int(settings.log_bytes * CACHED_SHARE / self._group_bytes)
        self._broad = settings.broad_groups
        self._passed_by: ByteCache[bool] = ByteCache(PASSED_BY)
        self.groups: DecodedGroups[PackedLogs] = DecodedGroups("logs", files, settings.log_bytes, COLUMNS, _decode)

    def may_keep(self, ids: Longs) -> bool:
        """Whether the row groups of some logs are few enough to be kept, all of them."""
        return len(ids) <= self._most_cached or len(np.unique(ids // self._group_rows)) <= self._most_cached

    def fetch(self, snapshot: IndexSnapshot, ids: Longs, matcher: Matcher, sure: bool, keep: bool, reads: Reads) -> pa.Table:
        """Those of some logs (ascending ids) that match. `sure` says that most of them will; `keep`, that caches may fill."""
        hits = self._hits(snapshot, ids, reads)
        kept = self._worth_keeping(hits) if keep else self._at_hand(hits)
        near = [hit for hit, here in zip(hits, kept, strict=True) if here]
        groups = self._kept(near, reads)
        found = [_wanted(ids, near, groups, matcher)]
        runs = _runs(hit for hit, here in zip(hits, kept, strict=True) if not here)
        found += self._from_runs(
            runs, lambda run, seen: _places(seen, ids[run[0].start : max(h.end for h in run)]), matcher, sure, reads
        )
        seen = sum(count for _, count in found)
        if seen != len(ids):
            raise _missing(snapshot, int(ids[0]), int(ids[-1]), len(ids), seen)
        return _in_order(found)

    def scan(self, snapshot: IndexSnapshot, window: Window, matcher: Matcher, descending: bool, reads: Reads) -> Iterator[Found]:
        """All logs of a window that match, in order of their ids, a few row groups at a time."""
        seen = 0
        few = window.size <= min(self._most_cached / 4, self._broad) * self._group_rows
        for hits in _batches(self._clusters(snapshot, window, descending, reads)):
            if few or len(hits) <= SHORT_RUN or all(self._at_hand(hits)):
                found = [_matching([(group, _inside(group.ids, window)) for group in self._kept(hits, reads)], matcher)]
            else:
                inside = not matcher.columns
                found = self._from_runs(_runs(hits), lambda _, seen: _inside(seen, window), matcher, inside, reads)
            count = sum(looked for _, looked in found)
            rows = _in_order(found)
            seen += count
            yield reversed_rows(rows) if descending else rows, count
        if seen != window.size:
            raise _missing(snapshot, window.low, window.high - 1, window.size, seen)

    def _hits(self, snapshot: IndexSnapshot, ids: Longs, reads: Reads) -> list[Hit]:
        """Row groups that may hold some ids, in order of them."""
        files = snapshot.files[LOGS]
        found: list[Hit] = []
        for place, start, end in zip(*(each.tolist() for each in holding(ids, files.low, files.high)), strict=True):
            source = files.sources[place]
            groups = holding(ids[start:end], *self._files.footer(source, reads).bounds("log_id"))
            found.extend(
                Hit(source, group, start + first, start + last)
                for group, first, last in zip(*(each.tolist() for each in groups), strict=True)
            )
        return sorted(found, key=lambda hit: hit.start)

    def _clusters(self, snapshot: IndexSnapshot, window: Window, descending: bool, reads: Reads) -> Iterator[list[Hit]]:
        """Row groups of a window in order of ids. Those whose ids overlap come together."""
        files = snapshot.files[LOGS]
        for places in _overlapping(files.low, files.high, window, descending):
            sources = [files.sources[place] for place in places]
            bounds = [self._files.footer(source, reads).bounds("log_id") for source in sources]
            low, high = (np.concatenate([each[side] for each in bounds]) for side in (0, 1))
            starts = np.cumsum([0, *(len(each[0]) for each in bounds)])
            for cluster in _overlapping(low, high, window, descending):
                owners = np.searchsorted(starts, cluster, side="right") - 1
                pairs = zip(owners.tolist(), (cluster - starts[owners]).tolist(), strict=True)
                yield [Hit(sources[owner], group) for owner, group in pairs]

    def _worth_keeping(self, hits: Sequence[Hit]) -> list[bool]:
        """All row groups of a query that lacks few of them; else those in the cache, and those that were passed by before."""
        keys = [(hit.source.key, hit.group) for hit in hits]
        here = self.groups.cache.holds_all(keys)
        if len(hits) - sum(here) <= self._broad:
            return [True] * len(hits)
        again = self._passed_by.holds_all(keys)
        for key, known in zip(keys, here, strict=True):
            if not known:
                self._passed_by.put(key, True, 1)
        return [one or other for one, other in zip(here, again, strict=True)]

    def _at_hand(self, hits: Sequence[Hit]) -> list[bool]:
        """Which row groups are in the cache, or would fit into it without pushing others out."""
        counts = self.groups.cache.counts()
        room = (counts.max_bytes - counts.bytes) // self._group_bytes
        found = []
        for here in self.groups.cache.holds_all([(hit.source.key, hit.group) for hit in hits]):
            found.append(here or room > 0)
            room -= not here
        return found

    def _kept(self, hits: Sequence[Hit], reads: Reads) -> list[PackedLogs]:
        return self.groups.get([(hit.source, hit.group) for hit in hits], reads)

    def _from_runs(self, runs: Iterable[list[Hit]], wanted: Wanted, matcher: Matcher, sure: bool, reads: Reads) -> list[Found]:
        """The rows of each run that match. Several runs are read at the same time, a single one on all threads."""
        listed = list(runs)
        own = [Reads() for _ in listed]
        alone = len(listed) == 1 or self._files.threads == 1
        read = partial(self._from_run, wanted=wanted, matcher=matcher, sure=sure, threads=alone and self._files.threads > 1)
        found = list(map(read, listed, own) if alone else self._files.pool.map(read, listed, own))
        for one in own:
            reads.add(one)
        return found

    def _from_run(self, run: Sequence[Hit], reads: Reads, wanted: Wanted, matcher: Matcher, sure: bool, threads: bool) -> Found:
        """Unless most rows will match, the columns that the check looks at come first, and all only where something matches."""
        rows = self._read_run(run, COLUMNS if sure else ("log_id", *matcher.columns), reads, threads)
        ids = longs(rows["log_id"])
        places = wanted(run, ids)
        some = _taken(rows, places)
        flags = matcher.matches(some)
        if not flags.any():
            return NOTHING, len(places)
        if sure:
            return _conformed(some if flags.all() else some.filter(to_arrow_flags(flags))), len(places)
        matching = ids[places[flags]]
        near, _, _ = holding(matching, *self._files.footer(run[0].source, reads).bounds("log_id"))
        rows = self._read_run([hit for hit in run if hit.group in set(near.tolist())], COLUMNS, reads, threads)
        return _conformed(_taken(rows, _places(longs(rows["log_id"]), matching))), len(places)

    def _read_run(self, run: Sequence[Hit], columns: Sequence[str], reads: Reads, threads: bool) -> pa.Table:
        """Rows by their ids."""
        source, groups = run[0].source, sorted(hit.group for hit in run)
        footer = self._files.footer(source, reads)
        reads.row_groups += len(groups)
        reads.bytes += sum(footer.stored_bytes(group, columns) for group in groups)
        return _by_id(self._files.read(source, footer, groups, columns, threads))


def reversed_rows(rows: pa.Table) -> pa.Table:
    """The last row first."""
    return rows.take(to_arrow(np.arange(rows.num_rows)[::-1])) if rows.num_rows > 1 else rows


def _wanted(ids: Longs, hits: Sequence[Hit], groups: Sequence[PackedLogs], matcher: Matcher) -> Found:
    """The rows with the wanted ids that match."""
    if len(ids) >= SOME_ROWS * len(hits) or any([group.first is None for group in groups]):
        return _matching([(g, g.places(ids[hit.start : hit.end])) for hit, g in zip(hits, groups, strict=True)], matcher)
    numbers = ids.tolist()
    records, data = few_of(groups, [numbers[hit.start : hit.end] for hit in hits])
    flags = matcher.fits(records)
    if not flags.any():
        return NOTHING, len(records)
    if flags.all():
        return unpack(records, joined(data)), len(records)
    return unpack(records[flags], joined(list(compress(data, flags.tolist())))), len(records)


def _matching(parts: Iterable[tuple[PackedLogs, Longs]], matcher: Matcher) -> Found:
    """The rows at some places of row groups that match."""
    some = [(group, places) for group, places in parts if len(places)]
    if not some:
        return NOTHING, 0
    records = records_at(some)
    flags = matcher.fits(records)
    if flags.all():
        return unpack(records, data_at(some)), len(records)
    if not flags.any():
        return NOTHING, len(records)
    ends = np.cumsum([len(places) for _, places in some])
    pairs = zip(some, np.split(flags, ends[:-1]), strict=True)
    left = [(group, places[flag]) for (group, places), flag in pairs if flag.any()]
    return unpack(records[flags], data_at(left)), len(records)


def _inside(ids: Longs, window: Window) -> Longs:
    """Places of the ascending ids that are in a window."""
    return np.arange(*np.searchsorted(ids, (window.low, window.high)))


def _places(ids: Longs, wanted: Longs) -> Longs:
    """Places of those ids that are wanted; both are ascending. An id that is there twice gives two."""
    first, last = ids.searchsorted(wanted), ids.searchsorted(wanted, side="right")
    places = first[last > first]
    return places if len(places) == (last - first).sum() else np.flatnonzero(np.isin(ids, wanted))


def _taken(rows: pa.Table, places: Longs) -> pa.Table:
    """The rows at some ascending places; all of them without copying."""
    return rows if len(places) == rows.num_rows else rows.take(to_arrow(places))


def _overlapping(low: Longs, high: Longs, window: Window, descending: bool) -> list[Longs]:
    """Places of the ranges that a window touches, in order; ranges that overlap each other together."""
    near = np.flatnonzero((low < window.high) & (high >= window.low))
    near = near[np.argsort(low[near], kind="stable")]
    reach = np.maximum.accumulate(high[near])
    clusters = np.split(near, np.flatnonzero(low[near][1:] > reach[:-1]) + 1) if len(near) else []
    return clusters[::-1] if descending else clusters


def _batches(clusters: Iterable[list[Hit]]) -> Iterator[list[Hit]]:
    """Clusters in batches that grow, so that a small answer needs few reads and a large one long runs."""
    batch: list[Hit] = []
    size = 1
    for cluster in clusters:
        batch.extend(cluster)
        if len(batch) >= size:
            yield batch
            batch, size = [], min(size * 2, LONGEST_RUN)
    if batch:
        yield batch


def _runs(hits: Iterable[Hit]) -> Iterator[list[Hit]]:
    """Hits of the same file, as many as are read at once."""
    for _, group in groupby(hits, key=lambda hit: hit.source.key):
        run = list(group)
        yield from (run[place : place + LONGEST_RUN] for place in range(0, len(run), LONGEST_RUN))


def _in_order(found: Sequence[Found]) -> pa.Table:
    """Rows by their ids. They come so, unless files mix commits."""
    some = [rows for rows, _ in found if rows.num_rows]
    if not some:
        return NOTHING
    return _by_id(some[0] if len(some) == 1 else pa.concat_tables(some))


def _by_id(rows: pa.Table) -> pa.Table:
    if rows.num_rows < 2:
        return rows
    ids = longs(rows["log_id"])
    return rows if (ids[1:] > ids[:-1]).all() else rows.take(to_arrow(np.argsort(ids, kind="stable")))


def _conformed(rows: pa.Table) -> pa.Table:
    """The columns with the types of SCHEMA: writers of Parquet differ in how they store times. To cast a right column takes
    as long as to cast a wrong one."""
    for place, field in enumerate(SCHEMA):
        if rows.schema.field(place).type != field.type:
            rows = rows.set_column(place, field.name, rows.column(place).cast(field.type))
    return rows if rows.schema.equals(SCHEMA) else rows.cast(SCHEMA)


def _decode(rows: pa.Table, source: Source) -> PackedLogs:
    return pack(_by_id(_conformed(rows)))


def _missing(snapshot: IndexSnapshot, low: int, high: int, expected: int, found: int) -> BrokenPromise:
    return BrokenPromise(
        f"{snapshot.chain} should have {expected} logs from id {low} to {high} in {LOGS} and has {found}:"
        " run lake verify bronze.logs"
    )
