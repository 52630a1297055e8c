"""Rows of several kinds in one stream of Arrow batches: each batch has rows of one kind, and NULL where the kind has no
column."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
        self._pieces: dict[str, list[Mapping[str, pa.Array]]] = {}
        self._given = 0

    def add(self, kind: str, *values: Any) -> None:
        """A row, values in the order of the kind's columns."""
        self._rows[kind].append(values)

    def add_columns(self, kind: str, columns: Mapping[str, pa.Array]) -> None:
        """Many rows at once, by column."""
        self._pieces.setdefault(kind, []).append(columns)

    def full(self, given: int = 0) -> Iterator[pa.RecordBatch]:
        """Batches of the kinds that have many rows; of all kinds once the bytes `given` to the fold are many, so that a few
        large commands do not make a batch that is too large to be one."""
        self._given += given
        if self._given >= MOST_BYTES:
            yield from self.rest()
        for kind, rows in self._rows.items():
            if len(rows) >= MOST_ROWS:
                yield self._take(kind)
        for kind, pieces in self._pieces.items():
            if sum(len(piece["_height"]) for piece in pieces) >= MOST_ROWS:
                yield self._take_columns(kind)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Everything that is left."""
        self._given = 0
        for kind, rows in self._rows.items():
            if rows:
                yield self._take(kind)
        for kind, pieces in self._pieces.items():
            if pieces:
                yield self._take_columns(kind)

    def _take(self, kind: str) -> pa.RecordBatch:
        rows, self._rows[kind] = self._rows[kind], []
        given = dict(zip(self._columns[kind], zip(*rows, strict=True), strict=True))
        types = {field.name: field.type for field in self._schema}
        return self._batch(kind, len(rows), {name: pa.array(column, types[name]) for name, column in given.items()})

    def _take_columns(self, kind: str) -> pa.RecordBatch:
        pieces, self._pieces[kind] = self._pieces[kind], []
        given = {name: pa.concat_arrays([piece[name] for piece in pieces]) for name in pieces[0]}
        return self._batch(kind, len(given["_height"]), given)

    def _batch(self, kind: str, count: int, given: Mapping[str, pa.Array]) -> pa.RecordBatch:
        columns = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in self._schema]
        columns[0] = pa.repeat(kind, count)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def has_long_numbers(texts: pa.Array) -> bool:
    """Whether a text may hold an integer of more than 64 bits, which a quick JSON parser does not keep."""
    return bool(pc.any(pc.match_substring_regex(texts, "[0-9]{19}")).as_py())


def runs(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """The stretches of a sorted batch that have one `group_name` and one `tag`."""
    if not batch.num_rows:
        return
    groups = batch.column("group_name").dictionary_encode()
    place, tags = groups.indices.to_numpy(), batch.column("tag").to_numpy()
    starts = [0, *(np.flatnonzero((np.diff(place) != 0) | (np.diff(tags) != 0)) + 1).tolist(), batch.num_rows]
    names = groups.dictionary.to_pylist()
    for start, end in pairwise(starts):
        yield names[place[start]], int(tags[start]), batch.slice(start, end - start)


def numbers(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    """A column of numbers, none of which is NULL."""
    found: npt.NDArray[np.int64] = batch.column(name).to_numpy()
    return found


def rows_of(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a batch as tuples of plain values."""
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)
