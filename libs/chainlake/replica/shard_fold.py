"""The data entries of a batch, as Arrow: when each is carried out, what becomes pending, and which operation a command comes to.

The input is sorted by group, and within a group by tag: versions of the tables and users that its commands name, the first of
the older entries that waits on, entries that waited and are satisfied now by log index, then those that have just come, in the
order in which they came. What is not the next entry of its log is given back as it is.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from chainlake.replica.columns import Sheets, rows_of, without_collector
from chainlake.replica.commands import MARKERS
from chainlake.replica.history import MetaHistory
from chainlake.replica.meta import Refused
from chainlake.replica.rules import executes_at, resolve
from chainlake.replica.sequence import FRESH, LogEnd
from chainlake.replica.timeline import Placed, Progress, Timeline, progress

VERSION, WAITING, DRAINED, ARRIVED = 0, 1, 2, 3
PENDING, OPERATION, RESULT, APPLIED, UNEXPECTED = "pending", "operation", "result", "applied", "unexpected"
_INTS = ("log_index", "log_term", "required_meta_index", "watermark", "received_height")
_PROGRESS = ("applied_index", "applied_term", "executed_index", "watermark", "waits_for", "waiting_since")
SCHEMA = pa.schema(
    [
        *[("out", pa.string()), ("_height", pa.int64()), ("group_name", pa.string())],
        *[(name, pa.int64()) for name in _INTS],
        *[(name, pa.string()) for name in ("type", "table_id", "user_id", "command", "error")],
        *[(name, pa.int64()) for name in _PROGRESS if name != "watermark"],
        *[("meta_index", pa.int64()), ("table_index", pa.int64()), ("dropped_index", pa.int64())],
        *[("keys", pa.list_(pa.string())), ("values", pa.list_(pa.string())), ("_deleted", pa.bool_())],
        *[("tx_index", pa.int32()), ("expected", pa.int64()), ("status", pa.int8())],
    ]
)
_ENTRY = ("_height", "group_name", *_INTS, "type")
COLUMNS: Mapping[str, Sequence[str]] = {
    PENDING: (*_ENTRY, "table_id", "user_id", "command", "_deleted"),
    RESULT: (*_ENTRY, "meta_index", "error"),
    OPERATION: (*_ENTRY, "meta_index", "table_id", "table_index", "dropped_index", "keys", "values"),
    APPLIED: ("_height", "group_name", *_PROGRESS),
    UNEXPECTED: ("_height", "group_name", "log_index", "log_term", "type", "command", "tx_index", "expected", "status"),
}
_ENTRY_IN = ("tag", "group_name", *_INTS, "type", "table_id", "user_id", "command", "tx_index")
INPUT = (*_ENTRY_IN, "kind", "id", "definition", "created_index", "meta_index")
ORDER = ("group_name", "tag", "received_height", "tx_index", "log_index")
"""Entries that waited have no `tx_index`: they came before all others, and their shard received them in the order of its log."""


@without_collector
def fold_shards(
    batches: Iterable[pa.RecordBatch], before: Mapping[str, Progress], timeline: Timeline, low: int
) -> Iterator[pa.RecordBatch]:
    """Place the entries of each shard in time, and check its commands."""
    sheets = Sheets(SCHEMA, COLUMNS)
    shard = ShardFold("", Progress(), timeline, low, sheets)
    for batch in batches:
        for row in rows_of(batch, INPUT):
            tag, group = row[0], row[1]
            if group != shard.group:
                shard.end()
                shard = ShardFold(group, before.get(group, Progress()), timeline, low, sheets)
            if tag == ARRIVED:
                shard.arrived(*row[2:12])
            elif tag == DRAINED:
                shard.entry(*row[2:11])
            elif tag == VERSION:
                shard.version(*row[12:])
            else:
                shard.waiting = Placed(row[2], row[3], row[5], row[6], None)
        yield from sheets.full(batch.nbytes)
    shard.end()
    yield from sheets.rest()


def first_waiting(before: Progress, timeline: Timeline) -> Placed | None:
    """The first entry that waited before the batch, if it waits on after it."""
    if before.waits_for is None or before.waiting_since is None or before.waits_for <= timeline.end:
        return None
    return Placed(before.executed_index + 1, 0, before.waits_for, before.waiting_since, None)


class ShardFold:
    """One shard while a batch is folded."""

    def __init__(self, group: str, before: Progress, timeline: Timeline, low: int, sheets: Sheets) -> None:
        self.group = group
        self.before = before
        self.timeline = timeline
        self.low = low
        self.sheets = sheets
        self.history = MetaHistory()
        self.waiting = first_waiting(before, timeline)
        self.placed: list[Placed] = []
        self.log_end = LogEnd.of(before)

    def version(self, kind: str, name: str, definition: str | None, created_index: int, meta_index: int) -> None:
        """A version of a table or user."""
        self.history.add(kind, name, meta_index, created_index, json.loads(definition) if definition is not None else None)

    def arrived(
        self,
        log_index: int,
        log_term: int,
        required: int,
        _: None,
        received: int,
        kind: str,
        table_id: str | None,
        user_id: str | None,
        command: str,
        tx_index: int,
    ) -> None:
        """An entry that has just come. If it is the next of its log, its watermark is known now."""
        expected = self.log_end.index + 1
        status = self.log_end.take(log_index, required)
        if status != FRESH:
            told = (log_index, log_term, kind, command, tx_index, expected, status)
            self.sheets.add(UNEXPECTED, received, self.group, *told)
            return
        self.entry(log_index, log_term, required, self.log_end.watermark, received, kind, table_id, user_id, command)

    def entry(
        self,
        log_index: int,
        log_term: int,
        required: int,
        watermark: int,
        received: int,
        kind: str,
        table_id: str | None,
        user_id: str | None,
        command: str,
    ) -> None:
        """An entry: it waits if Meta is not there yet, and is carried out as soon as it is."""
        executed = self.timeline.reached(watermark, received)
        self.placed.append(Placed(log_index, log_term, watermark, received, executed))
        told = (self.group, log_index, log_term, required, watermark, received, kind)
        if executed != received:
            if received > self.low:
                self.sheets.add(PENDING, received, *told, table_id, user_id, command, False)
            if executed is not None:
                self.sheets.add(PENDING, executed, *told, table_id, user_id, None, True)
        if executed is None or kind in MARKERS:
            return
        at_hand = self.timeline.at(executed)
        index = executes_at(required, watermark, at_hand)
        try:
            _, table, table_index, dropped, keys, values = resolve(json.loads(command), index, self.history)
        except Refused as refused:
            self.sheets.add(RESULT, executed, *told, index, str(refused))
            return
        is_late = dropped is not None and dropped <= at_hand
        self.sheets.add(OPERATION, executed, *told, index, table, table_index, dropped if is_late else None, keys, values)

    def end(self) -> None:
        """Write how far the shard was after each delivery."""
        if self.placed:
            for height, now in progress(self.before, self.placed, self.waiting, self.low):
                self.sheets.add(APPLIED, height, self.group, *now)
