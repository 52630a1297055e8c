"""Plutus Data: numbers, byte strings, lists, maps and constructors with fields.

Constructor i is CBOR tag 121 + i up to 6, 1280 + i - 7 up to 127, else tag 102 with `[i, fields]`. Lists may be of either length
form, byte strings in chunks.
"""

from typing import NamedTuple, TypeAlias

from chainlake.cage.cbor import ARRAY, BYTES, MAP, TAG, end_of, head, integer, items, octets, pairs, unsigned
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
    return _read(data, 0, 0)


def _read(data: bytes, position: int, depth: int) -> Data:
    if depth > MOST_DEPTH:
        raise BadInput(f"the data is nested deeper than {MOST_DEPTH}")
    first = data[position]
    major = first >> 5
    if major == ARRAY:
        return [_read(data, start, depth + 1) for start, _ in items(data, position, "a list")]
    if major == MAP:
        both = pairs(data, position, "a map")
        return {
            at: Constr(0, [_read(data, key[0], depth + 1), _read(data, value[0], depth + 1)])
            for at, (key, value) in enumerate(both)
        }
    if major == BYTES:
        return octets(data, position, "a byte string")
    if major == TAG:
        _, tag, after = head(data, position)
        index = _constructor(tag)
        if index is not None:
            return Constr(index, [_read(data, start, depth + 1) for start, _ in items(data, after, "fields")])
        if tag == ANY_CONSTRUCTOR:
            return _any_constructor(data, after, depth)
    return integer(data, position, "a number")


def _constructor(tag: int) -> int | None:
    if _FIRST <= tag <= _LAST_FIRST:
        return tag - _FIRST
    return tag - _SECOND + 7 if _SECOND <= tag <= _LAST_SECOND else None


def _any_constructor(data: bytes, position: int, depth: int) -> Constr:
    parts = items(data, position, "a constructor")
    if len(parts) != 2:
        raise BadInput(f"a constructor has {len(parts)} parts")
    index = unsigned(data, parts[0][0], "a constructor's number")
    return Constr(index, [_read(data, start, depth + 1) for start, _ in items(data, parts[1][0], "fields")])
