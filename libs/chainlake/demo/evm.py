"""An EVM chain with the skew of mainnet: few contracts make most logs, most logs are transfers, some blocks are empty.

Hashes are Keccak-256 and link; blooms are real. Most blocks have their logs beside them, every seventh its receipts.
"""

import functools
import json
import random
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import sha3

from chainlake.demo import write_pieces
from chainlake.encoding import to_hex

GENESIS_TIME = 1_700_000_000
BLOCK_SECONDS = 12
GAS_LIMIT = 30_000_000

Json = dict[str, Any]


def keccak(data: bytes) -> bytes:
    """Keccak-256 as Ethereum has it."""
    digest: bytes = sha3.keccak_256(data).digest()
    return digest


TRANSFER = keccak(b"Transfer(address,address,uint256)")
APPROVAL = keccak(b"Approval(address,address,uint256)")
SWAP = keccak(b"Swap(address,uint256,uint256,uint256,uint256,address)")
SYNC = keccak(b"Sync(uint112,uint112)")


@functools.lru_cache(maxsize=1 << 17)
def bloom_bits(value: bytes) -> int:
    """The three bits of an address or topic in a 2,048-bit bloom."""
    digest = keccak(value)
    return functools.reduce(lambda bits, at: bits | 1 << (int.from_bytes(digest[at : at + 2], "big") & 2047), (0, 2, 4), 0)


@dataclass(frozen=True)
class World:
    """Who is there, and how often each is met."""

    contracts: list[tuple[str, bytes]]
    users: list[bytes]
    contract_weights: list[float]
    user_weights: list[float]

    @classmethod
    def make(cls, seed: int, contracts: int, users: int) -> "World":
        """Contracts and users with Zipf weights; seven of ten contracts are ERC-20 tokens."""
        kinds = ("erc20", "erc20", "pool", "erc20", "erc20", "erc721", "erc20", "pool", "erc20", "anonymous")
        return cls(
            [(kinds[rank % 10], keccak(f"contract {seed} {rank}".encode())[12:]) for rank in range(contracts)],
            [keccak(f"user {seed} {rank}".encode())[12:] for rank in range(users)],
            list(accumulate(1 / (rank + 1) ** 1.1 for rank in range(contracts))),
            list(accumulate(1 / (rank + 1) ** 0.8 for rank in range(users))),
        )

    def contract(self, rng: random.Random) -> tuple[str, bytes]:
        """A contract, the first ones most often."""
        return self.contracts[bisect(self.contract_weights, rng.random() * self.contract_weights[-1])]

    def user(self, rng: random.Random) -> bytes:
        """A user's address as a topic."""
        return bytes(12) + self.users[bisect(self.user_weights, rng.random() * self.user_weights[-1])]


def blocks(count: int, seed: int = 1, logs_per_block: int = 40, contracts: int = 300, users: int = 5_000) -> Iterator[Json]:
    """`count` blocks from number 0, as lines of the evm format."""
    rng, world = random.Random(f"evm {seed}"), World.make(seed, contracts, users)
    parent = bytes(32)
    for number in range(count):
        transactions = _transactions(rng, world, number, _log_count(rng, logs_per_block))
        block = _header(rng, number, parent, transactions)
        parent = bytes.fromhex(block["hash"][2:])
        _place(transactions, block)
        if number % 7 == 3:
            yield {"block": block, "receipts": [_receipt(block, index, *one) for index, one in enumerate(transactions)]}
        else:
            yield {"block": block, "logs": [log for _, logs in transactions for log in logs]}


def write(directory: Path, count: int, seed: int = 1) -> list[Path]:
    """One file of JSON lines."""
    lines = (json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in blocks(count, seed))
    return [write_pieces(directory / "blocks.jsonl", lines)]


def _log_count(rng: random.Random, mean: int) -> int:
    """Every twentieth block is empty, every twentieth three times as full."""
    draw = rng.random()
    if draw < 0.05:
        return 0
    return int(rng.gauss(mean, mean / 4) * (3 if draw > 0.95 else 1)) if mean else 0


