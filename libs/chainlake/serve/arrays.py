"""From Arrow to numpy and back, by their buffers.

pyarrow's own conversions load pandas when they are first used, and that takes longer than a new process should need to answer.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece; combining a single chunk would copy it."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def numbers(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[Any]:
    """The values of a column of signed integers, which has no nulls. They are not copied."""
    array = one_chunk(column)
    if array.null_count:
        raise ValueError("a column that must not have nulls has some")
    kind = np.dtype(f"<i{array.type.bit_width // 8}")
    data = array.buffers()[1]
    return np.frombuffer(data, kind, len(array), array.offset * kind.itemsize) if len(array) else np.empty(0, kind)


def longs(column: pa.ChunkedArray | pa.Array) -> Longs:
    """The values of a column of 32 or 64 bit integers."""
    return np.asarray(numbers(column), np.int64)


def offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    """Where the values of a binary array start, and where the last one ends."""
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset) if len(array) else np.zeros(1, np.int32)


def flags(column: pa.ChunkedArray | pa.Array) -> Flags:
    """The values of a boolean column; null is false."""
    array = one_chunk(column)
    if not len(array):
        return np.zeros(0, np.bool_)
    valid, data = array.buffers()
    found = _bits(data, array.offset, len(array))
    return found & _bits(valid, array.offset, len(array)) if valid is not None else found


def to_arrow(values: npt.NDArray[Any], kind: pa.DataType | None = None, valid: Flags | None = None) -> pa.Array:
    """An Arrow array of numbers, of another type of the same width if given, with nulls where they are not valid."""
    plain = np.ascontiguousarray(values)
    buffers = [None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(plain)]
    return pa.Array.from_buffers(kind or pa.from_numpy_dtype(plain.dtype), len(plain), buffers)


def to_arrow_flags(values: Flags) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def to_arrow_binary(values: Sequence[bytes], kind: pa.DataType | None = None) -> pa.Array:
    """An Arrow array of bytes, or of text in UTF-8."""
    edges = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return pa.Array.from_buffers(kind or pa.binary(), len(values), [None, pa.py_buffer(edges), pa.py_buffer(b"".join(values))])


def _bits(data: pa.Buffer, offset: int, count: int) -> Flags:
    return np.unpackbits(np.frombuffer(data, np.uint8), count=offset + count, bitorder="little")[offset:].astype(np.bool_)
