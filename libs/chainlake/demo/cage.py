"""A Cardano chain with a cage: Conway blocks, format-exact, with every event, decoys, and forks of depth 1 to 50.

The file has blocks in the order received: a branch that is abandoned first, then the one that stays. Every input that is spent
exists on its branch. `chain` also says which events each block has, for tests.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from chainlake.cage.transaction import TxIn
from chainlake.demo import write_pieces
from chainlake.demo.cage_cbor import output
from chainlake.demo.cage_world import POLICY, Expected, World
from chainlake.demo.cardano import CONWAY, WALLETS, array, header, mapping, uint, wallet
from chainlake.merkle.blake import blake

FORK_EVERY = 500
FORKS = {5: 1, 14: 5, 30: 2, 60: 50, 118: 17}
GENESIS_OUTPUTS = 60
GENESIS_LOVELACE = 10**12
MOST_TOKENS = 6


class Made(NamedTuple):
    """A block and the events in it, with the numbers of their transactions."""

    height: int
    hash: bytes
    raw: bytes
    expected: list[tuple[int, Expected]]
    abandoned: bool


def genesis(seed: int = 1) -> dict[TxIn, bytes]:
    """The outputs before the first block."""
    source = blake(f"cage genesis {seed}".encode())
    return {TxIn(source, number): output(wallet(number % WALLETS), GENESIS_LOVELACE) for number in range(GENESIS_OUTPUTS)}


def chain(count: int, seed: int = 1, operations: int | None = None, forks: dict[int, int] | None = None) -> Iterator[Made]:
    """A chain of `count` blocks from height 0, and abandoned branches on the way. With `operations`, every block has so many
    requests and processes as many, and nothing else."""
    forks = FORKS if forks is None else forks
    world = World(random.Random(f"cage {seed}"), money=[(place, GENESIS_LOVELACE) for place in genesis(seed)])
    parent: bytes | None = None
    while world.height < count:
        made = _block(world, parent, operations, False)
        parent = made.hash
        yield made
        depth = forks.get((world.height - 1) % FORK_EVERY, 0)
        if depth and world.height + depth <= count:
            other, at = world.fork(f"cage {seed} abandoned at {world.height}"), made.hash
            for _ in range(depth):
                lost = _block(other, at, operations, True)
                at = lost.hash
                yield lost


def write(directory: Path, count: int, seed: int = 1) -> list[Path]:
    """The chunk file, and the outputs before it as JSON lines."""
    outputs = (
        json.dumps({"txin": f"{place.tx_id.hex()}#{place.number}", "txout": raw.hex()}).encode() + b"\n"
        for place, raw in genesis(seed).items()
    )
    chunk = write_pieces(directory / "blocks.chunk", (made.raw for made in chain(count, seed)))
    return [chunk, write_pieces(directory / "options" / "genesis.jsonl", outputs)]


def options(genesis_file: Path) -> dict[str, str]:
    """What the chain has to be told."""
    return {"network": "testnet", "cage_policy": POLICY.hex(), "genesis": str(genesis_file), "genesis_complete": "true"}


def _block(world: World, parent: bytes | None, operations: int | None, abandoned: bool) -> Made:
    world.bodies, world.witnesses, world.invalid, world.expected = [], [], [], []
    if operations is None:
        _live(world)
    else:
        _work(world, operations)
    segments = [array(*world.bodies), array(*world.witnesses), mapping({}), array(*map(uint, world.invalid))]
    top = header(world.height, parent, world.rng, segments)
    made = Made(world.height, blake(top), array(uint(CONWAY), array(top, *segments)), world.expected, abandoned)
    world.height += 1
    return made


def _live(world: World) -> None:
    """A block of everyday life."""
    rng = world.rng
    for _ in range(rng.randint(0, 2)):
        world.pay()
    if len(world.tokens) < MOST_TOKENS and rng.random() < (0.6 if len(world.tokens) < 2 else 0.1):
        world.boot(rng.choice((1, 1, 2)))
    if len(world.tokens) < MOST_TOKENS and rng.random() < 0.04:
        world.migrate(rng.choice((0, 3, 20)))
    for _ in range(rng.randint(0, 3) if world.tokens else 0):
        unknown = rng.random() < 0.03
        world.ask(rng.randbytes(32) if unknown else rng.choice(list(world.tokens)), count=rng.randint(1, 3))
    if world.tokens and rng.random() < 0.6:
        world.process(rng.sample(list(world.tokens), min(len(world.tokens), rng.choice((1, 1, 1, 2)))), rng.randint(1, 6))
    if world.tokens and rng.random() < 0.15:
        world.process([rng.choice(list(world.tokens))], transfer=rng.random() < 0.5)
    if world.requests and rng.random() < 0.12:
        world.retract(rng.choice(sorted(world.requests)))
    if world.tokens and rng.random() < 0.08:
        world.reject(rng.choice(list(world.tokens)), rng.randint(1, 2))
    if len(world.tokens) > 2 and rng.random() < 0.05:
        world.burn(rng.choice(list(world.tokens)))
    if rng.random() < 0.25:
        world.mislead()


def _work(world: World, operations: int, tokens: int = 4) -> None:
    """A block of so many requests for new keys and changes, all processed in it."""
    while len(world.tokens) < tokens:
        world.boot()
    names = list(world.tokens)
    for at, token in enumerate(names):
        share = operations // tokens + (at < operations % tokens)
        if share:
            world.ask(token, keys=1_000_000, count=share)
            world.process([token])