def _transactions(rng: random.Random, world: World, number: int, logs: int) -> list[tuple[str, list[Json]]]:
    found: list[tuple[str, list[Json]]] = []
    while logs > 0:
        size = 0 if rng.random() < 0.3 else min(logs, 1 + int(rng.expovariate(0.5)))
        name = to_hex(keccak(f"transaction {number} {len(found)} {rng.random()}".encode()))
        found.append((name, [_log(rng, world) for _ in range(size)]))
        logs -= size
    return found


def _log(rng: random.Random, world: World) -> Json:
    kind, address = world.contract(rng)
    topics, words = _shape(rng, kind, world)
    data = b"".join(rng.getrandbits(96).to_bytes(32, "big") for _ in range(words))
    return {"address": to_hex(address), "topics": [to_hex(topic) for topic in topics], "data": to_hex(data)}


def _shape(rng: random.Random, kind: str, world: World) -> tuple[list[bytes], int]:
    """(topics, words of data) of a log of a kind of contract."""
    if kind == "anonymous":
        return [], rng.randint(1, 3)
    if kind == "pool" and rng.random() < 0.5:
        return [SYNC], 2
    first, second = world.user(rng), world.user(rng)
    if kind == "pool":
        return [SWAP, first, second], 4
    if kind == "erc721":
        return [TRANSFER, first, second, rng.randrange(10_000).to_bytes(32, "big")], 0
    return [APPROVAL if rng.random() < 0.15 else TRANSFER, first, second], 1


def bloom(logs: list[Json]) -> str:
    """The logsBloom of logs."""
    bits = 0
    for log in logs:
        for value in (log["address"], *log["topics"]):
            bits |= bloom_bits(bytes.fromhex(value[2:]))
    return to_hex(bits.to_bytes(256, "big"))


def _header(rng: random.Random, number: int, parent: bytes, transactions: list[tuple[str, list[Json]]]) -> Json:
    logs = [log for _, found in transactions for log in found]
    bits = bloom(logs)
    header: Json = {
        "number": hex(number),
        "parentHash": to_hex(parent),
        "timestamp": hex(GENESIS_TIME + number * BLOCK_SECONDS),
        "logsBloom": bits,
        "transactionsRoot": to_hex(keccak("".join(name for name, _ in transactions).encode())),
        "receiptsRoot": to_hex(keccak(bits.encode() + parent)),
        "stateRoot": to_hex(rng.randbytes(32)),
        "miner": to_hex(keccak(f"miner {rng.randrange(20)}".encode())[12:]),
        "gasLimit": hex(GAS_LIMIT),
        "gasUsed": hex(21_000 * len(transactions) + 30_000 * len(logs)),
        "baseFeePerGas": hex(rng.randrange(5, 80) * 10**9),
        "extraData": "0x",
        "transactions": [name for name, _ in transactions],
    }
    return {"hash": to_hex(keccak(json.dumps(header).encode())), **header}


def _place(transactions: list[tuple[str, list[Json]]], block: Json) -> None:
    """Writes into each log where it is, as nodes answer it."""
    index = 0
    for position, (name, logs) in enumerate(transactions):
        for log in logs:
            log |= {"blockNumber": block["number"], "blockHash": block["hash"], "blockTimestamp": block["timestamp"]}
            log |= {
                "transactionHash": name,
                "transactionIndex": hex(position),
                "logIndex": hex(index),
                "removed": False,
            }
            index += 1


def _receipt(block: Json, index: int, name: str, logs: list[Json]) -> Json:
    return {
        "transactionHash": name,
        "transactionIndex": hex(index),
        "blockHash": block["hash"],
        "blockNumber": block["number"],
        "status": "0x1",
        "type": "0x2",
        "gasUsed": hex(21_000 + 30_000 * len(logs)),
        "logsBloom": bloom(logs),
        "logs": logs,
    }
