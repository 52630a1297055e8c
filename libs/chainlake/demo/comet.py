"""A metadata shard on CometBFT: streams are created, get miniblocks, move between nodes and are sealed.

Transactions are MetadataTx messages encoded here field by field, so that the demo does not depend on the decoder that it
exercises. About one in ten must fail. App hashes are the placeholder, SHA-256 of the height as a big-endian u64, or the state
root (`app_hash="tree"`), for which the shard is run beside.
"""

import base64
import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import xxhash

from chainlake.demo import write_pieces
from chainlake.shards.machine import Shard as Machine
from chainlake.shards.placement import chain_id_of
from chainlake.shards.registry import NodeRecord, NodeRegistry
from chainlake.sources.wire import field_bytes, field_int

SHARDS = 1024
NODES = 8
START = datetime(2025, 1, 1, tzinfo=timezone.utc)
STREAM_KINDS = {0x10: 21, 0x20: 32, 0x88: 32, 0x77: 32, 0xFF: 32, 0xA8: 21, 0xA5: 21, 0xA1: 21, 0xAD: 21}
EMPTY = hashlib.sha256().hexdigest().upper()

Json = dict[str, Any]


@dataclass
class Stream:
    """What the chain holds of a stream before the next block."""

    stream_id: bytes
    last_hash: bytes
    last_num: int
    sealed: bool = False


@dataclass
class Shard:
    """The generator's own view of the shard, so that it knows what will succeed."""

    number: int
    rng: random.Random
    nodes: list[bytes]
    streams: list[Stream] = field(default_factory=list)

    def new_id(self) -> bytes:
        """A well-formed stream id that belongs to this shard."""
        while True:
            kind = self.rng.choice(list(STREAM_KINDS))
            found = (bytes([kind]) + self.rng.randbytes(STREAM_KINDS[kind] - 1)).ljust(32, b"\0")
            if xxhash.xxh64_intdigest(found) % SHARDS == self.number:
                return found

    def create(self, created: list[Stream]) -> bytes:
        """A new stream on some nodes."""
        stream = Stream(self.new_id(), self.rng.randbytes(32), 0)
        created.append(stream)
        return self.create_tx(stream)

    def create_tx(self, stream: Stream) -> bytes:
        """The transaction that creates a stream."""
        nodes = self.rng.sample(self.nodes, self.rng.randint(1, 5))
        metadata = field_bytes(1, stream.stream_id) + field_bytes(2, stream.last_hash) + field_int(3, stream.last_num)
        metadata += b"".join(field_bytes(4, node) for node in nodes) + field_int(5, self.rng.randint(1, len(nodes)))
        return field_bytes(1, field_bytes(1, metadata))

    def batch(self, streams: list[Stream]) -> bytes:
        """The next miniblock of each stream; now and then one with a wrong number, or the last before a seal."""
        items = b""
        for stream in streams:
            wrong, sealed, new = self.rng.random() < 0.05, self.rng.random() < 0.02, self.rng.randbytes(32)
            item = field_bytes(1, stream.stream_id) + field_bytes(2, stream.last_hash)
            item += field_int(3, stream.last_num + (2 if wrong else 1)) + field_bytes(4, new) + field_int(5, int(sealed))
            items += field_bytes(1, item)
            if not wrong:
                stream.last_hash, stream.last_num, stream.sealed = new, stream.last_num + 1, sealed
        return field_bytes(2, items)

    def place(self, stream: Stream) -> bytes:
        """Another set of nodes for a stream."""
        nodes = self.rng.sample(self.nodes, self.rng.randint(2, 5))
        update = field_bytes(1, stream.stream_id) + b"".join(field_bytes(2, node) for node in nodes) + field_int(3, 2)
        return field_bytes(3, update)

    def failing(self) -> bytes:
        """A transaction that is refused: a duplicate, an unknown stream, an unknown node, or no protobuf at all."""
        known = self.rng.choice(self.streams)
        unknown = Stream(self.new_id(), bytes(32), 0)
        stranger = field_bytes(3, field_bytes(1, known.stream_id) + field_bytes(2, b"\xee" * 20))
        return self.rng.choice([self.create_tx(known), self.place(unknown), stranger, b"\xff\xff\xff"])

    def transactions(self) -> list[bytes]:
        """What one block holds. Checks are against the state before the block, so new streams join after it."""
        created: list[Stream] = []
        found = [self.create(created) for _ in range(self.rng.randint(0 if self.streams else 2, 3))]
        open_streams = [stream for stream in self.streams if not stream.sealed]
        if open_streams:
            found.append(self.batch(self.rng.sample(open_streams, min(len(open_streams), self.rng.randint(1, 12)))))
        if self.streams and self.rng.random() < 0.4:
            found.append(self.place(self.rng.choice(self.streams)))
        if self.streams and self.rng.random() < 0.4:
            found.append(self.failing())
        self.streams += created
        return found


