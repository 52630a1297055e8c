"""Tokens through a batch, as Arrow: rows sorted by token, first what is kept of it, then its events."""

from collections.abc import Iterable, Iterator
from itertools import groupby

import pyarrow as pa

from chainlake.cage.arrow_rows import Row, batched
from chainlake.cage.datums import State
from chainlake.cage.detect import OPERATIONS
from chainlake.cage.token_fold import TokenBlock, TokenEvent, TokenRow, fold_token
from chainlake.cage.utxo_fold import to_path, to_text
from chainlake.collector import without_collector
from chainlake.errors import BrokenPromise
from chainlake.merkle import mpf

TOKEN, NODE, EVENT = 0, 1, 2
BUCKET = 8
STATE = "owner binary, root binary, max_fee bigint, process_time bigint, retract_time bigint"
PARTS = (
    f"token_id binary, part int, _height bigint, tx_index int, event_index int, kind string, {STATE}, was_root binary,"
    f" is_whole boolean, operations {OPERATIONS}, created_height bigint, updated_height bigint, tracked boolean, path string,"
    " node binary"
)
FOLDED = (
    f"what string, token_id binary, _height bigint, _deleted boolean, {STATE}, created_height bigint, updated_height bigint,"
    " tracked boolean, key binary, value binary, bucket string, path string, node binary, error string"
)
_BINARY, _LONG = pa.binary(), pa.int64()
SCHEMA = pa.schema(
    [
        ("what", pa.string()),
        ("token_id", _BINARY),
        ("_height", _LONG),
        ("_deleted", pa.bool_()),
        ("owner", _BINARY),
        ("root", _BINARY),
        ("max_fee", _LONG),
        ("process_time", _LONG),
        ("retract_time", _LONG),
        ("created_height", _LONG),
        ("updated_height", _LONG),
        ("tracked", pa.bool_()),
        ("key", _BINARY),
        ("value", _BINARY),
        ("bucket", pa.string()),
        ("path", pa.string()),
        ("node", _BINARY),
        ("error", pa.string()),
    ]
)


@without_collector
def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as PARTS says, sorted by token, part and place, to rows as FOLDED says."""
    parts = (row for batch in batches for row in batch.to_pylist())
    tokens = groupby(parts, key=lambda row: row["token_id"])
    yield from batched((row for token_id, group in tokens for row in _of_token(token_id, group)), SCHEMA)


def _of_token(token_id: bytes, parts: Iterable[Row]) -> Iterator[Row]:
    before: TokenRow | None = None
    nodes: dict[bytes, bytes] = {}
    events: list[TokenEvent] = []
    for row in parts:
        if row["part"] == TOKEN:
            before = TokenRow(_state(row), row["created_height"], row["updated_height"], row["tracked"])
        elif row["part"] == NODE:
            nodes[to_path(row["path"])] = row["node"]
        else:
            events.append(_event(row))
    try:
        for block in fold_token(token_id, before, nodes, events):
            yield from _rows(token_id, block)
    except BrokenPromise as broken:
        height = broken.height if broken.height is not None else events[0].height
        yield {"what": "error", "token_id": token_id, "_height": height, "error": str(broken)}


def _rows(token_id: bytes, block: TokenBlock) -> Iterator[Row]:
    now = block.token or block.was
    own = {"token_id": token_id, "_height": block.height}
    if now is not None:
        state = now.state._asdict()
        kept = {"created_height": now.created_height, "updated_height": now.updated_height, "tracked": now.tracked}
        yield {"what": "token", **own, "_deleted": block.token is None, **state, **kept}
    for key, (value, there) in block.facts.items():
        yield {"what": "fact", **own, "_deleted": not there, "key": key, "value": value}
    for path, node in block.nodes.items():
        text = to_text(path)
        yield {"what": "node", **own, "_deleted": node is None, "bucket": text[:BUCKET], "path": text, "node": node or b""}
    if block.burned:
        yield {"what": "burn", **own}


def _state(row: Row) -> State:
    return State(row["owner"], row["root"], row["max_fee"], row["process_time"], row["retract_time"])


def _event(row: Row) -> TokenEvent:
    state = _state(row) if row["root"] is not None else None
    asked = row["operations"] if row["kind"] == "update" else ()
    operations = [mpf.Operation(one["key"], one["old_value"], one["new_value"]) for one in asked]
    return TokenEvent(row["_height"], row["tx_index"], row["kind"], state, row["was_root"], operations, row["is_whole"])
