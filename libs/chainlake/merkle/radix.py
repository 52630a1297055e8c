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
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from chainlake.errors import BadInput, BrokenPromise
from chainlake.merkle.blake import HASH
from chainlake.merkle.radix_branch import WAYS, Branch
from chainlake.merkle.radix_rows import (
    GROUPS,
    Leaf,
    branch_entry,
    branch_of,
    close_group,
    decode_row,
    leaf_entry,
    leaf_of,
    nibbles,
    open_group,
)

Digest = TypeVar("Digest")
Joined = tuple[int, int, int]


class RadixTrie(ABC, Generic[Digest]):
    """A trie over `rows` (path to row), of which only those along touched paths are read, when they are needed.

    What digests are and how they are joined is for the kind of tree to say.
    """

    def __init__(self, rows: Mapping[bytes, bytes] | None = None, base: bytes = b"") -> None:
        self.base = base
        self._rows: Mapping[bytes, bytes] = {} if rows is None else rows
        self._stored: set[bytes] = set()
        self._stale: list[Branch[Digest]] = []
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
        """The cells of a row without children, those side by side the same object: not to be changed."""

    @abstractmethod
    def _rehash(self, branch: Branch[Digest], slots: Iterable[int], above: Iterable[Joined]) -> None:
        """Bring the cells of some children up to date with their entries, then some cells with those below them.

        What is above two that are the same object is empty. `ValueError` when an entry is none of this tree.
        """

    @abstractmethod
    def _seal(self, digest: Digest) -> bytes:
        """What a row keeps of the digest of a group with two children or more."""

    @abstractmethod
    def _unseal(self, path: bytes, present: int, seals: list[bytes]) -> list[Digest]:
        """The cells of a row of which only the seals of its groups are known."""

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
        branch, size = self._top, len(path)
        while branch is not None:
            depth = len(branch.path)
            if size <= depth:
                raise _prefix_of_another(path)
            trail.append(branch)
            slot = path[depth]
            child = branch.slots[slot]
            if child is None:
                if branch.closed[slot >> 2]:
                    self._open(branch, slot >> 2)
                if not branch.branches >> slot & 1:
                    break
                child = branch.slots[slot] = self._looked_at(branch, slot)
            if not isinstance(child, Branch) or not path.startswith(child.path):
                break
            branch = child if child.is_read else self._loaded(child)
        return trail

    def _leaf(self, trail: list[Branch[Digest]], path: bytes, key: bytes) -> Leaf | None:
        """The leaf of a key at the end of its trail."""
        if not trail:
            return None
        last = trail[-1]
        slot = path[len(last.path)]
        child = last.slots[slot]
        if child is None and (last.present & ~last.branches) >> slot & 1:
            entry = last.entries[slot]
            is_it = entry[2:-HASH] == key
            child = last.slots[slot] = Leaf(key, entry[-HASH:]) if is_it else self._looked_at(last, slot)
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
        child = self._child(last, slot)
        fits = child is None or (isinstance(child, Leaf) and child.key == leaf.key)
        here = leaf if fits or child is None else self._parted(child, path, leaf, len(last.path) + 1)
        self._touch(trail, path)
        last.put(slot, here)

    def _parted(self, child: "Leaf | Branch[Digest]", path: bytes, leaf: Leaf, depth: int) -> Branch[Digest]:
        """A new row where a leaf leaves the way to what was here before."""
        other = nibbles(child.key) if isinstance(child, Leaf) else child.path
        at = shared(path, other, depth)
        if at == min(len(path), len(other)):
            raise _prefix_of_another(path)
        branch = self._empty(path[:at])
        branch.put(other[at], child)
        branch.put(path[at], leaf)
        self._stale.append(branch)
        return branch

    def _remove(self, trail: list[Branch[Digest]], path: bytes) -> None:
        """Take away the leaf at the end of a trail. A row left with one child goes, and the child moves up."""
        last = trail[-1]
        self._touch(trail, path)
        last.put(path[len(last.path)], None)
        left = last.present
        if last is self._top:
            if not left:
                self._forget(last)
                self._top = None
        elif not left & left - 1:
            trail[-2].put(path[len(trail[-2].path)], self._only(last, left))
            self._forget(last)

    def _touch(self, trail: list[Branch[Digest]], path: bytes) -> None:
        """Digests along a path have to follow. What is stale already is on the list."""
        for branch in trail:
            if not branch.stale:
                self._stale.append(branch)
            branch.stale |= 1 << path[len(branch.path)]

    def _forget(self, branch: Branch[Digest]) -> None:
        branch.stale = 0
        self._changed[branch.path] = None

    def _refresh(self) -> None:
        """Bring all digests up to date: the deepest rows first, without recursion, however deep keys make a tree."""
        for branch in sorted(self._stale, key=_depth, reverse=True):
            if branch.stale:
                self._fold(branch)
                self._changed[branch.path] = branch
        self._stale.clear()

    def _fold(self, branch: Branch[Digest]) -> None:
        """Bring entries and cells of children that changed up to date, and the cells above them."""
        slots = _ALONE.get(branch.stale) or _places(branch.stale)
        below, entries, beyond = branch.slots, branch.entries, len(branch.path) + 1
        for slot in slots:
            child = below[slot]
            if child is None:
                entries[slot] = b""
            elif isinstance(child, Branch):
                entries[slot] = branch_entry(child.path[beyond:], self._pack(child.digest))
            else:
                entries[slot] = leaf_entry(child)
        self._rehash(branch, slots, _above(slots))
        branch.stale = 0
        branch.digest = branch.cells[1]

    def _empty(self, path: bytes) -> Branch[Digest]:
        nothing = self._nothing()
        branch = Branch(path, nothing[1])
        branch.begin(0, 0, [b""] * GROUPS, nothing.copy())
        branch.is_read = True
        return branch

    def _child(self, branch: Branch[Digest], slot: int) -> Leaf | Branch[Digest] | None:
        """What is at a place of a row that is loaded."""
        if branch.closed[slot >> 2]:
            self._open(branch, slot >> 2)
        child = branch.slots[slot]
        if child is None and branch.present >> slot & 1:
            child = branch.slots[slot] = self._looked_at(branch, slot)
        return child

    def _only(self, branch: Branch[Digest], one: int) -> Leaf | Branch[Digest]:
        """The child of a mask with one bit."""
        child = self._child(branch, one.bit_length() - 1)
        if child is None:
            raise AssertionError("a place in the mask has a child")
        return child

    def _looked_at(self, branch: Branch[Digest], slot: int) -> Leaf | Branch[Digest]:
        """A child out of its entry."""
        try:
            if not branch.branches >> slot & 1:
                return leaf_of(branch.path, slot, branch.entries[slot])
            path, packed = branch_of(branch.path, slot, branch.entries[slot])
            return Branch(path, self._unpack(path, packed))
        except ValueError as wrong:
            raise self._damaged(branch, str(wrong)) from None

    def _loaded(self, branch: Branch[Digest], is_base: bool = False) -> Branch[Digest]:
        """A branch with its groups. Its row is read on first use, and has to be the one that its parent means."""
        if branch.is_read:
            return branch
        row = self._rows.get(branch.path)
        if row is None:
            raise BrokenPromise(f"trie row {branch.path.hex()!r} is missing: load all rows along the path, or run lake verify")
        try:
            present, branches, groups, seals = decode_row(row, 1 if is_base else 2)
            branch.begin(present, branches, groups, self._unseal(branch.path, present, seals))
            self._open_single(branch)
        except ValueError as wrong:
            raise self._damaged(branch, str(wrong)) from None
        if is_base:
            branch.digest = branch.cells[1]
        elif branch.digest != branch.cells[1]:
            raise self._damaged(branch, "it is not the row that its parent knows")
        self._stored.add(branch.path)
        branch.is_read = True
        return branch

    def _open_single(self, branch: Branch[Digest]) -> None:
        """Look into groups of a single child, which have no seal, and bring up to date what is above all groups."""
        places: list[int] = []
        above: list[Joined] = []
        for at, group in enumerate(branch.closed):
            if group and (child := _SINGLE[at][group[0] >> 4]):
                open_group(group, branch.entries, GROUPS * at)
                branch.closed[at] = b""
                places.append(child[0])
                above += child[1]
        self._rehash(branch, places, above + _TOP)

    def _open(self, branch: Branch[Digest], at: int) -> None:
        """Look into a group with a seal. Its children have to be those of it."""
        group = branch.closed[at]
        sealed = branch.cells[GROUPS + at]
        places, joined = _IN_GROUP[at][group[0] >> 4]
        try:
            open_group(group, branch.entries, GROUPS * at)
            self._rehash(branch, places, joined)
        except ValueError as wrong:
            raise self._damaged(branch, str(wrong)) from None
        if branch.cells[GROUPS + at] != sealed:
            branch.cells[GROUPS + at] = sealed
            raise self._damaged(branch, "children in it are not those of its seal")
        branch.closed[at] = b""

    def _damaged(self, branch: Branch[Digest], why: str) -> BrokenPromise:
        return BrokenPromise(f"trie row {branch.path.hex()!r} is damaged: {why}. Run lake verify, then lake restore")

    def _row(self, branch: Branch[Digest]) -> bytes:
        """A row as its table keeps it. Groups that were not looked into are as they came."""
        groups = branch.closed.copy()
        present, branches, entries = branch.present, branch.branches, branch.entries
        for at, closed in enumerate(groups):
            if not closed:
                first = GROUPS * at
                there = present >> first & 15
                seal = self._seal(branch.cells[GROUPS + at]) if there & there - 1 else b""
                groups[at] = close_group(there << 4 | branches >> first & 15, seal, entries[first : first + GROUPS])
        return b"".join(groups)


