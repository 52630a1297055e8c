"""Who emits logs in a chain of benchmark size, who is met in them, and what their events look like.

The shares were measured on blocks of mainnet: half of all logs are ERC-20 transfers, one contract (wrapped ether) makes a
seventh, a few thousand signatures make the tail; users come back by Zipf's law.
"""

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from chainlake.demo.evm import keccak

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Event:
    """What logs of an event look like: how many topics, bytes of data, which topic (if any) is a number and not a user."""

    signature: str
    topics: int
    data: int
    number_at: int = 0


@dataclass(frozen=True)
class Family:
    """Contracts that emit the same events: their share of all logs, how many there are, how uneven, their events by share."""

    share: float
    contracts: int
    skew: float
    events: tuple[tuple[float, Event], ...]


TRANSFER, APPROVAL = "Transfer(address,address,uint256)", "Approval(address,address,uint256)"
FAMILIES = (
    Family(
        0.140,
        1,
        0.5,
        (
            (0.655, Event(TRANSFER, 3, 32)),
            (0.185, Event("Deposit(address,uint256)", 2, 32)),
            (0.145, Event("Withdrawal(address,uint256)", 2, 32)),
            (0.015, Event(APPROVAL, 3, 32)),
        ),
    ),
    Family(0.430, 30_000, 1.3, ((0.78, Event(TRANSFER, 3, 32)), (0.22, Event(APPROVAL, 3, 32)))),
    Family(0.073, 8_000, 1.3, ((0.95, Event(TRANSFER, 4, 0, number_at=3)), (0.05, Event(APPROVAL, 4, 0, number_at=3)))),
    Family(
        0.082,
        12_000,
        0.9,
        (
            (0.5, Event("Swap(address,uint256,uint256,uint256,uint256,address)", 3, 128)),
            (0.5, Event("Sync(uint112,uint112)", 1, 64)),
        ),
    ),
    Family(0.047, 6_000, 1.1, ((1.0, Event("Swap(address,address,int256,int256,uint160,uint128,int24)", 3, 160)),)),
    Family(0.004, 500, 0.8, ((1.0, Event("TransferSingle(address,address,address,uint256,uint256)", 4, 64)),)),
    Family(0.002, 40, 0.9, ((1.0, Event("", 0, 116)),)),
)
POOLS = 3
OTHERS = Family(0.222, 12_000, 1.35, ())
OTHER_EVENTS = 4_000
OTHER_TOPICS = (2, 1, 2, 3, 4, 2, 1, 3, 2, 4, 1, 2)
OTHER_DATA = (0, 64, 32, 96, 192, 64, 0, 32, 64, 256, 128, 0, 224, 32, 800, 160, 64, 96, 1_216, 320)
OTHER_SECOND_EVENT = 0.25
USERS_THAT_ARE_POOLS = 1_000


