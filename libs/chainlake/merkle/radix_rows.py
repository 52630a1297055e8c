"""The bytes of a trie row: two masks, which children there are and which of them are branches, then the children in order.

A leaf is its key's length (two bytes), its key and 32 bytes of value hash. A branch is the length of what its path has beyond
this row's and the child's nibble (two bytes), those nibbles, one byte each, and its digest after one byte with its length.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

Other = TypeVar("Other")

HASH = 32
_DIGITS = "0123456789abcdef"
_NIBBLES = bytes(_DIGITS.find(chr(char)) % 16 for char in range(256))
_ONLY_NIBBLES = bytes(range(16))


class Leaf(NamedTuple):
    """A key, as packed bytes of its path, and the hash of its value."""

    key: bytes
    value: bytes


def nibbles(data: bytes) -> bytes:
    """The nibbles of some bytes, one byte each, upper half first."""
    return data.hex().encode().translate(_NIBBLES)


def encode_row(path: bytes, children: Sequence[Leaf | Other | None], of_branch: Callable[[Other], tuple[bytes, bytes]]) -> bytes:
    """The bytes of a row with this path. `of_branch` says the path and digest of one."""
    present = branches = 0
    parts = [b""]
    for at, child in enumerate(children):
        if child is None:
            continue
        present |= 1 << at
        if isinstance(child, Leaf):
            parts += len(child.key).to_bytes(2, "big"), child.key, child.value
        else:
            branches |= 1 << at
            name, digest = of_branch(child)
            rest = name[len(path) + 1 :]
            parts += len(rest).to_bytes(2, "big"), rest, len(digest).to_bytes(1, "big"), digest
    parts[0] = (present << 16 | branches).to_bytes(4, "big")
    return b"".join(parts)


def decode_row(path: bytes, row: bytes, at_least: int, branch: Callable[[bytes, bytes], Other]) -> list[Leaf | Other | None]:
    """The sixteen children of a row, branches made by `branch(path, digest)`; `ValueError` says what is wrong with it."""
    present, branches = int.from_bytes(row[:2], "big"), int.from_bytes(row[2:4], "big")
    if len(row) < 4 or branches & ~present or present.bit_count() < at_least:
        raise ValueError("its masks are wrong")
    position, above = 4, path.hex()[1::2]
    children: list[Leaf | Other | None] = [None] * 16
    for at in range(16):
        if not present >> at & 1:
            continue
        start = position + 2
        end = start + int.from_bytes(row[position:start], "big")
        name = row[start:end]
        if branches >> at & 1:
            position = end + 1 + int.from_bytes(row[end : end + 1], "big")
            if name.translate(None, _ONLY_NIBBLES):
                raise ValueError("a path in it has something else than nibbles")
            children[at] = branch(path + _ONLY_NIBBLES[at : at + 1] + name, row[end + 1 : position])
        else:
            position = end + HASH
            if not name.hex().startswith(above + _DIGITS[at]):
                raise ValueError("it holds a key of another path")
            children[at] = Leaf(name, row[end:position])
    if position != len(row):
        raise ValueError("its length is wrong")
    return children
