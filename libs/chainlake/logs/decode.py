"""Receipts and logs as JSON, by the batch, to columns; and what a block's logs must satisfy.

Rows arrive as they lie in files, so a block may be spread over batches. Each batch gives one *piece* per block: its first log
says how many follow, up to which transaction, and the bloom of them all. `check_block` looks at the pieces of a block together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from chainlake.errors import BadInput
from chainlake.logs.bloom import BloomBits, as_binary, blooms
from chainlake.logs.hex_columns import Bytes, fixed
from chainlake.logs.log_columns import Ints, Transaction, read_logs

TOPICS = ("topic0", "topic1", "topic2", "topic3")
SCHEMA = pa.schema(
    [
        ("_height", pa.int64()),
        ("block_hash", pa.binary()),
        ("transaction_index", pa.int32()),
        ("transaction_hash", pa.binary()),
        ("log_index", pa.int32()),
        ("address", pa.binary()),
        *((name, pa.binary()) for name in TOPICS),
        ("topic_count", pa.int32()),
        ("data", pa.binary()),
        ("piece_logs", pa.int32()),
        ("piece_last_tx", pa.int32()),
        ("piece_bloom", pa.binary()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True)
class Piece:
    """Consecutive logs of a block that were decoded together."""

    first_log: int
    logs: int
    first_tx: int
    last_tx: int
    bloom: bytes


def decode_batch(transactions: Sequence[Transaction], known: BloomBits) -> list[pa.RecordBatch]:
    """Log rows of some transactions. If one is bad, all are taken one by one, so that it can be named and the others kept."""
    try:
        return [_decode_all(transactions, known)]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, BadInput) as error:
        if len(transactions) == 1:
            return [_bad(transactions[0], error)]
    return [batch for one in transactions for batch in decode_batch([one], known)]


def check_block(height: int, pieces: Sequence[Piece], header_bloom: bytes | None) -> str | None:
    """What is wrong with a block's logs taken together; None if nothing is."""
    bloom, logs, last_tx = 0, 0, -1
    for piece in sorted(pieces, key=lambda p: p.first_log):
        if piece.first_log != logs:
            return f"block {height}: log index {piece.first_log} where {logs} is expected; indexes must be 0, 1, 2 … in order"
        if piece.first_tx <= last_tx:
            return f"block {height}: logs of transaction {piece.first_tx} come after those of transaction {last_tx}"
        bloom |= int.from_bytes(piece.bloom, "big")
        logs, last_tx = logs + piece.logs, piece.last_tx
    if header_bloom is not None and bloom != int.from_bytes(header_bloom, "big"):
        return f"block {height}: the logsBloom of its header is not that of its {logs} logs; some are missing, foreign or changed"
    return None


def _decode_all(transactions: Sequence[Transaction], known: BloomBits) -> pa.RecordBatch:
    found = read_logs(transactions)
    rows, counts, indexes = found.rows, found.topic_counts, found.indexes
    if not len(rows):
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    if counts.max() > len(TOPICS):
        raise BadInput(f"a log has {counts.max()} topics: at most {len(TOPICS)} are possible")
    heights = np.array([t.height for t in transactions], np.int64)[rows]
    order = np.array([t.index for t in transactions], np.int64)[rows]
    starts = np.flatnonzero(np.r_[True, heights[1:] != heights[:-1]])
    ends = np.r_[starts[1:], len(rows)]
    _check_order(heights, indexes, order)
    parts = blooms(found.addresses, found.topics, counts, starts, known)
    pieces = {
        "piece_logs": _at(starts, pa.array((ends - starts).astype(np.int32)), len(rows)),
        "piece_last_tx": _at(starts, pa.array(order[ends - 1].astype(np.int32)), len(rows)),
        "piece_bloom": _at(starts, as_binary(parts), len(rows)),
    }
    columns = {
        "_height": pa.array(heights),
        "block_hash": pa.array([t.block_hash for t in transactions], pa.binary()).take(pa.array(rows)),
        "transaction_index": pa.array(order.astype(np.int32)),
        "transaction_hash": pa.array([t.hash for t in transactions], pa.binary()).take(pa.array(rows)),
        "log_index": pa.array(indexes.astype(np.int32)),
        "address": fixed(found.addresses).cast(pa.binary()),
        **_topic_columns(found.topics, counts),
        "topic_count": pa.array(counts.astype(np.int32)),
        "data": found.data,
        **pieces,
        "error": pa.nulls(len(rows), pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _check_order(heights: Ints, indexes: Ints, order: Ints) -> None:
    inside = heights[1:] == heights[:-1]
    wrong = np.flatnonzero(inside & ((indexes[1:] != indexes[:-1] + 1) | (order[1:] < order[:-1])))
    if len(wrong) or indexes.min() < 0 or indexes.max() >= 1 << 31:
        at = int(wrong[0]) + 1 if len(wrong) else 0
        raise BadInput(f"block {heights[at]}: log index {indexes[at]} is out of order; indexes must be 0, 1, 2 … in order")


def _topic_columns(topics: Bytes, counts: Ints) -> dict[str, pa.Array]:
    every = fixed(topics)
    first = np.cumsum(counts) - counts
    return {
        name: every.take(pa.array(first + k, mask=counts <= k)).cast(pa.binary())
        if (counts > k).any()
        else pa.nulls(len(counts), pa.binary())
        for k, name in enumerate(TOPICS)
    }


def _at(places: Ints, values: pa.Array, length: int) -> pa.Array:
    """An array of nulls but for `values` at `places`."""
    which = np.full(length, -1, np.int64)
    which[places] = np.arange(len(places))
    return values.take(pa.array(which, mask=which < 0))


def _bad(transaction: Transaction, error: Exception) -> pa.RecordBatch:
    reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    text = reason if reason.startswith("block ") else f"block {transaction.height}, transaction {transaction.index}: {reason}"
    row = dict.fromkeys(SCHEMA.names) | {"_height": transaction.height, "error": text}
    return pa.RecordBatch.from_pylist([row], schema=SCHEMA)
