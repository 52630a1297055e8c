"""Where CBOR items begin and end in raw bytes.

Cardano hashes are taken over the original bytes, so items are found, not decoded. The walk keeps no stack for what has
a definite length and a bounded one for what has not, reads no byte that is not there and allocates nothing, whatever
the bytes claim.
"""

from chainlake.errors import BadInput

MAX_DEPTH = 512
BREAK = 0xFF
BYTES_OF_ONE_LENGTH_BYTE = 0x58
UNSIGNED, BYTES, ARRAY, MAP, TAG = 0, 2, 4, 5, 6


class Truncated(BadInput):
    """The bytes end before the item does: more may follow."""


_CUT_SHORT = "CBOR ends in the middle of an item: the file is cut short or still being written"


def _table(kind: str) -> list[int]:
    """Per first byte that says all: bytes to move on, or children that follow. -1: what the next bytes say matters."""
    table = [-1] * 256
    for major in range(8):
        for argument in range(24):
            moves = 1 + (argument if major in (2, 3) else 0)
            children = {ARRAY: argument, MAP: 2 * argument, TAG: 1}.get(major, 0)
            table[major << 5 | argument] = moves if kind == "moves" else children
        for argument in range(24, 28) if major in (0, 1, TAG, 7) else ():
            moves, children = 1 + (1 << argument - 24), int(major == TAG)
            table[major << 5 | argument] = moves if kind == "moves" else children
    return table


_MOVES = _table("moves")
_CHILDREN = _table("children")


def head(data: bytes, position: int) -> tuple[int, int, int]:
    """(major type, argument, position after) of an item that has a definite length."""
    try:
        first = data[position]
    except IndexError:
        raise Truncated(_CUT_SHORT) from None
    major, argument = first >> 5, first & 31
    if argument < 24:
        return major, argument, position + 1
    if argument > 27:
        raise BadInput(f"not CBOR: byte 0x{first:02x} cannot start an item here")
    end = position + 1 + (1 << (argument - 24))
    if end > len(data):
        raise Truncated(_CUT_SHORT)
    return major, int.from_bytes(data[position + 1 : end], "big"), end


def skip(data: bytes, position: int, limit: int) -> int:
    """Where the item at `position` ends. `Truncated` when it needs more bytes than there are, `BadInput` when it is not
    CBOR, is nested too deeply or is longer than `limit`."""
    frames: list[tuple[int, int]] = []
    last, pending = position + limit, 1
    try:
        while True:
            while pending:
                first = data[position]
                moves = _MOVES[first]
                if moves > 0:
                    position += moves
                    pending += _CHILDREN[first] - 1
                elif first == BYTES_OF_ONE_LENGTH_BYTE:
                    position += 2 + data[position + 1]
                    pending -= 1
                elif first in (0x9F, 0xBF):
                    frames.append((pending - 1, 1 if first == 0x9F else 2))
                    position, pending = position + 1, 0
                    if len(frames) > MAX_DEPTH:
                        raise BadInput(f"a CBOR item is nested deeper than {MAX_DEPTH} lists: no block is")
                else:
                    position, more = _skip_long(data, position)
                    pending += more - 1
                    if position + pending > last:
                        raise BadInput(f"a CBOR item claims more than {limit} bytes: no block is so large")
            if not frames:
                break
            if data[position] == BREAK:
                position, pending = position + 1, frames.pop()[0]
            else:
                pending = frames[-1][1]
    except IndexError:
        raise Truncated(_CUT_SHORT) from None
    if position > len(data):
        raise Truncated(_CUT_SHORT)
    if position > last:
        raise BadInput(f"a CBOR item is longer than {limit} bytes: no block is so large")
    return position


def _skip_long(data: bytes, position: int) -> tuple[int, int]:
    """An item with an argument of its own bytes, or a string in chunks: (position after, children that follow)."""
    first = data[position]
    if first in (0x5F, 0x7F):
        return _skip_chunks(data, position + 1, first >> 5), 0
    major, argument, position = head(data, position)
    if major in (BYTES, BYTES + 1):
        return position + argument, 0
    return position, {ARRAY: argument, MAP: 2 * argument, TAG: 1}.get(major, 0)


def _skip_chunks(data: bytes, position: int, major: int) -> int:
    while data[position] != BREAK:
        found, length, position = head(data, position)
        if found != major:
            raise BadInput(f"a CBOR string in chunks holds something else at byte {position} of the block")
        position += length
    return position + 1


def children(data: bytes, position: int, most: int) -> list[tuple[int, int]]:
    """The spans of the items of the array at `position`; at most `most`."""
    indefinite = data[position : position + 1] == b"\x9f"
    major, count, position = (ARRAY, most, position + 1) if indefinite else head(data, position)
    if major != ARRAY or count > most:
        raise BadInput(f"a CBOR list of at most {most} items is expected at byte {position} of the block")
    spans: list[tuple[int, int]] = []
    while len(spans) < count and not (indefinite and data[position : position + 1] == b"\xff"):
        end = skip(data, position, len(data))
        spans.append((position, end))
        position = end
    if indefinite and data[position : position + 1] != b"\xff":
        raise BadInput(f"a CBOR list holds more than {most} items at byte {position} of the block")
    return spans


def unsigned(data: bytes, position: int, what: str) -> int:
    """The unsigned number at `position`."""
    major, value, _ = head(data, position)
    if major != UNSIGNED:
        raise BadInput(f"{what} is not an unsigned number at byte {position}")
    return value


def hash32(data: bytes, position: int, what: str) -> bytes:
    """The byte string of 32 bytes at `position`."""
    major, length, start = head(data, position)
    if major != BYTES or length != 32 or start + 32 > len(data):
        raise BadInput(f"{what} is not a byte string of 32 bytes at byte {position} of the block")
    return data[start : start + 32]
