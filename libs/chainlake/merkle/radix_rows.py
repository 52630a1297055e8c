"""The bytes of a trie row: sixteen children in four groups, each of which stays closed until one of its children is needed.

A group without children is one zero byte. Others begin with a byte of two masks, which of the four there are (upper half) and
which of those are branches; then come the length of all its children (two bytes), a seal of 32 bytes if there are two or more
of them, and the children. The seal is what a group adds to the hash of the row, so a closed one need not be hashed again.

A leaf is its key's length (two bytes), its key and 32 bytes of value hash. A branch is the length of what its path has beyond
this row's and the child's nibble (two bytes), those nibbles, one byte each, and its digest after one byte with its length.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from chainlake.merkle.blake import HASH

Other = TypeVar("Other")

GROUPS = WAYS_OF_GROUP = 4
_DIGITS = "0123456789abcdef"
_NIBBLES = bytes(_DIGITS.find(chr(char)) % 16 for char in range(256))
_ONLY_NIBBLES = bytes(range(16))


class Leaf(NamedTuple):
    """A key, as packed bytes of its path, and the hash of its value."""

    key: bytes
    value: bytes


class Group(NamedTuple):
    """Four neighbouring places as a row keeps them. Bit 0 of the masks is the first place; a seal is empty for a single child."""

    present: int
    branches: int
    seal: bytes
    children: bytes


def nibbles(data: bytes) -> bytes:
    """The nibbles of some bytes, one byte each, upper half first."""
    return data.hex().encode().translate(_NIBBLES)


def encode_row(groups: Iterable[Group | None]) -> bytes:
    """The bytes of a row with these four groups."""
    parts: list[bytes] = []
    for group in groups:
        if group is None:
            parts.append(b"\x00")
        else:
            present, branches, seal, children = group
            parts += (present << 20 | branches << 16 | len(children)).to_bytes(3, "big"), seal, children
    return b"".join(parts)


def decode_row(row: bytes, at_least: int) -> list[Group | None]:
    """The four groups of a row, still closed; `ValueError` says what is wrong with it."""
    groups: list[Group | None] = []
    position = count = 0
    while len(groups) < GROUPS and position < len(row):
        masks = row[position]
        present, branches = masks >> 4, masks & 15
        if branches & ~present:
            raise ValueError("its masks are wrong")
        if not present:
            groups.append(None)
            position += 1
            continue
        start = position + 3
        begin = start + HASH if present & present - 1 else start
        position = begin + int.from_bytes(row[start - 2 : start], "big")
        groups.append(Group(present, branches, row[start:begin], row[begin:position]))
        count += present.bit_count()
    if len(groups) < GROUPS or position != len(row):
        raise ValueError("its length is wrong")
    if count < at_least:
        raise ValueError("it has too few children")
    return groups


def close_group(
    path: bytes, children: Sequence[Leaf | Other | None], seal: bytes, of_branch: Callable[[Other], tuple[bytes, bytes]]
) -> Group | None:
    """Four children of the row with this path as a group. `of_branch` says the path and digest of one."""
    present = branches = 0
    parts: list[bytes] = []
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
    return Group(present, branches, seal if present & present - 1 else b"", b"".join(parts)) if present else None


def open_group(path: bytes, first: int, group: Group, branch: Callable[[bytes, bytes], Other]) -> list[Leaf | Other | None]:
    """The children from place `first` of the row with this path on, branches made by `branch(path, digest)`."""
    present, branches, _, data = group
    position, above = 0, path.hex()[1::2]
    children: list[Leaf | Other | None] = [None] * WAYS_OF_GROUP
    for at in range(WAYS_OF_GROUP):
        if not present >> at & 1:
            continue
        start = position + 2
        end = start + int.from_bytes(data[position:start], "big")
        name, slot = data[start:end], first + at
        if branches >> at & 1:
            position = end + 1 + int.from_bytes(data[end : end + 1], "big")
            if name.translate(None, _ONLY_NIBBLES):
                raise ValueError("a path in it has something else than nibbles")
            children[at] = branch(path + _ONLY_NIBBLES[slot : slot + 1] + name, data[end + 1 : position])
        else:
            position = end + HASH
            if not name.hex().startswith(above + _DIGITS[slot]):
                raise ValueError("it holds a key of another path")
            children[at] = Leaf(name, data[end:position])
    if position != len(data):
        raise ValueError("the length of its children is wrong")
    return children
