"""Filters to measure with, taken from the logs themselves: the same logs and seed give the same filters, for all peers.

Each class is a way in which clients ask. Values are chosen by how often they are met, since that is what decides the cost.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chainlake.errors import BadInput
from chainlake.logs.filter import LogFilter

COLUMNS = ("block_number", "block_hash", "address", "topic0", "topic1", "topic2")
"""What must be read of the logs."""
RARE = 3
MIDDLE = 200
BUSY = 2_000
HOT = 5
RANGE = 1_000
MAX_RESULTS = 10_000


@dataclass(frozen=True)
class QueryClass:
    """Filters of one kind. `selective` ones match a handful of logs; the others are measured for what many results cost."""

    name: str
    filters: tuple[LogFilter, ...]
    selective: bool
    max_results: int | None = None


def workload(logs: pa.Table, count: int = 20, seed: int = 1) -> list[QueryClass]:
    """All classes, `count` filters each, of logs with at least `COLUMNS`."""
    if not logs.num_rows:
        raise BadInput("there are no logs to ask for: load some first")
    made = _Workload(logs, random.Random(f"log queries {seed}"))

    def many(name: str, make: Callable[[], LogFilter], selective: bool = True, max_results: int | None = None) -> QueryClass:
        return QueryClass(name, tuple(make() for _ in range(count)), selective, max_results)

    return [
        many("rare topic", made.rare_topic),
        many("address + topic", made.address_and_topic),
        many(f"hot address + signature, {RANGE:,} blocks", made.hot_address, selective=False),
        *(many(f"OR of {terms} topics", partial(made.any_of, terms), selective=False) for terms in (4, 16, 64)),
        many("wildcards", made.wildcards),
        many("blockHash", made.block_hash),
        many(f"broad range, first {MAX_RESULTS:,}", made.broad, selective=False, max_results=MAX_RESULTS),
    ]


class _Column:
    """The values of a column and how often each is met."""

    def __init__(self, name: str, column: pa.ChunkedArray) -> None:
        encoded = column.combine_chunks().dictionary_encode()
        self.values: list[bytes] = encoded.dictionary.to_pylist()
        self.codes = np.asarray(encoded.indices.fill_null(-1), dtype=np.int64)
        self.counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))
        if not self.values:
            raise BadInput(f"no log has a {name}: such logs cannot be measured with")

    def commonest(self, count: int, rows: npt.NDArray[np.bool_]) -> list[int]:
        """The places of the values that are met most in some rows."""
        codes = self.codes[rows]
        counts = np.bincount(codes[codes >= 0], minlength=len(self.values))
        return sorted(range(len(counts)), key=lambda place: (-counts[place], self.values[place]))[:count]

    def between(self, low: int, high: int) -> list[bytes]:
        """The values that are met that often, in a fixed order; all of them where none is."""
        wanted = np.flatnonzero((self.counts >= low) & (self.counts <= high))
        return sorted(self.values[place] for place in (wanted if len(wanted) else range(len(self.values))))

    def rows_between(self, low: int, high: int) -> list[int]:
        """The rows with such a value; all that have one where none is met that often."""
        often = np.append((self.counts >= low) & (self.counts <= high), False)[self.codes]
        found: list[int] = np.flatnonzero(often if often.any() else self.codes >= 0).tolist()
        return found


class _Workload:
    """Makes filters of all kinds."""

    def __init__(self, logs: pa.Table, rng: random.Random) -> None:
        self._logs, self._rng = logs, rng
        numbers = pc.min_max(logs["block_number"])
        self._first, self._last = int(numbers["min"].as_py()), int(numbers["max"].as_py())
        addresses, signatures, first, second = (_Column(name, logs[name]) for name in ("address", "topic0", "topic1", "topic2"))
        self._hot = [
            (addresses.values[place], signatures.values[signatures.commonest(1, addresses.codes == place)[0]])
            for place in addresses.commonest(HOT, signatures.codes >= 0)
        ]
        self._rare, self._known = first.between(1, RARE), first.between(2, MIDDLE)
        self._calm, self._busy = first.between(1, MIDDLE - 1), first.between(MIDDLE, BUSY)
        self._first_rows, self._second_rows = first.rows_between(2, MIDDLE), second.rows_between(2, MIDDLE)

    def rare_topic(self) -> LogFilter:
        """A user who is met once or a few times."""
        return self._everywhere(topics=((), (self._rng.choice(self._rare),)))

    def address_and_topic(self) -> LogFilter:
        """What happened to a user in a contract."""
        log = self._row(self._first_rows)
        return self._everywhere((log["address"],), ((log["topic0"],), (log["topic1"],)))

    def hot_address(self) -> LogFilter:
        """What a dashboard polls: a busy contract, for some blocks."""
        address, signature = self._rng.choice(self._hot)
        first = self._some_block()
        return LogFilter((address,), ((signature,),), first, min(self._last, first + RANGE - 1))

    def any_of(self, terms: int) -> LogFilter:
        """What a wallet service asks: any of its users, a quarter of them busy."""
        busy = self._rng.sample(self._busy, min(terms // 4, len(self._busy)))
        users = [*busy, *self._rng.sample(self._calm, min(terms, len(self._calm)))]
        return self._everywhere(topics=((), tuple(dict.fromkeys(users))[:terms]))

    def wildcards(self) -> LogFilter:
        """A value at one position, others open, also at the end."""
        if self._rng.random() < 0.5:
            log = self._row(self._second_rows)
            return self._everywhere(topics=(self._rng.choice(((), (log["topic0"],))), (), (log["topic2"],)))
        user = (self._rng.choice(self._known),)
        return self._everywhere(topics=self._rng.choice((((), user, ()), ((), user))))

    def block_hash(self) -> LogFilter:
        """One block, whole or the logs of one contract in it."""
        log = self._row(range(self._logs.num_rows))
        return LogFilter(self._rng.choice(((), (log["address"],))), block_hash=log["block_hash"])

    def broad(self) -> LogFilter:
        """The busiest contract's signature from some block on."""
        return LogFilter((), ((self._hot[0][1],),), self._some_block(), self._last)

    def _everywhere(self, addresses: tuple[bytes, ...] = (), topics: tuple[tuple[bytes, ...], ...] = ()) -> LogFilter:
        return LogFilter(addresses, topics, self._first, self._last)

    def _some_block(self) -> int:
        return self._rng.randint(self._first, max(self._first, self._last - RANGE + 1))

    def _row(self, rows: Sequence[int]) -> dict[str, Any]:
        """One of some logs."""
        found: dict[str, Any] = self._logs.slice(self._rng.choice(rows), 1).to_pylist()[0]
        return found
