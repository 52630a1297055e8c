"""Payloads of entries to typed commands, as Arrow."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import orjson
import pyarrow as pa

from chainlake.collector import without_collector
from chainlake.errors import BadInput
from chainlake.replica.columns import has_long_numbers, rows_of
from chainlake.replica.commands import MAX_DEPTH, Command, check_place, command_text, member, read_command
from chainlake.replica.entries import read_payload

SCHEMA = pa.schema(
    [
        *[("_height", pa.int64()), ("tx_index", pa.int32()), ("group_name", pa.string()), ("log_index", pa.int64())],
        *[("log_term", pa.int64()), ("type", pa.string()), ("required_meta_index", pa.int64()), ("table_id", pa.string())],
        *[("user_id", pa.string()), ("command", pa.string()), ("error", pa.string())],
    ]
)
_NOTHING = (None,) * 8
_OPENING = b'{"command":'
_PLACE = re.compile(rb',"group":"([^"\\]{1,40})","log_index":([1-9][0-9]{0,17}),"log_term":(0|[1-9][0-9]{0,17})\}')
SHORT = 1 << 20


class _Told(NamedTuple):
    """An entry, and its command as canonical JSON."""

    group: str
    log_index: int
    log_term: int
    command: Command
    text: str


@without_collector
def decode_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row per entry; `error` says why one cannot be understood."""
    for batch in batches:
        held = rows_of(batch, ("_height", "tx_index", "payload"))
        read = _slowly if has_long_numbers(batch.column("payload")) else _quickly
        rows = [(height, tx_index, *_row(payload, read(payload))) for height, tx_index, payload in held]
        columns = zip(*rows, strict=True) if rows else [() for _ in SCHEMA]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _row(payload: bytes, told: _Told | None) -> tuple[object, ...]:
    """What is not read quickly, is read thoroughly, and it is told what is wrong with it."""
    if told is None:
        try:
            entry = read_payload(payload)
            told = _Told(*entry, command_text(entry.command))
        except BadInput as error:
            return (*_NOTHING, str(error))
    group, log_index, log_term, command, text = told
    required, table_id, user_id = (member(command, name) for name in ("required_meta_index", "table_id", "user_id"))
    return group, log_index, log_term, command["type"], required or 0, table_id, user_id, text, None


def _slowly(payload: bytes) -> None:
    return None


def _quickly(payload: bytes) -> _Told | None:
    """The entry of a payload that is canonical JSON, as raw payloads are: then the text of its command stands in it. None if
    there is anything unusual about it."""
    at = payload.rfind(b',"group":"')
    place = _PLACE.fullmatch(payload, at) if at > 0 and payload.startswith(_OPENING) else None
    if place is None:
        return None
    text = payload[len(_OPENING) : at]
    if len(text) > SHORT or text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        return None
    try:
        given = orjson.loads(text)
        command = read_command(given)
        group = place[1].decode()
        check_place(group, command)
    except (BadInput, ValueError):
        return None
    if len(command) != len(given):  # what says nothing was left out
        return None
    return _Told(group, int(place[2]), int(place[3]), command, text.decode())
