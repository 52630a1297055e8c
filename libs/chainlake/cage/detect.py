"""Parts of transactions that concern the cage, gathered by transaction, to events and requests: Arrow in, Arrow out."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa

from chainlake.cage.arrow_rows import Row, batched
from chainlake.cage.bronze_rows import ASSETS
from chainlake.cage.datums import Cage, Request
from chainlake.cage.rules import UPDATE, Event, Spent, Used, events_of, request_in
from chainlake.cage.transaction import Asset, TxIn, TxOut
from chainlake.collector import without_collector
from chainlake.merkle.blake import blake

SPENT, MINTED, CREATED = 0, 1, 2
"""Of the first two, the numbers are the tags of their redeemers. What is spent has no address if it is not known."""
PARTS = (
    "_height bigint, tx_index int, part int, position int, tx_id binary, place_id binary, place int, address binary,"
    f" assets {ASSETS}, datum binary, redeemer binary, created_height bigint, name binary, quantity bigint"
)
OPERATIONS = "array<struct<tx_id: binary, tx_index: int, key: binary, old_value: binary, new_value: binary, path: string>>"
DETECTED = (
    "_height bigint, tx_index int, event_index int, tx_id binary, kind string, token_id binary, owner binary, root binary,"
    f" max_fee bigint, process_time bigint, retract_time bigint, was_root binary, operations {OPERATIONS},"
    " request_tx_id binary, request_tx_index int, key binary, operation string, old_value binary, new_value binary,"
    " fee bigint, submitted_at bigint, created_height bigint, is_gone boolean, is_whole boolean"
)
_OPERATION = pa.struct(
    [
        ("tx_id", pa.binary()),
        ("tx_index", pa.int32()),
        ("key", pa.binary()),
        ("old_value", pa.binary()),
        ("new_value", pa.binary()),
        ("path", pa.string()),
    ]
)
_BINARY, _LONG, _INT = pa.binary(), pa.int64(), pa.int32()
SCHEMA = pa.schema(
    [
        ("_height", _LONG),
        ("tx_index", _INT),
        ("event_index", _INT),
        ("tx_id", _BINARY),
        ("kind", pa.string()),
        ("token_id", _BINARY),
        ("owner", _BINARY),
        ("root", _BINARY),
        ("max_fee", _LONG),
        ("process_time", _LONG),
        ("retract_time", _LONG),
        ("was_root", _BINARY),
        ("operations", pa.list_(_OPERATION)),
        ("request_tx_id", _BINARY),
        ("request_tx_index", _INT),
        ("key", _BINARY),
        ("operation", pa.string()),
        ("old_value", _BINARY),
        ("new_value", _BINARY),
        ("fee", _LONG),
        ("submitted_at", _LONG),
        ("created_height", _LONG),
        ("is_gone", pa.bool_()),
        ("is_whole", pa.bool_()),
    ]
)


@without_collector
def detect(batches: Iterable[pa.RecordBatch], cage: Cage) -> Iterator[pa.RecordBatch]:
    """Rows as PARTS says, sorted by height and transaction, to rows as DETECTED says: an event has a kind, a request has none."""
    parts = (row for batch in batches for row in batch.to_pylist())
    transactions = groupby(parts, key=lambda row: (row["_height"], row["tx_index"]))
    yield from batched((row for place, group in transactions for row in _placed(cage, *place, list(group))), SCHEMA)


def detector(cage: Cage) -> Any:
    """`detect` for one cage."""
    return partial(detect, cage=cage)


def _placed(cage: Cage, height: int, tx_index: int, parts: list[Row]) -> Iterator[Row]:
    for row in _of_transaction(cage, parts):
        yield {"_height": height, "tx_index": tx_index, **row}


def _of_transaction(cage: Cage, parts: list[Row]) -> Iterator[Row]:
    is_whole = all(row["redeemer"] is None for row in parts if _is_unknown(row))  # a script is always told something
    parts = [row for row in parts if not _is_unknown(row)]
    spent = [Spent(_place(row), _output(row), row["redeemer"]) for row in parts if row["part"] == SPENT]
    created = [(_place(row), _output(row)) for row in parts if row["part"] == CREATED]
    mints = [Asset(cage.policy, row["name"], row["quantity"]) for row in parts if row["part"] == MINTED]
    minting = next((row["redeemer"] for row in parts if row["part"] == MINTED), None)
    tx_id = next((row["tx_id"] for row in parts if row["tx_id"] is not None), None)
    if tx_id is not None:
        for number, event in enumerate(events_of(cage, spent, created, mints, minting, is_whole)):
            yield {"event_index": number, "tx_id": tx_id, **_event(event)}
    for row in parts:
        if row["part"] != MINTED:
            request = request_in(cage, _output(row))
            if request is not None:
                gone = row["part"] == SPENT
                yield {**_request(_place(row), request), "created_height": row["created_height"], "is_gone": gone}


def _is_unknown(row: Row) -> bool:
    return row["part"] == SPENT and row["address"] is None


def _place(row: Row) -> TxIn:
    return TxIn(row["place_id"], row["place"])


def _output(row: Row) -> TxOut:
    assets = tuple(Asset(one["policy"], one["name"], int(one["quantity"])) for one in row["assets"])
    return TxOut(row["address"], 0, assets, None, row["datum"], None, b"")


def _event(event: Event) -> Row:
    row: Row = {"kind": event.kind, "token_id": event.token_id, "operations": [_operation(event, one) for one in event.requests]}
    row["is_whole"] = event.is_whole
    if event.state is not None:
        row |= event.state._asdict()
    if event.was is not None:
        row["was_root"] = event.was.root
    return row


def _operation(event: Event, used: Used) -> Row:
    place, request = used
    row: Row = {"tx_id": place.tx_id, "tx_index": place.number}
    if event.kind == UPDATE:
        row |= {"key": request.key, "old_value": request.old_value, "new_value": request.new_value}
        row["path"] = blake(request.key).hex()
    return row


def _request(place: TxIn, request: Request) -> Row:
    return {
        **request._asdict(),
        "request_tx_id": place.tx_id,
        "request_tx_index": place.number,
        "operation": request.operation,
    }
