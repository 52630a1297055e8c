"""Protobuf messages as frozen dataclasses, each field with its number: bytes, JSON as protobuf defines it, and back.

Bytes that come in are hostile. A message has one encoding only (fields ascending, defaults omitted, nothing unknown), so a proof
cannot be changed without changing what it says; sizes are bounded before anything is built.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields
from enum import IntEnum
from typing import Any, TypeVar

from chainlake.encoding import excerpt
from chainlake.errors import BadInput
from chainlake.sources import wire

MAX_BYTES = 1 << 20
MAX_REPEATED = 256

M = TypeVar("M", bound="Message")


@dataclass(frozen=True)
class Wire:
    """How a field is written: its number, the type of one value, and whether there are many."""

    number: int
    kind: type
    repeated: bool


def wired(number: int, kind: type, repeated: bool = False) -> dict[str, Wire]:
    """What a dataclass field of a message has as metadata."""
    return {"wire": Wire(number, kind, repeated)}


@dataclass(frozen=True)
class Message:
    """A protobuf message. Field types: bytes, int, bool, an enum, or another message."""

    def to_bytes(self) -> bytes:
        """The canonical protobuf encoding."""
        return b"".join(_field_bytes(_wire(one), getattr(self, one.name)) for one in fields(self))

    @classmethod
    def from_bytes(cls: type[M], data: bytes) -> M:
        """Decode; `BadInput` for anything but the canonical encoding of such a message."""
        if len(data) > MAX_BYTES:
            raise BadInput(f"{cls.__name__} has {len(data)} bytes: at most {MAX_BYTES} are read")
        message = _from_bytes(cls, data)
        if message.to_bytes() != data:
            raise BadInput(f"{cls.__name__} is not in canonical form: write fields ascending, without defaults")
        return message

    def to_json(self) -> dict[str, Any]:
        """JSON as protobuf maps it: camelCase names, base64, enums by name, defaults omitted."""
        values = {one: getattr(self, one.name) for one in fields(self)}
        return {_json_name(one): _json(value, _wire(one)) for one, value in values.items() if not _is_default(value)}

    @classmethod
    def from_json(cls: type[M], value: Any) -> M:
        """The inverse of `to_json`; `BadInput` names what does not belong."""
        if not isinstance(value, Mapping):
            raise BadInput(f"{cls.__name__} must be a JSON object, not {type(value).__name__}")
        known = {_json_name(one): one for one in fields(cls)}
        if strange := [name for name in value if name not in known]:
            raise BadInput(f"{cls.__name__} has no field {str(strange[0])[:40]!r}: it has {', '.join(known)}")
        return cls(**{known[name].name: _from_json(item, _wire(known[name]), name) for name, item in value.items()})


def _wire(one: "Field[Any]") -> Wire:
    found: Wire = one.metadata["wire"]
    return found


def _json_name(one: "Field[Any]") -> str:
    first, *rest = one.name.split("_")
    return first + "".join(word.title() for word in rest)


def _is_default(value: Any) -> bool:
    """Defaults are omitted; an empty message is a value, its absence is the default."""
    return not isinstance(value, Message) and not value


def _field_bytes(how: Wire, value: Any) -> bytes:
    if _is_default(value):
        return b""
    if how.repeated and how.kind is int:
        return _delimited(how.number, b"".join(map(wire.to_varint, value)))
    return b"".join(_value_bytes(how.number, one) for one in (value if how.repeated else (value,)))


def _value_bytes(number: int, value: Any) -> bytes:
    if isinstance(value, Message):
        return _delimited(number, value.to_bytes())
    if isinstance(value, bytes):
        return _delimited(number, value)
    return wire.to_varint(number << 3 | wire.VARINT) + wire.to_varint(int(value))


def _delimited(number: int, data: bytes) -> bytes:
    return wire.to_varint(number << 3 | wire.LENGTH) + wire.to_varint(len(data)) + data


def _from_bytes(cls: type[M], data: bytes) -> M:
    known = {_wire(one).number: (one.name, _wire(one)) for one in fields(cls)}
    found: dict[str, Any] = {}
    for one in wire.fields(data):
        if one.number not in known:
            raise BadInput(f"{cls.__name__} has no field {one.number}")
        name, how = known[one.number]
        if how.repeated:
            found[name] = (*found.get(name, ()), *_several(how, one))
        elif name in found:
            raise BadInput(f"{cls.__name__} has field {one.number} twice")
        else:
            found[name] = _value(how, one)
        if how.repeated and len(found[name]) > MAX_REPEATED:
            raise BadInput(f"{cls.__name__} has more than {MAX_REPEATED} values of field {one.number}")
    return cls(**found)


def _several(how: Wire, one: wire.Field) -> Iterable[Any]:
    if how.kind is not int:
        return (_value(how, one),)
    values: list[int] = []
    position = 0
    while position < len(one.data) and len(values) <= MAX_REPEATED:
        number, position = wire.varint(one.data, position)
        values.append(number)
    return values


def _value(how: Wire, one: wire.Field) -> Any:
    if issubclass(how.kind, Message):
        return _from_bytes(how.kind, one.data)
    if how.kind is bytes:
        return one.data
    return _known(how.kind, one.value)


def _known(kind: type, value: int) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise BadInput(f"{kind.__name__} has no value {value}") from None


def _json(value: Any, how: Wire) -> Any:
    if how.repeated:
        return [_json_value(one) for one in value]
    return _json_value(value)


def _json_value(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_json()
    if isinstance(value, IntEnum):
        return value.name
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _from_json(value: Any, how: Wire, name: str) -> Any:
    if not how.repeated:
        return _from_json_value(value, how.kind, name)
    if not isinstance(value, list) or len(value) > MAX_REPEATED:
        raise BadInput(f"{name} must be an array of at most {MAX_REPEATED}")
    return tuple(_from_json_value(one, how.kind, name) for one in value)


def _from_json_value(value: Any, kind: type, name: str) -> Any:
    if issubclass(kind, Message):
        return kind.from_json(value)
    if issubclass(kind, IntEnum) and isinstance(value, str) and value in kind.__members__:
        return kind[value]
    if kind is bytes and isinstance(value, str) and len(value) <= 2 * MAX_BYTES:
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise BadInput(f"{name} is not base64: {value[:40]!r}") from None
    if kind in (int, bool) and type(value) is kind and 0 <= value < 1 << 31:
        return value
    raise BadInput(f"{name} must be {kind.__name__}, not {excerpt(value)}")
