"""How tries are kept in tables: one row per place where keys part, sixteen ways, keyed by the nibbles above it.

The `path` of a row is what all keys under it have in common, one byte per nibble. The row holds up to sixteen children by their
next nibble: a leaf (key, hash of its value), or a branch, which is a row of its own (its path, its digest). Three things follow.

- A row keeps its path as long as it exists, whatever is inserted or removed above it.
- To insert, remove, find or prove a key, only rows whose path is a prefix of the key's path are read or written. Not even the
  sibling that a removal moves up is needed: its parent knows all of it.
- A row can be checked against its parent, so what is used is as trustworthy as the root. Of a row's four groups of children only
  those on the way are opened, hashed and compared with their seals; the others are carried along as they are.

The row at the `base` path exists while there is any key under it, also with one child; every other row has two or more.
Digests are computed when a root, a proof or rows are asked for, so many operations share the work on the rows they share.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from chainlake.errors import BadInput, BrokenPromise
from chainlake.merkle.radix_branch import WAYS, Branch
from chainlake.merkle.radix_rows import GROUPS, Group, Leaf, close_group, decode_row, encode_row, nibbles, open_group

Digest = TypeVar("Digest")


class RadixTrie(ABC, Generic[Digest]):
    """A trie over `rows` (path to row), of which only those along touched paths are read, when they are needed.

    What digests are and how they are joined is for the kind of tree to say.
    """

    def __init__(self, rows: Mapping[bytes, bytes] | None = None, base: bytes = b"") -> None:
        self.base = base
        self._rows: Mapping[bytes, bytes] = {} if rows is None else rows
        self._stored: set[bytes] = set()
        self._stale: dict[bytes, Branch[Digest]] = {}
        self._changed: dict[bytes, Branch[Digest] | None] = {}
        self._top: Branch[Digest] | None = None
        if base in self._rows:
            self._top = self._loaded(Branch(base, self._nothing()[1]), is_base=True)

    def changes(self) -> dict[bytes, bytes | None]:
        """Rows that differ from when this was last asked: path to row, or to None where the row is gone."""
        self._refresh()
        found: dict[bytes, bytes | None] = {}
        for path, branch in self._changed.items():
            if branch is not None:
                found[path] = self._row(branch)
                self._stored.add(path)
            elif path in self._stored:
                found[path] = None
                self._stored.remove(path)
        self._changed.clear()
        return found

    @abstractmethod
    def _nothing(self) -> list[Digest]:
        """The cells of a row without children."""

    @abstractmethod
    def _cell(self, child: Leaf | Branch[Digest] | None, depth: int) -> Digest:
        """The digest of a child whose path goes on after `depth` nibbles."""

    @abstractmethod
    def _join(self, left: Digest, right: Digest, bit: int) -> Digest:
        """The digest of two neighbours that part at `bit` of the path."""

    @abstractmethod
    def _seal(self, digest: Digest) -> bytes:
        """What a row keeps of the digest of a group with two children or more."""

    @abstractmethod
    def _unseal(self, path: bytes, group: int, present: int, seal: bytes) -> Digest:
        """The digest of a group, given which children it has."""

    @abstractmethod
    def _pack(self, digest: Digest) -> bytes:
        """A branch's digest as its parent's row keeps it."""

    @abstractmethod
    def _unpack(self, path: bytes, packed: bytes) -> Digest:
        """The same, read back. `ValueError` when it is none."""

    def _trail(self, path: bytes) -> list[Branch[Digest]]:
        """The rows along a path, from the base down."""
        if not path.startswith(self.base):
            raise BadInput(f"path {path.hex()} is not under {self.base.hex()}: give the key to the part it belongs to")
        trail: list[Branch[Digest]] = []
        branch = self._top
        while branch is not None:
            if len(path) <= len(branch.path):
                raise _prefix_of_another(path)
            trail.append(branch)
            child = self._child(branch, path[len(branch.path)])
            branch = self._loaded(child) if isinstance(child, Branch) and path.startswith(child.path) else None
        return trail

    def _leaf(self, trail: list[Branch[Digest]], path: bytes, key: bytes) -> Leaf | None:
        """The leaf of a key at the end of its trail."""
        child = trail[-1].slots[path[len(trail[-1].path)]] if trail else None
        return child if isinstance(child, Leaf) and child.key == key else None

    def _put(self, trail: list[Branch[Digest]], path: bytes, leaf: Leaf) -> None:
        """Add a leaf at the end of its trail, or replace the one with its key."""
        if not trail:
            if len(path) <= len(self.base):
                raise BadInput(f"key {leaf.key.hex()} ends where its part {self.base.hex()} begins: use shorter parts")
            self._top = self._empty(self.base)
            trail = [self._top]
        last = trail[-1]
        slot = path[len(last.path)]
        child = last.slots[slot]
        fits = child is None or (isinstance(child, Leaf) and child.key == leaf.key)
        last.slots[slot] = leaf if fits or child is None else self._parted(child, path, leaf, len(last.path) + 1)
        self._touch(trail, path)

    def _parted(self, child: "Leaf | Branch[Digest]", path: bytes, leaf: Leaf, depth: int) -> Branch[Digest]:
        """A new row where a leaf leaves the way to what was here before."""
        other = nibbles(child.key) if isinstance(child, Leaf) else child.path
        at = shared(path, other, depth)
        if at == min(len(path), len(other)):
            raise _prefix_of_another(path)
        branch = self._empty(path[:at])
        branch.slots[other[at]], branch.slots[path[at]] = child, leaf
        branch.stale = 1 << other[at] | 1 << path[at]
        self._stale[branch.path] = self._changed[branch.path] = branch
        return branch

    def _remove(self, trail: list[Branch[Digest]], path: bytes) -> None:
        """Take away the leaf at the end of a trail. A row left with one child goes, and the child moves up."""
        last = trail[-1]
        last.slots[path[len(last.path)]] = None
        self._touch(trail, path)
        left = last.others()
        if last is self._top:
            if not left:
                self._forget(last)
                self._top = None
        elif left == 1:
            trail[-2].slots[path[len(trail[-2].path)]] = last.other()
            self._forget(last)

    def _touch(self, trail: list[Branch[Digest]], path: bytes) -> None:
        for branch in trail:
            branch.stale |= 1 << path[len(branch.path)]
            self._stale[branch.path] = self._changed[branch.path] = branch

    def _forget(self, branch: Branch[Digest]) -> None:
        self._stale.pop(branch.path, None)
        self._changed[branch.path] = None

    def _refresh(self) -> None:
        """Bring all digests up to date: the deepest rows first, without recursion, however deep keys make a tree."""
        if self._stale:
            for branch in sorted(self._stale.values(), key=_depth, reverse=True):
                self._fold(branch)
            self._stale.clear()

    def _fold(self, branch: Branch[Digest]) -> None:
        """Recompute the cells above children that changed."""
        cells, slots, stale, depth = branch.cells, branch.slots, branch.stale, len(branch.path)
        level: set[int] = set()
        while stale:
            slot = stale.bit_length() - 1
            cells[WAYS + slot] = self._cell(slots[slot], depth + 1)
            level.add((WAYS + slot) >> 1)
            stale ^= 1 << slot
        for bit in (4 * depth + 3, 4 * depth + 2, 4 * depth + 1, 4 * depth):
            for at in level:
                cells[at] = self._join(cells[2 * at], cells[2 * at + 1], bit)
            level = {at >> 1 for at in level}
        branch.stale = 0
        branch.digest = cells[1]

    def _empty(self, path: bytes) -> Branch[Digest]:
        cells = self._nothing()
        branch = Branch(path, cells[1])
        branch.cells, branch.slots, branch.closed = cells, [None] * WAYS, [None] * GROUPS
        return branch

    def _child(self, branch: Branch[Digest], slot: int) -> Leaf | Branch[Digest] | None:
        """What is at a place of a row that is loaded."""
        if branch.closed[slot >> 2] is not None:
            self._open(branch, slot >> 2)
        return branch.slots[slot]

    def _loaded(self, branch: Branch[Digest], is_base: bool = False) -> Branch[Digest]:
        """A branch with its groups. Its row is read on first use, and has to be the one that its parent means."""
        if branch.slots:
            return branch
        row = self._rows.get(branch.path)
        if row is None:
            raise BrokenPromise(f"trie row {branch.path.hex()!r} is missing: load all rows along the path, or run lake verify")
        branch.slots = [None] * WAYS
        try:
            branch.closed = decode_row(row, 1 if is_base else 2)
        except ValueError as wrong:
            raise self._damaged(branch, str(wrong)) from None
        branch.cells = self._nothing()
        for at, group in enumerate(branch.closed):
            if group is not None and group.seal:
                branch.cells[GROUPS + at] = self._unseal(branch.path, at, group.present, group.seal)
            elif group is not None:
                self._open(branch, at)
        self._join_cells(branch, (3, 2, 1))
        if is_base:
            branch.digest = branch.cells[1]
        elif branch.digest != branch.cells[1]:
            raise self._damaged(branch, "it is not the row that its parent knows")
        self._stored.add(branch.path)
        return branch

    def _open(self, branch: Branch[Digest], at: int) -> None:
        """Look into a group of a row. Its children have to be those of its seal, or of the row if there is a single one."""
        group, first, cells = branch.closed[at], GROUPS * at, branch.cells
        if group is None:
            return
        try:
            branch.slots[first : first + GROUPS] = children = open_group(branch.path, first, group, self._unloaded)
        except ValueError as wrong:
            raise self._damaged(branch, str(wrong)) from None
        for place, child in enumerate(children, WAYS + first):
            if child is not None:
                cells[place] = self._cell(child, len(branch.path) + 1)
        sealed = cells[GROUPS + at]
        self._join_cells(branch, (2 * (GROUPS + at) + 1, 2 * (GROUPS + at), GROUPS + at))
        if group.seal and cells[GROUPS + at] != sealed:
            raise self._damaged(branch, "children in it are not those of its seal")
        branch.closed[at] = None

    def _join_cells(self, branch: Branch[Digest], places: Iterable[int]) -> None:
        """Recompute some cells from those below them, without a look at what is empty."""
        cells, empty, bit = branch.cells, self._nothing(), 4 * len(branch.path) - 1
        for at in places:
            left, right = cells[2 * at], cells[2 * at + 1]
            if left is not empty[2 * at] or right is not empty[2 * at + 1]:
                cells[at] = self._join(left, right, bit + at.bit_length())

    def _unloaded(self, path: bytes, packed: bytes) -> Branch[Digest]:
        return Branch(path, self._unpack(path, packed))

    def _damaged(self, branch: Branch[Digest], why: str) -> BrokenPromise:
        return BrokenPromise(f"trie row {branch.path.hex()!r} is damaged: {why}. Run lake verify, then lake restore")

    def _row(self, branch: Branch[Digest]) -> bytes:
        return encode_row(branch.closed[at] or self._group(branch, at) for at in range(GROUPS))

    def _group(self, branch: Branch[Digest], at: int) -> Group | None:
        children = branch.slots[GROUPS * at : GROUPS * (at + 1)]
        return close_group(branch.path, children, self._seal(branch.cells[GROUPS + at]), self._packed)

    def _packed(self, child: Branch[Digest]) -> tuple[bytes, bytes]:
        return child.path, self._pack(child.digest)


def shared(one: bytes, other: bytes, start: int = 0) -> int:
    """How many nibbles two paths have in common; the first `start` are known to be."""
    end = min(len(one), len(other))
    while start < end and one[start] == other[start]:
        start += 1
    return start


def row_paths(path: bytes, base: bytes = b"") -> list[bytes]:
    """The paths of all rows that an operation on a key with this path can need."""
    return [path[:length] for length in range(len(base), len(path))]


def _depth(branch: Branch[Digest]) -> int:
    return len(branch.path)


def _prefix_of_another(path: bytes) -> BadInput:
    return BadInput(f"one of two keys is a prefix of the other at path {path.hex()}: such keys cannot be in one tree")


__all__ = ["GROUPS", "WAYS", "Branch", "Leaf", "RadixTrie", "nibbles", "row_paths", "shared"]
