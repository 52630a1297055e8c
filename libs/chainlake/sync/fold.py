"""Streams through their passes: the rules applied to each stream of a batch, Arrow in and out."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from chainlake.sync.rules import Delivery, Mark, Outcome, State, advance

TIME = pa.timestamp("us", tz="UTC")
STATE = (
    "minipool_gen",
    "snapshot_miniblock",
    "prev_miniblock_hash",
    "first_miniblock",
    "genesis_hash",
    "reset_reason",
    "stopped",
)
FOLDED = (
    "_chain string, stream_id binary,"
    " states array<struct<_height: bigint, minipool_gen: bigint, snapshot_miniblock: bigint, prev_miniblock_hash: binary,"
    " first_miniblock: bigint, genesis_hash: binary, reset_reason: string, stopped: string, updated_at: timestamp>>,"
    " delivered array<struct<_height: bigint, tx_index: int, miniblock_num: bigint, miniblock_hash: binary, timestamp: timestamp,"
    " passed_at: timestamp, delivered: boolean, historical: boolean, duplicate: boolean>>,"
    " gaps array<struct<_height: bigint, from_miniblock: bigint, to_miniblock: bigint, reason: string>>,"
    " quarantined array<struct<_height: bigint, tx_index: int, miniblock_num: bigint, hash: binary, reason: string>>,"
    " passes array<struct<_height: bigint, case: string, minipool: boolean>>"
)
FOLDED_ARROW = pa.schema(
    {
        "_chain": pa.string(),
        "stream_id": pa.binary(),
        "states": pa.list_(
            pa.struct(
                {
                    "_height": pa.int64(),
                    "minipool_gen": pa.int64(),
                    "snapshot_miniblock": pa.int64(),
                    "prev_miniblock_hash": pa.binary(),
                    "first_miniblock": pa.int64(),
                    "genesis_hash": pa.binary(),
                    "reset_reason": pa.string(),
                    "stopped": pa.string(),
                    "updated_at": TIME,
                }
            )
        ),
        "delivered": pa.list_(
            pa.struct(
                {
                    "_height": pa.int64(),
                    "tx_index": pa.int32(),
                    "miniblock_num": pa.int64(),
                    "miniblock_hash": pa.binary(),
                    "timestamp": TIME,
                    "passed_at": TIME,
                    "delivered": pa.bool_(),
                    "historical": pa.bool_(),
                    "duplicate": pa.bool_(),
                }
            )
        ),
        "gaps": pa.list_(
            pa.struct({"_height": pa.int64(), "from_miniblock": pa.int64(), "to_miniblock": pa.int64(), "reason": pa.string()})
        ),
        "quarantined": pa.list_(
            pa.struct(
                {
                    "_height": pa.int64(),
                    "tx_index": pa.int32(),
                    "miniblock_num": pa.int64(),
                    "hash": pa.binary(),
                    "reason": pa.string(),
                }
            )
        ),
        "passes": pa.list_(pa.struct({"_height": pa.int64(), "case": pa.string(), "minipool": pa.bool_()})),
    }
)

Row = dict[str, Any]


class Known:
    """Miniblocks of a stream that were delivered, by number; grows as the batch goes on."""

    def __init__(self, places: Iterable[Mapping[str, Any]]) -> None:
        self._hashes: dict[int, set[bytes]] = {}
        for place in places:
            self.add(place["miniblock_num"], place["miniblock_hash"])

    def add(self, number: int, hash_: bytes) -> None:
        self._hashes.setdefault(number, set()).add(hash_)

    def held(self, number: int, hash_: bytes) -> bool:
        return hash_ in self._hashes.get(number, ())

    def knows(self, number: int) -> bool:
        return number in self._hashes


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each row is a stream: its state before, what it holds in common numbers (`ours`), its answers and marks of the batch."""
    for batch in batches:
        yield pa.RecordBatch.from_pylist([fold_stream(row) for row in batch.to_pylist()], FOLDED_ARROW)


def fold_stream(row: Row) -> Row:
    """What the passes of a batch make of one stream, pass by pass."""
    state = state_of(row["state"])
    known = Known(row["ours"] or ())
    marks: dict[int, list[Row]] = {}
    for mark in sorted(row["marks"] or (), key=lambda one: (one["_height"], one["tx_index"])):
        marks.setdefault(mark["_height"], []).append(mark)
    out: Row = {"_chain": row["_chain"], "stream_id": row["stream_id"]}
    out |= {"states": [], "delivered": [], "gaps": [], "quarantined": [], "passes": []}
    for answer in sorted(row["answers"], key=lambda one: one["_height"]):
        mine = marks.get(answer["_height"], [])
        outcome = advance(state, delivery_of(answer, mine), known)
        state = outcome.state or state
        _note(out, answer, mine, outcome)
        for one in outcome.delivered:
            known.add(one.mark.number, one.mark.hash)
        if outcome.genesis is not None:
            known.add(0, outcome.genesis.hash)
    return out


def state_of(row: Row | None) -> State | None:
    """The state of a stream before the batch."""
    return None if row is None or row["minipool_gen"] is None else State(**{name: row[name] for name in STATE})


def delivery_of(answer: Row, marks: list[Row]) -> Delivery:
    """What one pass brought, as the rules see it."""
    return Delivery(
        tuple(
            Mark(
                place,
                mark["miniblock_num"],
                mark["miniblock_hash"],
                mark["prev_miniblock_hash"],
                mark["has_snapshot"],
                mark["problem"],
            )
            for place, mark in enumerate(marks)
        ),
        answer["pages"],
        answer["snapshot_index"],
        answer["is_whole"],
        answer["catch_up"],
        answer["live"],
    )


def _note(out: Row, answer: Row, marks: list[Row], outcome: Outcome) -> None:
    height, passed_at = answer["_height"], answer["passed_at"]
    placed = [(one.mark, True, one.historical, one.duplicate) for one in outcome.delivered]
    if outcome.genesis is not None:
        placed.insert(0, (outcome.genesis, False, True, False))
    for mark, delivered, historical, duplicate in placed:
        came = marks[mark.place]
        kept = {name: came[name] for name in ("_height", "tx_index", "miniblock_num", "miniblock_hash", "timestamp")}
        flags = {"delivered": delivered, "historical": historical, "duplicate": duplicate}
        out["delivered"].append({**kept, "passed_at": passed_at, **flags})
    if outcome.state is not None:
        updated = passed_at or (marks[outcome.delivered[-1].mark.place]["timestamp"] if outcome.delivered else None)
        values = {name: getattr(outcome.state, name) for name in STATE}
        out["states"].append({"_height": height, **values, "updated_at": updated})
    if outcome.gap is not None:
        gap = outcome.gap
        found = {"from_miniblock": gap.first, "to_miniblock": gap.end, "reason": gap.reason}
        out["gaps"].append({"_height": height, **found})
    if outcome.quarantined is not None:
        mark, reason = outcome.quarantined.mark, outcome.quarantined.reason
        place = {"_height": height, "tx_index": marks[mark.place]["tx_index"], "miniblock_num": mark.number}
        out["quarantined"].append({**place, "hash": mark.hash, "reason": reason})
    out["passes"].append({"_height": height, "case": outcome.case, "minipool": outcome.minipool})
