"""Nodes of the compact sparse Merkle tree, each with its whole path: so any set of them, leaves or tops of parts, can be joined.

A node's path is the bits that all keys under it share. Below a place at `position` its jump is what its path has from there on.
The hash of two nodes that part at a bit is that of their jumps after the bit and their values; nothing says whether a node is a
leaf. So keys must not be prefixes of each other, and callers that take keys from strangers check that they are keys at all.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from chainlake.errors import BadInput
from chainlake.merkle.blake import HASH, blake

MOST_BITS = 0xFFFF
_VALUE_HEAD = HASH.to_bytes(2, "big")


class Bits(NamedTuple):
    """A string of bits, the most significant first."""

    size: int
    number: int

    def first(self, size: int) -> "Bits":
        return Bits(size, self.number >> self.size - size)

    def after(self, position: int) -> "Bits":
        size = self.size - position
        return Bits(size, self.number & (1 << size) - 1)

    def bit(self, position: int) -> int:
        return self.number >> self.size - position - 1 & 1

    def parts_from(self, other: "Bits") -> int | None:
        """The first bit that differs; None when one is a prefix of the other."""
        size = min(self.size, other.size)
        differs = (self.number >> self.size - size) ^ (other.number >> other.size - size)
        return size - differs.bit_length() if differs else None

    def __str__(self) -> str:
        return f"{self.number:0{self.size}b}" if self.size else ""


class Node(NamedTuple):
    """The bits that all keys under a node share, and its 32-byte value."""

    size: int
    number: int
    value: bytes

    @property
    def path(self) -> Bits:
        return Bits(self.size, self.number)

    def to_bytes(self, position: int = 0) -> bytes:
        """The node as it is hashed below a place at `position`: its jump from there, and its value."""
        bits, number, value = self
        count = bits - position
        size = count + 7 >> 3
        jump = count << count | number & (1 << count) - 1
        return (jump << 8 * size - count).to_bytes(2 + size, "big") + _VALUE_HEAD + value

    @staticmethod
    def from_bytes(data: bytes) -> "Node":
        """A node of which `to_bytes()` gave the bytes."""
        count = int.from_bytes(data[:2], "big")
        size = count + 7 >> 3
        number = int.from_bytes(data[2 : 2 + size], "big")
        node = Node(count, number >> 8 * size - count, data[4 + size :])
        if len(node.value) != HASH or node.to_bytes() != data:
            raise BadInput(f"{data[:40].hex()} is no node of a compact sparse Merkle tree: its bytes do not add up")
        return node

    def root(self) -> bytes:
        """The root of a tree with this node on top."""
        return blake(self.to_bytes())


def bits_of(key: bytes) -> Bits:
    """The path of a key."""
    if not 0 < 8 * len(key) <= MOST_BITS:
        raise BadInput(f"a key has {len(key)} bytes: a tree takes keys of 1 to {MOST_BITS // 8}")
    return Bits(8 * len(key), int.from_bytes(key, "big"))


def leaf(key: bytes, value_hash: bytes) -> Node:
    """The node of a key."""
    return Node(*bits_of(key), value_hash)


def join(left: Node, right: Node, bit: int) -> Node:
    """The node of two that part at `bit`, in which neither has it in its jump."""
    value = blake(left.to_bytes(bit + 1) + right.to_bytes(bit + 1))
    return Node(bit, left.number >> left.size - bit, value)


def in_order(nodes: Iterable[Node]) -> list[Node]:
    """Nodes from left to right."""
    found = list(nodes)
    longest = max((node.size for node in found), default=0)
    return sorted(found, key=lambda node: node.number << longest - node.size)


def fold(nodes: Sequence[Node]) -> Node | None:
    """The top over nodes that are in order; None if there are none. What is left of a place is joined before what is right."""
    open_nodes: list[Node] = []
    parts: list[int] = []
    last: Node | None = None
    for node in nodes:
        if last is not None:
            bit = parting(last, node)
            while parts and parts[-1] > bit:
                _close(open_nodes, parts)
            parts.append(bit)
        open_nodes.append(node)
        last = node
    while parts:
        _close(open_nodes, parts)
    return open_nodes[0] if open_nodes else None


def parting(one: Node, other: Node) -> int:
    """The bit at which two nodes part."""
    bit = one.path.parts_from(other.path)
    if bit is None:
        raise BadInput(f"one key is a prefix of another, {str(one.path)[:64]}…: such keys cannot be in one tree")
    return bit


def _close(open_nodes: list[Node], parts: list[int]) -> None:
    right = open_nodes.pop()
    open_nodes.append(join(open_nodes.pop(), right, parts.pop()))
