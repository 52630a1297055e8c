"""Row groups of the index tables, decoded into arrays in which a stream is found by bisection.

Files are written in order of their streams, but nothing relies on it: rows that come in another order are sorted when decoded.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chainlake.serve.arrays import Longs, longs, numbers, offsets, one_chunk, to_arrow
from chainlake.serve.visible import Source

Ints = npt.NDArray[np.int32]

TAIL_COLUMNS = ("stream", "shard", "locals")
MANIFEST_COLUMNS = ("_commit", "stream", "shard", "refs")
CHUNK_COLUMNS = ("_commit", "stream", "chunk_seq", "chunk")


@dataclass(frozen=True)
class TailGroup:
    """Tails: the entries of row i are `locals[offsets[i]:offsets[i + 1]]`."""

    streams: Longs
    shards: Longs
    offsets: Ints
    locals: Ints

    @property
    def nbytes(self) -> int:
        return self.streams.nbytes + self.shards.nbytes + self.offsets.nbytes + self.locals.nbytes


@dataclass(frozen=True)
class ManifestGroup:
    """Manifests: the chunks of row i are those from `offsets[i]` to `offsets[i + 1]`."""

    commits: Longs
    streams: Longs
    shards: Longs
    offsets: Ints
    seqs: Longs
    low: Ints
    high: Ints
    counts: Ints

    @property
    def nbytes(self) -> int:
        arrays = (self.commits, self.streams, self.shards, self.offsets, self.seqs, self.low, self.high, self.counts)
        return sum(array.nbytes for array in arrays)


@dataclass(frozen=True)
class ChunkGroup:
    """Chunks as stored, by stream and chunk_seq."""

    commits: Longs
    streams: Longs
    seqs: Longs
    offsets: Ints
    data: memoryview

    @property
    def nbytes(self) -> int:
        return self.commits.nbytes + self.streams.nbytes + self.seqs.nbytes + self.offsets.nbytes + self.data.nbytes

    def find(self, stream: int, seq: int, commit: int) -> memoryview | None:
        """The bytes of a chunk."""
        first, last = self.streams.searchsorted(stream), self.streams.searchsorted(stream, side="right")
        place = int(first + self.seqs[first:last].searchsorted(seq))
        while place < last and self.seqs[place] == seq:
            if self.commits[place] == commit:
                return self.data[self.offsets[place] : self.offsets[place + 1]]
            place += 1
        return None


def decode_tails(rows: pa.Table, source: Source) -> TailGroup:
    rows = _in_order(rows, "stream")
    lists = one_chunk(rows["locals"])
    return TailGroup(longs(rows["stream"]), longs(rows["shard"]), numbers(lists.offsets), numbers(lists.values))


def decode_manifests(rows: pa.Table, source: Source) -> ManifestGroup:
    rows = _in_order(rows, "stream")
    lists = one_chunk(rows["refs"])
    refs = (numbers(lists.values.field(name)) for name in ("chunk_seq", "min_local", "max_local", "count"))
    commits, streams, shards = (longs(rows[name]) for name in ("_commit", "stream", "shard"))
    return ManifestGroup(commits, streams, shards, numbers(lists.offsets), *refs)


def decode_chunks(rows: pa.Table, source: Source) -> ChunkGroup:
    rows = _in_order(rows, "stream", "chunk_seq")
    commits, streams, seqs = (longs(rows[name]) for name in ("_commit", "stream", "chunk_seq"))
    chunks = one_chunk(rows["chunk"])
    data = chunks.buffers()[2]
    return ChunkGroup(commits, streams, seqs, offsets(chunks), memoryview(data) if data is not None else memoryview(b""))


def _in_order(rows: pa.Table, first: str, second: str | None = None) -> pa.Table:
    """The rows by one or two columns. Those of a plain file are in order already."""
    keys = longs(rows[first])
    steps = np.diff(keys)
    if second is None:
        return rows if (steps >= 0).all() else rows.take(to_arrow(np.argsort(keys, kind="stable")))
    beside = longs(rows[second])
    in_order = ((steps > 0) | ((steps == 0) & (np.diff(beside) >= 0))).all()
    return rows if in_order else rows.take(to_arrow(np.lexsort((beside, keys))))
