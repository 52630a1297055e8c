"""Receipts and logs as JSON, by the batch, to columns; and what a block's logs must satisfy.

Rows arrive as they lie in files, so a block may be spread over batches. Each batch gives one *piece* per block: its first log
says how many follow, up to which transaction, and the bloom of them all. `check_block` looks at the pieces of a block together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import sha3

from chainlake.encoding import to_hex
from chainlake.errors import BadInput

BLOOM_BITS = 2048
MOST_KNOWN = 1 << 20
TOPICS = ("topic0", "topic1", "topic2", "topic3")
SCHEMA = pa.schema(
    [
        ("_height", pa.int64()),
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
DDL = (
    "_height long, transaction_index int, transaction_hash binary, log_index int, address binary, topic0 binary, topic1 binary,"
    " topic2 binary, topic3 binary, topic_count int, data binary, piece_logs int, piece_last_tx int, piece_bloom binary,"
    " error string"
)
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Transaction:
    """A transaction as received: a receipt, or an array of its logs."""

    height: int
    block_hash: bytes
    index: int
    hash: bytes
    payload: bytes


@dataclass(frozen=True)
class Piece:
    """Consecutive logs of a block that were decoded together."""

    first_log: int
    logs: int
    first_tx: int
    last_tx: int
    bloom: bytes


def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Log rows of raw transactions (`_height, block_hash, tx_index, hash, payload`); a row with `error` names what is wrong."""
    known = BloomBits()
    for batch in batches:
        yield from decode_batch(_transactions(batch), known)


def decode_batch(transactions: Sequence[Transaction], known: "BloomBits") -> list[pa.RecordBatch]:
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


