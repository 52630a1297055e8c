"""Payloads of entries to typed commands, as Arrow."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from chainlake.collector import without_collector
from chainlake.errors import BadInput
from chainlake.replica.columns import has_long_numbers
from chainlake.replica.commands import MAX_DEPTH, MAX_NUMBER, Command, check_place, command_text, member, read_command
from chainlake.replica.entries import read_payload
from chainlake.replica.groups import KNOWN, SHARED, group_of

SCHEMA = pa.schema(
    [
        *[("_height", pa.int64()), ("tx_index", pa.int32()), ("group_name", pa.string()), ("log_index", pa.int64())],
        *[("log_term", pa.int64()), ("type", pa.string()), ("required_meta_index", pa.int64()), ("table_id", pa.string())],
        *[("user_id", pa.string()), ("command", pa.string()), ("error", pa.string())],
    ]
)
_READ = SCHEMA.names[2:]
"""Columns that are read from the payload; the others stand beside it."""
_OPENING = b'{"command":'
_PLACE = re.compile(rb',"group":"([^"\\]{1,40})","log_index":([1-9][0-9]{0,17}),"log_term":(0|[1-9][0-9]{0,17})\}')
_GROUPS = {group.encode(): group for group in KNOWN}
SHORT = 1 << 20


class _Told(NamedTuple):
    """An entry, its command as canonical JSON, or why it cannot be understood."""

    group: str | None = None
    log_index: int | None = None
    log_term: int | None = None
    type: str | None = None
    required_meta_index: int | None = None
    table_id: str | None = None
    user_id: str | None = None
    command: str | bytes | None = None
    error: str | None = None


@without_collector
def decode_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row per entry; `error` says why one cannot be understood."""
    for batch in batches:
        payloads = batch.column("payload")
        read = _slowly if has_long_numbers(payloads) else _quickly
        rows = [read(payload) for payload in payloads.to_pylist()]
        columns = zip(*rows, strict=True) if rows else [() for _ in _READ]
        arrays = [pa.array(column, SCHEMA.field(name).type) for name, column in zip(_READ, columns, strict=True)]
        places = [batch.column(name).cast(SCHEMA.field(name).type) for name in SCHEMA.names[:2]]
        yield pa.RecordBatch.from_arrays([*places, *arrays], schema=SCHEMA)


def _slowly(payload: bytes) -> tuple[Any, ...]:
    """The entry of any payload, or what is wrong with it."""
    try:
        group, log_index, log_term, command = read_payload(payload)
        text = command_text(command)
    except BadInput as error:
        return _Told(error=str(error))
    return _told(group, log_index, log_term, command, text)


def _told(group: str, log_index: int, log_term: int, command: Command, text: str | bytes) -> tuple[Any, ...]:
    required, table_id, user_id = (member(command, name) for name in ("required_meta_index", "table_id", "user_id"))
    return _Told(group, log_index, log_term, command["type"], required or 0, table_id, user_id, text)


def _quickly(payload: bytes) -> tuple[Any, ...]:
    """The entry of a payload that is canonical JSON, as raw payloads are: then the text of its command stands in it. Anything
    unusual is read slowly, and it is told what is wrong with it."""
    at = payload.rfind(b',"group":"')
    place = _PLACE.fullmatch(payload, at) if at > 0 and payload.startswith(_OPENING) else None
    if place is None:
        return _slowly(payload)
    name, log_index, log_term = place.groups()
    group = _GROUPS.get(name)
    text = payload[len(_OPENING) : at]
    if group is None or len(text) > SHORT or _may_be_deep(text):
        return _slowly(payload)
    try:
        given = orjson.loads(text)
    except ValueError:
        return _slowly(payload)
    if _is_plain_insert(given, group):
        user_id, required = given.get("user_id"), given.get("required_meta_index", 0)
        return group, int(log_index), int(log_term), "Insert", required, given["table_id"], user_id, text, None
    try:
        command = read_command(given)
        check_place(group, command)
    except BadInput:
        return _slowly(payload)
    if len(command) != len(given):  # what says nothing was left out
        return _slowly(payload)
    return _told(group, int(log_index), int(log_term), command, text)


def _may_be_deep(text: bytes) -> bool:
    """Whether there are as many brackets as it takes. What opens closes too, so that a short text has not enough of them."""
    return len(text) > 2 * MAX_DEPTH and text.count(b"[") + text.count(b"{") > MAX_DEPTH


def _is_plain_insert(given: Any, group: str) -> bool:
    """Whether this is by far the commonest command, an Insert, as `read_command` gives it back, in the log that `check_place`
    wants: every member is declared and says something."""
    if type(given) is not dict or given.get("type") != "Insert":
        return False
    get = given.get
    table_id, rows, user_id, required = get("table_id"), get("rows"), get("user_id"), get("required_meta_index")
    return (
        len(given) == 3 + (user_id is not None) + (required is not None)
        and type(table_id) is str
        and type(rows) is list
        and _OBJECTS.issuperset(map(type, rows))
        and (required is None or (type(required) is int and 0 < required <= MAX_NUMBER))
        and (group == SHARED if user_id is None else type(user_id) is str and group_of(user_id) == group)
    )


_OBJECTS = frozenset((dict,))
