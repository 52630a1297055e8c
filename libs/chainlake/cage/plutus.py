"""Plutus Data: numbers, byte strings, lists, maps and constructors with fields.

Constructor i is CBOR tag 121 + i up to 6, 1280 + i - 7 up to 127, else tag 102 with `[i, fields]`. Lists may be of either length
form, byte strings in chunks.
"""

from typing import NamedTuple, TypeAlias

from chainlake.cage.cbor import ARRAY, BREAK, BYTES, CHUNKED, MAP, NEGATIVE, TAG, UNSIGNED, end_of, head, integer, octets
from chainlake.errors import BadInput

MOST_DEPTH = 48
MOST_BYTES = 1 << 16
ANY_CONSTRUCTOR = 102
_FIRST, _LAST_FIRST = 121, 127
_SECOND, _LAST_SECOND = 1280, 1400


class Constr(NamedTuple):
    """A constructor with its fields."""

    number: int
    fields: list["Data"]


Data: TypeAlias = "int | bytes | list[Data] | dict[int, Data] | Constr"
"""A map is kept as pairs by position: its keys may be anything."""


def read(data: bytes) -> Data:
    """The value of some CBOR; `BadInput` when it is none, or nested deeper than any datum here."""
    if len(data) > MOST_BYTES:
        raise BadInput(f"the data has {len(data)} bytes: a transaction has at most {MOST_BYTES}")
    if end_of(data, 0) != len(data):
        raise BadInput("something follows the data")
    return _read(data, 0, 0)[0]


def _read(data: bytes, position: int, depth: int) -> tuple[Data, int]:
    """A value and where it ends. That items are as long as they claim is known by now."""
    if depth > MOST_DEPTH:
        raise BadInput(f"the data is nested deeper than {MOST_DEPTH}")
    first = data[position]
    major = first >> 5
    if major == ARRAY:
        return _several(data, position, depth)
    if major == MAP:
        both, end = _several(data, position, depth)
        return {at: Constr(0, both[2 * at : 2 * at + 2]) for at in range(len(both) // 2)}, end
    if first == CHUNKED:
        return octets(data, position, "a byte string"), end_of(data, position)
    _, argument, after = head(data, position)
    if major == BYTES:
        return data[after : after + argument], after + argument
    if major in (UNSIGNED, NEGATIVE):
        return argument if major == UNSIGNED else -1 - argument, after
    index = _constructor(argument) if major == TAG else None
    if index is not None:
        fields, end = _listed(data, after, depth)
        return Constr(index, fields), end
    if major == TAG and argument == ANY_CONSTRUCTOR:
        return _any_constructor(data, after, depth)
    return integer(data, position, "a large number"), end_of(data, position)


def _several(data: bytes, position: int, depth: int) -> tuple[list[Data], int]:
    """What a list holds, or a map, one after the other, and where it ends."""
    found: list[Data] = []
    if data[position] in (0x9F, 0xBF):
        position += 1
        while data[position] != BREAK:
            value, position = _read(data, position, depth + 1)
            found.append(value)
        return found, position + 1
    major, count, position = head(data, position)
    for _ in range(2 * count if major == MAP else count):
        value, position = _read(data, position, depth + 1)
        found.append(value)
    return found, position


def _listed(data: bytes, position: int, depth: int) -> tuple[list[Data], int]:
    """The fields of a constructor: a list, and never a map with as many items."""
    if data[position] >> 5 != ARRAY:
        raise BadInput(f"fields are no list at byte {position}")
    return _several(data, position, depth)


def _constructor(tag: int) -> int | None:
    if _FIRST <= tag <= _LAST_FIRST:
        return tag - _FIRST
    return tag - _SECOND + 7 if _SECOND <= tag <= _LAST_SECOND else None


def _any_constructor(data: bytes, position: int, depth: int) -> tuple[Constr, int]:
    parts, end = _listed(data, position, depth)
    match parts:
        case [int(number), list(fields)] if number >= 0:
            return Constr(number, fields), end
    raise BadInput(f"a constructor is not a number and fields at byte {position}")
