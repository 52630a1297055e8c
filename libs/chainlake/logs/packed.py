"""Logs as records of fixed size, in which picking and comparing rows costs next to nothing.

Everything of a log but its data has a fixed size, so a row group becomes one array of records beside one column of data. Picking
rows out of a hundred row groups then takes a hundred array operations, and not fourteen hundred.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chainlake.errors import BrokenPromise
from chainlake.serve.arrays import Flags, Longs, flags, numbers, offsets, one_chunk, to_arrow

Records = npt.NDArray[np.void]

TOPICS = ("topic0", "topic1", "topic2", "topic3")
WIDTHS = {"block_hash": 32, "transaction_hash": 32, "address": 20, **dict.fromkeys(TOPICS, 32)}
LONGS, INTS = ("log_id", "block_number", "block_timestamp"), ("transaction_index", "log_index", "topic_count")
NO_TIME = np.iinfo(np.int64).min
SCHEMA = pa.schema(
    [
        *(("log_id", pa.int64()), ("block_number", pa.int64()), ("block_hash", pa.binary())),
        *(("block_timestamp", pa.timestamp("us", "UTC")), ("transaction_hash", pa.binary())),
        *(("transaction_index", pa.int32()), ("log_index", pa.int32()), ("address", pa.binary())),
        *((topic, pa.binary()) for topic in TOPICS),
        *(("topic_count", pa.int32()), ("data", pa.binary())),
    ]
)
_FIELDS = [(field.name, field.type) for field in SCHEMA]
"""Asking the schema takes longer than making a column."""
RECORD = np.dtype(
    [
        *((name, "<i8") for name in LONGS),
        *((name, "<u8", (width // 8,)) for name, width in WIDTHS.items() if width % 8 == 0),
        *((name, "<u4", (width // 4,)) for name, width in WIDTHS.items() if width % 8),
        *((name, "<i4") for name in INTS),
    ]
)
WIDTH = RECORD.itemsize
PLAIN = np.dtype((np.void, WIDTH))
MOST_DATA = (1 << 31) - 1
"""Bytes that one array of binary values can hold."""
MANY_ROWS = 32
"""Rows per group from which on Arrow picks data faster than Python."""


@dataclass(frozen=True)
class PackedLogs:
    """Logs by their ids, ascending. Records are plain bytes here: numpy picks and joins those fastest."""

    ids: Longs
    plain: Records
    data: pa.Array
    edges: memoryview
    """Where the data of each log starts, and where that of the last one ends."""
    held: memoryview
    """All data, one after the other."""
    written: memoryview
    """All records, one after the other."""
    first: int | None
    """The first id if all ids follow each other, as they nearly always do."""

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.plain.nbytes + int(self.data.nbytes)

    def places(self, wanted: Longs) -> Longs:
        """Where those of the wanted ids are that this group has."""
        if self.first is not None and self.first <= wanted.item(0) and wanted.item(-1) < self.first + len(self.ids):
            return wanted - self.first
        places = self.ids.searchsorted(wanted)
        found = self.ids.take(places, mode="clip") == wanted if len(self.ids) else np.zeros(len(wanted), np.bool_)
        return places if found.all() else places[found]


def pack(rows: pa.Table) -> PackedLogs:
    """Rows of SCHEMA, in order of their ids."""
    records = np.zeros(rows.num_rows, RECORD)
    for name in ("log_id", "block_number", *INTS):
        records[name] = numbers(rows[name])
    times = one_chunk(rows["block_timestamp"]).cast(pa.int64())
    records["block_timestamp"] = NO_TIME
    records["block_timestamp"][flags(times.is_valid())] = numbers(times.drop_null())
    for name in WIDTHS:
        present = records["topic_count"] > TOPICS.index(name) if name in TOPICS else np.ones(len(records), np.bool_)
        records[name][slice(None) if present.all() else present] = _words(one_chunk(rows[name]), name, present)
    ids, data = np.ascontiguousarray(records["log_id"]), one_chunk(rows["data"])
    dense = len(ids) and (ids[1:] == ids[:-1] + 1).all()
    held, written = memoryview(data.buffers()[2] or b""), records.view(np.uint8).data
    return PackedLogs(ids, records.view(PLAIN), data, offsets(data).data, held, written, int(ids[0]) if dense else None)


def records_at(parts: Sequence[tuple[PackedLogs, Longs]]) -> Records:
    """The records at some places of several groups, one after the other."""
    found = np.empty(sum(len(places) for _, places in parts), PLAIN)
    start = 0
    for group, places in parts:
        end = start + len(places)
        group.plain.take(places, out=found[start:end], mode="clip")
        start = end
    records: Records = np.ndarray(len(found), RECORD, found)  # `view` compares the fields of the two each time
    return records


def data_at(parts: Sequence[tuple[PackedLogs, Longs]]) -> list[pa.Array]:
    """The data at some places of several groups, one after the other."""
    if sum(len(places) for _, places in parts) >= MANY_ROWS * len(parts):
        return [_slice_or_take(group.data, places) for group, places in parts]
    data: list[memoryview] = []
    for group, places in parts:
        edges, held = group.edges, group.held
        data += [held[edges[place] : edges[place + 1]] for place in places.tolist()]
    return joined(data)


def few_of(groups: Sequence[PackedLogs], ids: Sequence[Sequence[int]]) -> tuple[Records, list[memoryview]]:
    """Records and data of the logs with some ids, as many as there are, of groups whose ids follow each other. Where it is one or
    two of each group, to join their bytes takes less than to begin an operation on arrays."""
    records: list[memoryview] = []
    data: list[memoryview] = []
    for group, wanted in zip(groups, ids, strict=True):
        first, count, written, held, edges = group.first or 0, len(group.ids), group.written, group.held, group.edges
        for number in wanted:
            place = number - first
            if 0 <= place < count:
                records.append(written[place * WIDTH : (place + 1) * WIDTH])
                data.append(held[edges[place] : edges[place + 1]])
    return np.frombuffer(b"".join(records), RECORD), data


def joined(data: Sequence[memoryview]) -> list[pa.Array]:
    """Pieces of data as one array, or as many as they need."""
    ends = np.zeros(len(data) + 1, np.int64)
    ends[1:] = [len(piece) for piece in data]
    np.cumsum(ends, out=ends)
    if ends[-1] > MOST_DATA:
        half = len(data) // 2
        return joined(data[:half]) + joined(data[half:])
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(data))]
    return [pa.Array.from_buffers(pa.binary(), len(data), buffers)]


def _slice_or_take(data: pa.Array, places: Longs) -> pa.Array:
    """Of neighbours without copying."""
    first, last = int(places[0]), int(places[-1])
    return data.slice(first, len(places)) if last - first + 1 == len(places) else data.take(to_arrow(places))


def unpack(records: Records, data: Sequence[pa.Array]) -> pa.Table:
    """Records and their data as a table of SCHEMA."""
    fewest = int(records["topic_count"].min(initial=len(TOPICS)))
    columns = [_column(records, name, kind, fewest) if name != "data" else pa.chunked_array(data, kind) for name, kind in _FIELDS]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def words_of(name: str, values: Sequence[bytes]) -> npt.NDArray[Any]:
    """Values of a column as the words that records hold."""
    return np.frombuffer(b"".join(values), _word(name)).reshape(len(values), -1)


def _word(name: str) -> np.dtype[Any]:
    return RECORD[name].base


def _words(column: pa.Array, name: str, present: Flags) -> npt.NDArray[Any]:
    """The values of the rows that have one, as words. Arrow keeps them one after the other, and nothing for a null."""
    edges, width, word = offsets(column), WIDTHS[name], _word(name)
    if column.null_count != len(column) - present.sum() or (np.diff(edges) != present * width).any():
        raise BrokenPromise(f"bronze.evm_logs has a {name} that is not {width} bytes: run lake verify bronze.logs")
    data = memoryview(column.buffers()[2])[edges[0] : edges[-1]] if edges[-1] > edges[0] else b""
    return np.frombuffer(data, word).reshape(-1, width // word.itemsize)


def _column(records: Records, name: str, kind: pa.DataType, fewest: int) -> pa.Array:
    """A column of records that have at least `fewest` topics."""
    values = records[name]
    if name == "block_timestamp":
        missing = values == NO_TIME
        return to_arrow(values, kind, ~missing if missing.any() else None)
    if name not in WIDTHS:
        return to_arrow(values, kind)
    width, bits = WIDTHS[name], None
    if name in TOPICS and TOPICS.index(name) >= fewest:
        present = records["topic_count"] > TOPICS.index(name)
        if not present.any():
            return pa.nulls(len(records), kind)
        edges, values = np.append(0, np.cumsum(present * width)).astype(np.int32), values[present]
        bits = pa.py_buffer(np.packbits(present, bitorder="little"))
    else:
        edges = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(kind, len(records), [bits, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(values))])
