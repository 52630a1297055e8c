"""The tree over the UTxO set, in parts that are folded apart from each other.

All keys begin with the same six nibbles, so the seventh makes sixteen parts of about the same size.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from chainlake.errors import BadInput, BrokenPromise
from chainlake.merkle import csmt
from chainlake.merkle.csmt import Change, Node, Tree

PART_DEPTH = 7
BUCKET_DEPTH = 15
PREFIX = "825820"
PARTS = tuple(PREFIX + digit for digit in "0123456789abcdef")


class PartBlock(NamedTuple):
    """A part after a block that changed it."""

    height: int
    top: Node | None
    rows: dict[bytes, bytes | None]


def fold_part(base: str, rows: Mapping[bytes, bytes], changes: Iterable[tuple[int, Change]]) -> Iterator[PartBlock]:
    """The part after each of its blocks; `BrokenPromise` with the height where an output comes twice or goes twice."""
    tree = Tree(rows, to_path(base))
    for height, group in groupby(changes, key=lambda change: change[0]):
        try:
            ((top, changed),) = csmt.apply(tree, [[change for _, change in group]])
        except BadInput as error:
            raise BrokenPromise(f"block {height}: an output is made twice or spent twice: {error}", height) from None
        yield PartBlock(height, top, changed)


def top_of(base: str, row: bytes | None) -> Node | None:
    """The top of a part, from its first row."""
    return None if row is None else Tree({to_path(base): row}, to_path(base)).top()


def roots(
    tops: dict[str, Node | None], blocks: Iterable[tuple[int, str, Node | None]], heights: Iterable[int]
) -> Iterator[tuple[int, bytes | None]]:
    """The root after each height, from the parts' tops before and the changes of them, in order of height."""
    changed: dict[int, list[tuple[str, Node | None]]] = {}
    for height, part, top in blocks:
        changed.setdefault(height, []).append((part, top))
    now = csmt.combine(tops.values())
    for height in heights:
        if height in changed:
            tops |= dict(changed[height])
            now = csmt.combine(tops.values())
        yield height, now


def to_path(text: str) -> bytes:
    """A path as the trees have it, one byte per nibble, from hex digits."""
    return bytes.fromhex("0" + "0".join(text)) if text else b""


def to_text(path: bytes) -> str:
    """The other way round."""
    return path.hex()[1::2]
