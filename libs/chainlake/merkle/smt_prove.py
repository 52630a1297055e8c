"""Proofs from a stored sparse Merkle tree: only the rows along the key's path, and those towards its neighbours, are read."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from chainlake.errors import BrokenPromise, CheckFailed
from chainlake.merkle.ics23 import ExistenceProof, InnerOp, NonExistenceProof
from chainlake.merkle.smt import LEFT, RIGHT, Proof, bit, check, existence, path_of, step
from chainlake.merkle.smt_nodes import WAYS, Node, Page, checked_page

AHEAD = 7

Load = Callable[[Sequence[str]], Iterable[Node]]


class _Place(NamedTuple):
    """A subtree: a place in the heap of a page."""

    page: Page
    at: int

    @property
    def leaves(self) -> int:
        return self.page.leaves[self.at]

    @property
    def hash(self) -> bytes:
        return self.page.hashes[self.at]

    def key(self) -> bytes:
        """The key of the only leaf."""
        index = self.at
        while index < WAYS:
            index = 2 * index if self.page.leaves[2 * index] else 2 * index + 1
        return _row(self.page, index).key or b""


class _Descent(NamedTuple):
    """The way down to a subtree of at most one leaf: where it went which way, and the steps of the proof."""

    turns: list[tuple[_Place, int]]
    steps: list[InnerOp]
    end: _Place


def prove_stored(top: Node, load: Load, key: bytes, value_of: Callable[[bytes], bytes]) -> Proof:
    """A proof for a key in a tree whose root row is `top`.

    `load` gives the rows one digit below each of some prefixes, all as of one block; it is asked for the whole path at once,
    then page by page towards the neighbours of an absent key. `value_of` gives the value of a key that the tree holds. What is
    read is checked against the root before the proof is returned.
    """
    proof, value = _Reader(top, load, value_of).prove(key)
    try:
        check(top.hash, key, value, proof)
    except CheckFailed as wrong:
        raise BrokenPromise(
            f"the values do not belong to the tree rows of block {top.block} ({wrong}): run lake verify"
        ) from None
    return proof


class _Reader:
    def __init__(self, top: Node, load: Load, value_of: Callable[[bytes], bytes]) -> None:
        self._top, self._load, self._value_of = top, load, value_of
        self._rows: dict[str, list[Node]] = {}

    def prove(self, key: bytes) -> tuple[Proof, bytes | None]:
        """The proof and the value that it shows."""
        if self._top.leaves < 2:
            return self._of_at_most_one(key)
        path = path_of(key)
        self._fetch([path.hex()[:depth] for depth in range(AHEAD)])
        found = self._descend(self._page(self._top), path)
        if found.end.leaves and found.end.key() == key:
            proof = self._existence(key, found.steps)
            return Proof(exist=proof), proof.value
        left, right = self._neighbour(found, path, LEFT), self._neighbour(found, path, RIGHT)
        return Proof(nonexist=NonExistenceProof(key, left, right)), None

    def _of_at_most_one(self, key: bytes) -> tuple[Proof, bytes | None]:
        if self._top.key is None:
            return Proof(nonexist=NonExistenceProof(key)), None
        only = self._existence(self._top.key, [])
        if only.key == key:
            return Proof(exist=only), only.value
        if path_of(only.key) < path_of(key):
            return Proof(nonexist=NonExistenceProof(key, left=only)), None
        return Proof(nonexist=NonExistenceProof(key, right=only)), None

    def _existence(self, key: bytes, steps: Sequence[InnerOp]) -> ExistenceProof:
        return existence(key, self._value_of(key), steps)

    def _neighbour(self, found: _Descent, path: bytes, side: int) -> ExistenceProof | None:
        """The nearest leaf on one side of where the path ended; None at the edge of the tree."""
        if found.end.leaves and (path_of(found.end.key()) > path) == (side == RIGHT):
            return self._existence(found.end.key(), found.steps)
        for depth in range(len(found.turns) - 1, -1, -1):
            place, went = found.turns[depth]
            if went != side and place.page.leaves[2 * place.at + side]:
                turn = step(side, _hash_below(place, went))
                key, below = self._edge(self._child(place, side), 1 - side)
                return self._existence(key, [*found.steps[:depth], turn, *below])
        return None

    def _descend(self, place: _Place, path: bytes) -> _Descent:
        """Follow a path until at most one leaf is left."""
        turns: list[tuple[_Place, int]] = []
        steps: list[InnerOp] = []
        while place.leaves > 1:
            side = bit(path, len(turns))
            turns.append((place, side))
            steps.append(step(side, _hash_below(place, 1 - side)))
            place = self._child(place, side)
        return _Descent(turns, steps, place)

    def _edge(self, place: _Place, side: int) -> tuple[bytes, list[InnerOp]]:
        """The key of the outermost leaf on a side, and the steps down to it."""
        steps: list[InnerOp] = []
        while place.leaves > 1:
            turn = side if place.page.leaves[2 * place.at + side] else 1 - side
            steps.append(step(turn, _hash_below(place, 1 - turn)))
            place = self._child(place, turn)
        return place.key(), steps

    def _child(self, place: _Place, side: int) -> _Place:
        index = 2 * place.at + side
        if index >= WAYS and place.page.leaves[index] > 1:
            return self._page(_row(place.page, index))
        return _Place(place.page, index)

    def _page(self, parent: Node) -> _Place:
        if parent.prefix not in self._rows:
            self._fetch([parent.prefix])
        return _Place(checked_page(parent, self._rows[parent.prefix]), 1)

    def _fetch(self, prefixes: Sequence[str]) -> None:
        found: dict[str, list[Node]] = defaultdict(list)
        for node in self._load(prefixes):
            if node.leaves:
                found[node.prefix[:-1]].append(node)
        for prefix in prefixes:
            self._rows[prefix] = found[prefix]


def _hash_below(place: _Place, side: int) -> bytes:
    return place.page.hashes[2 * place.at + side]


def _row(page: Page, at: int) -> Node:
    node = page.nodes[at - WAYS]
    assert node is not None, "a subtree with leaves has a row"
    return node
