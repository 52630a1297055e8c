"""The protobuf wire format, as far as needed to write numbers, and to find messages inside messages without decoding them."""

from collections.abc import Iterator
from typing import NamedTuple

from chainlake.errors import BadInput

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
MOST_FIELDS = 1 << 20
"""Of one message. Two bytes are a field, and a packed kilobyte is a million bytes: what they become here must fit into memory."""


class Field(NamedTuple):
    """A field of a message: its number, its value as a varint or as bytes, and its span."""

    number: int
    value: int
    data: bytes
    start: int
    end: int


def varint(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after) of a varint of at most 64 bits."""
    value = shift = 0
    while shift < 70:
        if position >= len(data):
            raise BadInput("not protobuf: it ends in the middle of a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
    raise BadInput("not protobuf: a number has more than 10 bytes")


def to_varint(value: int) -> bytes:
    """A non-negative number in base 128, lowest digits first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field_bytes(number: int, value: bytes) -> bytes:
    """A protobuf field of bytes, text or of a message, empty or not."""
    return to_varint(number << 3 | LENGTH) + to_varint(len(value)) + value


def field_int(number: int, value: int) -> bytes:
    """A protobuf field of a number or bool; proto3 leaves out 0."""
    return to_varint(number << 3 | VARINT) + to_varint(value & 0xFFFF_FFFF_FFFF_FFFF) if value else b""


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a message, in order."""
    position, left = 0, MOST_FIELDS
    while position < len(data):
        if not left:
            raise BadInput(f"not protobuf that is meant to be read: it has more than {MOST_FIELDS} fields")
        start, left = position, left - 1
        key, position = varint(data, position)
        number, kind = key >> 3, key & 7
        value, length = 0, {FIXED64: 8, FIXED32: 4}.get(kind, 0)
        if kind in (VARINT, LENGTH):
            value, position = varint(data, position)
            length = value if kind == LENGTH else 0
        elif kind not in (FIXED64, FIXED32):
            raise BadInput(f"not protobuf: field {number} has wire type {kind}")
        if number == 0 or length > len(data) - position:
            raise BadInput(f"not protobuf: field {number} claims {length} bytes, {len(data) - position} are left")
        end = position + length
        yield Field(number, value, data[position:end], start, end)
        position = end


def spans(data: bytes) -> list[tuple[int, int, int, int]]:
    """(number, varint, start and end of the contents) of every field: what `fields` gives, for messages by the million."""
    found = []
    position, size = 0, len(data)
    try:
        while position < size:
            key = data[position]
            position += 1
            if key > 0x7F:
                key, position = varint(data, position - 1)
            kind, value, end = key & 7, 0, position
            if kind == LENGTH:
                length = data[position]
                position += 1
                if length > 0x7F:
                    length, position = varint(data, position - 1)
                end = position + length
            elif kind == VARINT:
                value, position = varint(data, position)
                end = position
            elif kind in (FIXED64, FIXED32):
                end = position + (8 if kind == FIXED64 else 4)
            else:
                raise BadInput(f"not protobuf: field {key >> 3} has wire type {kind}")
            if end > size or key < 8:
                raise BadInput(f"not protobuf: field {key >> 3} claims {end - position} bytes, {size - position} are left")
            found.append((key >> 3, value, position, end))
            position = end
    except IndexError:
        raise BadInput("not protobuf: it ends in the middle of a number") from None
    return found


def messages(data: bytes, wanted: int) -> list[bytes]:
    """The values of a repeated message or bytes field."""
    return [field.data for field in fields(data) if field.number == wanted]


def message(data: bytes, wanted: int) -> bytes:
    """The last value of a message or bytes field, as protobuf has it; empty when absent."""
    return (messages(data, wanted) or [b""])[-1]


def number(data: bytes, wanted: int) -> int:
    """The last value of an int64 field; 0 when absent."""
    value = ([field.value for field in fields(data) if field.number == wanted] or [0])[-1]
    return value - (1 << 64) if value >> 63 else value


def without(data: bytes, dropped: int) -> bytes:
    """The message without one of its fields, everything else as received."""
    return b"".join(data[field.start : field.end] for field in fields(data) if field.number != dropped)
