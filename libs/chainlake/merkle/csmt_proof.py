"""Proofs of the compact sparse Merkle tree.

An inclusion proof shows a node: its path, its value and, from the node up, what is beside the way. An exclusion proof shows a
node that the absent key's path leaves in the middle of a jump, where nothing can hang. In an empty tree there is nothing to show.

CBOR: `[path, value, steps, root jump]` for inclusion, a step being `[bits consumed, [jump, value]]` of the sibling and bits being
lists of 0 and 1; `[1, absent path, inclusion]` for exclusion, `[0]` for an empty tree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cbor2

from chainlake.encoding import excerpt, from_hex
from chainlake.errors import BadInput
from chainlake.merkle.blake import HASH, blake
from chainlake.merkle.cbor_reader import CborReader
from chainlake.merkle.csmt_node import MOST_BITS, Bits, Node, bits_of

MOST_BYTES = 1 << 20
_EMPTY = b"\x81\x00"
_EXCLUSION = b"\x83\x01"
_INCLUSION = b"\x84"
_DIGITS = bytes(b"01"[byte] if byte < 2 else 0x78 for byte in range(256))


@dataclass(frozen=True)
class Step:
    """One place where the way parts: the bits that the way takes from there (the side, then its jump), and what is beside it."""

    consumed: int
    sibling: Node

    def __post_init__(self) -> None:
        if not 1 <= self.consumed <= MOST_BITS or self.sibling.size > MOST_BITS or len(self.sibling.value) != HASH:
            raise BadInput(
                f"a proof step of {self.consumed} bits beside a value of {len(self.sibling.value)} bytes is none of this tree"
            )


@dataclass(frozen=True)
class Witness:
    """A node of a tree, with the steps from it up to the root."""

    node: Node
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if len(self.node.value) != HASH or self.node.size > MOST_BITS or self.root_jump < 0:
            raise BadInput(
                f"a proof for {self.node.size} bits whose steps take more, or without a value hash, is none of this tree"
            )

    @property
    def root_jump(self) -> int:
        """How many bits the top's jump has: those that no step takes."""
        return self.node.size - sum(step.consumed for step in self.steps)

    def parts(self) -> list[int]:
        """The bits at which the way parts, the deepest first."""
        found: list[int] = []
        bit = self.node.size
        for step in self.steps:
            bit -= step.consumed
            found.append(bit)
        return found

    def root(self) -> bytes:
        """The root of a tree that has this node at this place."""
        path, node = self.node.path, self.node
        for bit, step in zip(self.parts(), self.steps, strict=True):
            own, beside = node.to_bytes(bit + 1), step.sibling.to_bytes()
            node = Node(*path.first(bit), blake(beside + own if path.bit(bit) else own + beside))
        return node.root()


@dataclass(frozen=True)
class Proof:
    """That a key is in a tree with some value (`absent` is None), or that it is not."""

    witness: Witness | None
    absent: Bits | None = None

    def __post_init__(self) -> None:
        if self.witness is None and self.absent is not None:
            raise BadInput("a proof that a key is absent shows no node: only that of an empty tree, without the key, does not")

    def to_json(self) -> dict[str, Any]:
        """For people: bits as text, hashes as hex."""
        if self.witness is None:
            return {"type": "empty"}
        proof: dict[str, Any] = {"type": "inclusion", **_witness_to_json(self.witness)}
        return proof if self.absent is None else {**proof, "type": "exclusion", "absent": str(self.absent)}

    @staticmethod
    def from_json(value: object) -> "Proof":
        match value:
            case {"type": "empty"}:
                return Proof(None)
            case {"type": "inclusion"}:
                return Proof(_witness_from_json(value))
            case {"type": "exclusion", "absent": str(absent)}:
                return Proof(_witness_from_json(value), _bits_from_text(absent))
        raise BadInput(f"a proof is of type inclusion, exclusion or empty, unlike {excerpt(value)}")

    def to_bytes(self) -> bytes:
        if self.witness is None:
            return _EMPTY
        shown = _witness_to_bytes(self.witness)
        return shown if self.absent is None else _EXCLUSION + cbor2.dumps(_bit_list(self.absent)) + shown

    @staticmethod
    def from_bytes(data: bytes) -> "Proof":
        """Only the form that `to_bytes` writes: no proof has two."""
        reader = CborReader(data, MOST_BYTES)
        if reader.follows(_EMPTY):
            proof = Proof(None)
        elif reader.follows(_EXCLUSION):
            absent = _read_bits(reader)
            proof = Proof(_read_witness(reader), absent)
        else:
            proof = Proof(_read_witness(reader))
        reader.end()
        return proof


