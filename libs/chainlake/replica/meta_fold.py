"""Meta of a batch, as Arrow: the objects it touches come first, each in all versions or the newest, then its entries in the order
in which they arrived."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from chainlake.replica.columns import Sheets, rows_of, typed
from chainlake.replica.commands import MARKERS
from chainlake.replica.groups import META
from chainlake.replica.meta import MetaObject, MetaState, touched
from chainlake.replica.sequence import FRESH, UNEXPECTED, UNEXPECTED_COLUMNS, LogEnds
from chainlake.replica.timeline import Progress
from chainlake.sources.json_text import canonical

OBJECT, CHANGE, RESULT, INDEX, APPLIED = "object", "change", "result", "index", "applied"
KINDS: Mapping[str, Sequence[str]] = {
    OBJECT: ("_height", "kind", "id", "definition", "created_index", "updated_index", "_deleted"),
    CHANGE: ("_height", "meta_index", "kind", "id", "definition", "created_index"),
    RESULT: ("_height", "group_name", "log_index", "type", "error", "meta_index"),
    INDEX: ("_height", "meta_index"),
    APPLIED: ("_height", "group_name", "log_index", "log_term"),
    UNEXPECTED: UNEXPECTED_COLUMNS,
}
_OBJECT = ("kind", "id", "definition", "created_index", "updated_index")
_ENTRY = ("_height", "group_name", "log_index", "log_term", "type", "command", "tx_index")
INPUT = ("tag", *_ENTRY, *_OBJECT, "_deleted")
KEYS = typed("kind", "id")


def touched_keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The objects that commands look at."""
    for batch in batches:
        keys = sorted({key for (command,) in rows_of(batch, ["command"]) for key in touched(json.loads(command))})
        yield pa.RecordBatch.from_pylist([{"kind": kind, "id": name} for kind, name in keys], KEYS)


def fold_meta(batches: Iterable[pa.RecordBatch], before: Mapping[str, Progress], meta_index: int) -> Iterator[pa.RecordBatch]:
    """Carry out the Meta commands of a batch on from an index. What is not the next entry of its log is given back as it is."""
    state, sheets, ends = MetaState(), Sheets(KINDS), LogEnds(before)
    fold = MetaFold(state, sheets, meta_index)
    for batch in batches:
        tags, entries, objects = batch.column("tag").to_pylist(), rows_of(batch, _ENTRY), rows_of(batch, _OBJECT)
        gone = batch.column("_deleted").to_pylist()
        for tag, entry, held, is_gone in zip(tags, entries, objects, gone, strict=True):
            if tag == 0:
                kind, name, definition, created, updated = held
                _hold(state, MetaObject(kind, name, json.loads(definition), created, updated), bool(is_gone))
                continue
            height, group, log_index, term, of_type, command, _ = entry
            expected, status = ends.take(group, log_index, of_type)
            if status == FRESH:
                fold.entry(height, group, log_index, term, command)
            else:
                sheets.add(UNEXPECTED, *entry, expected, status)
        yield from sheets.full(batch.nbytes)
    fold.end_delivery()
    yield from sheets.rest()


def _hold(state: MetaState, version: MetaObject, is_gone: bool) -> None:
    """Take in an object from before, or that it is gone. A later version takes the place of an earlier."""
    if is_gone:
        state.objects.pop(version.key, None)
    else:
        state.objects[version.key] = version


class MetaFold:
    """Meta while a batch is folded: what changed in the present delivery, and is written when it ends."""

    def __init__(self, state: MetaState, sheets: Sheets, meta_index: int) -> None:
        self.state = state
        self.sheets = sheets
        self.meta_index = meta_index
        self.height = -1
        self.changed: dict[tuple[str, str], MetaObject] = {}
        self.applied: dict[str, tuple[int, int]] = {}

    def entry(self, height: int, group: str, log_index: int, term: int, text: str) -> None:
        if height != self.height:
            self.end_delivery()
            self.height = height
        command = json.loads(text)
        is_first = self.meta_index == 0
        self.meta_index = log_index if group == META else self.meta_index + 1
        self.applied[group] = (log_index, term)
        error, changes = self.state.apply(self.meta_index, command, is_first)
        for meta_index, one, gone in changes:
            self.changed[one.key] = one
            definition = None if gone else canonical(one.definition).decode()
            self.sheets.add(CHANGE, height, meta_index, *one.key, definition, one.created_index)
        if command["type"] not in MARKERS:
            self.sheets.add(RESULT, height, group, log_index, command["type"], error, self.meta_index)

    def end_delivery(self) -> None:
        """Write each object that the delivery changed, once, as it is now."""
        for key, now in self.changed.items():
            definition = canonical(now.definition).decode()
            gone = key not in self.state.objects
            self.sheets.add(OBJECT, self.height, *key, definition, now.created_index, now.updated_index, gone)
        if self.applied:
            self.sheets.add(INDEX, self.height, self.meta_index)
        for group, (log_index, term) in self.applied.items():
            self.sheets.add(APPLIED, self.height, group, log_index, term)
        self.changed, self.applied = {}, {}
