"""Two nodes over loopback that fail, lag, rot and forget, each in its own way: what one of them has is never lost."""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from chainlake.demo.river import Miniblock
from chainlake.demo.river_node import StreamNode
from chainlake.demo.river_server import RiverServer
from chainlake.sync import rules
from chainlake.sync.client import Asking, ConnectClient
from chainlake.sync.miniblock import open_miniblock
from chainlake.sync.service import Refused
from tests.unit.sync_model import Synced

ID = b"\x20" + b"\x05" * 31
HAPPENS = (
    *("grow", "grow", "jump", "pool", "copy", "copy", "fail", "fail", "trim", "damage", "damage"),
    *("sync", "sync", "sync", "backup", "restore", "recreate"),
)


@dataclass
class Pair:
    """A node, and one beside it that copies it now and then. Only the second trims."""

    first: RiverServer
    second: RiverServer
    rng: random.Random
    good: dict[bytes, Miniblock] = field(default_factory=dict)

    def begin(self) -> None:
        rng, seed = self.rng, self.rng.random()
        self.first.node = StreamNode(page_limit=rng.randint(1, 6), snapshot_every=rng.randint(2, 7), seed=int(seed * 1e9))
        self.second.node = StreamNode(page_limit=rng.randint(1, 6))
        for server in (self.first, self.second):
            server.failing, server.node.earlier = 0, rng.choice((0, 2))
        self.first.node.create(ID)
        self.first.node.back_up()
        self.first.node.grow(ID, rng.randint(0, 12))
        self.copy()

    def copy(self) -> None:
        made, there = self.first.node.streams[ID].backup(), self.second.node.streams.get(ID)
        made.miniblocks = self.mended(made.miniblocks)
        made.trimmed = min(made.snapshot, there.trimmed) if there else 0
        self.second.node.streams[ID] = made

    def mended(self, miniblocks: list[Miniblock]) -> list[Miniblock]:
        return [self.good.get(one.hash, one) for one in miniblocks]

    def heal(self) -> None:
        stream = self.first.node.streams[ID]
        stream.miniblocks = self.mended(stream.miniblocks)
        self.first.failing = self.second.failing = 0
        self.copy()

    def do(self, what: str) -> None:
        node, rng = self.first.node, self.rng
        if what in ("grow", "jump"):
            node.grow(ID, rng.randint(0, 3) if what == "grow" else rng.randint(5, 15), rng.randint(1, 2), rng.randint(0, 1))
        elif what == "pool":
            node.grow(ID, 0, minipool=1)
        elif what == "copy":
            self.copy()
        elif what == "fail":
            rng.choice((self.first, self.second)).failing = rng.randint(1, 4)
        elif what == "trim":
            self.second.node.streams[ID].trim(rng.randint(0, 40))
        elif what == "damage":
            self.damage(rng.choice((self.first, self.second)).node)
        elif what == "backup":
            node.streams[ID].miniblocks = self.mended(node.streams[ID].miniblocks)
            node.back_up()
        else:
            node.restore() if what == "restore" else node.create(ID)

    def damage(self, node: StreamNode, number: int | None = None) -> None:
        blocks = node.streams[ID].miniblocks
        at = self.rng.randrange(len(blocks)) if number is None else number
        self.good.setdefault(blocks[at].hash, blocks[at])
        blocks[at] = Miniblock(blocks[at].raw.replace(b"message", b"massage", 1), blocks[at].hash)

    def client(self, retries: int = 0) -> ConnectClient:
        urls = [self.first.url, self.second.url]
        self.rng.shuffle(urls)
        return ConnectClient(urls, {}, Asking(page_size=4, retries=retries), pause=lambda _: None)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[RiverServer, RiverServer]]:
    pair = RiverServer(StreamNode()).start(), RiverServer(StreamNode()).start()
    yield pair
    for server in pair:
        server.stop()


def check(pair: Pair) -> None:
    rng, synced, unbroken = pair.rng, Synced(), 0
    pair.begin()
    budget = rng.choice((1, 5, 1000))
    for what in (*rng.choices(HAPPENS, k=rng.randint(4, 16)), "heal", "sync", "sync"):
        if what == "heal":
            pair.heal()
        if what in ("heal", "sync"):
            client = pair.client(rng.choice((0, 1)))
            with suppress(Refused):  # the next one asks again
                synced.sync(client, ID, budget)
            client.close()
            if synced.state is not None and synced.state.prev_miniblock_hash:
                unbroken = max(unbroken, synced.state.first_miniblock)
        else:
            pair.do(what)
    stream = pair.first.node.streams[ID]
    events = [event.hash for one in stream.miniblocks[unbroken:] for event in open_miniblock(one.raw).events]
    events += [envelope[2:34] for envelope in stream.minipool]
    came = set(synced.events)
    assert all(event in came for event in events) and len(came) == len(synced.events)
    assert rules.TRIMMED not in {gap.reason for gap in synced.gaps}, "the first node has it all"
    assert synced.state is not None and synced.state.stopped is None


@pytest.mark.parametrize("chunk", range(4))
def test_what_one_of_two_nodes_has_is_delivered_once(chunk: int, servers: tuple[RiverServer, RiverServer]) -> None:
    for seed in range(chunk * 100, chunk * 100 + 100):
        try:
            check(Pair(*servers, random.Random(seed)))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from None


def grown(servers: tuple[RiverServer, RiverServer]) -> tuple[Pair, Synced]:
    """A stream that was followed up to 12 and is at 42, on both nodes."""
    pair, synced = Pair(*servers, random.Random(1)), Synced()
    pair.first.node, pair.second.node = (StreamNode(page_limit=7, snapshot_every=10) for _ in range(2))
    pair.first.node.create(ID)
    pair.first.node.grow(ID, 12)
    pair.copy()
    synced.sync(pair.client(), ID)
    pair.first.node.grow(ID, 30)
    pair.copy()
    return pair, synced


def test_what_one_node_has_trimmed_and_the_other_gives_damaged_is_not_gone(servers: tuple[RiverServer, RiverServer]) -> None:
    pair, synced = grown(servers)
    pair.damage(pair.first.node, 17)
    pair.second.node.streams[ID].trim(25)
    synced.sync(pair.client(), ID)
    assert synced.state is not None and synced.state.minipool_gen == 17 and "miniblock 17" in str(synced.state.stopped)
    assert synced.gaps == [] and [one.mark.number for one in synced.quarantined] == [17]
    pair.heal()
    synced.sync(pair.client(), ID)
    assert synced.gaps == [] and (synced.state.minipool_gen, synced.state.stopped) == (43, None)


@pytest.mark.parametrize("number", [14, 36])
def test_nodes_that_are_damaged_in_different_places_make_up_for_each_other(
    number: int, servers: tuple[RiverServer, RiverServer]
) -> None:
    pair, synced = grown(servers)
    pair.damage(pair.first.node, number)
    pair.damage(pair.second.node, number + 2)
    if number > 30:  # in the answers themselves
        for server in servers:
            server.node.streams[ID].snapshot = 30
    client = ConnectClient([server.url for server in servers], {}, Asking(page_size=4, retries=0))
    synced.sync(client, ID)
    assert synced.state is not None and synced.state.minipool_gen == number + 2, "as far as one of them is sound"
