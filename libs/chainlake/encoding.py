"""Bytes are `bytes` in Python and BINARY in tables; hex is for people. The one place that turns one into the other."""

import reprlib

from chainlake.errors import BadInput


def to_hex(value: bytes) -> str:
    """`0x`-prefixed lower-case hex."""
    return "0x" + value.hex()


def from_hex(text: str, what: str = "value") -> bytes:
    """Bytes of a hex text, with or without `0x`. `what` names the value in the error."""
    digits = text[2:] if text[:2] in ("0x", "0X") else text
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise BadInput(f"{what} is not hex: {text[:80]!r}") from None


def excerpt(value: object) -> str:
    """The beginning of a value that somebody gave, for messages. It costs no more for one that is large, or nested deeply."""
    return reprlib.repr(value)[:80]


def short(value: bytes) -> str:
    """A hash abbreviated for messages."""
    return to_hex(value) if len(value) <= 6 else to_hex(value[:4]) + "…"
