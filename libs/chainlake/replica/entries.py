"""Entries of a log as they are received: where they stand, and the command that they carry."""

import base64
import binascii
from typing import Any, NamedTuple

from chainlake.errors import BadInput
from chainlake.replica.commands import MAX_NUMBER, Command, check_place, member, read_command
from chainlake.replica.envelope import decode
from chainlake.sources.json_text import parse, utf8


class Entry(NamedTuple):
    """One entry of a group's log."""

    group: str
    log_index: int
    log_term: int
    command: Command

    @property
    def required(self) -> int:
        """The Meta index that the command was stamped with; 0 for none."""
        return member(self.command, "required_meta_index") or 0


def read_payload(payload: bytes) -> Entry:
    """The entry of a raw payload."""
    return read_entry(parse(utf8(payload)))


def read_entry(given: Any) -> Entry:
    """The entry of a JSON object, its command as an object or as envelope bytes; `BadInput` says what is wrong."""
    if not isinstance(given, dict):
        raise BadInput(f"an entry is {given!r:.60}: an object is expected")
    log_index, log_term = (_counted(given, name) for name in ("log_index", "log_term"))
    if log_index == 0:
        raise BadInput("log_index is 0: logs count from 1")
    if log_index == MAX_NUMBER:
        raise BadInput(f"log_index is {log_index}: no entry could follow it")
    entry = Entry(given.get("group", ""), log_index, log_term, _command(given))
    check_place(entry.group, entry.command)
    return entry


def _counted(given: dict[str, Any], name: str) -> int:
    value = given.get(name)
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise BadInput(f"{name} is {value!r:.60}: a number is expected")
    return value


def _command(given: dict[str, Any]) -> Command:
    if ("command" in given) == ("command_bytes" in given):
        raise BadInput("an entry has one of command and command_bytes")
    if "command" in given:
        return read_command(given["command"])
    text = given["command_bytes"]
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise BadInput(f"command_bytes is {text!r:.60}: base64 is expected") from None
    return decode(data)
