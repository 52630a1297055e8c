"""Logs as PostgreSQL's binary COPY stream, made from Arrow columns at once.

Made row by row in Python, the stream would cost as much as PostgreSQL takes to load it. `rows_of_line` is for a loader of blocks
as a node gives them, which cannot do without.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from chainlake.demo.evm_scale import COLUMNS

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
TYPES = (
    *("int8", "int8", "bytea", "timestamptz", "bytea", "int4", "int4", "bytea"),
    *("bytea", "bytea", "bytea", "bytea", "int4", "bytea"),
)
"""Of the columns, as PostgreSQL calls them."""
EPOCH_2000_US = 946_684_800_000_000

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def whole_blocks(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, in tables that end where a block ends."""
    held: pa.Table | None = None
    for table in tables:
        joined = pa.concat_tables([held, table]) if held is not None else table
        numbers = np.asarray(joined["block_number"])
        begin = int(np.searchsorted(numbers, numbers[-1])) if len(numbers) else 0
        if begin:
            yield joined.slice(0, begin)
        held = joined.slice(begin)
    if held is not None:
        yield held


def blocks(table: pa.Table) -> Iterator[bytes]:
    """One stream per block."""
    if not table.num_rows:
        return
    rows, ends = _rows(table)
    numbers = np.asarray(table["block_number"])
    last = np.append(np.flatnonzero(np.diff(numbers)), len(numbers) - 1)
    begin = 0
    for end in ends[last].tolist():
        yield HEADER + rows[begin:end].tobytes() + TRAILER
        begin = end


def rows_of_line(line: bytes, first: int) -> list[tuple[Any, ...]]:
    """The logs of a block in JSON, numbered from `first` on. All of a block have its number, time and hash."""
    given = orjson.loads(line)
    block = given["block"]
    time = datetime.fromtimestamp(int(block["timestamp"], 16), timezone.utc)
    number, block_hash = int(block["number"], 16), bytes.fromhex(block["hash"][2:])
    rows = []
    for log_id, log in enumerate(given["logs"], first):
        topics = [bytes.fromhex(topic[2:]) for topic in log["topics"]]
        places = bytes.fromhex(log["transactionHash"][2:]), int(log["transactionIndex"], 16), int(log["logIndex"], 16)
        said = (bytes.fromhex(log["address"][2:]), *topics, *[None] * (4 - len(topics)), len(topics))
        rows.append((log_id, number, block_hash, time, *places, *said, bytes.fromhex(log["data"][2:])))
    return rows


def _rows(table: pa.Table) -> tuple[Bytes, Ints]:
    """All rows, and where each ends: a count of fields, then of each its size (-1: null) and bytes."""
    fields = [_field(table[name]) for name in COLUMNS.names]
    ends = np.cumsum(2 + sum(np.maximum(sizes, 0) + 4 for sizes, _ in fields))
    made = np.empty(int(ends[-1]), dtype=np.uint8)
    at = np.concatenate([[0], ends[:-1]])
    made[at[:, None] + np.arange(2)] = np.frombuffer(len(fields).to_bytes(2, "big"), dtype=np.uint8)
    at = at + 2
    for sizes, content in fields:
        made[at[:, None] + np.arange(4)] = sizes.astype(">i4").view(np.uint8).reshape(-1, 4)
        at = at + 4
        held = np.maximum(sizes, 0)
        made[np.repeat(at - (np.cumsum(held) - held), held) + np.arange(len(content))] = content
        at = at + held
    return made, ends


def _field(column: pa.ChunkedArray) -> tuple[Ints, Bytes]:
    """(size of each value or -1, all bytes one after the other)."""
    array = column.combine_chunks()
    if pa.types.is_timestamp(array.type):
        return _numbers(np.asarray(array.cast(pa.int64())) - EPOCH_2000_US, ">i8")
    if pa.types.is_integer(array.type):
        return _numbers(np.asarray(array), ">i8" if array.type == pa.int64() else ">i4")
    present = np.asarray(array.is_valid())
    whole = array.fill_null(b"")
    _, offsets, data = whole.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32, count=len(whole) + 1, offset=whole.offset * 4).astype(np.int64)
    content = np.frombuffer(data if data is not None else b"", dtype=np.uint8)[ends[0] : ends[-1]]
    return np.where(present, np.diff(ends), -1), content


def _numbers(values: npt.NDArray[np.generic], kind: str) -> tuple[Ints, Bytes]:
    made = values.astype(kind)
    return np.full(len(made), made.itemsize, dtype=np.int64), made.view(np.uint8)
