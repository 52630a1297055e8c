"""Raw transactions of metadata shards to rows of bronze.shard_txs: decoded, and checked as CheckTx does."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from chainlake.shards.checks import check_tx
from chainlake.shards.codes import Code, Refused
from chainlake.shards.rules import Operation, operations_of
from chainlake.shards.transactions import (
    CreateStreamTx,
    MiniblockUpdate,
    SetStreamLastMiniblockBatchTx,
    StreamMetadata,
    Transaction,
    UpdateStreamNodesAndReplicationTx,
)

CREATE, MINIBLOCKS, PLACEMENT = "create_stream", "set_last_miniblocks", "update_placement"
OPERATION = (
    "stream_id: binary, prev_miniblock_hash: binary, last_miniblock_hash: binary, last_miniblock_num: bigint,"
    " nodes: array<binary>, replication_factor: bigint, sealed: boolean"
)
DDL = (
    "_chain string, _height bigint, tx_index int, hash binary, op string, code int, message string,"
    f" operations array<struct<{OPERATION}>>"
)
OPERATION_FIELDS = [
    pa.field("stream_id", pa.binary()),
    pa.field("prev_miniblock_hash", pa.binary()),
    pa.field("last_miniblock_hash", pa.binary()),
    pa.field("last_miniblock_num", pa.int64()),
    pa.field("nodes", pa.list_(pa.binary())),
    pa.field("replication_factor", pa.int64()),
    pa.field("sealed", pa.bool_()),
]

_NOTHING: tuple[bytes, ...] = ()
Row = tuple[bytes, bytes | None, bytes | None, int | None, tuple[bytes, ...], int | None, bool]


def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of bronze.shard_txs, from those of raw.transactions."""
    for batch in batches:
        ops: list[str | None] = []
        codes: list[int] = []
        messages: list[str] = []
        sizes: list[int] = [0]
        rows: list[Row] = []
        for payload in batch.column("payload").to_pylist():
            op, code, message, found = _decoded(payload)
            ops.append(op)
            codes.append(code)
            messages.append(message)
            rows.extend(found)
            sizes.append(len(rows))
        kept = [batch.column(name) for name in ("_chain", "_height", "tx_index", "hash")]
        made = [pa.array(ops, pa.string()), pa.array(codes, pa.int32()), pa.array(messages, pa.string()), _nested(rows, sizes)]
        names = ["_chain", "_height", "tx_index", "hash", "op", "code", "message", "operations"]
        yield pa.RecordBatch.from_arrays([*kept, *made], names)


def operation_of(op: str, row: Row) -> Operation:
    """The operation that a row of `operations` holds."""
    stream_id, previous, last_hash, number, nodes, factor, sealed = row
    if op == MINIBLOCKS:
        return MiniblockUpdate(stream_id, previous or b"", number or 0, last_hash or b"", sealed)
    if op == CREATE:
        return StreamMetadata(stream_id, last_hash or b"", number or 0, tuple(nodes), factor or 0, sealed)
    return UpdateStreamNodesAndReplicationTx(stream_id, tuple(nodes), factor or 0)


def row_of(operation: Operation) -> Row:
    """An operation as a row of `operations`; what it does not say is NULL."""
    if isinstance(operation, MiniblockUpdate):
        one = operation
        return one.stream_id, one.prev_miniblock_hash, one.last_miniblock_hash, one.last_miniblock_num, _NOTHING, None, one.sealed
    if isinstance(operation, StreamMetadata):
        new = operation
        last = (None, new.last_miniblock_hash, new.last_miniblock_num)
        return new.stream_id, *last, new.nodes, new.replication_factor, new.sealed
    return operation.stream_id, None, None, None, operation.nodes, operation.replication_factor, False


def _decoded(payload: bytes) -> tuple[str | None, int, str, list[Row]]:
    try:
        transaction = check_tx(payload)
    except Refused as refused:
        return None, int(refused.code), refused.message, []
    return _name(transaction), int(Code.OK), "", [row_of(one) for one in operations_of(transaction)]


def _name(transaction: Transaction) -> str:
    if isinstance(transaction, SetStreamLastMiniblockBatchTx):
        return MINIBLOCKS
    return CREATE if isinstance(transaction, CreateStreamTx) else PLACEMENT


def _nested(rows: list[Row], sizes: list[int]) -> pa.ListArray:
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(OPERATION_FIELDS)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, OPERATION_FIELDS, strict=True)]
    return pa.ListArray.from_arrays(pa.array(sizes, pa.int32()), pa.StructArray.from_arrays(arrays, fields=OPERATION_FIELDS))
