"""Rows of data tables without Spark, found by key through the statistics of row groups; and the state that they add up to.

Rows of a state table are after-images, so the newest at or below a height is the state there. Newest files are read first: a key
that was found at the last block that a file has rows of is not looked for in it. After a compaction the base holds the state at
its height, and only what came later is read beside it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chainlake.lake.visibility import History
from chainlake.serve.arrays import Longs, flags, longs, numbers, one_chunk, to_arrow, to_arrow_binary
from chainlake.serve.cache import ByteCache
from chainlake.serve.embedded import EmbeddedLake
from chainlake.serve.row_groups import opened, undamaged
from chainlake.serve.visible import Limits, Source, select

Key = bytes | str | int
Bounds = list[tuple[Any, Any]]
Row = dict[str, Any]

KEPT_BYTES = 64 << 20
FEW_FILES = 16
"""What is known of so many files may be of files that the table has no longer: they were packed."""
FEW_GROUPS = 2
"""So many row groups of a file are read at once; of more, the keys are looked at first."""


class KeyedRows:
    """Visible rows of one stored table by a key column. For many threads.

    Of a state table `own` are the columns that tell its rows apart: of a row group only the newest row of each is then kept.
    """

    def __init__(self, lake: EmbeddedLake, table: str, key: str, columns: Sequence[str], own: Sequence[str] = ()) -> None:
        self._key, self._own = key, tuple(own)
        self._columns = (key, *own, *columns, "_height")
        self._log = lake.log(table)
        self._lock = Lock()
        self._files: dict[str, tuple[pq.FileMetaData, Bounds]] = {}
        self._groups: ByteCache[pa.Table] = ByteCache(KEPT_BYTES)

    def read(self, chain: str, limits: Limits, keys: Sequence[Any] | None = None) -> Iterator[pa.Table]:
        """Rows of some sorted keys, or of all, within the limits of their commits."""
        for source in self.sources(chain, limits):
            yield from self.rows(source, keys)

    def sources(self, chain: str, limits: Limits) -> list[Source]:
        """The files that may have such rows: those that go up highest first, of these the smallest."""
        if not len(limits):
            return []
        with self._lock:
            self._log.refresh()
            files = self._log.files
            if len(self._files) > 2 * len(files) + FEW_FILES:
                there = {file.path for file in files}
                self._files = {path: known for path, known in list(self._files.items()) if path in there}
        found = select(files, chain, limits, "_height").sources
        return sorted(found, key=lambda source: (-source.last_height(), source.file.size))

    def rows(self, source: Source, keys: Sequence[Any] | None) -> Iterator[pa.Table]:
        """Rows of some sorted keys, or of all, in one file."""
        if keys is not None and not keys:
            return
        file = _File(source.path, self._file(source.path)[0])
        holding = list(self._holding(source, keys))
        for group, wanted in holding:
            if wanted is None:
                yield self._group(source, file, group)
            elif len(holding) <= FEW_GROUPS or len(_places(self._keys(file, group), wanted)):
                rows = self._group(source, file, group)
                if len(places := _places(rows[self._key], wanted)):
                    yield rows.take(to_arrow(places))

    def _holding(self, source: Source, keys: Sequence[Any] | None) -> Iterator[tuple[int, Sequence[Any] | None]]:
        """The row groups of a file that may have some of the keys, and which of them."""
        for group, (low, high) in enumerate(self._file(source.path)[1]):
            if keys is None or low is None:
                yield group, keys
            elif wanted := keys[bisect_left(keys, low) : bisect_right(keys, high)]:
                yield group, wanted

    def _file(self, path: str) -> tuple[pq.FileMetaData, Bounds]:
        """What a file says of its row groups, read once: with many of them it takes longer than reading one."""
        known = self._files.get(path)
        if known is None:
            with undamaged(path):
                metadata = pq.read_metadata(path, memory_map=True)
            known = self._files[path] = metadata, _bounds_of(metadata, self._key)
        return known

    def _keys(self, file: "_File", group: int) -> pa.ChunkedArray:
        """The keys of a row group alone: bounds are wide where keys are not in order, and most groups turn out to have none."""
        keys = self._groups.get((file.path, group))
        if keys is None:
            keys = file.read(group, [self._key])
            self._groups.put((file.path, group), keys, keys.nbytes)
        return keys[self._key]

    def _group(self, source: Source, file: "_File", group: int) -> pa.Table:
        place = (source.key, group)
        rows = self._groups.get(place)
        if rows is None:
            rows = source.seen(file.read(group, list(dict.fromkeys((*self._columns, *source.kernel_columns())))))
            rows = rows.take(to_arrow(_newest(rows, self._own))) if self._own else rows
            self._groups.put(place, rows, rows.nbytes)
        return rows


class _File:
    """A file that one query reads row groups of: opened when it comes to the first of them, as that takes as long as a column."""

    def __init__(self, path: str, metadata: pq.FileMetaData) -> None:
        self.path = path
        self._metadata = metadata

    def read(self, group: int, columns: list[str]) -> pa.Table:
        with undamaged(self.path):
            return self._opened.read_row_group(group, columns=columns, use_threads=False)

    @cached_property
    def _opened(self) -> pq.ParquetFile:
        return opened(self.path, metadata=self._metadata, memory_map=True, pre_buffer=False)


class StateReader:
    """A state table with a single key column."""

    def __init__(self, lake: EmbeddedLake, table: str, key: str, columns: Sequence[str]) -> None:
        self._key = key
        tables = (table, f"{table}_base")
        self._tail, self._base = (KeyedRows(lake, name, key, (*columns, "_deleted"), (key,)) for name in tables)

    def newest(self, chain: str, history: History, height: int, keys: Iterable[Key] | None = None) -> list[Row]:
        """The rows of some keys, or of all, that are there after a block."""
        wanted = None if keys is None else sorted(set(keys))
        base = history.base(height)
        floor = -1 if base is None else base.height
        tail = Limits({v.commit.commit_id: v.limit for v in history.visible(height) if v.limit > floor})
        held = Limits({} if base is None else {base.commit_id: base.height})
        found: dict[Key, Row] = {}
        for stored, limits in ((self._tail, tail), (self._base, held)):
            for source in stored.sources(chain, limits):
                last = source.last_height()
                open_keys = wanted and [key for key in wanted if key not in found or found[key]["_height"] < last]
                for rows in stored.rows(source, open_keys):
                    for row in rows.to_pylist():
                        known = found.get(row[self._key])
                        if known is None or known["_height"] < row["_height"]:
                            found[row[self._key]] = row
        return [row for row in found.values() if not row["_deleted"]]


def event_rows(rows: KeyedRows, chain: str, history: History, height: int) -> list[Row]:
    """The rows of an event table, keyed by `_height`, that one block has."""
    limits = Limits({v.commit.commit_id: v.limit for v in history.visible(height) if v.commit.base_height < height <= v.limit})
    return [row for found in rows.read(chain, limits, [height]) for row in found.to_pylist()]


def _places(keys: pa.ChunkedArray, wanted: Sequence[Any]) -> Longs:
    """Where some of the keys are. (Arrow's own function for it crashes the process where a column has no chunks.)"""
    if pa.types.is_integer(keys.type):
        known = to_arrow(np.array(wanted, f"<i{keys.type.bit_width // 8}"), keys.type)
    else:
        known = to_arrow_binary([one.encode() if isinstance(one, str) else one for one in wanted], keys.type)
    return np.flatnonzero(flags(pc.is_in(keys, known)))


def _newest(rows: pa.Table, own: Sequence[str]) -> Longs:
    """The places of the newest row for each value of some columns."""
    if not len(rows):
        return np.empty(0, np.int64)
    values: Longs = np.zeros(len(rows), np.int64)
    for name in own:
        column = one_chunk(rows[name]).dictionary_encode()
        _, values = np.unique(values * len(column.dictionary) + numbers(column.indices), return_inverse=True)
    upwards = np.argsort(longs(rows["_height"]), kind="stable")
    newest: Longs = np.empty(int(values.max()) + 1, np.int64)
    newest[values[upwards]] = upwards
    return np.sort(newest)


def _bounds_of(metadata: pq.FileMetaData, column: str) -> Bounds:
    """The least and greatest value of a column in each row group; None where the file does not say."""
    leaf = next(index for index in range(metadata.num_columns) if metadata.schema.column(index).path == column)
    found: Bounds = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(leaf).statistics
        known = statistics is not None and statistics.has_min_max
        found.append((statistics.min, statistics.max) if known else (None, None))
    return found
