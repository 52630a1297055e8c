"""Decoded logs on their way through Spark, in bundles: one row for each batch of transactions, with all its logs as one value.

Which number a log gets is known only when all blocks before it are decoded and checked. Until then Spark keeps and sorts a few
large values, not millions of rows.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chainlake.logs.bloom import BloomBits
from chainlake.logs.decode import SCHEMA, decode_batch
from chainlake.logs.log_columns import Transaction
from chainlake.logs.packing import packed, unpacked
from chainlake.logs.streams import Longs

TRANSACTIONS = pa.schema(
    [
        *(("_height", pa.int64()), ("block_hash", pa.binary()), ("tx_index", pa.int32())),
        *(("hash", pa.binary()), ("payload", pa.binary())),
    ]
)
"""What of raw.transactions the logs are decoded from."""
PIECE = pa.struct(
    [
        *(("height", pa.int64()), ("first_log", pa.int32()), ("logs", pa.int32())),
        *(("first_tx", pa.int32()), ("last_tx", pa.int32()), ("bloom", pa.binary())),
    ]
)
_PIECE_COLUMNS = ("_height", "log_index", "piece_logs", "transaction_index", "piece_last_tx", "piece_bloom")
_PLACES = [("first_height", pa.int64()), ("first_log", pa.int32()), ("last_height", pa.int64()), ("last_log", pa.int32())]
ROW = pa.schema(
    [
        *_PLACES,
        *(("logs", pa.int32()), ("pieces", pa.list_(PIECE)), ("error_height", pa.int64())),
        *(("error", pa.string()), ("rows", pa.binary())),
    ]
)
BUNDLES = (
    "first_height long, first_log int, last_height long, last_log int, logs int,"
    " pieces array<struct<height: long, first_log: int, logs: int, first_tx: int, last_tx: int, bloom: binary>>,"
    " error_height long, error string, rows binary"
)
_KEPT = [field for field in SCHEMA if not field.name.startswith("piece_") and field.name != "error"]
_NUMBERED = pa.schema([("log_id", pa.int64()), ("block_timestamp", pa.timestamp("us", "UTC")), *_KEPT])
NUMBERED = (
    "log_id long NOT NULL, block_timestamp timestamp, _height long NOT NULL, block_hash binary NOT NULL,"
    " transaction_index int NOT NULL, transaction_hash binary NOT NULL, log_index int NOT NULL, address binary NOT NULL,"
    " topic0 binary, topic1 binary, topic2 binary, topic3 binary, topic_count int NOT NULL, data binary NOT NULL"
)
"""Columns that are never null say so: then neither projections nor the checks of the table look at every value."""


def bundle_logs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One bundle for each batch of raw transactions (columns of TRANSACTIONS) that has logs or errors."""
    known = BloomBits()
    for batch in batches:
        rows = pa.Table.from_batches(decode_batch(_transactions(batch), known), SCHEMA)
        if rows.num_rows:
            yield _bundle(rows)


def number_logs(batches: Iterable[pa.RecordBatch], base: int, first_ids: Longs, timestamps: Longs) -> Iterator[pa.RecordBatch]:
    """The logs of bundles, each with its number and the time of its block: both are given by height, for heights above `base`."""
    for batch in batches:
        for bundle in batch.column("rows").to_pylist():
            logs = unpacked(bundle)
            if logs.num_rows:
                places = logs.column("_height").to_numpy() - (base + 1)
                ids = first_ids[places] + logs.column("log_index").to_numpy()
                times = pa.array(timestamps[places]).cast(_NUMBERED.field("block_timestamp").type)
                yield pa.RecordBatch.from_arrays([pa.array(ids), times, *logs.columns], schema=_NUMBERED)


def _bundle(rows: pa.Table) -> pa.RecordBatch:
    wrong = rows.filter(pc.is_valid(rows["error"])).sort_by("_height").slice(0, 1).to_pydict()
    good = rows.filter(pc.is_null(rows["error"])).combine_chunks()
    starts = good.filter(pc.is_valid(good["piece_logs"])).select(_PIECE_COLUMNS).combine_chunks()
    pieces = pa.StructArray.from_arrays([_whole(column) for column in starts.columns], fields=list(PIECE))
    logs = pa.RecordBatch.from_arrays([_whole(good[field.name]) for field in _KEPT], schema=pa.schema(_KEPT))
    ends = [good[name][at].as_py() for at in (0, -1) for name in ("_height", "log_index")] if good.num_rows else [None] * 4
    values = [*ends, good.num_rows, pieces.to_pylist(), (wrong["_height"] or [None])[0], (wrong["error"] or [None])[0]]
    columns = [pa.array([value], field.type) for value, field in zip(values, ROW, strict=False)]
    return pa.RecordBatch.from_arrays([*columns, pa.array([packed(logs)], pa.binary())], schema=ROW)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else pa.array([], column.type)
    )


def _transactions(batch: pa.RecordBatch) -> list[Transaction]:
    """The rows of a batch in block and transaction order."""
    found = [Transaction(*row) for row in zip(*(batch.column(name).to_pylist() for name in TRANSACTIONS.names), strict=True)]
    return sorted(found, key=lambda t: (t.height, t.index))


def file_bounds(places: list[tuple[int, int, int, int, int]], files: int) -> list[tuple[int, int]] | None:
    """Where each file but the first begins (height, log index), so that all have about as many logs: the bundles, given as first
    and last place and number of logs, go to files as a whole. None if bundles overlap, so that they cannot."""
    ordered = sorted(places)
    if any(before[2:4] >= after[:2] for before, after in pairwise(ordered)):
        return None
    total = sum(place[4] for place in ordered)
    ends = np.cumsum([place[4] for place in ordered])
    numbers = np.concatenate([[0], ends[:-1]]) * files // max(1, total)
    return [ordered[at][:2] for at in np.flatnonzero(np.diff(numbers)) + 1]
