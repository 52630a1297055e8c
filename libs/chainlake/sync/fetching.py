"""Streams fetched side by side where Spark runs: heads in, what is new out, as Arrow."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from chainlake.arrow_ddl import ddl_of
from chainlake.errors import BadInput
from chainlake.sync.client import ConnectClient, asking
from chainlake.sync.fetch import Base, Budget, Fetched, Head, Unsettled, fetch
from chainlake.sync.service import Refused

THREADS = 8
BATCH_BYTES, BATCH_STREAMS = 8 << 20, 500
MOST_SHOWN = 16
"""Of the miniblocks of an answer that does not follow our head. What is below them is asked for again where they do not tell."""
TAKEN, UNSETTLED, REFUSED, POSTPONED = "taken", "unsettled", "refused", "postponed"
HEAD_COLUMNS = (
    "minipool_gen",
    "prev_miniblock_hash",
    "genesis_hash",
    "seen_gen",
    "seen_hash",
    "minipool",
    "refused",
    "whole",
)
ARROW = pa.schema(
    {
        "stream_id": pa.binary(),
        "status": pa.string(),
        "reason": pa.string(),
        "minipool_gen": pa.int64(),
        "prev_miniblock_hash": pa.binary(),
        "genesis_hash": pa.binary(),
        "seen_gen": pa.int64(),
        "seen_hash": pa.binary(),
        "minipool": pa.list_(pa.binary()),
        "refused": pa.binary(),
        "whole": pa.bool_(),
        "pages": pa.int32(),
        "rest": pa.binary(),
        "catch_up": pa.bool_(),
        "digest": pa.binary(),
        "more": pa.bool_(),
        "count": pa.int32(),
        "miniblocks": pa.list_(pa.struct({"hash": pa.binary(), "payload": pa.binary()})),
        "shown": pa.list_(pa.struct({"number": pa.int64(), "hash": pa.binary()})),
    }
)
FETCHED = ddl_of(ARROW)
HEADS = ddl_of(ARROW.field(name) for name in HEAD_COLUMNS)


@dataclass(frozen=True)
class Order:
    """How one task asks: the nodes, the options of the chain with its secrets, how many tasks share the rate, and how many
    miniblocks this one may take."""

    urls: tuple[str, ...]
    options: Mapping[str, str]
    share: int
    budget: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fetch the streams of a partition; those with nothing new leave no row."""
        client = ConnectClient(self.urls, self.options, asking(self.options, self.share))
        budget = Budget(self.budget)
        rows: list[dict[str, Any]] = []
        size = 0
        with ThreadPoolExecutor(THREADS) as pool:
            waiting: deque[Future[dict[str, Any] | None]] = deque()
            for given in (row for batch in batches for row in batch.to_pylist()):
                waiting.append(pool.submit(_row, client, given, budget))
                if len(waiting) < 4 * THREADS:
                    continue
                size += _add(rows, waiting.popleft().result())
                if size > BATCH_BYTES or len(rows) >= BATCH_STREAMS:
                    yield pa.RecordBatch.from_pylist(rows, ARROW)
                    rows, size = [], 0
            for future in waiting:
                _add(rows, future.result())
        yield pa.RecordBatch.from_pylist(rows, ARROW)


def head_of(row: Mapping[str, Any]) -> Head | None:
    """The head in a row of raw.stream_heads; None for a stream that is new."""
    if row["minipool_gen"] is None:
        return None
    return Head(
        row["minipool_gen"],
        bytes(row["prev_miniblock_hash"]),
        row["genesis_hash"],
        row["seen_gen"],
        bytes(row["seen_hash"]),
        frozenset(bytes(one) for one in row["minipool"]),
        row["refused"],
        row["whole"],
    )


def head_row(head: Head) -> dict[str, Any]:
    """A head as `HEAD_COLUMNS`."""
    return {
        "minipool_gen": head.minipool_gen,
        "prev_miniblock_hash": head.prev_hash,
        "genesis_hash": head.genesis_hash,
        "seen_gen": head.seen_gen,
        "seen_hash": head.seen_hash,
        "minipool": sorted(head.minipool),
        "refused": head.refused,
        "whole": head.whole,
    }


def _row(client: ConnectClient, given: Mapping[str, Any], budget: Budget) -> dict[str, Any] | None:
    stream_id = bytes(given["stream_id"])
    if budget.is_spent:
        return {"stream_id": stream_id, "status": POSTPONED}
    number = given["base_number"]
    base = None if number is None else Base(number, bytes(given["base_hash"]), given["base_start"])
    try:
        found = fetch(client, stream_id, head_of(given), budget, base)
    except (Refused, BadInput) as refusal:
        return {"stream_id": stream_id, "status": REFUSED, "reason": str(refusal)[:500]}
    if found is None:
        return None
    if isinstance(found, Unsettled):
        return {"stream_id": stream_id, "status": UNSETTLED, "shown": _places(found.shown[-MOST_SHOWN:])}
    budget.spend(len(found.miniblocks) - found.pages + 1, sum(map(len, found.miniblocks[found.pages :])) + len(found.rest))
    return {"stream_id": stream_id, "status": TAKEN, **_taken(found)}


def _taken(found: Fetched) -> dict[str, Any]:
    blocks = zip(found.hashes, found.miniblocks, strict=True)
    return {
        **head_row(found.head),
        "pages": found.pages,
        "rest": found.rest,
        "catch_up": found.catch_up,
        "digest": found.digest,
        "more": found.more,
        "count": len(found.miniblocks),
        "miniblocks": [{"hash": hash_, "payload": payload} for hash_, payload in blocks],
    }


def _places(shown: Sequence[tuple[int, bytes]]) -> list[dict[str, Any]]:
    return [{"number": number, "hash": hash_} for number, hash_ in shown]


def _add(rows: list[dict[str, Any]], row: dict[str, Any] | None) -> int:
    """Keep a row, and tell its size."""
    if row is None:
        return 0
    rows.append(row)
    return sum(len(one["payload"]) for one in row.get("miniblocks", ())) + len(row.get("rest", b""))
