"""JSON as it comes in from outside: strict, bounded, and never an exception that a reader does not expect.

What is wrong with a text is a `BadInput`; the formats turn it into a `BadBlock`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from chainlake.errors import BadInput
from chainlake.json_depth import MOST_DEPTH, is_deeper

_SPACE = re.compile(r"[ \t\r\n]*")


class Part(NamedTuple):
    """A value and the span of text that it was read from."""

    value: Any
    start: int
    end: int


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_CANONICAL = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, sort_keys=True, allow_nan=False)


def check_depth(text: str) -> None:
    """Refuses a text that could end the process that parses it."""
    if text.count("[") + text.count("{") > MOST_DEPTH and is_deeper(text.encode("utf-8", "surrogatepass"), MOST_DEPTH):
        raise BadInput("JSON is nested too deeply to be a block")


def value_at(text: str, position: int) -> tuple[Any, int]:
    """The JSON value that starts at `position`, and where it ends. Of a text whose depth was checked."""
    try:
        return _DECODER.raw_decode(text, position)
    except ValueError as error:
        raise BadInput(f"not JSON: {error}: the file is damaged or still being written") from None


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _expect(text: str, position: int, wanted: str) -> str:
    found = text[position : position + 1]
    if not found or found not in wanted:
        raise BadInput(f"not JSON: expected one of {wanted!r} at character {position}, found {found!r}")
    return found


def elements(text: str, position: int) -> Iterator[Part]:
    """The values of the array that starts at `position`, each with its span, so that it can be kept as received."""
    _expect(text, position, "[")
    position = _skip(text, position + 1)
    if text[position : position + 1] == "]":
        return
    while True:
        value, end = value_at(text, position)
        yield Part(value, position, end)
        position = _skip(text, end)
        if _expect(text, position, ",]") == "]":
            return
        position = _skip(text, position + 1)


def _elements_at(text: str, position: int) -> tuple[list[Part], int]:
    found = list(elements(text, position))
    return found, text.index("]", found[-1].end if found else position) + 1


def members(text: str, arrays: tuple[str, ...]) -> Iterator[tuple[str, Part]]:
    """The members of the one object that `text` is. Arrays of the given names come as a list of their parts."""
    check_depth(text)
    position = _skip(text, 0)
    _expect(text, position, "{")
    position = _skip(text, position + 1)
    separator = "}" if text[position : position + 1] == "}" else ","
    while separator == ",":
        _expect(text, position, '"')
        key, end = value_at(text, position)
        position = _skip(text, end)
        _expect(text, position, ":")
        start = _skip(text, position + 1)
        divided = key in arrays and text[start : start + 1] == "["
        value, end = _elements_at(text, start) if divided else value_at(text, start)
        yield key, Part(value, start, end)
        position = _skip(text, end)
        separator = _expect(text, position, ",}")
        position = _skip(text, position + 1) if separator == "," else position
    if _skip(text, position + 1) != len(text):
        raise BadInput(f"not JSON: something follows the object that ends at character {position}")


def documents(text: str) -> Iterator[Any]:
    """The values of a top-level array, or values that simply follow each other."""
    check_depth(text)
    position = _skip(text, 0)
    if text[position : position + 1] == "[":
        yield from (part.value for part in elements(text, position))
        return
    while position < len(text):
        value, end = value_at(text, position)
        yield value
        position = _skip(text, end)


def parse(text: str) -> Any:
    """The one JSON value that `text` is."""
    check_depth(text)
    value, end = value_at(text, _skip(text, 0))
    if end != len(text) and _skip(text, end) != len(text):
        raise BadInput(f"not JSON: something follows the value that ends at character {end}")
    return value


def utf8(data: bytes) -> str:
    """Text of bytes that must be UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8 at byte {error.start}: the file is damaged or in another format") from None


def to_utf8(text: str) -> bytes:
    """Bytes of a text. A text of JSON may hold what has none."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadInput("a text holds half of a surrogate pair, which has no bytes") from None


def as_received(text: str, part: Part) -> bytes:
    """The received bytes where they hold no space, else the same members written without."""
    piece = text[part.start : part.end]
    return compact(part.value) if " " in piece else piece.encode()


def compact(value: Any) -> bytes:
    """JSON without spaces, members in the order received."""
    return _COMPACT.encode(value).encode("utf-8", "surrogatepass")


def canonical(value: Any) -> bytes:
    """The one JSON text of a value: members sorted, no spaces, UTF-8. Hashes are taken over it."""
    try:
        return _CANONICAL.encode(value).encode()
    except UnicodeEncodeError:
        raise BadInput("a text holds half of a surrogate pair, which has no canonical JSON") from None
    except RecursionError:
        raise BadInput("JSON is nested too deeply to be a block") from None
    except ValueError:
        raise BadInput("a number is too large for a double, and has no canonical JSON") from None
