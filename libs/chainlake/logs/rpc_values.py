"""Values of JSON-RPC parameters, read as geth 1.17 reads them and refused in its words.

Clients know these words: libraries search them to tell a mistake of the caller from a fault of the node. A reader raises
`ArgumentError` with what geth says of the value; `serve.arguments` puts `invalid argument N: ` before it.
"""

import re
from typing import Any

NO_PREFIX = "hex string without 0x prefix"
ODD_LENGTH = "hex string of odd length"
BAD_DIGIT = "invalid hex string"
HASH_BYTES = 32
MAX_BLOCK_NUMBER = (1 << 63) - 1
TAGS = ("earliest", "latest", "safe", "finalized", "pending")

BlockId = int | str
"""A block number, or one of TAGS."""

_DIGITS = re.compile(r"[0-9a-fA-F]*")
_OVER_64_BITS = re.compile(r"[0-9a-fA-F]{17}")


class RpcError(Exception):
    """A JSON-RPC error: what the caller is told, and what the server goes on after."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ArgumentError(ValueError):
    """A parameter that cannot be read; the text is geth's."""


def kind_of(value: Any) -> str:
    """What JSON calls a value, in the words of Go's decoder."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    names = ((str, "string"), (list, "array"), (dict, "object"))
    return next((name for kind, name in names if isinstance(value, kind)), "number")


def wrong_type(found: str, go_type: str, field: str = "") -> ArgumentError:
    """What Go's decoder says of a value that does not fit, at the top or in a field of a struct."""
    place = f"struct field {field}" if field else "value"
    return ArgumentError(f"json: cannot unmarshal {found} into Go {place} of type {go_type}")


def read_data(text: str) -> bytes:
    """Bytes of a hex text of any even length."""
    if not text:
        raise ArgumentError("empty hex string")
    if text[:2] not in ("0x", "0X"):
        raise ArgumentError(NO_PREFIX)
    if not _DIGITS.fullmatch(text, 2):
        raise ArgumentError(BAD_DIGIT)
    if len(text) % 2:
        raise ArgumentError(ODD_LENGTH)
    return bytes.fromhex(text[2:])


def read_sized(text: str, size: int, what: str) -> bytes:
    """An address or topic: exactly `size` bytes."""
    data = read_data(text)
    if len(data) != size:
        raise ArgumentError(f"hex has invalid length {len(data)} after decoding; expected {size} for {what}")
    return data


def read_hash(value: Any, field: str = "") -> bytes:
    """A block hash."""
    if not isinstance(value, str):
        raise wrong_type("non-string", "common.Hash", field)
    if value and value[:2] not in ("0x", "0X"):
        raise wrong_type(NO_PREFIX, "common.Hash", field)
    digits = value[2:]
    length = len(digits.encode("utf-8", "surrogatepass"))
    if length % 2:
        raise wrong_type(ODD_LENGTH, "common.Hash", field)
    if length != 2 * HASH_BYTES:
        raise ArgumentError(f"hex string has length {length}, want {2 * HASH_BYTES} for common.Hash")
    if not _DIGITS.fullmatch(digits):
        raise wrong_type(BAD_DIGIT, "common.Hash", field)
    return bytes.fromhex(digits)


def read_block(value: Any) -> BlockId:
    """A block number or a tag."""
    if value in TAGS:
        return str(value)
    if not isinstance(value, str):
        raise ArgumentError(NO_PREFIX)
    number = read_quantity(value)
    if number > MAX_BLOCK_NUMBER:
        raise ArgumentError("block number larger than int64")
    return number


def read_quantity(text: str) -> int:
    """A number of at most 64 bits, written with the fewest digits."""
    if not text:
        raise ArgumentError("empty hex string")
    if text[:2] not in ("0x", "0X"):
        raise ArgumentError(NO_PREFIX)
    digits = text[2:]
    if not digits:
        raise ArgumentError('hex string "0x"')
    if len(digits) > 1 and digits[0] == "0":
        raise ArgumentError("hex number with leading zero digits")
    if _OVER_64_BITS.match(digits):
        raise ArgumentError("hex number > 64 bits")
    if not _DIGITS.fullmatch(digits):
        raise ArgumentError(BAD_DIGIT)
    return int(digits, 16)


def read_flag(value: Any) -> bool:
    """A boolean; null is false, as in Go."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise wrong_type(kind_of(value), "bool")
