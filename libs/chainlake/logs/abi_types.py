"""Types of the contract ABI: how they are written, how they lie in the data of a log, and whether given data can be read safely.

Data comes from anyone. Before a decoder sees it, `layout_error` follows every offset and length once, within bounds and within a
budget, so that no data makes reading slow or large.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from chainlake.errors import BadInput

MAX_DEPTH = 8
VISITS = 8
"""How many times its own size reading data may take: encoders may point to a part twice, but not build a bomb of it."""

_ELEMENTARY = re.compile(r"address|bool|string|function|bytes(\d*)|(u?int)(\d*)")
_TOKEN = re.compile(r"\s*(?:([A-Za-z_$][\w$]*)|(\[\s*\d*\s*\])|([(),]))")


@dataclass(frozen=True)
class AbiType:
    """A type in its canonical form. A word is 32 bytes; dynamic types are found through an offset."""

    name: str
    items: tuple["AbiType", ...] = ()
    size: int | None = None
    """Of an array with a fixed size."""

    @cached_property
    def is_array(self) -> bool:
        return self.name.endswith("]")

    @cached_property
    def is_tuple(self) -> bool:
        return self.name.endswith(")")

    @cached_property
    def is_word(self) -> bool:
        """Whether a value is one word, complete in itself."""
        return not self.items and self.name not in ("string", "bytes")

    @cached_property
    def is_dynamic(self) -> bool:
        """Whether a value's place is given by an offset."""
        if self.is_array and self.size is None:
            return True
        return any(item.is_dynamic for item in self.items) if self.items else not self.is_word

    @cached_property
    def head(self) -> int:
        """Bytes that a value takes where it stands."""
        if self.is_dynamic or self.is_word:
            return 32
        return sum(item.head for item in self.items) * (self.size or 1)


def elementary(name: str) -> AbiType:
    """A type that is not made of others, with `uint` and `int` written in full."""
    match = _ELEMENTARY.fullmatch(name)
    if not match:
        raise BadInput(f"{name!r:.60} is not a type: expected address, bool, string, bytes, bytes32, uint256, int256 or the like")
    length, integer, bits = match.groups()
    if length and not (length[0] != "0" and int(length) <= 32):
        raise BadInput(f"{name!r:.60} is not a type: bytes1 to bytes32 are")
    if bits and (bits[0] == "0" or int(bits) % 8 or int(bits) > 256):
        raise BadInput(f"{name!r:.60} is not a type: {integer}8 to {integer}256 in steps of 8 are")
    return AbiType(f"{integer}{bits or 256}" if integer else name)


def array_of(item: AbiType, size: int | None) -> AbiType:
    """An array; an empty one of fixed size would have no bytes to count it by."""
    if size == 0:
        raise BadInput(f"{item.name}[0] is not a type: an array of fixed size has at least one item")
    return AbiType(f"{item.name}[{'' if size is None else size}]", (item,), size)


def tuple_of(items: tuple[AbiType, ...]) -> AbiType:
    """A struct; an empty one would have no bytes to count it by."""
    if not items:
        raise BadInput("() is not a type: a tuple has at least one member")
    return AbiType(f"({','.join(item.name for item in items)})", items)


class Tokens:
    """Words and marks of a signature."""

    def __init__(self, text: str) -> None:
        self._found: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if not match:
                raise BadInput(f"unexpected {text[at : at + 20].strip()!r} in a signature")
            self._found.append(re.sub(r"\s", "", match.group()))
            at = match.end()
        self._at = 0

    def peek(self) -> str:
        """The next one; empty at the end."""
        return self._found[self._at] if self._at < len(self._found) else ""

    def take(self) -> str:
        """The next one."""
        self._at += 1
        return self._found[self._at - 1] if self._at <= len(self._found) else ""

    def expect(self, mark: str) -> None:
        """The next one, which must be `mark`."""
        if (found := self.take()) != mark:
            raise BadInput(f"expected {mark!r} in a signature, found {found or 'its end'!r}")

    def word(self, what: str) -> str:
        """The next one, which must be a name."""
        if not (found := self.take())[:1].isidentifier() and found[:1] != "$":
            raise BadInput(f"expected {what} in a signature, found {found or 'its end'!r}")
        return found


def read_type(tokens: Tokens, depth: int = 0) -> AbiType:
    """A type: a name or a tuple, then any number of array brackets."""
    if depth > MAX_DEPTH:
        raise BadInput(f"a type is nested more than {MAX_DEPTH} deep: such events are not supported")
    if tokens.peek() == "tuple":
        tokens.take()
    found = tuple_of(_read_members(tokens, depth)) if tokens.peek() == "(" else elementary(tokens.word("a type"))
    while tokens.peek().startswith("["):
        depth += 1
        size = tokens.take()[1:-1]
        found = array_of(found, int(size) if size else None)
    if depth > MAX_DEPTH:
        raise BadInput(f"a type is nested more than {MAX_DEPTH} deep: such events are not supported")
    return found


def _read_members(tokens: Tokens, depth: int) -> tuple[AbiType, ...]:
    """The types of a tuple; names of members are passed over."""
    tokens.expect("(")
    found: list[AbiType] = []
    while tokens.peek() != ")":
        if found:
            tokens.expect(",")
        found.append(read_type(tokens, depth + 1))
        if tokens.peek() not in (",", ")"):
            tokens.word("the name of a member")
    tokens.expect(")")
    return tuple(found)


class _Unsafe(Exception):
    """Data that must not be read."""


class _Walk:
    """Follows the offsets and lengths of data."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = VISITS * len(data) + 32

    def number(self, at: int) -> int:
        """The word at a place, which must be inside."""
        self.visit(at, 32)
        return int.from_bytes(self._data[at : at + 32], "big")

    def visit(self, at: int, size: int) -> None:
        """Counts bytes that a decoder will read."""
        if at + size > len(self._data):
            raise _Unsafe(f"data has {len(self._data)} bytes, its offsets and lengths ask for {_rounded(at + size)}")
        self._left -= max(size, 1)
        if self._left < 0:
            raise _Unsafe("data points to the same parts over and over")

    def sequence(self, items: tuple[AbiType, ...], at: int, count: int = 1) -> None:
        """`count` times some values one after another; offsets in them count from `at`."""
        head = sum(item.head for item in items)
        self.visit(at, head * count)
        if all(not item.is_dynamic for item in items):
            return
        place = at
        for _ in range(count):
            for item in items:
                if item.is_dynamic:
                    self.tail(item, at + self.number(place))
                place += item.head

    def tail(self, kind: AbiType, at: int) -> None:
        """The value of a dynamic type."""
        if not kind.items:
            self.visit(at + 32, self.number(at))
        elif kind.is_array and kind.size is None:
            self.sequence(kind.items, at + 32, self.number(at))
        else:
            self.sequence(kind.items, at, kind.size or 1)


def layout_error(types: tuple[AbiType, ...], data: bytes) -> str | None:
    """Why data can't be read as these types, or None if following its offsets and lengths is safe."""
    try:
        _Walk(data).sequence(types, 0)
    except _Unsafe as error:
        return str(error)
    return None


def _rounded(size: int) -> str:
    return str(size) if size < 10**18 else "10^18 and more"
