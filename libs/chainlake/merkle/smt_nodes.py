"""The rows of a stored sparse Merkle tree.

A place in the tree is named by the hex digits of the path that leads to it: '' is the root, 'a3f' the subtree of all keys whose
path begins with these twelve bits. Rows exist at whole digits only; the three levels between two digits are hashed again from
the sixteen rows below. A subtree has a row iff it holds a leaf and one of these is true:

- it is no deeper than the parts that are folded in parallel (`digits` of them), so that a part never needs to know the others;
- it and its siblings, the subtree one digit up, hold two or more leaves.

So empty subtrees have no row, and a lone leaf has one row below the parts, as high as it is alone, however deep the tree is.
A row says how many leaves the subtree holds, its hash, and the key if the leaf is the only one. A row is replaced by one of a
later block; a row without leaves says that there is none any more.

To change or prove a key, the rows needed are those one digit below each prefix of its path: at most sixteen per digit.
"""

from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import NamedTuple

from chainlake.encoding import short
from chainlake.errors import BrokenPromise
from chainlake.merkle.smt import EMPTY, INNER

DIGITS = "0123456789abcdef"
WAYS = len(DIGITS)
VALUE = {digit: value for value, digit in enumerate(DIGITS)}


class Node(NamedTuple):
    """A row: what a subtree is since a block."""

    block: int
    prefix: str
    leaves: int
    hash: bytes
    key: bytes | None = None


def path_digits(key: bytes) -> str:
    """The path of a key in hex: its first digits name the subtrees that the key is in."""
    return sha256(key).hexdigest()


def empty(block: int, prefix: str) -> Node:
    """The row that says that a subtree holds nothing any more."""
    return Node(block, prefix, 0, EMPTY)


class Page:
    """Sixteen sibling rows and the four levels of hashes above them, as a heap: 1 is the top, 16 to 31 are the rows."""

    __slots__ = ("_is_hashed", "hashes", "leaves", "nodes")

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes: list[Node | None] = [None] * WAYS
        self.hashes = [EMPTY] * (2 * WAYS)
        self.leaves = [0] * (2 * WAYS)
        self._is_hashed = False
        for node in nodes:
            digit = VALUE[node.prefix[-1]]
            self.nodes[digit] = node
            self.hashes[WAYS + digit] = node.hash
            self.leaves[WAYS + digit] = node.leaves

    def put(self, digit: int, node: Node) -> None:
        """Replace a row. `rehash` brings the levels above up to date."""
        self.nodes[digit] = node
        self.hashes[WAYS + digit] = node.hash
        self.leaves[WAYS + digit] = node.leaves

    def rehash(self, digits: Collection[int] = ()) -> None:
        """Join the subtrees above rows that changed; the first time above all."""
        hashes, leaves = self.hashes, self.leaves
        for place, left, right in self._above(digits):
            count = leaves[place] = leaves[left] + leaves[right]
            if count > 1:
                hashes[place] = sha256(INNER + hashes[left] + hashes[right]).digest()
            else:
                hashes[place] = hashes[left] if leaves[left] else hashes[right]
        self._is_hashed = True

    def the_leaf(self) -> Node | None:
        """The row of the only leaf, if there is exactly one."""
        return next(node for node in self.nodes if node and node.leaves) if self.leaves[1] == 1 else None

    def _above(self, digits: Collection[int]) -> Iterable[tuple[int, int, int]]:
        if not self._is_hashed:
            return _ALL
        if len(digits) == 1:
            return _ABOVE[next(iter(digits))]
        return sorted({join for digit in digits for join in _ABOVE[digit]}, reverse=True)


def _joins(places: Iterable[int]) -> list[tuple[int, int, int]]:
    """Places of the heap with their children."""
    return [(place, 2 * place, 2 * place + 1) for place in places]


_ALL = _joins(range(WAYS - 1, 0, -1))
_ABOVE = [_joins((WAYS + digit) >> level for level in range(1, 5)) for digit in range(WAYS)]


def checked_page(parent: Node, nodes: Iterable[Node]) -> Page:
    """The page below a row, which must be what the row says: a row that is missing or stale would make a wrong root."""
    page = Page(nodes)
    page.rehash()
    if page.leaves[1] != parent.leaves or page.hashes[1] != parent.hash:
        raise BrokenPromise(
            f"the tree rows below '{parent.prefix}' hold {page.leaves[1]} leaves with hash {short(page.hashes[1])}, their parent "
            f"says {parent.leaves} with {short(parent.hash)}: load all rows one digit below it, or run lake verify"
        )
    return page
