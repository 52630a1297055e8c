"""The rows of a batch, as Arrow: operations are carried out in log order, and rows of dropped tables put aside.

The input is sorted by group, and within a group by tag: rows that the operations touch or that a drop removes, rows of dropped
tables that late commands touch, then the operations by log index. Each row is written once for each delivery that changed it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from chainlake.collector import without_collector
from chainlake.replica.columns import Sheets, rows_of, runs
from chainlake.replica.rules import Changes, Operation, Result, apply, execute, shown_key

LIVE, DROPPED, OPERATION = 0, 1, 2
ROW, ASIDE, RESULT = "row", "aside", "result"
_INTS = ("log_index", "required_meta_index", "received_height", "meta_index")
_ROW = ("_height", "group_name", "table_id", "row_key", "user_id", "primary_key", "row", "log_index", "_deleted")
RESULT_COLUMNS = ("_height", "group_name", *_INTS, "type")
KINDS: Mapping[str, Sequence[str]] = {
    ROW: _ROW,
    ASIDE: (*_ROW, "table_index"),
    RESULT: (*RESULT_COLUMNS, "rows_changed", "error"),
}
_OPERATION = ("type", "table_id", "table_index", "dropped_index", "keys", "values")
INPUT = ("tag", "group_name", "_height", *_INTS, *_OPERATION, "row_key", "row")


class Drop(NamedTuple):
    """A table that was dropped: in which delivery, and which life of it."""

    height: int
    table_id: str
    table_index: int


@without_collector
def fold_rows(batches: Iterable[pa.RecordBatch], drops: Sequence[Drop]) -> Iterator[pa.RecordBatch]:
    """Carry out the operations of each shard."""
    sheets = Sheets(KINDS)
    shard = RowFold("", (), sheets)
    for batch in batches:
        for group, tag, piece in runs(batch):
            if group != shard.group:
                shard.end()
                shard = RowFold(group, drops, sheets)
            if tag == OPERATION:
                _carry_out(shard, piece, sheets)
                continue
            shard.hold(rows_of(piece, ("table_id", "table_index", "row_key", "row")), is_live=tag == LIVE)
        yield from sheets.full(batch.nbytes)
    shard.end()
    yield from sheets.rest()


def _carry_out(shard: "RowFold", piece: pa.RecordBatch, sheets: Sheets) -> None:
    results = [
        shard.operation(height, log_index, Operation(kind, table_id, table_index, dropped, tuple(keys), tuple(values)))
        for height, log_index, kind, table_id, table_index, dropped, keys, values in rows_of(
            piece, ("_height", "log_index", *_OPERATION)
        )
    ]
    add_results(sheets, {name: piece.column(name) for name in RESULT_COLUMNS}, results)


def add_results(sheets: Sheets, columns: Mapping[str, pa.Array], results: Sequence[Result]) -> None:
    """One row for each command that was carried out, or refused."""
    changed = pa.array([result[0] for result in results], pa.int64())
    errors = pa.array([result[1] for result in results], pa.string())
    sheets.add_columns(RESULT, {**columns, "rows_changed": changed, "error": errors})


class RowFold:
    """The rows of one shard while a batch is folded. A table has one life at a time, so live rows need not say of which they
    are."""

    def __init__(self, group: str, drops: Sequence[Drop], sheets: Sheets) -> None:
        self.group = group
        self.drops = sorted(drops, reverse=True)
        self.sheets = sheets
        self.live: dict[str, dict[str, str]] = {}
        self.dropped: dict[tuple[str, int], dict[str, str]] = {}
        self.height = -1
        self.written: dict[tuple[str, int | None, str], tuple[str | None, int | None]] = {}

    def hold(self, rows: Iterable[tuple[Any, ...]], is_live: bool) -> None:
        """Take in rows from before: table, its life, key, and the row. A later one of a key takes the place of an earlier, and
        NULL of none."""
        for table_id, table_index, key, row in rows:
            held = self.live.setdefault(table_id, {}) if is_live else self.late(table_id, table_index)
            if row is None:
                held.pop(key, None)
            else:
                held[key] = row

    def operation(self, height: int, log_index: int, operation: Operation) -> Result:
        """Carry out one operation, after the drops of its delivery."""
        if height != self.height:
            self.advance(height)
        kind, table_id, table_index, dropped, keys, values = operation
        is_late = dropped is not None
        rows = self.late(table_id, table_index) if is_late else self.live.get(table_id)
        if rows is None:
            rows = self.live[table_id] = {}
        life = table_index if is_late else None
        if kind == "Insert" and len(keys) == 1 and keys[0] not in rows:  # by far the commonest
            rows[keys[0]] = values[0]
            self.written[table_id, life, keys[0]] = (values[0], log_index)
            return _ONE
        result, changes = execute(operation, rows)
        apply(rows, changes)
        self._note(table_id, life, changes, log_index)
        return result

    def advance(self, height: int) -> None:
        """Go on to a delivery: tables that were dropped up to it lose their rows."""
        while self.drops and self.drops[-1].height <= height:
            drop = self.drops.pop()
            self._start(drop.height)
            self._drop(drop)
        self._start(height)

    def end(self) -> None:
        """Make the drops that are left, and write the last delivery."""
        if self.drops:
            self.advance(self.drops[0].height)
        self._start(-1)

    def late(self, table_id: str, table_index: int) -> dict[str, str]:
        """Rows of a life of a table that has ended."""
        return self.dropped.setdefault((table_id, table_index), {})

    def _drop(self, drop: Drop) -> None:
        """The rows of a table go to where late commands find them, in place of those of an earlier life that has the same index:
        it ended before the three Meta logs were united, each of which had been counted in another order elsewhere."""
        rows, held = self.live.pop(drop.table_id, {}), self.late(drop.table_id, drop.table_index)
        self._note(drop.table_id, None, dict.fromkeys(rows), None)
        self._note(drop.table_id, drop.table_index, {**dict.fromkeys(held), **rows}, None)
        held.clear()
        held.update(rows)

    def _note(self, table_id: str, life: int | None, changes: Changes, log_index: int | None) -> None:
        for key, row in changes.items():
            self.written[table_id, life, key] = (row, log_index)

    def _start(self, height: int) -> None:
        """Another delivery begins: write what the one before changed."""
        if height == self.height:
            return
        for (table_id, life, key), (row, log_index) in self.written.items():
            values = (self.height, self.group, table_id, key, *_shown(key), row, log_index, row is None)
            if life is None:
                self.sheets.add(ROW, *values)
            else:
                self.sheets.add(ASIDE, *values, life)
        self.written = {}
        self.height = height


_ONE = Result(1)


def _shown(key: str) -> tuple[str | None, str]:
    """`shown_key`, quicker where the primary key is a text."""
    if not key.endswith('"]'):
        return shown_key(key)
    user_id, value = orjson.loads(key)
    return user_id, value
