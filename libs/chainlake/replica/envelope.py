"""Commands as bytes: the messages of replica.proto, read and written by the declarations of commands.py.

An envelope has a version and one command. Bytes of another version are refused, and so is a command that this version does not
know: guessing would let replicas diverge. Unknown fields within a command are passed over. Writing is canonical: fields by
ascending number, defaults left out.
"""

import json
from typing import Any

from chainlake.errors import BadInput
from chainlake.replica.commands import COMMANDS, FLAG, JSON, JSONS, NUMBER, TEXT, TEXTS, Command, Field, read_command
from chainlake.sources import wire
from chainlake.sources.json_text import canonical, parse, to_utf8, utf8

VERSION = 1
OTHER = 15
"""Members that are not declared, as one JSON object."""

_DEFAULTS: dict[str, type] = {TEXT: str, NUMBER: int, FLAG: bool, TEXTS: list, JSONS: list}
_BY_NUMBER = {declared.number: name for name, declared in COMMANDS.items()}
_FIELDS = {name: {field.number: field for field in declared.fields} for name, declared in COMMANDS.items()}
_ABSENT = {
    name: [(field.name, _DEFAULTS[field.kind]) for field in declared.fields if not field.optional and field.kind != JSON]
    for name, declared in COMMANDS.items()
}


def encode(command: Command) -> bytes:
    """The canonical bytes of a command."""
    command = read_command(command)
    declared = COMMANDS[command["type"]]
    body = b"".join(_encode_field(field, command.get(field.name)) for field in declared.fields)
    other = {key: value for key, value in command.items() if key not in {"type", *(f.name for f in declared.fields)}}
    if other:
        body += _data(OTHER, canonical(other))
    return _number(1, VERSION) + _data(declared.number, body)


def decode(data: bytes) -> Command:
    """The command that the bytes are; `BadInput` says why they are none."""
    version, found = 0, b""
    name = ""
    for number, value, start, end in wire.spans(data):
        if number == 1:
            version = value
        elif number in _BY_NUMBER:
            name, found = _BY_NUMBER[number], data[start:end]
        else:
            raise BadInput(f"an envelope holds command number {number}: if a newer version knows it, upgrade")
    if version != VERSION:
        raise BadInput(f"an envelope has version {version}, {VERSION} is known: upgrade, or send version {VERSION}")
    if not name:
        raise BadInput("an envelope holds no command")
    return read_command({**_decode_fields(name, found), "type": name})


def _encode_field(field: Field, value: Any) -> bytes:
    number, kind = field.number, field.kind
    if value is None:
        return b""
    if kind in (NUMBER, FLAG):
        return _number(number, int(value))
    if kind == TEXT:
        return _data(number, to_utf8(value)) if value or field.optional else b""
    if kind == JSON:
        return _data(number, canonical(value))
    return b"".join(_data(number, to_utf8(one) if kind == TEXTS else canonical(one)) for one in value)


def _decode_fields(name: str, data: bytes) -> Command:
    """The members in a message; those that are not there have their default. What is not declared never takes the place of what
    the message says itself."""
    fields, found = _FIELDS[name], {field: default() for field, default in _ABSENT[name]}
    for number, value, start, end in wire.spans(data):
        known = fields.get(number)
        if number == OTHER:
            found = {**_object(data[start:end]), **found}
        elif known is None:
            continue
        elif known.kind in (NUMBER, FLAG):
            found[known.name] = bool(value) if known.kind == FLAG else value
        elif known.kind in (TEXTS, JSONS):
            found[known.name].append(_value(known, data[start:end]))
        else:
            found[known.name] = _value(known, data[start:end])
    return found


def _value(field: Field, data: bytes) -> Any:
    text = utf8(data)
    return text if field.kind in (TEXT, TEXTS) else parse(text)


def _object(data: bytes) -> Command:
    value = parse(utf8(data))
    if not isinstance(value, dict):
        raise BadInput(f"an envelope holds {json.dumps(value)[:60]} where an object is expected")
    return value


def _number(field: int, value: int) -> bytes:
    return wire.to_varint(field << 3 | wire.VARINT) + wire.to_varint(value) if value else b""


def _data(field: int, value: bytes) -> bytes:
    return wire.to_varint(field << 3 | wire.LENGTH) + wire.to_varint(len(value)) + value
