"""A Cardano chain of Conway blocks, format-exact, written as CBOR by hand, with payments and two kinds of forks.

Every 500 heights there is a fork of depth 1 (after height 5) and one of depth 5 (after height 14). The file has blocks
in the order received: the branch that is abandoned first, then the one that stays. Every input that a payment spends
exists on its branch.
"""

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chainlake.demo import write_pieces
from chainlake.merkle.blake import blake

NETWORK_START = 1_720_000_000
SLOTS_PER_BLOCK = 20
CONWAY = 7
FORK_EVERY = 500
FORKS = {5: 1, 14: 5}
WALLETS = 40
GENESIS_OUTPUTS = 60

TxIn = tuple[bytes, int]
TxOut = tuple[bytes, int]


def head(major: int, argument: int) -> bytes:
    """The head of a CBOR item, in the fewest bytes."""
    if argument < 24:
        return bytes([major << 5 | argument])
    size = next(size for size in (1, 2, 4, 8) if argument < 1 << 8 * size)
    return bytes([major << 5 | 24 + size.bit_length() - 1]) + argument.to_bytes(size, "big")


def uint(value: int) -> bytes:
    """An unsigned number."""
    return head(0, value)


def octets(value: bytes) -> bytes:
    """A byte string."""
    return head(2, len(value)) + value


def array(*items: bytes) -> bytes:
    """A list of encoded items."""
    return head(4, len(items)) + b"".join(items)


def mapping(items: dict[int, bytes]) -> bytes:
    """A map from numbers to encoded items."""
    return head(5, len(items)) + b"".join(uint(key) + value for key, value in items.items())


@dataclass
class Branch:
    """The tip of a branch and the outputs that can be spent on it."""

    height: int
    parent: bytes | None
    utxos: list[tuple[TxIn, TxOut]]
    rng: random.Random

    def fork(self, name: str) -> "Branch":
        """Another branch from the same tip."""
        return Branch(self.height, self.parent, list(self.utxos), random.Random(name))

    def take(self) -> tuple[TxIn, TxOut]:
        """Spends some output; the last one moves into its place, so that a long chain is made as fast as a short one."""
        at = self.rng.randrange(len(self.utxos))
        self.utxos[at], self.utxos[-1] = self.utxos[-1], self.utxos[at]
        return self.utxos.pop()


def wallet(index: int) -> bytes:
    """A testnet enterprise address."""
    return b"\x60" + hashlib.blake2b(f"wallet {index}".encode(), digest_size=28).digest()


def encode_output(output: TxOut) -> bytes:
    """A post-Alonzo output: {0: address, 1: lovelace}."""
    return mapping({0: octets(output[0]), 1: uint(output[1])})


def genesis(seed: int = 1) -> dict[TxIn, TxOut]:
    """The outputs that exist before the first block."""
    source = blake(f"genesis {seed}".encode())
    return {(source, index): (wallet(index % WALLETS), 1_000_000_000) for index in range(GENESIS_OUTPUTS)}


def blocks(count: int, seed: int = 1, payments: int = 3) -> Iterator[bytes]:
    """A chain of `count` blocks from height 0, and the abandoned branches on the way, as `[era, block]` items."""
    main = Branch(0, None, list(genesis(seed).items()), random.Random(f"cardano {seed}"))
    while main.height < count:
        yield next_block(main, payments)
        depth = FORKS.get((main.height - 1) % FORK_EVERY, 0)
        if depth and main.height + depth <= count:
            abandoned = main.fork(f"cardano {seed} abandoned at {main.height}")
            yield from (next_block(abandoned, payments) for _ in range(depth))


def write(directory: Path, count: int, seed: int = 1) -> list[Path]:
    """The chunk file, and the outputs before it as JSON lines."""
    outputs = (
        json.dumps({"txin": f"{source.hex()}#{index}", "txout": encode_output(output).hex()}).encode() + b"\n"
        for (source, index), output in genesis(seed).items()
    )
    chunk = write_pieces(directory / "blocks.chunk", blocks(count, seed))
    return [chunk, write_pieces(directory / "options" / "genesis.jsonl", outputs)]


def next_block(branch: Branch, payments: int) -> bytes:
    """Builds a block on a branch and moves its tip."""
    bodies = [_payment(branch) for _ in range(branch.rng.randint(0, 2 * payments))]
    witnesses = [mapping({0: array(array(octets(blake(body)), octets(branch.rng.randbytes(64))))}) for body in bodies]
    segments = [array(*bodies), array(*witnesses), mapping({}), array()]
    top = header(branch.height, branch.parent, branch.rng, segments)
    branch.height, branch.parent = branch.height + 1, blake(top)
    return array(uint(CONWAY), array(top, *segments))


def _payment(branch: Branch) -> bytes:
    """Spends one or two outputs and pays two wallets; half of the bodies write their inputs as a tagged set."""
    rng = branch.rng
    spent = [branch.take() for _ in range(rng.randint(1, 2))]
    total = sum(lovelace for _, (_, lovelace) in spent)
    fee = min(170_000 + rng.randrange(10_000), total // 10)
    paid = (total - fee) * rng.randint(1, 9) // 10
    outputs = [(wallet(rng.randrange(WALLETS)), paid), (wallet(rng.randrange(WALLETS)), total - fee - paid)]
    inputs = array(*(array(octets(source), uint(index)) for (source, index), _ in spent))
    tagged = head(6, 258) + inputs if rng.random() < 0.5 else inputs
    body = mapping({0: tagged, 1: array(*map(encode_output, outputs)), 2: uint(fee)})
    branch.utxos += [((blake(body), index), output) for index, output in enumerate(outputs)]
    return body


def header(height: int, parent: bytes | None, rng: random.Random, segments: list[bytes]) -> bytes:
    """[[number, slot, parent, issuer, vrf key, vrf, body size, body hash, certificate, version], signature]."""
    pool = f"pool {rng.randrange(5)}".encode()
    body = array(
        uint(height),
        uint(height * SLOTS_PER_BLOCK + rng.randrange(SLOTS_PER_BLOCK)),
        b"\xf6" if parent is None else octets(parent),
        octets(blake(pool)),
        octets(blake(b"vrf " + pool)),
        array(octets(rng.randbytes(64)), octets(rng.randbytes(80))),
        uint(sum(map(len, segments))),
        octets(blake(b"".join(blake(segment) for segment in segments))),
        array(octets(blake(b"hot " + pool)), uint(0), uint(0), octets(rng.randbytes(64))),
        array(uint(9), uint(0)),
    )
    return array(body, octets(rng.randbytes(448)))
