"""The Merkle Patricia Forestry: a sixteen-way trie over the hashes of keys, whose proofs Cardano validators check.

A leaf's hash is of what its path has left and its value's hash; a branch's of its prefix and the Merkle root of its sixteen
children. There are no extension nodes and no branch with fewer than two children. The empty trie's root is 32 zero bytes.

`Trie` is the form for tables: it takes the rows along the paths of the keys that a batch touches (`row_paths`), applies
operations in order, and gives the root whenever it is asked and the rows that changed. See `radix` for what a row is.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from chainlake.encoding import short
from chainlake.errors import BadInput, BrokenPromise
from chainlake.merkle import radix
from chainlake.merkle.blake import HASH, blake, fresh
from chainlake.merkle.mpf_proof import DEPTH, EMPTY, BranchStep, ForkStep, LeafStep, Proof, Step, leaf_hash, tail, verify
from chainlake.merkle.radix import GROUPS, WAYS, Branch, Joined, Leaf, RadixTrie, nibbles, shared


class Operation(NamedTuple):
    """A change of one key: `old` is None for an insert, `new` for a delete, neither for an update."""

    key: bytes
    old: bytes | None
    new: bytes | None


class Applied(NamedTuple):
    """What a group of operations came to: the root after it, and its rows by path (None: the row is gone)."""

    root: bytes
    rows: dict[bytes, bytes | None]


def root(items: Mapping[bytes, bytes]) -> bytes:
    """The root of a trie with these keys and values."""
    return Trie.of(items).root()


def prove(items: Mapping[bytes, bytes], key: bytes) -> Proof:
    """The proof that a key has its value in a trie with these items; or, if it is not among them, that it is absent."""
    return Trie.of(items).prove(key)


def row_paths(key: bytes) -> list[bytes]:
    """The paths of all rows that an operation on a key, or its proof, can need."""
    return radix.row_paths(nibbles(blake(key)))


def apply(trie: "Trie", groups: Iterable[Iterable[Operation]]) -> Iterator[Applied]:
    """Apply operations in order and say after each group (a block, a transaction, a single one) what it came to."""
    for group in groups:
        for operation in group:
            trie.apply(operation)
        yield Applied(trie.root(), trie.changes())


class Trie(RadixTrie[bytes]):
    """A trie in memory over rows of a table, of which it reads only those it needs. Says so when they are not of `root`."""

    def __init__(self, rows: Mapping[bytes, bytes] | None = None, root: bytes | None = None) -> None:
        super().__init__(rows)
        if root is not None and root != self.root():
            raise BrokenPromise(f"the trie's rows have root {short(self.root())}, not {short(root)}: run lake verify")

    @classmethod
    def of(cls, items: Mapping[bytes, bytes]) -> "Trie":
        """A new trie with these items."""
        trie = cls()
        for key, value in items.items():
            trie.insert(key, value)
        return trie

    def apply(self, operation: Operation) -> None:
        """Carry out one operation, or refuse it and change nothing."""
        key, old, new = operation
        if old is None and new is None:
            raise BadInput(f"an operation on key {short(key)} has neither an old nor a new value: give one")
        if old is None and new is not None:
            self.insert(key, new)
        elif old is not None and new is None:
            self.delete(key, old)
        elif old is not None and new is not None:
            self.update(key, old, new)

    def insert(self, key: bytes, value: bytes) -> None:
        """Add a key that is not there yet."""
        digest = blake(key)
        path = nibbles(digest)
        trail = self._trail(path)
        if self._leaf(trail, path, digest):
            raise BadInput(f"key {short(key)} is in the trie already: it can be updated or deleted, not inserted")
        self._put(trail, path, Leaf(digest, blake(value)))

    def update(self, key: bytes, old: bytes, new: bytes) -> None:
        """Give a key another value. It has to have the old one."""
        trail, path, leaf = self._found(key, old)
        self._put(trail, path, Leaf(leaf.key, blake(new)))

    def delete(self, key: bytes, old: bytes) -> None:
        """Remove a key. It has to have the value that is said."""
        trail, path, _ = self._found(key, old)
        self._remove(trail, path)

    def value_hash(self, key: bytes) -> bytes | None:
        """The hash of a key's value; None if the trie does not have the key."""
        digest = blake(key)
        path = nibbles(digest)
        leaf = self._leaf(self._trail(path), path, digest)
        return leaf and leaf.value

    def root(self) -> bytes:
        """The root after all operations so far."""
        self._refresh()
        top = self._top
        if top is None:
            return EMPTY
        is_alone = not top.present & top.present - 1
        return _hash_at(self._only(top, top.present), 0) if is_alone else blake(top.digest)

    def prove(self, key: bytes) -> Proof:
        """The proof that the key has its value; or that it is absent. It needs only the rows along its path."""
        self._refresh()
        path = nibbles(blake(key))
        steps: list[Step] = []
        cursor, child = 0, None
        for branch in self._trail(path):
            depth = len(branch.path)
            child = self._child(branch, path[depth])
            others = branch.others(path[depth])
            if others & others - 1:
                steps.append(_neighbors(branch, path, cursor))
            elif others:
                steps.append(_neighbor(self._only(branch, others), depth, cursor))
            cursor = depth + 1 if others else cursor
        if child is not None:
            other_path = nibbles(child.key) if isinstance(child, Leaf) else child.path
            if other_path != path:
                steps.append(_neighbor(child, shared(path, other_path), cursor))
        return Proof(tuple(steps))

    def _found(self, key: bytes, old: bytes) -> tuple[list[Branch[bytes]], bytes, Leaf]:
        digest = blake(key)
        path = nibbles(digest)
        trail = self._trail(path)
        leaf = self._leaf(trail, path, digest)
        if leaf is None:
            raise BadInput(f"key {short(key)} is not in the trie: it can only be inserted")
        if leaf.value != blake(old):
            raise BadInput(f"key {short(key)} has another value than {short(old)}: name the value it has")
        return trail, path, leaf

    def _nothing(self) -> list[bytes]:
        return _NOTHING

    def _rehash(self, branch: Branch[bytes], slots: Iterable[int], above: Iterable[Joined]) -> None:
        cells, entries, branches, depth = branch.cells, branch.entries, branch.branches, len(branch.path) + 1
        for slot in slots:
            entry = entries[slot]
            if not entry:
                cells[WAYS + slot] = EMPTY
                continue
            if branches >> slot & 1:
                hashed = entry[3:] if len(entry) == _NEAR else entry[2 : -HASH - 1] + entry[-HASH:]
            elif len(entry) == _LEAF:
                hashed = tail(entry, 2, depth)
            else:
                raise ValueError("a key in it is not of such a trie")
            state = fresh()
            state.update(hashed)
            cells[WAYS + slot] = state.digest()
        for at, left, right in above:
            one, other = cells[left], cells[right]
            if one is other:
                cells[at] = _NOTHING[at]
            else:
                state = fresh()
                state.update(one + other)
                cells[at] = state.digest()

    def _seal(self, digest: bytes) -> bytes:
        return digest

    def _unseal(self, path: bytes, present: int, seals: list[bytes]) -> list[bytes]:
        cells = _NOTHING.copy()
        for at, seal in enumerate(seals, GROUPS):
            if seal:
                cells[at] = seal
        return cells

    def _pack(self, digest: bytes) -> bytes:
        return digest

    def _unpack(self, path: bytes, packed: bytes) -> bytes:
        if len(packed) != HASH or len(path) >= DEPTH:
            raise ValueError("a child in it is not of such a trie")
        return packed


