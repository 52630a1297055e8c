"""Entries of the index on their way through Spark: (stream, id) pairs in bundles, so that Spark moves a few large values and not
millions of small rows.

`route_*` turn rows into bundles for the parts of a segment; `seal_part` takes all bundles of a part and makes its rows, which are
packed until the table that they belong to is written: `packed_rows` unpacks them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chainlake.logs.codec import decode_chunk, values_of
from chainlake.logs.packing import packed, unpacked
from chainlake.logs.seal import Sealed
from chainlake.logs.streams import HASH_MASK, KIND_SHIFT, LOCAL_BITS, Kind, Longs

WEIGHTS = (0.0, 1.0, 1.0, 0.9, 0.65, 0.15, 0.15, 0.01)
"""Entries that a log has, by kind of stream; rounded from mainnet."""
STREAMS = ("s1", "s2", "s3", "s4", "s5")
NO_PART = -1
"""Of bundles that hold signatures by block, packed, and no entries: see `topic0`."""
BUNDLES = "part int, entries binary"
SEALED = "kind string, rows binary"
ROWS = {
    "chunk": "stream long NOT NULL, shard long NOT NULL, chunk_seq long NOT NULL, min_local int NOT NULL, max_local int NOT NULL,"
    " count int NOT NULL, chunk binary NOT NULL",
    "manifest": "stream long NOT NULL, shard long NOT NULL, count int NOT NULL,"
    " refs array<struct<chunk_seq: long, min_local: int, max_local: int, count: int>> NOT NULL",
    "tail": "stream long NOT NULL, shard long NOT NULL, min_local int NOT NULL, max_local int NOT NULL, count int NOT NULL,"
    " locals array<int> NOT NULL",
}
_BUNDLES_ARROW = pa.schema([("part", pa.int32()), ("entries", pa.binary())])
_SEALED_ARROW = pa.schema([("kind", pa.string()), ("rows", pa.binary())])
_BUNDLE = 1 << 20
_ROWS_AT_ONCE = 1 << 16


def part_of(streams: Longs, parts: int) -> npt.NDArray[np.int32]:
    """Ranges of streams of about the same weight: hashes are spread evenly, and the weights of the kinds are known."""
    weights = np.array(WEIGHTS)
    before = np.cumsum(weights) - weights
    kinds = streams >> KIND_SHIFT
    at = before[kinds] + weights[kinds] * ((streams & HASH_MASK) / (HASH_MASK + 1))
    places: npt.NDArray[np.int32] = np.minimum(parts - 1, at * (parts / weights.sum())).astype(np.int32)
    return places


@dataclass
class Router:
    """Gathers entries, and hands them out in bundles, one for each part that has some."""

    parts: int
    _streams: list[Longs] = field(default_factory=list)
    _ids: list[Longs] = field(default_factory=list)
    _held: int = 0

    def add(self, streams: Longs, ids: Longs) -> Iterator[pa.RecordBatch]:
        self._streams.append(streams)
        self._ids.append(ids)
        self._held += len(ids)
        if self._held >= _BUNDLE:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        if not self._held:
            return
        streams, ids = np.concatenate(self._streams), np.concatenate(self._ids)
        self._streams, self._ids, self._held = [], [], 0
        places = part_of(streams, self.parts)
        order = np.argsort(places, kind="stable")
        numbers, starts = np.unique(places[order], return_index=True)
        cuts = np.split(order, starts[1:])
        bundles = [np.concatenate([streams[cut], ids[cut]]).tobytes() for cut in cuts]
        yield pa.record_batch([pa.array(numbers), pa.array(bundles, pa.binary())], schema=_BUNDLES_ARROW)


def route_rows(batches: Iterable[pa.RecordBatch], parts: int) -> Iterator[pa.RecordBatch]:
    """Bundles of rows `id, s1 … s5`: an id and the streams that it belongs to; 0 is no stream."""
    router = Router(parts)
    for batch in batches:
        yield from _add_rows(router, batch)
    yield from router.finish()


def route_logs(batches: Iterable[pa.RecordBatch], parts: int) -> Iterator[pa.RecordBatch]:
    """The same of logs, which also tell their `block_number` and `topic0`: besides, bundles of signatures by block."""
    router = Router(parts)
    for batch in batches:
        yield from _add_rows(router, batch)
        first, counts = _signatures(batch)
        if len(first):
            blocks, streams = _longs(batch, "block_number")[first], _longs(batch, "s2")[first]
            yield from router.add(int(Kind.TOPIC0_BLOCK) << KIND_SHIFT | streams & HASH_MASK, blocks)
            found = [batch.column("topic0").take(pa.array(first)), pa.array(blocks), pa.array(counts.astype(np.int32))]
            rows = packed(pa.record_batch(found, ["topic0", "block_number", "count"]))
            yield pa.record_batch([pa.array([NO_PART], pa.int32()), pa.array([rows], pa.binary())], schema=_BUNDLES_ARROW)
    yield from router.finish()


def _add_rows(router: Router, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    ids = _longs(batch, "id")
    for name in STREAMS:
        streams = _longs(batch, name)
        some = streams != 0
        if some.all():
            yield from router.add(streams, ids)
        elif some.any():
            yield from router.add(streams[some], ids[some])


def _signatures(batch: pa.RecordBatch) -> tuple[Longs, Longs]:
    """Of each signature in each block, the place of its first log, and how many logs have it."""
    encoded = batch.column("topic0").dictionary_encode()
    places = np.flatnonzero(np.asarray(encoded.is_valid()))
    names = encoded.indices.drop_null().to_numpy().astype(np.int64)
    blocks = _longs(batch, "block_number")[places]
    lowest = blocks.min() if len(blocks) else 0
    _, first, counts = np.unique((blocks - lowest) * len(encoded.dictionary) + names, return_index=True, return_counts=True)
    return places[first], counts


def route_tails(batches: Iterable[pa.RecordBatch], parts: int) -> Iterator[pa.RecordBatch]:
    """Bundles of rows `stream, shard, locals`."""
    router = Router(parts)
    for batch in batches:
        found: pa.ListArray = batch.column("locals")
        counts = np.diff(found.offsets.to_numpy())
        shards = np.repeat(_longs(batch, "shard"), counts)
        ids = found.flatten().to_numpy().astype(np.int64) + (shards << LOCAL_BITS)
        yield from router.add(np.repeat(_longs(batch, "stream"), counts), ids)
    yield from router.finish()


def route_chunks(batches: Iterable[pa.RecordBatch], parts: int) -> Iterator[pa.RecordBatch]:
    """Bundles of rows `stream, shard, chunk`."""
    router = Router(parts)
    for batch in batches:
        for stream, shard, chunk in zip(*(batch.column(n).to_pylist() for n in ("stream", "shard", "chunk")), strict=True):
            ids = values_of(decode_chunk(chunk).bitmap).astype(np.int64) + (shard << LOCAL_BITS)
            yield from router.add(np.full(len(ids), stream, np.int64), ids)
    yield from router.finish()


def seal_part(batches: Iterable[pa.RecordBatch], seal: Callable[[Longs, Longs], Sealed]) -> Iterator[pa.RecordBatch]:
    """The rows of the three tables, packed, of all the bundles of a part."""
    bundles = [np.frombuffer(one, np.int64) for batch in batches for one in batch.column("entries").to_pylist()]
    if bundles:
        streams, ids = _together([one[: len(one) // 2] for one in bundles]), _together([one[len(one) // 2 :] for one in bundles])
        order = np.argsort(streams, kind="stable")
        yield from _rows(seal(streams[order], ids[order]))


def _rows(sealed: Sealed) -> Iterator[pa.RecordBatch]:
    for kind, rows in (("chunk", sealed.chunks), ("manifest", sealed.manifests), ("tail", sealed.tails)):
        if rows.num_rows:
            yield pa.record_batch([pa.array([kind]), pa.array([packed(rows)], pa.binary())], schema=_SEALED_ARROW)


def packed_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of one table, in order, out of the last column of packed ones."""
    for batch in batches:
        for one in batch.columns[-1]:
            rows = unpacked(one.as_buffer())
            yield from (rows.slice(at, _ROWS_AT_ONCE) for at in range(0, rows.num_rows, _ROWS_AT_ONCE))


def _together(arrays: Sequence[Longs]) -> Longs:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _longs(batch: pa.RecordBatch, name: str) -> Longs:
    values: Longs = batch.column(name).to_numpy(zero_copy_only=False)
    return values
