"""Row groups of Parquet files: found by their statistics, decoded once, kept within bounds.

Footers are parsed once per file. A file is opened anew for each run of its row groups, so that readers share nothing but caches,
and no number of files can exhaust file handles.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from chainlake.errors import BrokenPromise, first_line
from chainlake.serve.arrays import Longs
from chainlake.serve.cache import ByteCache
from chainlake.serve.visible import HIGHEST, LOWEST, Source

FOOTER_GROWTH = 6
"""A parsed footer takes about this many times its bytes in the file."""
ENOUGH_FOR_THREADS = 3
RUN = 8
"""Row groups that are read from a file before it is opened again: opening takes a fifth of the time of reading one."""


class Decoded(Protocol):
    """Rows of a row group in the form that a reader looks things up in."""

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=Decoded)


@dataclass
class Reads:
    """What one query took from files and caches. It belongs to the thread of the query."""

    hits: dict[str, int] = field(default_factory=dict)
    misses: dict[str, int] = field(default_factory=dict)
    row_groups: int = 0
    bytes: int = 0

    def used(self, kind: str, hits: int, misses: int) -> None:
        self.hits[kind] = self.hits.get(kind, 0) + hits
        self.misses[kind] = self.misses.get(kind, 0) + misses

    def add(self, other: "Reads") -> None:
        """What a part of the query took."""
        for kind in other.hits:
            self.used(kind, other.hits[kind], other.misses[kind])
        self.row_groups += other.row_groups
        self.bytes += other.bytes


class Footer:
    """What a Parquet file says about its row groups."""

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata
        self.groups: int = metadata.num_row_groups
        self._leaf = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
        self._bounds: dict[str, tuple[Longs, Longs]] = {}

    @property
    def nbytes(self) -> int:
        return int(self.metadata.serialized_size) * FOOTER_GROWTH

    def bounds(self, column: str) -> tuple[Longs, Longs]:
        """The least and greatest value of a column in each row group."""
        if column not in self._bounds:
            self._bounds[column] = self._read_bounds(self._leaf[column])
        return self._bounds[column]

    def stored_bytes(self, group: int, columns: Iterable[str]) -> int:
        """Compressed bytes of some columns of a row group."""
        row_group, wanted = self.metadata.row_group(group), set(columns)
        leaves = [leaf for name, leaf in self._leaf.items() if name.partition(".")[0] in wanted]
        return sum(row_group.column(leaf).total_compressed_size for leaf in leaves)

    def _read_bounds(self, leaf: int) -> tuple[Longs, Longs]:
        low, high = np.full(self.groups, LOWEST, np.int64), np.full(self.groups, HIGHEST, np.int64)
        for group in range(self.groups):
            statistics = self.metadata.row_group(group).column(leaf).statistics
            if statistics is not None and statistics.has_min_max:
                low[group], high[group] = statistics.min, statistics.max
        return low, high


def holding(keys: Longs, low: Longs, high: Longs) -> tuple[Longs, Longs, Longs]:
    """Which ranges may hold some of the sorted keys: their places, and for each the first key and the one after the last."""
    first, last = keys.searchsorted(low), keys.searchsorted(high, side="right")
    (places,) = (last > first).nonzero()
    return places, first[places], last[places]


def opened(path: str, **how: Any) -> pq.ParquetFile:
    """A Parquet file to read. Its pages are compared with the checksums that Spark writes with them: what a disk changed is no
    answer. That costs next to nothing. Times come out as the tables declare them."""
    return pq.ParquetFile(path, page_checksum_verification=True, coerce_int96_timestamp_unit="us", **how)


RESTORED, REMADE = "run lake verify, then lake restore", "put warehouse/control back from a copy, see docs/operations.md"
"""What to do about a damaged file of a data table, and of a control table."""


@contextmanager
def undamaged(path: str, remedy: str = RESTORED) -> Iterator[None]:
    """Reading a file whose bytes are no longer those of a table fails by its name, which strangers may be told as well. Errors of
    the system, that it is gone or may not be opened, stay what they are."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        name = "/".join(path.rsplit("/", 2)[-2:])
        raise BrokenPromise(f"{name} is damaged ({first_line(error)}): {remedy}") from None


