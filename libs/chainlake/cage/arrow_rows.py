"""Rows from and to Arrow, many at a time."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

MANY = 2_000
Row = dict[str, Any]


def batched(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of rows, in order; what a row does not have is NULL."""
    left = iter(rows)
    while some := list(islice(left, MANY)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def tuples(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows of batches, in order."""
    return (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
