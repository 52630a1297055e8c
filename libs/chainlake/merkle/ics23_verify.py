"""The ICS-23 verifier: a proof is followed only where the `ProofSpec` allows it.

Every function returns quietly or raises `CheckFailed` with the reason. Hashing is SHA-256 without length prefixes, which is what
the specs of this lake use; a spec that asks for more is refused.
"""

import hashlib
from collections.abc import Sequence

from chainlake.encoding import short
from chainlake.errors import CheckFailed
from chainlake.merkle.ics23 import ExistenceProof, HashOp, InnerOp, InnerSpec, LengthOp, NonExistenceProof, ProofSpec

DEFAULT_MAX_DEPTH = 128


def check_existence(spec: ProofSpec, root: bytes, key: bytes, value: bytes, proof: ExistenceProof) -> None:
    """The tree with this root holds the value under the key."""
    if proof.key != key:
        raise CheckFailed(f"the proof is for key {short(proof.key)}, not {short(key)}: ask for a proof of this key")
    if proof.value != value:
        raise CheckFailed(f"the proof is for value {short(proof.value)}, not {short(value)}: the value differs from the tree's")
    _check_shape(spec, proof)
    computed = _root_of(proof)
    if computed != root:
        raise CheckFailed(f"the proof leads to root {short(computed)}, not {short(root)}: it belongs to another tree or height")


def check_absence(spec: ProofSpec, root: bytes, key: bytes, proof: NonExistenceProof) -> None:
    """The tree with this root does not hold the key."""
    if not key or proof.key != key:
        raise CheckFailed(f"the proof is for the absence of {short(proof.key)}, not {short(key)}: ask for a proof of this key")
    for neighbour in (proof.left, proof.right):
        if neighbour is not None:
            check_existence(spec, root, neighbour.key, neighbour.value, neighbour)
    place = _sort_key(spec, key)
    if proof.left is not None and not _sort_key(spec, proof.left.key) < place:
        raise CheckFailed(f"the left neighbour {short(proof.left.key)} is not left of {short(key)}")
    if proof.right is not None and not place < _sort_key(spec, proof.right.key):
        raise CheckFailed(f"the right neighbour {short(proof.right.key)} is not right of {short(key)}")
    if not _nothing_between(spec.inner_spec, proof.left, proof.right):
        raise CheckFailed(f"there is room for {short(key)} between the neighbours of the proof: they are not adjacent")


def _check_shape(spec: ProofSpec, proof: ExistenceProof) -> None:
    """Leaf and steps are of the kind that the spec allows, so that none can pass for another."""
    wanted, leaf = spec.leaf_spec, proof.leaf
    if leaf is None:
        raise CheckFailed("the proof does not say how the leaf is hashed")
    ops = (leaf.hash, leaf.prehash_key, leaf.prehash_value, leaf.length)
    if ops != (wanted.hash, wanted.prehash_key, wanted.prehash_value, wanted.length):
        said = ", ".join(op.name for op in ops)
        raise CheckFailed(f"the leaf is hashed with {said}, the spec wants {wanted}")
    if not leaf.prefix.startswith(wanted.prefix):
        raise CheckFailed(f"the leaf begins with {short(leaf.prefix)}, the spec wants {wanted.prefix.hex()}")
    if not spec.min_depth <= len(proof.path) <= (spec.max_depth or DEFAULT_MAX_DEPTH):
        raise CheckFailed(f"the proof has {len(proof.path)} steps: outside the depths that the spec allows")
    for step in proof.path:
        _check_step(spec, step)


def _check_step(spec: ProofSpec, step: InnerOp) -> None:
    inner = spec.inner_spec
    if step.hash != inner.hash:
        raise CheckFailed(f"a step hashes with {step.hash.name}, the spec wants {inner.hash.name}")
    if step.prefix.startswith(spec.leaf_spec.prefix):
        raise CheckFailed("a step begins like a leaf: a leaf must not pass for an inner node")
    if _branch(inner, step) is None:
        raise CheckFailed(f"a step has {len(step.prefix)} bytes before its child and {len(step.suffix)} after: no place fits")


def _root_of(proof: ExistenceProof) -> bytes:
    leaf = proof.leaf
    if leaf is None or not proof.key or not proof.value:
        raise CheckFailed("a leaf needs a key and a value")
    if leaf.length != LengthOp.NO_PREFIX:
        raise CheckFailed(f"lengths as {leaf.length.name} are not known here")
    prepared = _hashed(leaf.prehash_key, proof.key) + _hashed(leaf.prehash_value, proof.value)
    found = _hashed(leaf.hash, leaf.prefix + prepared)
    for step in proof.path:
        found = _hashed(step.hash, step.prefix + found + step.suffix)
    return found


def _hashed(how: HashOp, data: bytes) -> bytes:
    if how == HashOp.NO_HASH:
        return data
    if how != HashOp.SHA256:
        raise CheckFailed(f"hashing with {how.name} is not known here")
    return hashlib.sha256(data).digest()


def _sort_key(spec: ProofSpec, key: bytes) -> bytes:
    """What leaves are ordered by."""
    return _hashed(spec.leaf_spec.prehash_key, key) if spec.prehash_key_before_comparison else key


def _nothing_between(spec: InnerSpec, left: ExistenceProof | None, right: ExistenceProof | None) -> bool:
    if left is None:
        return right is not None and _is_edge(spec, right.path, 0)
    if right is None:
        return _is_edge(spec, left.path, len(spec.child_order) - 1)
    return _are_neighbours(spec, left.path, right.path)


def _are_neighbours(spec: InnerSpec, left: Sequence[InnerOp], right: Sequence[InnerOp]) -> bool:
    """Below the node where the paths part, in adjacent branches, one keeps to the right edge and the other to the left edge."""
    shared = 0
    while shared < min(len(left), len(right)) and left[-1 - shared] == right[-1 - shared]:
        shared += 1
    if shared == min(len(left), len(right)):
        return False
    from_left, from_right = _branch(spec, left[-1 - shared]), _branch(spec, right[-1 - shared])
    if from_left is None or from_right != from_left + 1:
        return False
    below_left, below_right = left[: len(left) - 1 - shared], right[: len(right) - 1 - shared]
    return _is_edge(spec, below_left, len(spec.child_order) - 1) and _is_edge(spec, below_right, 0)


def _is_edge(spec: InnerSpec, path: Sequence[InnerOp], edge: int) -> bool:
    """Every step comes from the outermost branch, or all branches further out are empty."""
    return all(_branch(spec, step) == edge or _outer_are_empty(spec, step, edge) for step in path)


def _branch(spec: InnerSpec, step: InnerOp) -> int | None:
    """Which child of its parent a step comes from; None if its sizes fit no child."""
    for branch in range(len(spec.child_order)):
        place = spec.child_order.index(branch)
        before, after = place * spec.child_size, (len(spec.child_order) - 1 - place) * spec.child_size
        if spec.min_prefix_length <= len(step.prefix) - before <= spec.max_prefix_length and len(step.suffix) == after:
            return branch
    return None


def _outer_are_empty(spec: InnerSpec, step: InnerOp, edge: int) -> bool:
    """Whether the siblings between a step's child and an edge are all empty subtrees."""
    branch = _branch(spec, step)
    if branch is None or not spec.empty_child:
        return False
    siblings = branch if edge == 0 else len(spec.child_order) - 1 - branch
    outside = step.prefix[len(step.prefix) - siblings * spec.child_size :] if edge == 0 else step.suffix
    return siblings > 0 and outside == spec.empty_child * siblings
