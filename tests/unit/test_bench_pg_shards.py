"""PostgreSQL beside the shards judges miniblocks as the rules do, in each of its ways. Skipped where it is not installed."""

import random
from collections.abc import Callable
from contextlib import closing

import pytest

from chainlake.bench.pg_shards import PostgresShard
from chainlake.bench.shards import batches
from chainlake.errors import Unavailable
from chainlake.shards.build import set_last_miniblocks
from chainlake.shards.rules import Event
from chainlake.shards.transactions import MiniblockUpdate
from tests.unit.shards_making import Chain, created, next_of, space

Blocks = list[list[list[MiniblockUpdate]]]
NAMES = "abcdefgh"


def conflicting(seed: int, blocks: int) -> Blocks:
    """Blocks in which streams come twice, are sealed or not known, and get wrong hashes and numbers."""
    rng, chain, made = random.Random(seed), started(), []
    for _ in range(blocks):
        block = []
        for name in rng.choices([*NAMES, "unknown"], k=12):
            state = chain.streams.get(space(name))
            last = state.last_miniblock_num if state else 0
            previous = f"{name} {last}" if rng.random() < 0.8 else "another"
            block.append(next_of(name, last + rng.choice((1, 1, 1, 2)), previous, sealed=rng.random() < 0.01))
        made.append([block[:5], block[5:6], block[6:]])
        chain.block(*(set_last_miniblocks(batch) for batch in made[-1]))
    return made


def started() -> Chain:
    chain = Chain()
    chain.block(*(created(name) for name in NAMES))
    return chain


def code_of(event: Event) -> int:
    return int(dict(event.attributes).get("code", 0))


def by_the_rules(blocks: Blocks) -> tuple[list[tuple[int, int, int, int]], dict[bytes, bytes]]:
    chain, found = started(), []
    for height, block in enumerate(blocks, 1):
        results = chain.block(*(set_last_miniblocks(batch) for batch in block)).results
        for tx, result in enumerate(results):
            assert result.code == 0
            found.extend((height, tx, place, code_of(event)) for place, event in enumerate(result.events))
    return found, {name: state.last_miniblock_hash for name, state in chain.streams.items()}


@pytest.mark.parametrize("apply", [PostgresShard.each_with_events, PostgresShard.set_based_with_events])
def test_postgres_gives_the_events_of_the_rules_and_ends_in_their_state(
    apply: Callable[[PostgresShard, Blocks], float],
) -> None:
    blocks = conflicting(seed=4, blocks=60)
    expected, streams = by_the_rules(blocks)
    assert {code for *_, code in expected} == {0, 5, 9, 24, 40}
    try:
        server = PostgresShard()
    except Unavailable as error:
        pytest.skip(str(error))
    with closing(server):
        server.load(started().streams.values())
        assert apply(server, blocks) > 0
        assert server.codes() == expected
        assert server.hashes() == streams


@pytest.mark.parametrize("apply", [PostgresShard.each, PostgresShard.set_based])
def test_postgres_without_events_ends_in_the_same_state(apply: Callable[[PostgresShard, Blocks], float]) -> None:
    """Each stream once per block, as the benchmark has it."""
    blocks = [batches([next_of(name, height) for name in NAMES]) for height in range(1, 5)]
    _, streams = by_the_rules(blocks)
    try:
        server = PostgresShard()
    except Unavailable as error:
        pytest.skip(str(error))
    with closing(server):
        server.load(started().streams.values())
        assert apply(server, blocks) > 0
        assert server.hashes() == streams
        assert server.codes() == []
