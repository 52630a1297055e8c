"""The bytes of a trie row: sixteen children in four groups, each of which stays closed until one of its children is needed.

A group without children is one zero byte. Others begin with a byte of two masks, which of the four there are (upper half) and
which of those are branches; then come the length of all its children (two bytes), a seal of 32 bytes if there are two or more
of them, and the children. The seal is what a group adds to the hash of the row, so a closed one need not be hashed again.

A leaf is its key's length (two bytes), its key and 32 bytes of value hash. A branch is the length of what its path has beyond
this row's and the child's nibble (two bytes), those nibbles, one byte each, and its digest after one byte with its length.
"""

from collections.abc import Sequence
from typing import NamedTuple

from chainlake.merkle.blake import HASH

GROUPS = WAYS_OF_GROUP = 4
_DIGITS = "0123456789abcdef"
_NIBBLES = bytes(_DIGITS.find(chr(char)) % 16 for char in range(256))
_ONLY_NIBBLES = bytes(range(16))
_HEAD, _SEALED_HEAD = 3, 3 + HASH


class Leaf(NamedTuple):
    """A key, as packed bytes of its path, and the hash of its value."""

    key: bytes
    value: bytes


def _head(masks: int) -> int:
    """How many bytes of a group come before its children; none where no group has such masks."""
    present, branches = masks >> 4, masks & 15
    if branches & ~present or not present:
        return 0
    return _SEALED_HEAD if present & present - 1 else _HEAD


def _children(masks: int) -> list[tuple[int, bool]]:
    """The places of a group that have a child, and whether it is a leaf."""
    return [(at, not masks >> at & 1) for at in range(WAYS_OF_GROUP) if masks >> 4 + at & 1]


_HEADS = bytes(_head(masks) for masks in range(256))
_CHILDREN = [_children(masks) for masks in range(256)]
_BESIDE = [bytes([0, 0, size]) for size in range(256)]
"""How a branch begins whose path goes no further than its place, by the length of its digest."""


def nibbles(data: bytes) -> bytes:
    """The nibbles of some bytes, one byte each, upper half first."""
    return data.hex().encode().translate(_NIBBLES)


def decode_row(row: bytes, at_least: int) -> tuple[int, int, list[bytes], list[bytes]]:
    """The parts of a row: masks of its children and of those that are branches, its groups, still closed, and their seals.

    A group is empty without children, a seal without two. `ValueError` says what is wrong with the row.
    """
    groups: list[bytes] = []
    seals: list[bytes] = []
    present = branches = begin = 0
    try:
        for first in (0, 4, 8, 12):
            masks = row[begin]
            if masks:
                head = begin + _HEADS[masks]
                end = head + (row[begin + 1] << 8 | row[begin + 2])
                groups.append(row[begin:end])
                seals.append(row[begin + _HEAD : head])
                present |= masks >> 4 << first
                branches |= (masks & 15) << first
                begin = end
            else:
                groups.append(b"")
                seals.append(b"")
                begin += 1
    except IndexError:
        raise ValueError("its length is wrong") from None
    if branches & ~present:
        raise ValueError("its masks are wrong")
    if begin != len(row):
        raise ValueError("its length is wrong")
    if present.bit_count() < at_least:
        raise ValueError("it has too few children")
    return present, branches, groups, seals


def open_group(group: bytes, entries: list[bytes], first: int) -> None:
    """Put the children of a closed group among a row's, from a place on; `ValueError` when they do not add up."""
    masks = group[0]
    begin = _HEADS[masks]
    try:
        for at, is_leaf in _CHILDREN[masks]:
            end = begin + 2 + (group[begin] << 8 | group[begin + 1])
            end += HASH if is_leaf else 1 + group[end]
            entries[first + at] = group[begin:end]
            begin = end
    except IndexError:
        begin = 0
    if begin != len(group):
        raise ValueError("the length of its children is wrong")


def close_group(masks: int, seal: bytes, entries: Sequence[bytes]) -> bytes:
    """A group with these masks and entries, and a seal if there are two or more."""
    if not masks:
        return b"\x00"
    children = b"".join(entries)
    return (masks << 16 | len(children)).to_bytes(_HEAD, "big") + seal + children


def leaf_entry(leaf: Leaf) -> bytes:
    """A leaf as a row has it."""
    return len(leaf.key).to_bytes(2, "big") + leaf.key + leaf.value


def leaf_of(path: bytes, slot: int, entry: bytes) -> Leaf:
    """The leaf at a place of the row with this path; `ValueError` when it does not belong there."""
    key = entry[2:-HASH]
    if not key.hex().startswith(path.hex()[1::2] + _DIGITS[slot]):
        raise ValueError("it holds a key of another path")
    return Leaf(key, entry[-HASH:])


def branch_entry(rest: bytes, digest: bytes) -> bytes:
    """A branch as a row has it: what its path has beyond its place, and its digest."""
    if not rest:
        return _BESIDE[len(digest)] + digest
    return len(rest).to_bytes(2, "big") + rest + len(digest).to_bytes(1, "big") + digest


def branch_of(path: bytes, slot: int, entry: bytes) -> tuple[bytes, bytes]:
    """The path and digest of the branch at a place of the row with this path; `ValueError` when it is none."""
    size = entry[0] << 8 | entry[1]
    if not size:
        return path + _ONLY_NIBBLES[slot : slot + 1], entry[3:]
    end = 2 + size
    rest = entry[2:end]
    if rest.translate(None, _ONLY_NIBBLES):
        raise ValueError("a path in it has something else than nibbles")
    return path + _ONLY_NIBBLES[slot : slot + 1] + rest, entry[end + 1 :]
