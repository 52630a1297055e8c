"""Ids, nodes and transactions for the tests of the shards, right and wrong."""

import hashlib
import random

from chainlake.shards.build import create_stream, set_last_miniblock
from chainlake.shards.codec import encode
from chainlake.shards.fold import FinalizedBlock, finalize_block
from chainlake.shards.registry import NodeRecord, NodeRegistry
from chainlake.shards.state import StreamState
from chainlake.shards.transactions import (
    CreateStreamTx,
    MiniblockUpdate,
    SetStreamLastMiniblockBatchTx,
    StreamMetadata,
    UpdateStreamNodesAndReplicationTx,
)

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
    return set_last_miniblock(*next_of(name, num, prev, sealed))


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


def conflicting_blocks(seed: int, count: int, names: int = 40, transactions: int = 6) -> list[list[bytes]]:
    """Blocks in which many operations meet on few streams; of every kind some succeed and some fail."""
    rng = random.Random(seed)
    ids = [space(f"{seed} {number}") for number in range(names)] + [b"\x11" * 32]
    two = [hash_of("x"), hash_of("y")]

    def nodes() -> tuple[bytes, ...]:
        return tuple(rng.choices([*NODES, LATE, STRANGER], [8] * 5 + [4, 1], k=rng.randint(1, 3)))

    def transaction() -> bytes:
        kind = rng.random()
        if kind < 0.35:
            stream = StreamMetadata(rng.choice(ids), rng.choice(two), rng.randint(0, 1), nodes(), 1, rng.random() < 0.1)
            return encode(CreateStreamTx(stream))
        if kind < 0.75:
            some = [
                MiniblockUpdate(rng.choice(ids), rng.choice(two), rng.randint(1, 3), rng.choice(two), rng.random() < 0.1)
                for _ in range(rng.randint(0, 12))
            ]
            return encode(SetStreamLastMiniblockBatchTx(tuple(some)))
        if kind < 0.95:
            return encode(UpdateStreamNodesAndReplicationTx(rng.choice(ids), nodes(), rng.randint(0, 2)))
        return rng.choice([b"\xff", b"", b"\x0a\x00"])

    return [[transaction() for _ in range(rng.randint(0, 2 * transactions))] for _ in range(count)]
