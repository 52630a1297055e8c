"""Proofs of the Merkle Patricia Forestry: what they say, how they are written, how they are verified.

A proof has a step per branch from the root to the key. `skip` is the length of the branch's prefix. Where the branch has one
other child, the step is that child, a `LeafStep` or a `ForkStep`; otherwise a `BranchStep` with the hashes beside the way
through the sixteen children, at sizes 8, 4, 2 and 1. The proof that a key is absent is the one it would have if it were there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cbor2

from chainlake.encoding import excerpt, from_hex
from chainlake.errors import BadInput
from chainlake.merkle.blake import HASH, blake
from chainlake.merkle.cbor_reader import CborReader
from chainlake.merkle.radix import nibbles, shared

EMPTY = bytes(HASH)
DEPTH = 2 * HASH
MOST_BYTES = 16 << 10
_BRANCH, _FORK, _LEAF, _NEIGHBOR = b"\xd8\x79\x9f", b"\xd8\x7a\x9f", b"\xd8\x7b\x9f", b"\xd8\x79\x9f"
_LIST, _CHUNKS, _END = b"\x9f", b"\x5f", b"\xff"
_ONLY_NIBBLES = bytes(range(16))
_ODD = [bytes([0, byte & 15]) for byte in range(256)]


@dataclass(frozen=True)
class BranchStep:
    """A branch with no or several other children."""

    skip: int
    neighbors: bytes

    def __post_init__(self) -> None:
        _check(self.skip, ("neighbors", self.neighbors, 4 * HASH))


@dataclass(frozen=True)
class ForkStep:
    """A branch whose only other child is a branch: at `nibble`, with `prefix` and the Merkle root of its children."""

    skip: int
    nibble: int
    prefix: bytes
    root: bytes

    def __post_init__(self) -> None:
        _check(self.skip, ("root", self.root, HASH))
        if not 0 <= self.nibble < 16 or len(self.prefix) >= DEPTH or self.prefix.translate(None, _ONLY_NIBBLES):
            raise BadInput(f"a fork has nibble {self.nibble} and prefix {self.prefix[:DEPTH].hex()}: nibbles are below 16")


@dataclass(frozen=True)
class LeafStep:
    """A branch whose only other child is a leaf: the hashes of its key and value."""

    skip: int
    key: bytes
    value: bytes

    def __post_init__(self) -> None:
        _check(self.skip, ("key", self.key, HASH), ("value", self.value, HASH))


Step = BranchStep | ForkStep | LeafStep


@dataclass(frozen=True)
class Proof:
    """That a key is in a trie with some value, or that it is not."""

    steps: tuple[Step, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """As the reference implementation writes it: hex without 0x, prefixes one byte per nibble."""
        return [_step_to_json(step) for step in self.steps]

    @staticmethod
    def from_json(value: object) -> "Proof":
        if not isinstance(value, list) or len(value) > DEPTH:
            raise BadInput(f"a proof is a list of at most {DEPTH} steps, not {excerpt(value)}")
        return Proof(tuple(_step_from_json(step) for step in value))

    def to_bytes(self) -> bytes:
        """The CBOR that validators take, as Plutus Data."""
        return _LIST + b"".join(_step_to_bytes(step) for step in self.steps) + _END

    @staticmethod
    def from_bytes(data: bytes) -> "Proof":
        """Only the form that `to_bytes` writes: no proof has two."""
        reader = CborReader(data, MOST_BYTES)
        reader.expect(_LIST)
        steps: list[Step] = []
        while not reader.follows(_END):
            steps.append(_step_from_bytes(reader))
        reader.end()
        if len(steps) > DEPTH:
            raise BadInput(f"a proof has {len(steps)} steps, and a path only {DEPTH} nibbles: it is not one")
        return Proof(tuple(steps))


def verify(root: bytes, key: bytes, value: bytes | None, proof: Proof) -> bool:
    """Whether the proof shows that `key` has `value` in the trie with this root; or, with None, that it is not in it.

    As sound as what validators check, and no more: of a root that was never a trie's, but made up of hashes to deceive, both may
    be shown, since a branch with a long prefix can be written like a leaf.
    """
    path = nibbles(blake(key))
    ends = _ends(path, proof)
    if ends is None:
        return False
    return root == (_without(path, proof, ends) if value is None else _with(path, blake(value), proof, ends))


def climb(key: bytes, value: bytes | None, proof: Proof) -> list[bytes]:
    """The hashes that `verify` makes, from the key's place up to the root; none if the steps do not fit the key."""
    path = nibbles(blake(key))
    ends = _ends(path, proof)
    if ends is None:
        return []
    found, count = (_leaf(path, blake(value), ends), len(ends)) if value is not None else _left(path, proof, ends)
    hashes = [found]
    for at in reversed(range(count)):
        hashes.append(_climb(path, hashes[-1], proof.steps[at : at + 1], ends[at : at + 1]))
    return hashes


