"""Columns of many logs at once: which contract, event, topics, data, transaction and block each has, drawn with numpy.

A segment depends on nothing but its number and the seed, so segments can be made one by one, however long the chain is.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from chainlake.demo.evm_world import Bytes, Draws, Floats, Ints, World, zipf
from chainlake.errors import BadInput

SEGMENT_LOGS = 50_000
SEEN_ONCE = 0.12
USER_SKEW = 1.1
EMPTY_BLOCKS = 0.02
ALONE = 0.49
CROWD = 0.98
QUIET = 1.0
ABSENT = -1


@dataclass(frozen=True)
class Scale:
    """What chain to make. Without blooms the headers have no logsBloom, and are made faster."""

    logs: int = 2_000_000
    logs_per_block: int = 100
    seed: int = 1
    blooms: bool = True
    users: int = 200_000

    def __post_init__(self) -> None:
        for name, least in (("logs", 1), ("logs_per_block", 1), ("users", 10), ("seed", 0)):
            if getattr(self, name) < least:
                raise BadInput(f"{name} is {getattr(self, name)}: at least {least} is expected")


@dataclass(frozen=True)
class Segment:
    """Some consecutive blocks as columns. Topics are places in the world's topics and then `fresh_topics`; -1 where absent."""

    scale: Scale
    first_block: int
    first_log: int
    block_logs: Ints
    block_transactions: Ints
    transactions: Bytes
    log_transaction: Ints
    contract: Ints
    event: Ints
    topic: Ints
    fresh_topics: Bytes
    data_ends: Ints
    data: Bytes

    @cached_property
    def log_block(self) -> Ints:
        """The block of each log, counted from the segment's first."""
        return np.repeat(np.arange(len(self.block_logs)), self.block_logs)

    @cached_property
    def log_index(self) -> Ints:
        """The place of each log in its block."""
        return np.arange(len(self.contract)) - np.repeat(starts(self.block_logs), self.block_logs)

    @cached_property
    def transaction_index(self) -> Ints:
        """The place in the block of each log's transaction."""
        return self.log_transaction - starts(self.block_transactions)[self.log_block]


def starts(counts: Ints) -> Ints:
    """Where each run begins."""
    return np.asarray(np.cumsum(counts) - counts)


class Chain:
    """The chain of one scale, segment after segment."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.world = World(scale.seed, scale.users)

    def segments(self) -> Iterator[Segment]:
        """All of it; the last block holds what is left."""
        block = log = 0
        for number in itertools.count():
            if log >= self.scale.logs:
                return
            sizes = self._block_sizes(number, self.scale.logs - log)
            yield self._segment(number, sizes, block, log)
            block, log = block + len(sizes), log + int(sizes.sum())

    def _block_sizes(self, number: int, left: int) -> Ints:
        """Half to one and a half times the mean, some empty; cut to what is left."""
        draw, mean = Draws(self.scale.seed, number)("blocks"), self.scale.logs_per_block
        uniform = draw.uniform(max(1, SEGMENT_LOGS // mean))
        full = ((0.5 + (uniform - EMPTY_BLOCKS) / (1 - EMPTY_BLOCKS)) * mean / (1 - EMPTY_BLOCKS) + 0.5).astype(np.int64)
        ends = np.cumsum(np.where(uniform < EMPTY_BLOCKS, 0, np.maximum(full, 1)))
        kept = int(np.searchsorted(ends, left)) + 1
        return np.asarray(np.diff(np.minimum(ends, left), prepend=0)[:kept], dtype=np.int64)

    def _segment(self, number: int, sizes: Ints, block: int, log: int) -> Segment:
        draw, count, world = Draws(self.scale.seed, number), int(sizes.sum()), self.world
        contract, event = world.contract_and_event(draw, count)
        topic, fresh = self._topics(draw, event)
        of_log, per_block = _transactions(draw, sizes)
        data_ends = np.cumsum(world.data_sizes[event])
        return Segment(
            scale=self.scale,
            first_block=block,
            first_log=log,
            block_logs=sizes,
            block_transactions=per_block,
            transactions=draw("transaction hashes").bytes(int(per_block.sum()), 32),
            log_transaction=of_log,
            contract=contract,
            event=event,
            topic=topic,
            fresh_topics=fresh,
            data_ends=data_ends,
            data=_data(draw, world.data_sizes[event], data_ends),
        )

    def _topics(self, draw: Draws, event: Ints) -> tuple[Ints, Bytes]:
        """Places of each log's topics, and the topics that only this segment has: they follow the world's."""
        world, own = self.world, self.world.first_event[-1]
        counts, number_at = world.topic_counts[event], world.number_at[event]
        topic = np.full((len(event), 4), ABSENT, dtype=np.int64)
        topic[:, 0] = np.where(counts > 0, event, ABSENT)
        fresh: list[Bytes] = []
        next_fresh = len(world.topics)
        for place in (1, 2, 3):
            numbers = np.flatnonzero((counts > place) & (number_at == place))
            users = np.flatnonzero((counts > place) & (number_at != place))
            once = draw(f"once {place}").uniform(len(users)) < SEEN_ONCE
            ranks = zipf(draw(f"user {place}").uniform(len(users)), world.users, USER_SKEW)
            topic[users, place] = world.first_user + ranks
            for where, made in (
                (users[once], _strangers(draw(f"stranger {place}").bytes(int(once.sum()), 32), event[users[once]] >= own)),
                (numbers, _token_numbers(draw(f"number {place}").uniform(len(numbers)))),
            ):
                topic[where, place] = next_fresh + np.arange(len(made))
                next_fresh += len(made)
                fresh.append(made)
        return topic, np.concatenate(fresh)


def _strangers(made: Bytes, own_event: npt.NDArray[np.bool_]) -> Bytes:
    """Topics seen once: addresses, and in events of a contract's own also hashes."""
    made = made.copy()
    made[~own_event | (np.arange(len(made)) % 2 == 0), :12] = 0
    return made


