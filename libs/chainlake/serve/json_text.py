"""JSON that comes from strangers and goes back to them: strict, bounded in depth, and numbers as they were written."""

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from chainlake.json_depth import MOST_DEPTH, is_deeper


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


def dump(value: Any) -> bytes:
    """Compact JSON in ASCII, so that half a surrogate pair in a name cannot break the answer."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def dump_id(value: Any) -> bytes:
    """The id of a call, as the caller wrote it."""
    return value.text.encode() if isinstance(value, Number) else dump(value)