def shared(one: bytes, other: bytes, start: int = 0) -> int:
    """How many nibbles two paths have in common; the first `start` are known to be."""
    end = min(len(one), len(other))
    while start < end and one[start] == other[start]:
        start += 1
    return start


def row_paths(path: bytes, base: bytes = b"") -> list[bytes]:
    """The paths of all rows that an operation on a key with this path can need."""
    return [path[:length] for length in range(len(base), len(path))]


def _joined(places: Iterable[int]) -> list[Joined]:
    """Places of the heap with those below them."""
    return [(at, 2 * at, 2 * at + 1) for at in places]


def _in_group(at: int, present: int) -> tuple[list[int], list[Joined]]:
    """The places of a group's children, and what is above them up to the group."""
    places = [GROUPS * at + child for child in range(GROUPS) if present >> child & 1]
    above = {WAYS + place >> level for place in places for level in (1, 2)}
    return places, _joined(sorted(above, reverse=True))


def _single(at: int, present: int) -> tuple[int, list[Joined]] | None:
    """The place of the only child of a group, and what is above it up to the group. None if there are more."""
    places, above = _in_group(at, present)
    return (places[0], above) if len(places) == 1 else None


_TOP = _joined((3, 2, 1))
_IN_GROUP = [[_in_group(at, present) for present in range(1 << GROUPS)] for at in range(GROUPS)]
_SINGLE = [[_single(at, present) for present in range(1 << GROUPS)] for at in range(GROUPS)]
_ALONE = {1 << slot: [slot] for slot in range(WAYS)}
_ABOVE = [_joined((WAYS + slot) >> level for level in range(1, 5)) for slot in range(WAYS)]


def _above(slots: Sequence[int]) -> Iterable[Joined]:
    """What is above some children, the lowest first."""
    return _ABOVE[slots[0]] if len(slots) == 1 else sorted({joined for slot in slots for joined in _ABOVE[slot]}, reverse=True)


def _places(mask: int) -> list[int]:
    """The places in a mask."""
    found = []
    while mask:
        found.append(mask.bit_length() - 1)
        mask ^= 1 << found[-1]
    return found


def _depth(branch: Branch[Digest]) -> int:
    return len(branch.path)


def _prefix_of_another(path: bytes) -> BadInput:
    return BadInput(f"one of two keys is a prefix of the other at path {path.hex()}: such keys cannot be in one tree")


__all__ = ["GROUPS", "WAYS", "Branch", "Joined", "Leaf", "RadixTrie", "nibbles", "row_paths", "shared"]
