"""Ids, nodes and transactions for the tests of the shards, right and wrong."""

import hashlib

from chainlake.shards.build import create_stream, set_last_miniblock
from chainlake.shards.fold import FinalizedBlock, finalize_block
from chainlake.shards.registry import NodeRecord, NodeRegistry
from chainlake.shards.state import StreamState
from chainlake.shards.transactions import MiniblockUpdate

NODES = [bytes([0xA0 + number]) * 20 for number in range(5)]
LATE = b"\xbb" * 20
STRANGER = b"\xee" * 20
REGISTRY = NodeRegistry([*(NodeRecord(address, 10 + number, 1) for number, address in enumerate(NODES)), NodeRecord(LATE, 99, 5)])


def hash_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def space(name: str) -> bytes:
    """The well-formed id of a space."""
    return (b"\x10" + hash_of(name)[:20]).ljust(32, b"\0")


def created(name: str = "a", nodes: list[bytes] | None = None, factor: int = 1, sealed: bool = False, num: int = 0) -> bytes:
    return create_stream(space(name), hash_of(f"{name} {num}"), nodes or NODES[:2], factor, num, sealed)


def next_of(name: str, num: int, prev: str | None = None, sealed: bool = False) -> MiniblockUpdate:
    """Miniblock `num` of a stream of `created`, or one on top of something else."""
    return MiniblockUpdate(space(name), hash_of(prev or f"{name} {num - 1}"), num, hash_of(f"{name} {num}"), sealed)


def advanced(name: str, num: int, prev: str | None = None, sealed: bool = False) -> bytes:
    one = next_of(name, num, prev, sealed)
    return set_last_miniblock(*(getattr(one, field) for field in MiniblockUpdate.__dataclass_fields__))


class Chain:
    """A shard from height 1 on, block by block."""

    def __init__(self, registry: NodeRegistry = REGISTRY) -> None:
        self.streams: dict[bytes, StreamState] = {}
        self.height = 0
        self.registry = registry

    def block(self, *transactions: bytes) -> FinalizedBlock:
        found = finalize_block(self.streams, self.height, self.height + 1, transactions, self.registry)
        self.streams.update(found.changed)
        self.height += 1
        return found

    def codes(self, *transactions: bytes) -> list[int]:
        return [int(result.code) for result in self.block(*transactions).results]

    def events(self, *transactions: bytes) -> list[tuple[str, str | None]]:
        """(type, message) of all events."""
        return [
            (event.type, dict(event.attributes).get("msg"))
            for result in self.block(*transactions).results
            for event in result.events
        ]