def _hash_at(child: Leaf | Branch[bytes], depth: int) -> bytes:
    """The hash of what hangs at a depth."""
    return leaf_hash(child.key, depth, child.value) if isinstance(child, Leaf) else blake(child.path[depth:] + child.digest)


def _neighbor(other: Leaf | Branch[bytes], at: int, cursor: int) -> Step:
    """The step at a branch that has one other child."""
    if isinstance(other, Leaf):
        return LeafStep(at - cursor, other.key, other.value)
    return ForkStep(at - cursor, other.path[at], other.path[at + 1 :], other.digest)


def _neighbors(branch: Branch[bytes], path: bytes, cursor: int) -> Step:
    """The step at a branch that has more: what is beside the way, the largest first."""
    depth = len(branch.path)
    cell = 16 + path[depth]
    return BranchStep(depth - cursor, b"".join(branch.cells[cell >> size ^ 1] for size in (3, 2, 1, 0)))


def _nothing() -> list[bytes]:
    """The hashes above sixteen empty places, as a heap."""
    cells = [EMPTY] * (2 * WAYS)
    for level in (8, 4, 2, 1):
        cells[level : 2 * level] = [blake(2 * cells[2 * level])] * level
    return cells


_NOTHING = _nothing()
_LEAF, _NEAR = 2 + 2 * HASH, 3 + HASH

__all__ = ["EMPTY", "Applied", "Operation", "Proof", "Trie", "apply", "prove", "root", "row_paths", "verify"]
