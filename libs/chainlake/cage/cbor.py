"""Reading CBOR where its shape is known: the items that Cardano's transactions are made of, from their raw bytes.

Nothing is decoded that is not asked for, so tags with a meaning of their own (fractions, dates, patterns) stay bytes, and what
strangers wrote costs at most as much as its length.
"""

from collections.abc import Iterator

from chainlake.errors import BadInput
from chainlake.sources.cbor_spans import ARRAY, BREAK, BYTES, MAP, TAG, UNSIGNED, Truncated, head, skip, unsigned

NEGATIVE = 1
SET_TAG, CBOR_TAG = 258, 24
POSITIVE_BIGNUM, NEGATIVE_BIGNUM = 2, 3
MOST_ITEMS = 1 << 20
CHUNKED = 0x5F

Span = tuple[int, int]


def end_of(data: bytes, position: int) -> int:
    """Where the item at `position` ends."""
    return skip(data, position, len(data))


def items(data: bytes, position: int, what: str) -> list[Span]:
    """The spans of a list's items; a set may be tagged as one."""
    major, argument, after = _opened(data, position)
    if major == TAG and argument == SET_TAG:
        major, argument, after = _opened(data, after)
    if major != ARRAY:
        raise BadInput(f"{what} is no list at byte {position}")
    return list(_spans(data, after, argument, what))


def opened(data: bytes, position: int, what: str) -> int:
    """Where the first item of a list begins."""
    major, _, after = _opened(data, position)
    if major != ARRAY:
        raise BadInput(f"{what} is no list at byte {position}")
    return after


def pairs(data: bytes, position: int, what: str) -> list[tuple[Span, Span]]:
    """The spans of a map's keys and values, in order."""
    major, argument, after = _opened(data, position)
    if major != MAP:
        raise BadInput(f"{what} is no map at byte {position}")
    spans = list(_spans(data, after, None if argument is None else 2 * argument, what))
    if len(spans) % 2:
        raise BadInput(f"{what} has a key without a value at byte {position}")
    return list(zip(spans[::2], spans[1::2], strict=True))


def fields(data: bytes, position: int, what: str) -> dict[int, Span]:
    """A map from numbers: the spans of its values. No number may be there twice."""
    found: dict[int, Span] = {}
    for key, value in pairs(data, position, what):
        number = unsigned(data, key[0], f"a key of {what}")
        if number in found:
            raise BadInput(f"{what} has key {number} twice at byte {key[0]}")
        found[number] = value
    return found


def integer(data: bytes, position: int, what: str) -> int:
    """Any number, also one too large for eight bytes."""
    major, value, after = head(data, position)
    if major == UNSIGNED:
        return value
    if major == NEGATIVE:
        return -1 - value
    if major == TAG and value in (POSITIVE_BIGNUM, NEGATIVE_BIGNUM):
        number = int.from_bytes(octets(data, after, what), "big")
        return number if value == POSITIVE_BIGNUM else -1 - number
    raise BadInput(f"{what} is no number at byte {position}")


def octets(data: bytes, position: int, what: str) -> bytes:
    """A byte string, in one piece or in chunks."""
    if position < len(data) and data[position] == CHUNKED:
        return b"".join(_chunks(data, position + 1, what))
    return _piece(data, position, what)[0]


def embedded(data: bytes, position: int, what: str) -> bytes:
    """The bytes of CBOR that is kept as a byte string: tag 24."""
    major, value, after = head(data, position)
    if major != TAG or value != CBOR_TAG:
        raise BadInput(f"{what} is no CBOR in a byte string at byte {position}")
    return octets(data, after, what)


def _piece(data: bytes, position: int, what: str) -> tuple[bytes, int]:
    major, length, start = head(data, position)
    if major != BYTES:
        raise BadInput(f"{what} is no byte string at byte {position}")
    end = start + length
    if end > len(data):
        raise Truncated(f"{what} is cut short at byte {position}")
    return data[start:end], end


def _chunks(data: bytes, position: int, what: str) -> Iterator[bytes]:
    while data[position : position + 1] != b"\xff":
        piece, position = _piece(data, position, what)
        yield piece


def _opened(data: bytes, position: int) -> tuple[int, int | None, int]:
    """Major type, argument and position after; None for a list or map that says at its end how long it is."""
    first = data[position] if position < len(data) else None
    if first in (0x9F, 0xBF):
        return (ARRAY if first == 0x9F else MAP), None, position + 1
    return head(data, position)


def _spans(data: bytes, position: int, count: int | None, what: str) -> Iterator[Span]:
    if count is not None and count > min(len(data) - position, MOST_ITEMS):
        raise BadInput(f"{what} claims {count} items at byte {position}: there are not so many bytes")
    left = MOST_ITEMS if count is None else count
    while left:
        if count is None and data[position : position + 1] == b"\xff":
            return
        end = end_of(data, position)
        yield position, end
        position, left = end, left - 1
    if count is None:
        raise BadInput(f"{what} has more than {MOST_ITEMS} items")


__all__ = [
    "ARRAY",
    "BREAK",
    "BYTES",
    "CHUNKED",
    "MAP",
    "NEGATIVE",
    "TAG",
    "UNSIGNED",
    "Span",
    "embedded",
    "end_of",
    "fields",
    "head",
    "integer",
    "items",
    "octets",
    "opened",
    "pairs",
    "unsigned",
]