class RowGroupFiles:
    """Parquet files with their footers kept, and the threads that read several row groups at once."""

    def __init__(self, footer_bytes: int, threads: int) -> None:
        self.footers: ByteCache[Footer] = ByteCache(footer_bytes)
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="row-groups")
        self.threads = threads

    def footer(self, source: Source, reads: Reads) -> Footer:
        found = self.footers.get(source.path)
        reads.used("footers", int(found is not None), int(found is None))
        if found is None:
            with undamaged(source.path):
                found = Footer(pq.read_metadata(source.path, memory_map=True))
            self.footers.put(source.path, found, found.nbytes)
        return found

    def read(self, source: Source, footer: Footer, groups: Sequence[int], columns: Sequence[str], threads: bool) -> pa.Table:
        """The rows of row groups that can be seen, in file order, with the columns asked for."""
        (rows,) = self.read_each(source, footer, [groups], columns, threads)
        return rows

    def read_each(
        self, source: Source, footer: Footer, runs: Iterable[Sequence[int]], columns: Sequence[str], threads: bool = False
    ) -> Iterator[pa.Table]:
        """The same of several runs of row groups, one after the other."""
        with undamaged(source.path):
            file = opened(source.path, metadata=footer.metadata, memory_map=True, pre_buffer=False)
        needed = list(dict.fromkeys((*columns, *source.kernel_columns())))
        for groups in runs:
            with undamaged(source.path):
                rows = file.read_row_groups(groups, columns=needed, use_threads=threads)
            yield source.seen(rows).select(list(columns))


class DecodedGroups(Generic[T]):
    """Decoded row groups of one table."""

    def __init__(
        self, kind: str, files: RowGroupFiles, max_bytes: int, columns: Sequence[str], decode: Callable[[pa.Table, Source], T]
    ) -> None:
        self.kind = kind
        self.files = files
        self.cache: ByteCache[T] = ByteCache(max_bytes)
        self._columns = columns
        self._decode = decode

    def get(self, wanted: Sequence[tuple[Source, int]], reads: Reads) -> list[T]:
        """Row groups, from the cache or else from their files; several missing ones are read at the same time."""
        found = self.cache.get_all([(source.key, group) for source, group in wanted])
        missing = [place for place, value in enumerate(found) if value is None]
        reads.used(self.kind, len(wanted) - len(missing), len(missing))
        if missing:
            runs = self._runs([wanted[place] for place in missing], reads)
            parallel = len(missing) >= ENOUGH_FOR_THREADS and self.files.threads > 1
            loaded = chain.from_iterable(self.files.pool.map(self._load, runs) if parallel else map(self._load, runs))
            for place, value in zip(missing, loaded, strict=True):
                source, group = wanted[place]
                found[place] = value
                self.cache.put((source.key, group), value, value.nbytes)
        return [value for value in found if value is not None]

    def _runs(self, wanted: Sequence[tuple[Source, int]], reads: Reads) -> list["_Run"]:
        """Row groups that follow each other here and are in one file, in runs that threads share out."""
        most = max(1, min(RUN, len(wanted) // self.files.threads))
        runs: list[_Run] = []
        for source, group in wanted:
            footer = self.files.footer(source, reads)
            reads.row_groups += 1
            reads.bytes += footer.stored_bytes(group, self._columns)
            if not runs or runs[-1].source is not source or len(runs[-1].groups) >= most:
                runs.append(_Run(source, footer, []))
            runs[-1].groups.append(group)
        return runs

    def _load(self, run: "_Run") -> list[T]:
        tables = self.files.read_each(run.source, run.footer, ([group] for group in run.groups), self._columns)
        return [self._decode(rows, run.source) for rows in tables]


@dataclass(frozen=True)
class _Run:
    """Row groups of one file that one thread reads."""

    source: Source
    footer: Footer
    groups: list[int]
