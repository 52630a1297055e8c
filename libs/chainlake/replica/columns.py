"""Rows of several kinds in one stream of Arrow batches, packed: a row of the stream holds thousands of rows of one kind, as an
array of structs in the column of that kind, so that Spark moves and keeps few large rows in place of many wide ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

MOST_ROWS, MOST_BYTES = 20_000, 64 << 20
_SPARK = {pa.int64(): "long", pa.int32(): "int", pa.int8(): "byte", pa.string(): "string", pa.bool_(): "boolean"}
_TEXTS = (
    "group_name",
    "type",
    "table_id",
    "user_id",
    "command",
    "error",
    "kind",
    "id",
    "definition",
    "row_key",
    "primary_key",
    "row",
)
_TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(_TEXTS, pa.string()),
    **dict.fromkeys(("keys", "values"), pa.list_(pa.string())),
    "tx_index": pa.int32(),
    "status": pa.int8(),
    "_deleted": pa.bool_(),
}
"""Of columns that are not numbers of 64 bits."""


def typed(*names: str) -> pa.Schema:
    """Columns of the folds by name: a name means the same in all of them."""
    return pa.schema([(name, _TYPES.get(name, pa.int64())) for name in names])


def packed(kinds: Mapping[str, Sequence[str]]) -> pa.Schema:
    """A stream of rows of these kinds."""
    return pa.schema([(kind, pa.list_(pa.struct(list(typed(*names))))) for kind, names in kinds.items()])


def spark_types(schema: Iterable[pa.Field]) -> dict[str, str]:
    """The columns' types as Spark writes them."""
    return {field.name: _spark_type(field.type) for field in schema}


def spark_ddl(schema: Iterable[pa.Field], between: str = " ") -> str:
    """The columns as Spark writes them."""
    return ", ".join(f"{name}{between}{kind}" for name, kind in spark_types(schema).items())


def _spark_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_spark_type(kind.value_type)}>"
    return f"struct<{spark_ddl(kind, ': ')}>" if pa.types.is_struct(kind) else _SPARK[kind]


class Sheets:
    """Rows of some kinds, collected until they are enough for one of the stream."""

    def __init__(self, kinds: Mapping[str, Sequence[str]]) -> None:
        self._kinds = {kind: typed(*names) for kind, names in kinds.items()}
        self._packed = packed(kinds)
        self._rows: dict[str, list[tuple[Any, ...]]] = {kind: [] for kind in kinds}
        self._pieces: dict[str, list[Mapping[str, pa.Array]]] = {kind: [] for kind in kinds}
        self._given = 0

    def add(self, kind: str, *values: Any) -> None:
        """A row, values in the order of the kind's columns."""
        self._rows[kind].append(values)

    def add_columns(self, kind: str, columns: Mapping[str, pa.Array]) -> None:
        """Many rows at once, by column."""
        self._pieces[kind].append(columns)

    def full(self, given: int = 0) -> Iterator[pa.RecordBatch]:
        """The kinds that have many rows; all kinds once the bytes `given` to the fold are many, so that a few large commands do
        not make a row that is too large to be one."""
        self._given += given
        if self._given >= MOST_BYTES:
            yield from self.rest()
        for kind in self._kinds:
            if len(self._rows[kind]) + sum(len(piece["_height"]) for piece in self._pieces[kind]) >= MOST_ROWS:
                yield from self._take(kind)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Everything that is left."""
        self._given = 0
        for kind in self._kinds:
            yield from self._take(kind)

    def _take(self, kind: str) -> Iterator[pa.RecordBatch]:
        schema, rows, pieces = self._kinds[kind], self._rows[kind], self._pieces[kind]
        self._rows[kind], self._pieces[kind] = [], []
        for at in range(0, len(rows), MOST_ROWS):  # a drop alone gives as many as its table has
            columns = zip(*rows[at : at + MOST_ROWS], strict=True)
            yield self._batch(kind, [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)])
        if pieces:
            yield self._batch(kind, [pa.concat_arrays([piece[name] for piece in pieces]) for name in schema.names])

    def _batch(self, kind: str, columns: list[pa.Array]) -> pa.RecordBatch:
        """One row of the stream."""
        rows = pa.StructArray.from_arrays(columns, fields=list(self._kinds[kind]))
        full = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)
        held = [full if one.name == kind else pa.nulls(1, one.type) for one in self._packed]
        return pa.RecordBatch.from_arrays(held, schema=self._packed)


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
