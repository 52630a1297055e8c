"""The sparse Merkle tree of metadata shards: 2^256 places, one root for a set of keys and values, in whatever order they came.

A key's place is `path = SHA256(key)`, read from the most significant bit, 0 = left. `leaf = SHA256(00 ‖ path ‖ SHA256(value))`,
`inner = SHA256(01 ‖ left ‖ right)`. An empty subtree is 32 zero bytes at any level, and a subtree with exactly one leaf *is*
that leaf's hash. This is the construction of celestiaorg/smt; proofs are ICS-23 (`SMT_SPEC`), which existing verifiers accept.

Here a tree is made from all of its items, as the definition reads. `smt_fold` keeps one up to date from stored rows, and
`smt_prove` proves from them.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chainlake.encoding import short
from chainlake.errors import BadInput, CheckFailed
from chainlake.merkle.ics23 import SMT_SPEC, CommitmentProof, ExistenceProof, HashOp, InnerOp, NonExistenceProof
from chainlake.merkle.ics23_verify import check_absence, check_existence

EMPTY = bytes(32)
LEAF, INNER = b"\x00", b"\x01"
LEFT, RIGHT = 0, 1

Proof = CommitmentProof


class _Leaf(NamedTuple):
    path: bytes
    key: bytes
    value: bytes
    hash: bytes


def path_of(key: bytes) -> bytes:
    """The place of a key: 256 bits, most significant first."""
    return hashlib.sha256(key).digest()


def leaf_hash(key: bytes, value: bytes) -> bytes:
    """The hash of a leaf. Neither key nor value may be empty: an empty value means absence, and has no proof."""
    if not key or not value:
        raise BadInput(f"key {short(key)} has value {short(value)}: neither may be empty in the tree")
    return leaf_at(path_of(key), value)


def leaf_at(path: bytes, value: bytes) -> bytes:
    """The same for a key whose path is known, and a value that is not empty: a key that gets many values needs its path once."""
    return hashlib.sha256(LEAF + path + hashlib.sha256(value).digest()).digest()


def root(items: Mapping[bytes, bytes]) -> bytes:
    """The root of a tree that holds exactly these items."""
    return _subtree(leaves := _leaves(items), 0, len(leaves), 0)


def prove(items: Mapping[bytes, bytes], key: bytes) -> Proof:
    """A proof of what the tree holds under a key: its value, or nothing."""
    leaves = _leaves(items)
    if key in items:
        return Proof(exist=_existence(leaves, bisect_left(leaves, path_of(key), key=_path)))
    place = bisect_left(leaves, path_of(key), key=_path)
    left = _existence(leaves, place - 1) if place > 0 else None
    right = _existence(leaves, place) if place < len(leaves) else None
    return Proof(nonexist=NonExistenceProof(key, left, right))


def verify(root: bytes, key: bytes, value: bytes | None, proof: Proof) -> bool:
    """Whether the proof shows that the key has the value, or for None that it is absent, in the tree with this root."""
    try:
        check(root, key, value, proof)
    except CheckFailed:
        return False
    return True


def check(root: bytes, key: bytes, value: bytes | None, proof: Proof) -> None:
    """`verify` that says why not: `CheckFailed`.

    Stricter than ICS-23 in two ways. Each leaf must be where its path leads, so no root whatsoever has proofs of both presence
    and absence of a key. And the empty tree, which has no neighbours to show, is told by its root.
    """
    if value is not None:
        if proof.exist is None:
            raise CheckFailed(f"the proof says that {short(key)} is absent, not that it has a value")
        check_existence(SMT_SPEC, root, key, value, proof.exist)
        _check_place(proof.exist)
    elif proof.nonexist is None:
        raise CheckFailed(f"the proof says that {short(key)} exists, not that it is absent")
    elif proof.nonexist.left is None and proof.nonexist.right is None:
        if root != EMPTY or not key or proof.nonexist.key != key:
            raise CheckFailed(f"only the empty tree lacks {short(key)} without neighbours; the root is {short(root)}")
    else:
        check_absence(SMT_SPEC, root, key, proof.nonexist)
        for neighbour in (proof.nonexist.left, proof.nonexist.right):
            if neighbour is not None:
                _check_place(neighbour)


def existence(key: bytes, value: bytes, steps: Sequence[InnerOp]) -> ExistenceProof:
    """A proof of existence from its steps, root first, as one meets them on the way down."""
    return ExistenceProof(key, value, SMT_SPEC.leaf_spec, tuple(reversed(steps)))


def step(side: int, sibling: bytes) -> InnerOp:
    """One level of a proof: the child on this side, and the hash of the other."""
    if side == LEFT:
        return InnerOp(HashOp.SHA256, INNER, sibling)
    return InnerOp(HashOp.SHA256, INNER + sibling, b"")


def bit(path: bytes, depth: int) -> int:
    """Which way a path goes at a depth."""
    return path[depth >> 3] >> (7 - (depth & 7)) & 1


def _path(leaf: _Leaf) -> bytes:
    return leaf.path


def _leaves(items: Mapping[bytes, bytes]) -> list[_Leaf]:
    return sorted(_Leaf(path_of(key), key, value, leaf_hash(key, value)) for key, value in items.items())


def _subtree(leaves: Sequence[_Leaf], start: int, end: int, depth: int) -> bytes:
    """The hash over the leaves in [start, end), which share the first `depth` bits."""
    if end - start == 0:
        return EMPTY
    if end - start == 1:
        return leaves[start].hash
    middle = _middle(leaves, start, end, depth)
    halves = _subtree(leaves, start, middle, depth + 1) + _subtree(leaves, middle, end, depth + 1)
    return hashlib.sha256(INNER + halves).digest()


def _middle(leaves: Sequence[_Leaf], start: int, end: int, depth: int) -> int:
    """Where the leaves that go right begin."""
    return bisect_left(leaves, RIGHT, start, end, key=lambda leaf: bit(leaf.path, depth))


def _existence(leaves: Sequence[_Leaf], place: int) -> ExistenceProof:
    start, end = 0, len(leaves)
    steps: list[InnerOp] = []
    while end - start > 1:
        depth = len(steps)
        middle = _middle(leaves, start, end, depth)
        if place < middle:
            steps.append(step(LEFT, _subtree(leaves, middle, end, depth + 1)))
            end = middle
        else:
            steps.append(step(RIGHT, _subtree(leaves, start, middle, depth + 1)))
            start = middle
    return existence(leaves[place].key, leaves[place].value, steps)


def _check_place(proof: ExistenceProof) -> None:
    """A step from a right child has the left sibling before it, and from a left child nothing."""
    path = path_of(proof.key)
    for depth, one in enumerate(reversed(proof.path)):
        if bit(path, depth) != (LEFT if one.suffix else RIGHT):
            raise CheckFailed(f"the leaf of {short(proof.key)} is not where its path leads, at depth {depth}")
