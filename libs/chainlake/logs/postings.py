"""Entries of the index on their way through Spark: (stream, id) pairs in bundles, so that Spark moves a few large values and not
millions of small rows.

`route_*` turn rows into bundles for the parts of a segment; `seal_part` takes all bundles of a part and makes its rows, which are
packed until the table that they belong to is written: `packed_rows` unpacks them. What is routed is counted as well, and damage
is told: a segment stands for all of its logs, and one that was made of fewer would hide that some are missing.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chainlake.encoding import to_hex
from chainlake.logs.codec import BadChunk, decode_chunk, values_of
from chainlake.logs.packing import packed, unpacked
from chainlake.logs.seal import Sealed
from chainlake.logs.streams import HASH_MASK, KIND_SHIFT, LOCAL_BITS, Kind, Longs

WEIGHTS = (0.0, 1.0, 1.0, 0.9, 0.65, 0.15, 0.15, 0.01)
"""Entries that a log has, by kind of stream; rounded from mainnet."""
STREAMS = ("s1", "s2", "s3", "s4", "s5")
SIGNATURES, TALLY = -1, -2
"""Parts of bundles that hold no entries: signatures by block, packed (see `topic0`), and what a task counted (see `tallied`)."""
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


def route_blocks(batches: Iterable[pa.RecordBatch], parts: int) -> Iterator[pa.RecordBatch]:
    """The same of blocks, which also tell their `log_count`. Counts blocks, and the logs that they should have."""
    counts: Counter[str] = Counter()

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts.update(blocks=batch.num_rows, expected_logs=int(batch.column("log_count").to_numpy().sum()))
            yield batch

    yield from route_rows(counted(), parts)
    yield _tally(counts)


def route_logs(batches: Iterable[pa.RecordBatch], parts: int) -> Iterator[pa.RecordBatch]:
    """The same of logs, which also tell their `block_number` and `topic0`: besides, bundles of signatures by block.
    Counts logs."""
    logs = 0
    router = Router(parts)
    for batch in batches:
        logs += batch.num_rows
        yield from _add_rows(router, batch)
        first, counts = _signatures(batch)
        if len(first):
            blocks, streams = _longs(batch, "block_number")[first], _longs(batch, "s2")[first]
            yield from router.add(int(Kind.TOPIC0_BLOCK) << KIND_SHIFT | streams & HASH_MASK, blocks)
            found = [batch.column("topic0").take(pa.array(first)), pa.array(blocks), pa.array(counts.astype(np.int32))]
            rows = packed(pa.record_batch(found, ["topic0", "block_number", "count"]))
            yield _bundle(SIGNATURES, rows)
    yield from router.finish()
    yield _tally({"logs": logs})


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
    """Bundles of rows `stream, shard, locals`. Counts tails."""
    tails = 0
    router = Router(parts)
    for batch in batches:
        tails += batch.num_rows
        found: pa.ListArray = batch.column("locals")
        counts = np.diff(found.offsets.to_numpy())
        shards = np.repeat(_longs(batch, "shard"), counts)
        ids = found.flatten().to_numpy().astype(np.int64) + (shards << LOCAL_BITS)
        yield from router.add(np.repeat(_longs(batch, "stream"), counts), ids)
    yield from router.finish()
    yield _tally({"tails": tails})


def route_chunks(batches: Iterable[pa.RecordBatch], parts: int) -> Iterator[pa.RecordBatch]:
    """Bundles of rows `stream, shard, chunk_seq, chunk`. Counts chunks, and names one that is damaged."""
    chunks, damage = 0, None
    router = Router(parts)
    names = ("stream", "shard", "chunk_seq", "chunk")
    for batch in batches:
        chunks += batch.num_rows
        for stream, shard, seq, chunk in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
            try:
                ids = values_of(decode_chunk(chunk).bitmap).astype(np.int64) + (shard << LOCAL_BITS)
            except BadChunk as error:
                damage = f"chunk {seq} of stream {to_hex(stream.to_bytes(8, 'big'))} is damaged: {error}"
                continue
            yield from router.add(np.full(len(ids), stream, np.int64), ids)
    yield from router.finish()
    yield _tally({"chunks": chunks}, damage)


def tallied(bundles: Iterable[bytes]) -> tuple[Counter[str], str | None]:
    """What all tasks counted together, and the damage that one of them met, if one did."""
    told = [json.loads(one) for one in bundles]
    counts: Counter[str] = sum((Counter(one["counts"]) for one in told), Counter())
    return counts, next((one["damage"] for one in told if one["damage"]), None)


def _tally(counts: Mapping[str, int], damage: str | None = None) -> pa.RecordBatch:
    return _bundle(TALLY, json.dumps({"counts": counts, "damage": damage}).encode())


def _bundle(part: int, data: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([part], pa.int32()), pa.array([data], pa.binary())], schema=_BUNDLES_ARROW)


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
