"""Sealing: from sorted (stream, id) pairs to chunks, the manifests that list them, and tails.

Of each stream and shard, every full run of entries becomes a chunk and the rest a tail. Nearly all streams are rare and have a
tail only; for them no Python runs per stream, only numpy over the whole batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chainlake.errors import BadInput
from chainlake.logs.codec import HEADER, encode_chunk
from chainlake.logs.streams import LOCAL_BITS, LOCAL_MASK, Longs

INLINE_BELOW = 8
ROARING_HEADER, CONTAINER_HEADER, CONTAINERS = 8, 8, 1 << LOCAL_BITS - 16

REF = pa.struct([("chunk_seq", pa.int64()), ("min_local", pa.int32()), ("max_local", pa.int32()), ("count", pa.int32())])
CHUNKS = pa.schema(
    [
        *(("stream", pa.int64()), ("shard", pa.int64()), ("chunk_seq", pa.int64()), ("min_local", pa.int32())),
        *(("max_local", pa.int32()), ("count", pa.int32()), ("chunk", pa.binary())),
    ]
)
MANIFESTS = pa.schema([("stream", pa.int64()), ("shard", pa.int64()), ("count", pa.int32()), ("refs", pa.list_(REF))])
TAILS = pa.schema(
    [
        *(("stream", pa.int64()), ("shard", pa.int64()), ("min_local", pa.int32()), ("max_local", pa.int32())),
        *(("count", pa.int32()), ("locals", pa.list_(pa.int32()))),
    ]
)


@dataclass(frozen=True)
class Sealing:
    """When a run of entries is a chunk: at so many entries, or where one more could make it larger than so many bytes."""

    entries: int = 1950
    max_bytes: int = 32 << 10

    @property
    def run(self) -> int:
        """Entries of a full chunk. An entry takes at most two bytes, and each of at most 256 containers a header of eight."""
        room = self.max_bytes - HEADER.size - ROARING_HEADER
        sparse = room // (CONTAINER_HEADER + 2)
        run = min(self.entries, sparse if sparse < CONTAINERS else (room - CONTAINERS * CONTAINER_HEADER) // 2)
        if run < 1:
            raise BadInput(f"chunks of {self.entries} entries and {self.max_bytes} bytes hold nothing: use larger numbers")
        return run


@dataclass(frozen=True)
class Sealed:
    """Rows of the three index tables, without the kernel's columns, ordered by stream and shard."""

    chunks: pa.RecordBatch
    manifests: pa.RecordBatch
    tails: pa.RecordBatch


@dataclass(frozen=True)
class _Runs:
    """Entries of a batch in order, and where each (stream, shard) starts and ends among them."""

    ids: Longs
    locals: npt.NDArray[np.int32]
    streams: Longs
    shards: Longs
    starts: Longs
    counts: Longs