def verify(root: bytes | None, key: bytes, value: bytes | None, proof: Proof) -> bool:
    """Whether the proof shows that `key` has `value` in the tree with this root; or, with None, that it is not in it.

    The root of an empty tree is None. Ask for whole keys only, such as `txin_key` makes: what all keys that begin alike have in
    common is no key, but an inner node passes for one, with what its value is the hash of.
    """
    shown = proof.witness
    if shown is None:
        return root is None and value is None
    path = bits_of(key)
    if value is not None:
        fits = proof.absent is None and shown.node == Node(*path, blake(value))
    else:
        fits = proof.absent == path and leaves_in_a_jump(path, shown)
    return fits and shown.root() == root


def leaves_in_a_jump(path: Bits, shown: Witness) -> bool:
    """Whether a path leaves the way to a node where nothing hangs beside it."""
    bit = path.parts_from(shown.node.path)
    return bit is not None and bit not in shown.parts()


def witness(node: Node, beside: Sequence[tuple[int, Node]]) -> Witness:
    """A node with what is beside the way to it: the bits where it parts and the siblings, from the root down."""
    steps: list[Step] = []
    end = node.size
    for bit, sibling in reversed(beside):
        steps.append(Step(end - bit, Node(*sibling.path.after(bit + 1), sibling.value)))
        end = bit
    return Witness(node, tuple(steps))


def _bit_list(bits: Bits) -> list[int]:
    return [int(digit) for digit in str(bits)]


def _witness_to_bytes(shown: Witness) -> bytes:
    steps = [[step.consumed, [_bit_list(step.sibling.path), step.sibling.value]] for step in shown.steps]
    path = shown.node.path
    return cbor2.dumps([_bit_list(path), shown.node.value, steps, _bit_list(path.first(shown.root_jump))])


def _read_witness(reader: CborReader) -> Witness:
    reader.expect(_INCLUSION)
    path, value = _read_bits(reader), reader.octets()
    shown = Witness(Node(*path, value), tuple(_read_step(reader) for _ in range(reader.list_of())))
    if _read_bits(reader) != path.first(shown.root_jump):
        raise reader.refuse("has a root jump that is not how its path begins")
    return shown


def _read_step(reader: CborReader) -> Step:
    reader.expect(b"\x82")
    consumed = reader.unsigned()
    reader.expect(b"\x82")
    return Step(consumed, Node(*_read_bits(reader), reader.octets()))


def _read_bits(reader: CborReader) -> Bits:
    count = reader.list_of()
    if count > MOST_BITS:
        raise reader.refuse(f"has a path of {count} bits")
    return _bits_from_text(reader.raw(count).translate(_DIGITS).decode())


def _bits_from_text(text: str) -> Bits:
    if len(text) > MOST_BITS or text.strip("01"):
        raise BadInput(f"a path in the proof is not made of 0 and 1, or longer than {MOST_BITS}: {text[:80]!r}")
    return Bits(len(text), int(text, 2) if text else 0)


def _witness_to_json(shown: Witness) -> dict[str, Any]:
    steps = [_node_to_json(step.sibling, "jump") | {"consumed": step.consumed} for step in shown.steps]
    return {**_node_to_json(shown.node, "path"), "steps": steps, "root_jump": str(shown.node.path.first(shown.root_jump))}


def _node_to_json(node: Node, name: str) -> dict[str, Any]:
    return {name: str(node.path), "value": node.value.hex()}


def _witness_from_json(proof: object) -> Witness:
    match proof:
        case {"path": str(path), "value": str(value), "steps": list(steps), "root_jump": str(jump)} if len(steps) <= MOST_BITS:
            node = Node(*_bits_from_text(path), from_hex(value, "value"))
            shown = Witness(node, tuple(_steps_from_json(steps)))
            if _bits_from_text(jump) == node.path.first(shown.root_jump):
                return shown
    raise BadInput(f"a proof has path, value, steps and the root jump that its path begins with, unlike {excerpt(proof)}")


def _steps_from_json(steps: Iterable[object]) -> Iterable[Step]:
    for step in steps:
        match step:
            case {"consumed": int(consumed), "jump": str(jump), "value": str(value)} if not isinstance(consumed, bool):
                yield Step(consumed, Node(*_bits_from_text(jump), from_hex(value, "value")))
            case _:
                raise BadInput(f"a proof step has consumed, jump and value, unlike {excerpt(step)}")
