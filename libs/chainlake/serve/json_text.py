"""JSON that comes from strangers and goes back to them: strict, bounded in depth, and numbers as they were written."""

import json
import re
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NoReturn

MOST_DEPTH = 500
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)
"""A text, or what begins as one and does not end: then all the rest is taken, so that no place of it is tried again."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True)
class Number:
    """A number that is no integer, kept as text: an id like 1e400 has no float to go through."""

    text: str


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def parse(body: bytes) -> Any:
    """The one value that `body` is; ValueError if it is none, or nested too deeply to be a request."""
    if is_deeper(body, MOST_DEPTH):
        raise ValueError("nested too deeply")
    return json.loads(body.decode(), parse_float=Number, parse_constant=_refuse)


def is_deeper(body: bytes, depth: int) -> bool:
    """Whether arrays and objects are nested more deeply. (The parser relies on the interpreter's recursion limit; some libraries
    raise that to where the stack ends first, and the process with it.)"""
    if body.count(b"[") + body.count(b"{") <= depth:
        return False
    brackets = _TEXT.sub(b"", body).translate(None, _NO_BRACKETS)
    return any(level > depth for level in accumulate(1 if bracket in b"[{" else -1 for bracket in brackets))


def dump(value: Any) -> bytes:
    """Compact JSON in ASCII, so that half a surrogate pair in a name cannot break the answer."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def dump_id(value: Any) -> bytes:
    """The id of a call, as the caller wrote it."""
    return value.text.encode() if isinstance(value, Number) else dump(value)