def node_addresses(seed: int = 1) -> list[bytes]:
    """The nodes that the registry knows."""
    return [hashlib.sha256(f"node {seed} {index}".encode()).digest()[:20] for index in range(NODES)]


def registry(seed: int = 1) -> NodeRegistry:
    """The same as a registry."""
    return NodeRegistry(NodeRecord(address, index, 1) for index, address in enumerate(node_addresses(seed), start=1))


def blocks(count: int, seed: int = 1, shard: int = 0, app_hash: str = "placeholder") -> Iterator[Json]:
    """`count` blocks from height 1, as `/block` results."""
    state = Shard(shard, random.Random(f"comet {seed} {shard}"), node_addresses(seed))
    drafts = ([] if state.rng.random() < 0.1 and height > 1 else state.transactions() for height in range(1, count + 1))
    return linked(drafts, Machine(registry(seed), app_hash), shard, state.rng)


def linked(
    drafts: Iterable[list[bytes]], machine: Machine, shard: int, rng: random.Random, after: Json | None = None
) -> Iterator[Json]:
    """Transactions of blocks as `/block` results, with the app hashes that the machine comes to: from height 1 on, or after a
    block that the machine has run."""
    last: Json = after["block_id"] if after else {"hash": "", "parts": {"total": 0, "hash": ""}}
    for height, transactions in enumerate(drafts, start=1 + (machine.height or 0)):
        block = _block(shard, height, last, transactions, rng, machine.app_hash)
        if machine.mode == "tree":
            machine.run(height, transactions)
        else:
            machine.height = height
        last = block["block_id"]
        yield block


def write(directory: Path, count: int, seed: int = 1, shard: int = 0, app_hash: str = "placeholder") -> list[Path]:
    """The blocks as JSON lines, and the registry of nodes."""
    lines = (json.dumps(block, separators=(",", ":")).encode() + b"\n" for block in blocks(count, seed, shard, app_hash))
    nodes = (
        json.dumps({"address": "0x" + address.hex(), "permanent_index": index, "from_height": 1}).encode() + b"\n"
        for index, address in enumerate(node_addresses(seed), start=1)
    )
    return [
        write_pieces(directory / "blocks.jsonl", lines),
        write_pieces(directory / "options" / "registry.jsonl", nodes),
    ]


def _upper(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest().upper()


def _header(shard: int, height: int, last: Json, transactions: list[bytes], rng: random.Random, app_hash: bytes) -> Json:
    time = START + timedelta(seconds=height, microseconds=rng.randrange(10**6))
    return {
        "version": {"block": "11"},
        "chain_id": chain_id_of(shard),
        "height": str(height),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S.%f") + f"{rng.randrange(1, 1000):03d}Z",
        "last_block_id": last,
        "last_commit_hash": _upper(b"commit", last["hash"].encode()),
        "data_hash": _upper(*(hashlib.sha256(tx).digest() for tx in transactions)),
        "validators_hash": _upper(b"validators"),
        "next_validators_hash": _upper(b"validators"),
        "consensus_hash": _upper(b"consensus"),
        "app_hash": app_hash.hex().upper(),
        "last_results_hash": EMPTY,
        "evidence_hash": EMPTY,
        "proposer_address": _upper(b"proposer")[:40],
    }


def _block(shard: int, height: int, last: Json, transactions: list[bytes], rng: random.Random, app_hash: bytes) -> Json:
    header = _header(shard, height, last, transactions, rng, app_hash)
    name = _upper(json.dumps(header).encode())
    return {
        "block_id": {"hash": name, "parts": {"total": 1, "hash": _upper(name.encode())}},
        "block": {
            "header": header,
            "data": {"txs": [base64.b64encode(tx).decode() for tx in transactions]},
            "evidence": {"evidence": []},
            "last_commit": {"height": str(height - 1), "round": 0, "block_id": last, "signatures": []},
        },
    }
