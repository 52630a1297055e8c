"""The compact sparse Merkle tree of a UTxO set: binary, path-compressed, over the bits of the keys themselves.

`Tree` is the form for tables: it takes the rows along the paths of the keys that a batch touches (`row_paths`), applies changes
block by block, and gives the root and the rows that changed. See `radix` for what a row is: one holds four levels of the tree.

Parts of a tree can be worked on apart from each other: a `Tree` with a `base` is the part of all keys whose path begins with it
(`part_of`), with rows of its own from there on. The tops of all parts together are the tree: `combine` gives its root. A tree
has the same root, and keeps the same proofs, whether it is one part or many; its rows are kept for one choice of parts.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import cbor2

from chainlake.encoding import short
from chainlake.errors import BadInput
from chainlake.merkle import radix
from chainlake.merkle.blake import HASH, blake
from chainlake.merkle.csmt_node import MOST_BITS, Bits, Node, bits_of, fold, in_order, join, leaf, parting
from chainlake.merkle.csmt_proof import Proof, verify, witness
from chainlake.merkle.radix import Branch, Joined, Leaf, RadixTrie, nibbles
from chainlake.merkle.radix_rows import branch_of

Way = list[tuple[int, Node]]
_LEFT, _RIGHT = 0b0011, 0b1100
_NEAR = bytes([0, 0, 1 + HASH])
"""How a branch begins whose path goes no further than its place in the row above."""
_MOST_LEAF = 2 + MOST_BITS // 8 + HASH
_NOTHING: list[Node | None] = [None] * (2 * radix.WAYS)


class Change(NamedTuple):
    """A key that comes with a value, or goes (None)."""

    key: bytes
    value: bytes | None


class Applied(NamedTuple):
    """What a block came to: the top of the part after it (None: empty), and its rows by path (None: the row is gone)."""

    top: Node | None
    rows: dict[bytes, bytes | None]


def txin_key(tx_id: bytes, index: int) -> bytes:
    """The key of a transaction's output."""
    return cbor2.dumps([tx_id, index])


def root(items: Mapping[bytes, bytes]) -> bytes | None:
    """The root of a tree with these keys and values; None without any."""
    top = fold(_leaves(items))
    return top and top.root()


def prove(items: Mapping[bytes, bytes], key: bytes) -> Proof:
    """The proof that a key has its value in a tree with these items; or, if it is not among them, that it is absent."""
    nodes, target = _leaves(items), bits_of(key)
    if not nodes:
        return Proof(None)
    way, node = _descend(nodes, target)
    return _proof(target, node, way, key in items)


def combine(tops: Iterable[Node | None]) -> bytes | None:
    """The root of the tree that has these parts; None if all are empty."""
    top = fold(in_order(top for top in tops if top is not None))
    return top and top.root()


def part_of(key: bytes, depth: int) -> bytes:
    """The base of the part that a key belongs to, where parts are as deep as so many nibbles.

    All keys of a UTxO set begin with the same six nibbles: seven make sixteen parts.
    """
    if 2 * len(key) <= depth:
        raise BadInput(f"key {short(key)} is too short for parts of {depth} nibbles: use shorter parts")
    return nibbles(key)[:depth]


def row_paths(key: bytes, base: bytes = b"") -> list[bytes]:
    """The paths of all rows of a part that a change of a key, or its proof, can need."""
    return radix.row_paths(nibbles(key), base)


def apply(tree: "Tree", blocks: Iterable[Iterable[Change]]) -> Iterator[Applied]:
    """Apply the changes of blocks in order and say after each block what it came to."""
    for block in blocks:
        for key, value in block:
            if value is None:
                tree.delete(key)
            else:
                tree.insert(key, value)
        yield Applied(tree.top(), tree.changes())