def _token_numbers(uniform: Floats) -> Bytes:
    """Small numbers more often than large ones."""
    found = np.zeros((len(uniform), 32), dtype=np.uint8)
    found[:, 24:] = (10.0 ** (7 * uniform)).astype(">u8").view(np.uint8).reshape(-1, 8)
    return found


def _transactions(draw: Draws, sizes: Ints) -> tuple[Ints, Ints]:
    """(the transaction of each log, transactions per block). Some have no logs; none goes on in the next block."""
    count = int(sizes.sum())
    ends = np.cumsum(_transaction_sizes(draw("transaction sizes").uniform(count)))
    begins = np.zeros(count, dtype=bool)
    begins[starts(sizes)[sizes > 0]] = True
    begins[ends[ends < count]] = True
    quiet = (-np.log1p(-draw("quiet").uniform(int(begins.sum()))) * QUIET).astype(np.int64)
    place = np.cumsum(quiet + 1) - 1
    block = np.repeat(np.arange(len(sizes)), sizes)[begins]
    per_block = np.bincount(block, weights=quiet + 1, minlength=len(sizes)).astype(np.int64)
    return place[np.cumsum(begins) - 1], per_block


def _transaction_sizes(uniform: Floats) -> Ints:
    """Half emit one log, most others a handful, a few dozens."""
    rest = np.maximum(uniform - ALONE, 0) / (1 - ALONE)
    handful = 2 - np.log1p(-rest) * 4.8
    return np.where(uniform < ALONE, 1, np.where(rest > CROWD, handful * 4, handful)).astype(np.int64)


def _data(draw: Draws, sizes: Ints, ends: Ints) -> Bytes:
    """Words that hold numbers of different magnitude: after the first a quarter is zero, and the last one is small."""
    words = sizes // 32
    within = np.arange(int(words.sum())) - np.repeat(starts(words), words)
    numbers = draw("numbers").integers(len(within)) >> (draw("magnitudes").integers(len(within)) % np.uint64(48))
    numbers[(within > 0) & (draw("zeros").integers(len(within)) % np.uint64(4) == 0)] = 0
    numbers[(within > 0) & (within == np.repeat(words, words) - 1)] %= np.uint64(1 << 20)
    data = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    at = np.repeat(ends - sizes, words) + 32 * within + 24
    data[at[:, None] + np.arange(8)] = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
    return data
