"""Passes and miniblocks as rows: bytes in, Arrow out."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from chainlake.arrow_ddl import TIME, ddl_of
from chainlake.encoding import short
from chainlake.errors import BadInput
from chainlake.sync.hashing import river_hash
from chainlake.sync.messages import Answer, event_fields, read_answer
from chainlake.sync.miniblock import Event, open_miniblock

MICROS = 1_000
MOST_MS = 1 << 47
EVENT = pa.struct(
    {
        "event_hash": pa.binary(),
        "creator_address": pa.binary(),
        "created_at": TIME,
        "kind": pa.string(),
        "payload": pa.binary(),
        "problem": pa.string(),
    }
)
ANSWERS_ARROW = pa.schema(
    {
        "_chain": pa.string(),
        "_height": pa.int64(),
        "stream_id": pa.binary(),
        "first_tx": pa.int32(),
        "miniblocks": pa.int32(),
        "pages": pa.int32(),
        "snapshot_index": pa.int32(),
        "minipool_gen": pa.int64(),
        "prev_miniblock_hash": pa.binary(),
        "is_whole": pa.bool_(),
        "catch_up": pa.bool_(),
        "live": pa.bool_(),
        "passed_at": TIME,
        "events": pa.list_(EVENT),
    }
)
ANSWERS = ddl_of(ANSWERS_ARROW)
MINIBLOCKS_ARROW = pa.schema(
    {
        "_chain": pa.string(),
        "_height": pa.int64(),
        "tx_index": pa.int32(),
        "stream_id": pa.binary(),
        "miniblock_num": pa.int64(),
        "miniblock_hash": pa.binary(),
        "prev_miniblock_hash": pa.binary(),
        "timestamp": TIME,
        "has_snapshot": pa.bool_(),
        "event_count": pa.int32(),
        "problem": pa.string(),
        "events": pa.list_(EVENT),
    }
)
MINIBLOCKS = ddl_of(MINIBLOCKS_ARROW)
OPEN = 1_000
PLACE = ("_chain", "_height", "tx_index", "stream_id")


def answers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What each pass (`_chain`, `_height`, `payload`, `timestamp`) brought of each stream."""
    for batch in batches:
        for row in batch.to_pylist():
            yield pa.RecordBatch.from_pylist(list(answers_of(row)), ANSWERS_ARROW)


def miniblocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each miniblock (`PLACE`, `payload`) opened, checked, and its events if it is sound. They may be large, so few are open
    at a time."""
    for batch in (whole.slice(start, OPEN) for whole in batches for start in range(0, whole.num_rows, OPEN)):
        opened = [open_miniblock(raw) for raw in batch.column("payload").to_pylist()]
        columns: dict[str, pa.Array] = {name: batch.column(name) for name in PLACE}
        said = {
            "miniblock_num": [one.number for one in opened],
            "miniblock_hash": [one.hash for one in opened],
            "prev_miniblock_hash": [one.prev_hash for one in opened],
            "timestamp": [one.timestamp_us for one in opened],
            "has_snapshot": [one.has_snapshot for one in opened],
            "event_count": [len(one.events) for one in opened],
            "problem": [one.problem for one in opened],
        }
        columns |= {name: pa.array(values, MINIBLOCKS_ARROW.field(name).type) for name, values in said.items()}
        columns["events"] = _nested([() if one.problem else one.events for one in opened])
        yield pa.RecordBatch.from_pydict(columns, MINIBLOCKS_ARROW)


def answers_of(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What one pass brought of each stream."""
    told = json.loads(row["payload"])
    at, nothing = 0, [None] * len(told["streams"])
    parts = zip(
        told["streams"],
        told["miniblocks"],
        told["rest"],
        told.get("pages", nothing),
        told.get("whole", nothing),
        told.get("catch_up", nothing),
        strict=True,
    )
    live = bool(told.get("live"))
    for stream, count, rest, pages, whole, catch_up in parts:
        answer = _rest(base64.b64decode(rest))
        yield {
            "_chain": row["_chain"],
            "_height": row["_height"],
            "stream_id": bytes.fromhex(stream),
            "first_tx": at,
            "miniblocks": count,
            "pages": pages or 0,
            "snapshot_index": 0 if live or answer is None else min(answer.snapshot_index, 1 << 30),
            "minipool_gen": answer.minipool_gen if answer else None,
            "prev_miniblock_hash": answer.prev_hash if answer else None,
            "is_whole": whole is not False,
            "catch_up": bool(catch_up),
            "live": live,
            "passed_at": row["timestamp"],
            "events": [_event(event, _problem(event)) for event in answer.minipool] if answer else [],
        }
        at += count


def _rest(data: bytes) -> Answer | None:
    """What came besides miniblocks; None if there is nothing, or nothing that can be read."""
    try:
        return read_answer(data) if data else None
    except BadInput:
        return None


def _problem(event: Event) -> str | None:
    if not event.hash:
        return "it cannot be read, or states no hash"
    return None if river_hash(event.body) == event.hash else f"it does not have the hash {short(event.hash)} that it states"


def _event(event: Event, problem: str | None) -> dict[str, Any]:
    creator, created, kind = _fields(event)
    return {
        "event_hash": event.hash,
        "creator_address": creator,
        "created_at": created,
        "kind": kind,
        "payload": event.body,
        "problem": problem,
    }


def _fields(event: Event) -> tuple[bytes, int | None, str | None]:
    try:
        found = event_fields(event.body)
    except BadInput:
        return b"", None, None
    return found.creator, found.created_ms * MICROS if 0 <= found.created_ms < MOST_MS else None, found.kind


def _nested(events: list[tuple[Event, ...]]) -> pa.ListArray:
    """The events of each miniblock, column by column."""
    flat = [event for some in events for event in some]
    fields = [_fields(event) for event in flat]
    values = pa.StructArray.from_arrays(
        [
            pa.array([event.hash for event in flat], pa.binary()),
            pa.array([creator for creator, _, _ in fields], pa.binary()),
            pa.array([created for _, created, _ in fields], TIME),
            pa.array([kind for _, _, kind in fields], pa.string()),
            pa.array([event.body for event in flat], pa.binary()),
            pa.nulls(len(flat), pa.string()),
        ],
        fields=list(EVENT),
    )
    offsets = [0]
    for some in events:
        offsets.append(offsets[-1] + len(some))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
