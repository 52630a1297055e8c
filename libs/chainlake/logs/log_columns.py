"""The logs in the JSON of many transactions, as columns.

There are two ways that give the same. The quick one lets Arrow parse all of the JSON at once and never makes a Python object per
log; where it meets anything unusual it gives up. The careful one goes log by log, accepts what is right, and says what is wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.json as pj

from chainlake.encoding import to_hex
from chainlake.errors import BadInput
from chainlake.logs.hex_columns import NOT_BYTES, Bytes, letters_of, unhex, unhex_any, unhex_letters

Ints = npt.NDArray[np.int64]
LOG = pa.struct(
    [
        *((name, pa.string()) for name in ("address", "data", "logIndex", "transactionHash", "blockHash")),
        ("topics", pa.list_(pa.string())),
        ("removed", pa.bool_()),
    ]
)
PARSE = pj.ParseOptions(explicit_schema=pa.schema([("logs", pa.list_(LOG))]), unexpected_field_behavior="ignore")


@dataclass(frozen=True)
class Transaction:
    """A transaction as received: a receipt, or an array of its logs."""

    height: int
    block_hash: bytes
    index: int
    hash: bytes
    payload: bytes


@dataclass(frozen=True)
class LogColumns:
    """Logs in order. `rows` says which transaction each is of; `topics` are those of all logs one after the other."""

    rows: Ints
    indexes: Ints
    addresses: Bytes
    topic_counts: Ints
    topics: Bytes
    data: pa.Array


def read_logs(transactions: Sequence[Transaction]) -> LogColumns:
    """The logs of some transactions, or an error that says what is wrong with one of them."""
    return _quickly(transactions) or _carefully(transactions)


def _quickly(transactions: Sequence[Transaction]) -> LogColumns | None:
    lines = b"".join([_line(t.payload) for t in transactions])
    if lines.count(b"\n") != len(transactions):
        return None
    try:
        options = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        logs = pj.read_json(pa.BufferReader(lines), options, PARSE).column("logs").combine_chunks()
    except pa.ArrowInvalid:
        return None
    if len(logs) != len(transactions) or logs.null_count:
        return None
    return _from_arrow(logs, transactions)


def _line(payload: bytes) -> bytes:
    return b'{"logs":' + payload + b"}\n" if payload[:1] == b"[" else payload + b"\n"


def _from_arrow(logs: pa.ListArray, transactions: Sequence[Transaction]) -> LogColumns | None:
    per_transaction = np.diff(np.asarray(logs.offsets)).astype(np.int64)
    rows = np.repeat(np.arange(len(logs)), per_transaction)
    every = logs.flatten()
    names = {field.name: every.field(number) for number, field in enumerate(LOG)}
    topics = names["topics"]
    if every.null_count or topics.null_count or names["logIndex"].null_count or (names["removed"].true_count or 0):
        return None
    for name, expected in (
        ("transactionHash", [t.hash for t in transactions]),
        ("blockHash", [t.block_hash for t in transactions]),
    ):
        if not _equal_hex(names[name], expected, rows):
            return None
    addresses, flat = letters_of(names["address"], 42), letters_of(topics.flatten(), 66)
    data = unhex_any(names["data"])
    if addresses is None or flat is None or data is None:
        return None
    address_bytes, topic_bytes = unhex_letters(addresses), unhex_letters(flat)
    if address_bytes is None or topic_bytes is None:
        return None
    try:
        indexes = np.array([int(text, 16) for text in names["logIndex"].to_pylist()], np.int64)
    except (ValueError, OverflowError):
        return None
    counts = np.diff(np.asarray(topics.offsets)).astype(np.int64)
    return LogColumns(rows, indexes, address_bytes, counts, topic_bytes, data)


def _equal_hex(texts: pa.StringArray, expected: Sequence[bytes], rows: Ints) -> bool:
    """Whether each text is the lower-case hex of what its transaction says."""
    letters = letters_of(texts, 66)
    if letters is None:
        return False
    wanted = np.frombuffer("".join(map(to_hex, expected)).encode(), np.uint8).reshape(len(expected), -1)
    return wanted.shape[1] == 66 and bool((letters == wanted[rows]).all())


def _carefully(transactions: Sequence[Transaction]) -> LogColumns:
    rows: list[int] = []
    found: list[Mapping[str, Any]] = []
    for row, transaction in enumerate(transactions):
        record = orjson.loads(transaction.payload)
        logs = record["logs"] if isinstance(record, dict) else record
        for log in logs:
            _check_place(log, to_hex(transaction.hash), to_hex(transaction.block_hash))
        rows += [row] * len(logs)
        found += logs
    topics = [log["topics"] for log in found]
    if any(not isinstance(one, list) for one in topics):
        raise BadInput("the topics of a log are not an array")
    data = unhex_any(pa.array([log["data"] for log in found], pa.string()))
    if data is None:
        raise BadInput(NOT_BYTES)
    return LogColumns(
        np.array(rows, np.int64),
        np.array([int(log["logIndex"], 16) for log in found], np.int64),
        unhex([log["address"] for log in found], 20, "address"),
        np.array([len(one) for one in topics], np.int64),
        unhex(list(chain.from_iterable(topics)), 32, "topic"),
        data,
    )


def _check_place(log: Mapping[str, Any], transaction: str, block: str) -> None:
    """The log says itself where it belongs; the case of its hex does not matter."""
    if log["transactionHash"].lower() != transaction:
        raise BadInput(f"log {log['logIndex']} is of transaction {log['transactionHash']}, not of {transaction}")
    if (log.get("blockHash") or block).lower() != block:
        raise BadInput(f"log {log['logIndex']} is of block {log['blockHash']}, not of {block}")
    if log.get("removed"):
        raise BadInput(f"log {log['logIndex']} is marked as removed: only logs of finalized blocks are taken")