def leaf_hash(key: bytes, depth: int, value: bytes) -> bytes:
    """The hash of a leaf that hangs at `depth`: of what its path has left, and its value's hash."""
    return blake(tail(key + value, 0, depth))


def tail(leaf: bytes, begin: int, depth: int) -> bytes:
    """What is hashed of a leaf whose key, which begins there, and value's hash are written one after the other."""
    at = begin + (depth >> 1)
    return _ODD[leaf[at]] + leaf[at + 1 :] if depth & 1 else b"\xff" + leaf[at:]


def _ends(path: bytes, proof: Proof) -> list[int] | None:
    """Where in the path each step's branch parts; None if the steps do not fit the path."""
    ends: list[int] = []
    cursor = 0
    for step in proof.steps:
        at = cursor + step.skip
        if at >= DEPTH:
            return None
        if isinstance(step, LeafStep) and shared(nibbles(step.key), path) != at:
            return None
        if isinstance(step, ForkStep) and (step.nibble == path[at] or at + 1 + len(step.prefix) >= DEPTH):
            return None
        ends.append(at)
        cursor = at + 1
    return ends


def _with(path: bytes, value: bytes, proof: Proof, ends: list[int]) -> bytes:
    """The root of the trie that holds the key."""
    return _climb(path, _leaf(path, value, ends), proof.steps, ends)


def _without(path: bytes, proof: Proof, ends: list[int]) -> bytes:
    """The root of the trie that differs only by not having the key."""
    found, count = _left(path, proof, ends)
    return _climb(path, found, proof.steps[:count], ends[:count])


def _leaf(path: bytes, value: bytes, ends: list[int]) -> bytes:
    """The hash of the key's leaf."""
    return leaf_hash(_packed(path), ends[-1] + 1 if ends else 0, value)


def _left(path: bytes, proof: Proof, ends: list[int]) -> tuple[bytes, int]:
    """The hash of what there is without the key, and how many steps are above it: its branch goes where one neighbour is left."""
    if not ends or isinstance(proof.steps[-1], BranchStep):
        return EMPTY, len(ends)
    last, depth = proof.steps[-1], ends[-2] + 1 if len(ends) > 1 else 0
    if isinstance(last, LeafStep):
        return leaf_hash(last.key, depth, last.value), len(ends) - 1
    return blake(path[depth : ends[-1]] + bytes([last.nibble]) + last.prefix + last.root), len(ends) - 1


def _climb(path: bytes, found: bytes, steps: tuple[Step, ...], ends: list[int]) -> bytes:
    """The root above a node with this hash that hangs below the last step."""
    for step, at in zip(reversed(steps), reversed(ends), strict=True):
        found = blake(path[at - step.skip : at] + _merkle(path[at], found, step, at))
    return found


