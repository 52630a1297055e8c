"""The data entries of a batch, as Arrow: when each is carried out, what becomes pending, and which operation a command comes to.

The input is sorted by group, and within a group by tag: versions of the tables and users that its commands name, rows by height,
the first of the older entries that waits on, entries that waited and are satisfied now by log index, then those that have just
come, in the order in which they came. What is not the next entry of its log is given back as it is. Entries go through in
columns, a stretch of one shard at a time; only what a command says is looked at one by one.

Operations are carried out at once if all rows of the shard are there; else they are given back, for those that they touch to be
found.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chainlake.collector import without_collector
from chainlake.replica import row_fold
from chainlake.replica.columns import Sheets, numbers, rows_of, runs, typed
from chainlake.replica.commands import MARKERS
from chainlake.replica.history import MetaHistory
from chainlake.replica.resolver import Resolver
from chainlake.replica.row_fold import Drop, RowFold, add_results
from chainlake.replica.rules import Operation, Result
from chainlake.replica.sequence import FRESH, UNEXPECTED, UNEXPECTED_COLUMNS, LogEnd
from chainlake.replica.timeline import NEVER, Numbers, Placed, Progress, Timeline, Waiting, progress

VERSION, LIVE, DROPPED, WAITING, DRAINED, ARRIVED = range(6)
PENDING, OPERATION, RESULT, APPLIED = "pending", "operation", row_fold.RESULT, "applied"
_INTS = ("log_index", "log_term", "required_meta_index", "watermark", "received_height")
_PROGRESS = ("applied_index", "applied_term", "executed_index", "watermark", "waits_for", "waiting_since")
_OPERATION = ("table_id", "table_index", "dropped_index", "keys", "values")
_KEPT = ("group_name", *_INTS, "type", "table_id", "user_id")
KINDS: Mapping[str, Sequence[str]] = {
    PENDING: ("_height", *_KEPT, "command", "_deleted"),
    OPERATION: (*row_fold.RESULT_COLUMNS, *_OPERATION),
    APPLIED: ("_height", "group_name", *_PROGRESS),
    UNEXPECTED: UNEXPECTED_COLUMNS,
    **row_fold.KINDS,
}
INPUT = ("tag", "group_name", *_INTS, "type", "table_id", "user_id", "command", "tx_index")
VERSION_AS = {"type": "kind", "table_id": "id", "command": "definition", "log_term": "created_index", "log_index": "meta_index"}
ROW_AS = {"table_id": "table_id", "user_id": "row_key", "command": "row", "log_term": "table_index", "received_height": "_height"}
"""Versions and rows travel in columns of entries, so that entries, which are many, are not wider for them."""
ORDER = ("group_name", "tag", "received_height", "tx_index", "log_index")
"""Entries that waited have no `tx_index`: they came before all others, and their shard received them in the order of its log."""


@without_collector
def fold_shards(
    batches: Iterable[pa.RecordBatch],
    before: Mapping[str, Progress],
    timeline: Timeline,
    low: int,
    drops: Sequence[Drop] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Place the entries of each shard in time, and check its commands. With `drops`, carry them out too: all rows from before
    are there."""
    sheets = Sheets(KINDS)
    shard = ShardFold("", Progress(), timeline, low, sheets)
    for batch in batches:
        for group, tag, piece in runs(batch):
            if group != shard.group:
                shard.end()
                rows = None if drops is None else RowFold(group, drops, sheets)
                shard = ShardFold(group, before.get(group, Progress()), timeline, low, sheets, rows)
            if tag == ARRIVED:
                shard.arrived(piece)
            elif tag == DRAINED:
                shard.entries(piece)
            elif tag == VERSION:
                shard.versions(piece)
            elif tag == WAITING:
                ((index, watermark, received),) = rows_of(piece, ("log_index", "watermark", "received_height"))
                shard.waiting = Waiting(index, watermark, received)
            elif shard.rows is not None:
                shard.rows.hold(rows_of(piece, ("table_id", "log_term", "user_id", "command")), is_live=tag == LIVE)
        yield from sheets.full(batch.nbytes)
    shard.end()
    yield from sheets.rest()


def first_waiting(before: Progress, timeline: Timeline) -> Waiting | None:
    """The first entry that waited before the batch, if it waits on after it."""
    if before.waits_for is None or before.waiting_since is None or before.waits_for <= timeline.end:
        return None
    return Waiting(before.executed_index + 1, before.waits_for, before.waiting_since)