class BloomBits:
    """The three bits of each address and topic (as hex), hashed once."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, texts: Sequence[str]) -> Ints:
        """For each value its three bit numbers, of 11 bits each, in one."""
        known = self._known
        fresh = list(set(texts).difference(known))
        if fresh:
            if len(known) + len(fresh) > MOST_KNOWN:
                known.clear()
                fresh = list(set(texts))
            keccak = sha3.keccak_256
            digests = b"".join([keccak(bytes.fromhex(text[2:])).digest() for text in fresh])
            pairs = np.frombuffer(digests, ">u2").reshape(len(fresh), 16)[:, :3].astype(np.int64) & (BLOOM_BITS - 1)
            known.update(zip(fresh, (pairs[:, 0] << 22 | pairs[:, 1] << 11 | pairs[:, 2]).tolist(), strict=True))
        return np.array([known[text] for text in texts], np.int64)


@dataclass
class _Columns:
    """What is gathered from the JSON of many transactions."""

    rows: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    data: list[str] = field(default_factory=list)

    def add(self, row: int, transaction: Transaction) -> None:
        record = orjson.loads(transaction.payload)
        logs = record["logs"] if isinstance(record, dict) else record
        if not logs:
            return
        hash_, block = to_hex(transaction.hash), to_hex(transaction.block_hash)
        if {(log["transactionHash"], log.get("blockHash", block), log.get("removed", False)) for log in logs} != {
            (hash_, block, False)
        }:
            for log in logs:
                _check_place(log, hash_, block)
        topics = [log["topics"] for log in logs]
        self.rows += [row] * len(logs)
        self.indexes += [int(log["logIndex"], 16) for log in logs]
        self.addresses += [log["address"] for log in logs]
        self.topics += chain.from_iterable(topics)
        self.counts += map(len, topics)
        self.data += [log["data"] for log in logs]


def _check_place(log: Mapping[str, Any], transaction: str, block: str) -> None:
    """The log says itself where it belongs; the case of its hex does not matter."""
    if log["transactionHash"].lower() != transaction:
        raise BadInput(f"log {log['logIndex']} is of transaction {log['transactionHash']}, not of {transaction}")
    if log.get("blockHash", block).lower() != block:
        raise BadInput(f"log {log['logIndex']} is of block {log['blockHash']}, not of {block}")
    if log.get("removed"):
        raise BadInput(f"log {log['logIndex']} is marked as removed: only logs of finalized blocks are taken")


def _decode_all(transactions: Sequence[Transaction], known: BloomBits) -> pa.RecordBatch:
    found = _Columns()
    for row, transaction in enumerate(transactions):
        found.add(row, transaction)
    if not found.rows:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    counts = np.array(found.counts, np.int64)
    if counts.max() > len(TOPICS):
        raise BadInput(f"a log has {counts.max()} topics: at most {len(TOPICS)} are possible")
    rows, indexes = np.array(found.rows, np.int64), np.array(found.indexes, np.int64)
    heights = np.array([t.height for t in transactions], np.int64)[rows]
    order = np.array([t.index for t in transactions], np.int64)[rows]
    starts = np.flatnonzero(np.r_[True, heights[1:] != heights[:-1]])
    ends = np.r_[starts[1:], len(rows)]
    _check_order(heights, indexes, order)
    addresses, topics = unhex(found.addresses, 20, "address"), unhex(found.topics, 32, "topic")
    blooms = _blooms(found, counts, starts, known)
    pieces = {
        "piece_logs": _at(starts, pa.array((ends - starts).astype(np.int32)), len(rows)),
        "piece_last_tx": _at(starts, pa.array(order[ends - 1].astype(np.int32)), len(rows)),
        "piece_bloom": _at(starts, pa.array([row.tobytes() for row in blooms], pa.binary()), len(rows)),
    }
    columns = {
        "_height": pa.array(heights),
        "transaction_index": pa.array(order.astype(np.int32)),
        "transaction_hash": pa.array([t.hash for t in transactions], pa.binary()).take(pa.array(rows)),
        "log_index": pa.array(indexes.astype(np.int32)),
        "address": _fixed(addresses, 20).cast(pa.binary()),
        **_topic_columns(topics, counts),
        "topic_count": pa.array(counts.astype(np.int32)),
        "data": _variable(found.data),
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


def _blooms(found: _Columns, counts: Ints, starts: Ints, known: BloomBits) -> npt.NDArray[np.uint8]:
    """The bloom of each piece, as 256 bytes."""
    bits = known.of([*found.addresses, *found.topics])
    piece_of_log = np.searchsorted(starts, np.arange(len(counts)), side="right") - 1
    piece = np.r_[piece_of_log, np.repeat(piece_of_log, counts)]
    flags = np.zeros((len(starts), BLOOM_BITS), np.uint8)
    for shift in (0, 11, 22):
        flags[piece, BLOOM_BITS - 1 - (bits >> shift & (BLOOM_BITS - 1))] = 1
    return np.packbits(flags, axis=1)


_NIBBLES = np.full(256, 255, np.uint8)
for _digits in ("0123456789abcdef", "0123456789ABCDEF"):
    _NIBBLES[np.frombuffer(_digits.encode(), np.uint8)] = np.arange(16)


def unhex(texts: Sequence[str], width: int, what: str) -> npt.NDArray[np.uint8]:
    """`0x…` texts of `width` bytes each, as rows of bytes."""
    if not texts:
        return np.empty((0, width), np.uint8)
    length = 2 + 2 * width
    if set(map(len, texts)) != {length}:
        bad = next(text for text in texts if len(text) != length)
        raise BadInput(f"{what} {bad!r:.80} is not 0x and {width} bytes of hex")
    letters = np.frombuffer("".join(texts).encode("ascii"), np.uint8).reshape(len(texts), length)
    nibbles = _NIBBLES[letters[:, 2:]]
    wrong = (nibbles > 15).any(axis=1) | (letters[:, 0] != ord("0")) | ((letters[:, 1] | 32) != ord("x"))
    if wrong.any():
        raise BadInput(f"{what} {texts[int(wrong.argmax())]!r:.80} is not 0x and {width} bytes of hex")
    return np.asarray(nibbles[:, 0::2] << 4 | nibbles[:, 1::2], np.uint8)


def _variable(texts: Sequence[str]) -> pa.Array:
    lengths = np.fromiter(map(len, texts), np.int64, len(texts)) - 2
    joined = "".join([text[2:] for text in texts if text[:2] == "0x"])
    data = b"" if (lengths % 2).any() or len(joined) != lengths.sum() else bytes.fromhex(joined)
    if 2 * len(data) != len(joined) or len(joined) != lengths.sum():
        raise BadInput("the data of a log is not 0x and whole bytes of hex")
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(lengths // 2, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _topic_columns(topics: npt.NDArray[np.uint8], counts: Ints) -> dict[str, pa.Array]:
    every = _fixed(topics, 32)
    first = np.cumsum(counts) - counts
    return {
        name: every.take(pa.array(first + k, mask=counts <= k)).cast(pa.binary())
        if (counts > k).any()
        else pa.nulls(len(counts), pa.binary())
        for k, name in enumerate(TOPICS)
    }


def _fixed(rows: npt.NDArray[np.uint8], width: int) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, buffer])


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


def _transactions(batch: pa.RecordBatch) -> list[Transaction]:
    """The rows of a batch in block and transaction order."""
    names = ("_height", "block_hash", "tx_index", "hash", "payload")
    found = [Transaction(*row) for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True)]
    return sorted(found, key=lambda t: (t.height, t.index))