class Tree(RadixTrie[Node | None]):
    """A tree, or the part under `base`, in memory over rows of a table, of which it reads only those it needs.

    Rows are checked against those above them; compare `top()` or `root()` with the known one before the first change.
    """

    def insert(self, key: bytes, value: bytes) -> None:
        """Add a key that is not there yet."""
        bits_of(key)
        path = nibbles(key)
        trail = self._trail(path)
        if self._leaf(trail, path, key):
            raise BadInput(f"key {short(key)} is in the tree already: delete it first")
        self._put(trail, path, Leaf(key, blake(value)))

    def delete(self, key: bytes) -> None:
        """Remove a key that is there."""
        path = nibbles(key)
        trail = self._trail(path)
        if not self._leaf(trail, path, key):
            raise BadInput(f"key {short(key)} is not in the tree: it cannot be deleted")
        self._remove(trail, path)

    def value_hash(self, key: bytes) -> bytes | None:
        """The hash of a key's value; None if the tree does not have the key."""
        path = nibbles(key)
        found = self._leaf(self._trail(path), path, key)
        return found and found.value

    def top(self) -> Node | None:
        """The node above all keys of this part; None if it has none."""
        self._refresh()
        return None if self._top is None else self._top.digest

    def root(self) -> bytes | None:
        """The root after all changes so far, if this part is the whole tree; None if it is empty."""
        top = self.top()
        return top and top.root()

    def prove(self, key: bytes, beside: Iterable[Node | None] = ()) -> Proof:
        """The proof that the key has its value; or that it is absent. `beside` are the tops of all other parts.

        It needs only the rows along the key's path.
        """
        target, own = bits_of(key), self.top()
        nodes = in_order(top for top in (own, *beside) if top is not None)
        if not nodes:
            return Proof(None)
        way, node = _descend(nodes, target)
        if node is own:
            node = self._follow(target, node, way)
        return _proof(target, node, way, node.path == target and self.value_hash(key) is not None)

    def _follow(self, target: Bits, node: Node, way: Way) -> Node:
        """Go on from the top towards a key, to its leaf or to the node that its path leaves in a jump. Extends the way."""
        branch, cell = self._top, 1
        while branch is not None and target.parts_from(node.path) is None and target.size > node.size:
            if cell >= radix.WAYS:
                child = self._child(branch, cell - radix.WAYS)
                branch, cell = (self._loaded(child), 1) if isinstance(child, Branch) else (None, 1)
                continue
            if radix.GROUPS <= cell < 2 * radix.GROUPS and branch.closed[cell - radix.GROUPS]:
                self._open(branch, cell - radix.GROUPS)
            left, right = branch.cells[2 * cell], branch.cells[2 * cell + 1]
            if left is not None and right is not None:
                side = target.bit(node.size)
                way.append((node.size, left if side else right))
                cell, node = 2 * cell + side, right if side else left
            else:
                cell = 2 * cell + (left is None)
        return node

    def _nothing(self) -> list[Node | None]:
        return _NOTHING

    def _rehash(self, branch: Branch[Node | None], slots: Iterable[int], above: Iterable[Joined]) -> None:
        cells, entries, branches, size = branch.cells, branch.entries, branch.branches, 4 * len(branch.path) + 4
        for slot in slots:
            entry = entries[slot]
            if not entry:
                cells[radix.WAYS + slot] = None
            elif not branches >> slot & 1:
                key = entry[2:-HASH]
                if len(entry) > _MOST_LEAF:
                    raise ValueError("a key in it is none of such a tree")
                cells[radix.WAYS + slot] = Node(8 * len(key), int.from_bytes(key, "big"), entry[-HASH:])
            elif entry.startswith(_NEAR):
                cells[radix.WAYS + slot] = _below(size, _number(branch.path) << 4 | slot, entry[len(_NEAR) :])
            else:
                cells[radix.WAYS + slot] = self._unpack(*branch_of(branch.path, slot, entry))
        for at, left, right in above:
            one, other = cells[left], cells[right]
            if one is not None and other is not None:
                cells[at] = join(one, other, size - 5 + at.bit_length())
            else:
                cells[at] = one or other

    def _seal(self, digest: Node | None) -> bytes:
        return b"" if digest is None else digest.value

    def _unseal(self, path: bytes, present: int, seals: list[bytes]) -> list[Node | None]:
        """Children of both halves of a group part at the third bit of the nibble, those of one half at the fourth."""
        cells, size, number = _NOTHING.copy(), 4 * len(path), _number(path)
        for group, seal in enumerate(seals):
            if seal:
                both = present >> radix.GROUPS * group & 15
                if both in (_LEFT, _RIGHT):
                    node = Node(size + 3, number << 3 | group << 1 | (both == _RIGHT), seal)
                else:
                    node = Node(size + 2, number << 2 | group, seal)
                cells[radix.GROUPS + group] = node
        return cells

    def _pack(self, digest: Node | None) -> bytes:
        """What the bits of a branch's node have beyond the nibbles of its row, after a 1; and its value."""
        if digest is None:
            raise AssertionError("a branch has children, so it has a node")
        beyond = digest.size % 4
        return bytes([1 << beyond | digest.number & (1 << beyond) - 1]) + digest.value

    def _unpack(self, path: bytes, packed: bytes) -> Node:
        return _below(4 * len(path), _number(path), packed)


def _below(size: int, number: int, packed: bytes) -> Node:
    """A branch's node, given the bits of the nibbles of its row."""
    if len(packed) != 1 + HASH or not 0 < packed[0] < 16:
        raise ValueError("a child in it is not of such a tree")
    beyond = packed[0].bit_length() - 1
    if size + beyond > MOST_BITS:
        raise ValueError("a child in it is deeper than such a tree")
    return Node(size + beyond, number << beyond | packed[0] ^ 1 << beyond, packed[1:])


def _number(path: bytes) -> int:
    """The bits of a path."""
    return int(path.hex()[1::2] or "0", 16)


def _leaves(items: Mapping[bytes, bytes]) -> list[Node]:
    return [leaf(key, blake(items[key])) for key in sorted(items)]


def _descend(nodes: Sequence[Node], target: Bits) -> tuple[Way, Node]:
    """The way towards a path through nodes that are in order: to one of them, or to where the path leaves a jump."""
    way: Way = []
    while len(nodes) > 1:
        bit = parting(nodes[0], nodes[-1])
        if target.size <= bit or target.parts_from(nodes[0].path.first(bit)) is not None:
            break
        middle = bisect_left(nodes, 1, key=lambda node: node.path.bit(bit))
        sides = nodes[:middle], nodes[middle:]
        side = target.bit(bit)
        way.append((bit, _top(sides[1 - side])))
        nodes = sides[side]
    return way, _top(nodes)


def _top(nodes: Sequence[Node]) -> Node:
    top = fold(nodes)
    if top is None:
        raise AssertionError("both sides of a bit at which nodes part have some")
    return top


def _proof(target: Bits, node: Node, way: Way, is_present: bool) -> Proof:
    shown = witness(node, way)
    if is_present:
        return Proof(shown)
    if target.parts_from(node.path) is None:
        raise BadInput(f"the key with path {str(target)[:64]}… is a prefix of one in the tree, or it of this: no proof can tell")
    return Proof(shown, target)


__all__ = [
    "Applied",
    "Change",
    "Node",
    "Proof",
    "Tree",
    "apply",
    "combine",
    "part_of",
    "prove",
    "root",
    "row_paths",
    "txin_key",
    "verify",
]
