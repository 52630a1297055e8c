"""Rows of several kinds in one stream of Arrow batches: each batch has rows of one kind, and NULL where the kind has no
column."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec

import pyarrow as pa

MOST_ROWS, MOST_BYTES = 20_000, 64 << 20
P = ParamSpec("P")
_SPARK = {pa.int64(): "long", pa.int32(): "int", pa.int8(): "byte", pa.string(): "string", pa.bool_(): "boolean"}


def spark_ddl(schema: pa.Schema) -> str:
    """The schema as Spark writes it."""
    return ", ".join(f"{field.name} {_spark_type(field.type)}" for field in schema)


def _spark_type(kind: pa.DataType) -> str:
    return f"array<{_SPARK[kind.value_type]}>" if pa.types.is_list(kind) else _SPARK[kind]


def without_collector(fold: Callable[P, Iterator[pa.RecordBatch]]) -> Callable[P, Iterator[pa.RecordBatch]]:
    """A fold that is not interrupted by Python's search for cycles. It makes many small values and no cycles, so the search finds
    nothing and takes a third of the time."""

    @wraps(fold)
    def folded(*given: P.args, **named: P.kwargs) -> Iterator[pa.RecordBatch]:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield from fold(*given, **named)
        finally:
            if was_enabled:
                gc.enable()

    return folded


class Sheets:
    """Rows of some kinds, collected until they are enough for a batch. The first column of the schema tells the kind."""

    def __init__(self, schema: pa.Schema, columns: Mapping[str, Sequence[str]]) -> None:
        self._schema = schema
        self._columns = columns
        self._rows: dict[str, list[tuple[Any, ...]]] = {kind: [] for kind in columns}
        self._given = 0

    def add(self, kind: str, *values: Any) -> None:
        """A row, values in the order of the kind's columns."""
        self._rows[kind].append(values)

    def full(self, given: int = 0) -> Iterator[pa.RecordBatch]:
        """Batches of the kinds that have many rows; of all kinds once the bytes `given` to the fold are many, so that a few
        large commands do not make a batch that is too large to be one."""
        self._given += given
        if self._given >= MOST_BYTES:
            yield from self.rest()
        for kind, rows in self._rows.items():
            if len(rows) >= MOST_ROWS:
                yield self._take(kind)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Everything that is left."""
        self._given = 0
        for kind, rows in self._rows.items():
            if rows:
                yield self._take(kind)

    def _take(self, kind: str) -> pa.RecordBatch:
        rows, self._rows[kind] = self._rows[kind], []
        given = dict(zip(self._columns[kind], zip(*rows, strict=True), strict=True))
        columns = [
            pa.array(given[field.name], field.type) if field.name in given else pa.nulls(len(rows), field.type)
            for field in self._schema
        ]
        columns[0] = pa.array([kind] * len(rows), pa.string())
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def rows_of(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a batch as tuples of plain values."""
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)