def seal(streams: Longs, ids: Longs, sealing: Sealing | None = None) -> Sealed:
    """Seal pairs whose streams are ascending; ids may come in any order, and more than once."""
    run = (sealing or Sealing()).run
    runs = _runs(streams, ids)
    return _sealed(runs, runs.counts // run, run)


def seal_all(streams: Longs, ids: Longs, sealing: Sealing | None = None, inline_below: int = INLINE_BELOW) -> Sealed:
    """Seal everything, as a merge does, except what is so little that a chunk would be larger than what it holds."""
    run = (sealing or Sealing()).run
    runs = _runs(streams, ids)
    return _sealed(runs, runs.counts // run + (runs.counts % run >= inline_below), run)


def _runs(streams: Longs, ids: Longs) -> _Runs:
    streams, ids = _ordered(np.asarray(streams, np.int64), np.asarray(ids, np.int64))
    shards = ids >> LOCAL_BITS
    new = np.ones(len(ids), np.bool_)
    new[1:] = (streams[1:] != streams[:-1]) | (shards[1:] != shards[:-1])
    starts = np.flatnonzero(new)
    counts = np.diff(np.append(starts, len(ids)))
    return _Runs(ids, (ids & LOCAL_MASK).astype(np.int32), streams[starts], shards[starts], starts, counts)


def _ordered(streams: Longs, ids: Longs) -> tuple[Longs, Longs]:
    """The pairs by stream and id, each once."""
    same = streams[1:] == streams[:-1]
    if np.any(same & (ids[1:] < ids[:-1])):
        streams, ids = _sorted(streams, ids, same)
        same = streams[1:] == streams[:-1]
    repeated = same & (ids[1:] == ids[:-1])
    if repeated.any():
        keep = np.append(True, ~repeated)
        streams, ids = streams[keep], ids[keep]
    return streams, ids


def _sorted(streams: Longs, ids: Longs, same: npt.NDArray[np.bool_]) -> tuple[Longs, Longs]:
    """Sort the ids of each stream: by one number that holds both if it fits, which is several times faster."""
    rank = np.append(0, np.cumsum(~same))
    bits = int(ids.max()).bit_length()
    if int(rank[-1]).bit_length() + bits > 63:
        order = np.lexsort((ids, streams))
        return streams[order], ids[order]
    both = np.sort(rank << bits | ids)
    return streams, both & ((1 << bits) - 1)


def _sealed(runs: _Runs, chunks: Longs, run: int) -> Sealed:
    """Split each run into its chunks and what is left over."""
    in_chunks = np.minimum(chunks * run, runs.counts)
    refs, chunk_rows = _chunks(runs, chunks, run)
    return Sealed(chunk_rows, _manifests(runs, chunks, in_chunks, refs), _tails(runs, in_chunks))


def _chunks(runs: _Runs, chunks: Longs, run: int) -> tuple[pa.StructArray, pa.RecordBatch]:
    which = np.repeat(np.arange(len(chunks)), chunks)
    number = np.arange(len(which)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
    starts = runs.starts[which] + number * run
    counts = np.minimum(runs.counts[which] - number * run, run)
    blobs = [encode_chunk(runs.locals[a : a + n]) for a, n in zip(starts.tolist(), counts.tolist(), strict=True)]
    seqs = pa.array(runs.ids[starts])
    low, high = pa.array(runs.locals[starts]), pa.array(runs.locals[starts + counts - 1])
    sizes = pa.array(counts.astype(np.int32))
    refs = pa.StructArray.from_arrays([seqs, low, high, sizes], fields=list(REF))
    columns = [pa.array(runs.streams[which]), pa.array(runs.shards[which]), seqs, low, high, sizes, pa.array(blobs, pa.binary())]
    return refs, pa.record_batch(columns, schema=CHUNKS)


def _manifests(runs: _Runs, chunks: Longs, in_chunks: Longs, refs: pa.StructArray) -> pa.RecordBatch:
    listed = np.flatnonzero(chunks)
    offsets = np.append(0, np.cumsum(chunks[listed])).astype(np.int32)
    columns: Sequence[pa.Array] = [
        pa.array(runs.streams[listed]),
        pa.array(runs.shards[listed]),
        pa.array(in_chunks[listed].astype(np.int32)),
        pa.ListArray.from_arrays(pa.array(offsets), refs),
    ]
    return pa.record_batch(columns, schema=MANIFESTS)


def _tails(runs: _Runs, in_chunks: Longs) -> pa.RecordBatch:
    left = runs.counts - in_chunks
    some = np.flatnonzero(left)
    starts, counts = runs.starts[some] + in_chunks[some], left[some]
    offsets = np.append(0, np.cumsum(counts))
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)
    columns: Sequence[pa.Array] = [
        pa.array(runs.streams[some]),
        pa.array(runs.shards[some]),
        pa.array(runs.locals[starts]),
        pa.array(runs.locals[starts + counts - 1]),
        pa.array(counts.astype(np.int32)),
        pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(runs.locals[places])),
    ]
    return pa.record_batch(columns, schema=TAILS)