def _merkle(nibble: int, found: bytes, step: Step, at: int) -> bytes:
    """The Merkle root of a branch's sixteen children."""
    if isinstance(step, BranchStep):
        for size in range(4):
            beside = step.neighbors[HASH * (3 - size) : HASH * (4 - size)]
            found = blake(beside + found if nibble >> size & 1 else found + beside)
        return found
    children = [EMPTY] * 16
    children[nibble] = found
    if isinstance(step, LeafStep):
        children[nibbles(step.key)[at]] = leaf_hash(step.key, at + 1, step.value)
    else:
        children[step.nibble] = blake(step.prefix + step.root)
    while len(children) > 1:
        children = [blake(left + right) for left, right in zip(children[::2], children[1::2], strict=True)]
    return children[0]


def _packed(path: bytes) -> bytes:
    return bytes(high << 4 | low for high, low in zip(path[::2], path[1::2], strict=True))


def _check(skip: int, *fields: tuple[str, bytes, int]) -> None:
    if not 0 <= skip < DEPTH:
        raise BadInput(f"a proof step skips {skip} nibbles of a path of {DEPTH}: it is none of this tree")
    for name, value, size in fields:
        if len(value) != size:
            raise BadInput(f"{name} of a proof step has {len(value)} bytes, not {size}: it is none of this tree")


def _step_to_bytes(step: Step) -> bytes:
    skip = cbor2.dumps(step.skip)
    if isinstance(step, BranchStep):
        halves = (step.neighbors[: 2 * HASH], step.neighbors[2 * HASH :])
        return _BRANCH + skip + _CHUNKS + b"".join(map(cbor2.dumps, halves)) + _END + _END
    if isinstance(step, ForkStep):
        neighbor = b"".join(map(cbor2.dumps, (step.nibble, step.prefix, step.root)))
        return _FORK + skip + _NEIGHBOR + neighbor + _END + _END
    return _LEAF + skip + cbor2.dumps(step.key) + cbor2.dumps(step.value) + _END


def _step_from_bytes(reader: CborReader) -> Step:
    step: Step
    if reader.follows(_BRANCH):
        skip = reader.unsigned()
        reader.expect(_CHUNKS)
        halves = reader.octets(), reader.octets()
        if len(halves[0]) != 2 * HASH:
            raise reader.refuse("has its neighbors in other pieces than 64 bytes")
        reader.expect(_END)
        step = BranchStep(skip, b"".join(halves))
    elif reader.follows(_FORK):
        skip = reader.unsigned()
        reader.expect(_NEIGHBOR)
        step = ForkStep(skip, reader.unsigned(), reader.octets(), reader.octets())
        reader.expect(_END)
    else:
        reader.expect(_LEAF)
        step = LeafStep(reader.unsigned(), reader.octets(), reader.octets())
    reader.expect(_END)
    return step


def _step_to_json(step: Step) -> dict[str, Any]:
    if isinstance(step, BranchStep):
        return {"type": "branch", "skip": step.skip, "neighbors": step.neighbors.hex()}
    if isinstance(step, ForkStep):
        neighbor = {"nibble": step.nibble, "prefix": step.prefix.hex(), "root": step.root.hex()}
        return {"type": "fork", "skip": step.skip, "neighbor": neighbor}
    return {"type": "leaf", "skip": step.skip, "neighbor": {"key": step.key.hex(), "value": step.value.hex()}}


def _step_from_json(step: object) -> Step:
    match step:
        case {"skip": bool()} | {"neighbor": {"nibble": bool()}}:
            pass  # Python takes it for a number, and it would be written as something else
        case {"type": "branch", "skip": int(skip), "neighbors": str(neighbors)}:
            return BranchStep(skip, from_hex(neighbors, "neighbors"))
        case {"type": "fork", "skip": int(skip), "neighbor": Mapping() as other}:
            match other:
                case {"nibble": int(nibble), "prefix": str(prefix), "root": str(root)}:
                    return ForkStep(skip, nibble, from_hex(prefix, "prefix"), from_hex(root, "root"))
        case {"type": "leaf", "skip": int(skip), "neighbor": {"key": str(key), "value": str(value)}}:
            return LeafStep(skip, from_hex(key, "key"), from_hex(value, "value"))
    raise BadInput(f"a proof step is none of branch, fork and leaf: {excerpt(step)}")