class Draw:
    """Random numbers of one purpose. PCG64's raw output is fixed for all versions of numpy.

    A longer draw begins with the shorter one.
    """

    def __init__(self, seed: int, part: int, purpose: str) -> None:
        self._generator = np.random.PCG64(np.random.SeedSequence([seed, part, zlib.crc32(purpose.encode())]))

    def integers(self, count: int) -> npt.NDArray[np.uint64]:
        """64 random bits each."""
        return np.asarray(self._generator.random_raw(count), dtype=np.uint64)

    def uniform(self, count: int) -> Floats:
        """In [0, 1)."""
        return np.asarray((self.integers(count) >> np.uint64(11)) * 2.0**-53)

    def bytes(self, count: int, width: int) -> Bytes:
        """`count` rows of random bytes."""
        words = -(-width // 8)
        return self.integers(count * words).astype("<u8").view(np.uint8).reshape(count, words * 8)[:, :width]


def zipf(uniform: Floats, count: int, skew: float) -> Ints:
    """Ranks from 0, the first most often: Zipf's law with a continuous rank (`skew` is not 1)."""
    top = (count + 1.0) ** (1 - skew)
    ranks = (1 + uniform * (top - 1)) ** (1 / (1 - skew))
    return np.asarray(np.minimum(ranks, count) - 1, dtype=np.int64)


def pick(uniform: Floats, shares: list[float]) -> Ints:
    """Which of several, by share."""
    bounds = np.cumsum(shares)
    found = np.searchsorted(bounds, uniform * bounds[-1], side="right")
    return np.asarray(np.minimum(found, len(shares) - 1), dtype=np.int64)


def bloom_positions(values: Bytes) -> Ints:
    """For each row the three bits that it sets in a block's bloom, counted from the bloom's first bit."""
    width, flat = values.shape[1], values.tobytes()
    digests = b"".join([keccak(flat[start : start + width])[:6] for start in range(0, len(flat), width)])
    positions = np.frombuffer(digests, dtype=">u2").reshape(-1, 3).astype(np.int64)
    return np.asarray(2047 - (positions & 2047))


def hex_rows(values: Bytes) -> list[str]:
    """Each row as `0x…`; all are turned at once, which is much faster than one by one."""
    width, text = values.shape[1] * 2, values.tobytes().hex()
    return ["0x" + text[start : start + width] for start in range(0, len(text), width)]


class World:
    """Contracts, events and users. A topic is named by its place in `topics`: first all events, then all users."""

    def __init__(self, seed: int, users: int) -> None:
        self.seed, self.users = seed, users
        self.families = (*FAMILIES, OTHERS)
        self.first_contract = np.cumsum([0, *(family.contracts for family in self.families)])
        self.first_event = np.cumsum([0, *(len(family.events) for family in self.families)])
        self.events = [event for family in FAMILIES for _, event in family.events] + _other_events(seed)
        self.contracts = Draw(seed, 0, "contracts").bytes(int(self.first_contract[-1]), 20)
        self.topic_counts = np.array([event.topics for event in self.events])
        self.data_sizes = np.array([event.data for event in self.events])
        self.number_at = np.array([event.number_at for event in self.events])
        names = np.frombuffer(b"".join(keccak(event.signature.encode()) for event in self.events), dtype=np.uint8)
        self.topics = np.concatenate([names.reshape(-1, 32), self._user_topics()])
        self.first_user = len(self.events)

    @cached_property
    def contract_bits(self) -> Ints:
        """What each contract's address sets in a bloom."""
        return bloom_positions(self.contracts)

    @cached_property
    def topic_bits(self) -> Ints:
        """What each topic sets in a bloom."""
        return bloom_positions(self.topics)

    @cached_property
    def contract_texts(self) -> list[str]:
        """The beginning of a log's JSON, by contract."""
        return [f'{{"address":"{one}","topics":[' for one in hex_rows(self.contracts)]

    @cached_property
    def topic_texts(self) -> list[str]:
        """Topics in a log's JSON: events come first in it, users after them."""
        texts = hex_rows(self.topics)
        return [f'"{one}"' for one in texts[: self.first_user]] + [f',"{one}"' for one in texts[self.first_user :]]

    def _user_topics(self) -> Bytes:
        """The zero address is met most (mints and burns); some of the busiest users are pools."""
        found = np.zeros((self.users, 32), dtype=np.uint8)
        found[1:, 12:] = Draw(self.seed, 0, "users").bytes(self.users - 1, 20)
        pools = self.contracts[self.first_contract[POOLS] :][: min(USERS_THAT_ARE_POOLS, self.users // 3)]
        found[1 : 1 + 3 * len(pools) : 3, 12:] = pools[: len(found[1 : 1 + 3 * len(pools) : 3])]
        return found

    def contract_and_event(self, draw: "Draws", count: int) -> tuple[Ints, Ints]:
        """Who emits each of `count` logs, and what."""
        family = pick(draw("family").uniform(count), [one.share for one in self.families])
        contract, event = np.empty(count, np.int64), np.empty(count, np.int64)
        for number, one in enumerate(self.families):
            mine = np.flatnonzero(family == number)
            rank = zipf(draw(f"contract {number}").uniform(len(mine)), one.contracts, one.skew)
            choice = draw(f"event {number}").uniform(len(mine))
            contract[mine] = self.first_contract[number] + rank
            within = pick(choice, [share for share, _ in one.events]) if one.events else _other_event(rank, choice)
            event[mine] = self.first_event[number] + within
        return contract, event


class Draws:
    """The streams of random numbers of one part of a chain."""

    def __init__(self, seed: int, part: int) -> None:
        self._key = seed, part

    def __call__(self, purpose: str) -> Draw:
        return Draw(*self._key, purpose)


def _other_events(seed: int) -> list[Event]:
    return [
        Event(f"Other{seed}x{number}(bytes32)", OTHER_TOPICS[number % 12], OTHER_DATA[number % 20])
        for number in range(OTHER_EVENTS)
    ]


def _other_event(rank: Ints, choice: Floats) -> Ints:
    """A contract of the tail has an event of its own, and sometimes emits its neighbour's."""
    return (rank + (choice < OTHER_SECOND_EVENT)) % OTHER_EVENTS