class ShardFold:
    """One shard while a batch is folded. With `rows`, operations are carried out on them."""

    def __init__(
        self, group: str, before: Progress, timeline: Timeline, low: int, sheets: Sheets, rows: RowFold | None = None
    ) -> None:
        self.group = group
        self.before = before
        self.timeline = timeline
        self.low = low
        self.sheets = sheets
        self.rows = rows
        self.history = MetaHistory()
        self.resolver = Resolver(self.history)
        self.waiting = first_waiting(before, timeline)
        self.placed: list[Placed] = []
        self.log_end = LogEnd.of(before)

    def versions(self, piece: pa.RecordBatch) -> None:
        """Versions of tables and users."""
        for kind, name, definition, created, index in rows_of(piece, tuple(VERSION_AS)):
            self.history.add(kind, name, index, created, json.loads(definition) if definition is not None else None)

    def arrived(self, piece: pa.RecordBatch) -> None:
        """Entries that have just come. Of those that are the next of their log, the watermark is known now."""
        count, first = piece.num_rows, self.log_end.index + 1
        if not np.array_equal(numbers(piece, "log_index"), np.arange(first, first + count)):
            piece = self._next_ones(piece)
        required = numbers(piece, "required_meta_index")
        if not len(required):
            return
        watermarks = np.maximum(np.maximum.accumulate(required), self.log_end.watermark)
        self.log_end = LogEnd(int(numbers(piece, "log_index")[-1]), int(watermarks[-1]))
        place = piece.schema.get_field_index("watermark")
        self.entries(piece.set_column(place, piece.schema.field(place), pa.array(watermarks)))

    def _next_ones(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        """The entries that are the next of their log. The others are given back."""
        log, told = LogEnd(self.log_end.index), []
        for index in numbers(piece, "log_index").tolist():
            told.append((log.index + 1, log.take(index, 0)))
        fresh = np.array([status == FRESH for _, status in told])
        columns = ("log_index", "log_term", "type", "command", "tx_index")
        rows = zip(rows_of(piece, ("received_height", "group_name")), rows_of(piece, columns), told, strict=True)
        for (height, group), entry, (expected, status) in rows:
            if status != FRESH:
                self.sheets.add(UNEXPECTED, height, group, *entry, expected, status)
        return piece.filter(pa.array(fresh))

    def entries(self, piece: pa.RecordBatch) -> None:
        """Entries by log index: each waits if Meta is not there yet, and is carried out as soon as it is."""
        index, term, _, watermarks, received = (numbers(piece, name) for name in _INTS)
        executed = self.timeline.reached(watermarks, received)
        self.placed.append(Placed(index, term, watermarks, received, executed))
        waits = executed != received
        if waits.any():
            self._wait(piece, received, waits & (received > self.low), is_over=False)
            self._wait(piece, executed, waits & (executed != NEVER), is_over=True)
        is_marker = pc.is_in(piece.column("type"), pa.array(MARKERS)).to_numpy(zero_copy_only=False)
        due = (executed != NEVER) & ~is_marker
        if due.all():
            self._carry_out(piece, executed)
        elif due.any():
            self._carry_out(piece.filter(pa.array(due)), executed[due])

    def _wait(self, piece: pa.RecordBatch, heights: Numbers, chosen: "np.typing.NDArray[np.bool_]", is_over: bool) -> None:
        """Entries that begin to wait, or no longer do."""
        if not chosen.any():
            return
        kept = piece.filter(pa.array(chosen))
        columns = {name: kept.column(name) for name in _KEPT}
        command = pa.nulls(kept.num_rows, pa.string()) if is_over else kept.column("command")
        told = {"_height": pa.array(heights[chosen]), "command": command, "_deleted": pa.repeat(is_over, kept.num_rows)}
        self.sheets.add_columns(PENDING, {**columns, **told})

    def _carry_out(self, piece: pa.RecordBatch, executed: Numbers) -> None:
        """Commands that are due, each against Meta as of its index."""
        at_hand = self.timeline.at(executed)
        required, watermarks = numbers(piece, "required_meta_index"), numbers(piece, "watermark")
        index = np.where(required > 0, watermarks, at_hand)  # as rules.executes_at
        operations = self.resolver.operations(piece.column("command"), index.tolist(), at_hand.tolist())
        columns = {name: piece.column(name) for name in row_fold.RESULT_COLUMNS if name not in ("_height", "meta_index")}
        columns |= {"_height": pa.array(executed), "meta_index": pa.array(index)}
        if self.rows is not None:
            carry_out = self.rows.operation
            due = zip(executed.tolist(), numbers(piece, "log_index").tolist(), operations, strict=True)
            results = [Result(0, one) if isinstance(one, str) else carry_out(height, log, one) for height, log, one in due]
            add_results(self.sheets, columns, results)
            return
        self._give_back(columns, operations)

    def _give_back(self, columns: Mapping[str, pa.Array], operations: Sequence[Operation | str]) -> None:
        """Operations, for which rows have to be found, and results of commands that are refused."""
        refused = [Result(0, one) for one in operations if isinstance(one, str)]
        found = [one for one in operations if not isinstance(one, str)]
        if refused:
            is_refused = pa.array([isinstance(one, str) for one in operations])
            add_results(self.sheets, {name: column.filter(is_refused) for name, column in columns.items()}, refused)
            columns = {name: column.filter(pc.invert(is_refused)) for name, column in columns.items()}
        if found:
            _, *told = zip(*found, strict=True)
            made = {one.name: pa.array(column, one.type) for column, one in zip(told, typed(*_OPERATION), strict=True)}
            self.sheets.add_columns(OPERATION, {**columns, **made})

    def end(self) -> None:
        """Write how far the shard was after each delivery, and its last rows."""
        if self.rows is not None:
            self.rows.end()
        if self.placed:
            entries = Placed(*(np.concatenate(columns) for columns in zip(*self.placed, strict=True)))
            for height, now in progress(self.before, entries, self.waiting, self.low):
                self.sheets.add(APPLIED, height, self.group, *now)
