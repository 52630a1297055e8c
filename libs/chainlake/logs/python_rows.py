"""Logs as Python values, for programs that do not work with columns."""

from typing import Any

import pyarrow as pa

from chainlake.serve.arrays import one_chunk


def python_rows(logs: pa.Table) -> list[tuple[Any, ...]]:
    """The rows as tuples, in the order of the columns."""
    return list(zip(*map(_values, logs.columns), strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Making a time of day costs more than all other values of a row together, so each distinct one is made once."""
    if not pa.types.is_timestamp(column.type):
        found: list[Any] = column.to_pylist()
        return found
    encoded = one_chunk(column).dictionary_encode()
    times = [*encoded.dictionary.to_pylist(), None]
    return [times[place] for place in encoded.indices.fill_null(len(times) - 1).to_pylist()]
