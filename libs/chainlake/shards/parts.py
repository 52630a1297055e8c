"""Blocks folded part by part: the streams whose path begins with the same two hex digits, and their part of the tree.

Rows of three kinds come sorted by chain, part and kind: tree rows, streams as they were before the batch, then operations by
stream and place. A part needs nothing of the others, so Spark runs as many side by side as it likes. What comes out, again in one
schema: after-images of streams, results of operations, and tree rows that changed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from chainlake.merkle.smt import leaf_hash
from chainlake.merkle.smt_fold import Update, fold_part
from chainlake.merkle.smt_nodes import Node
from chainlake.shards.decode import operation_of
from chainlake.shards.fold import OperationResult, StreamOperation, fold_stream
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.state import StreamState, value_of

NODE, STATE, OPERATION = 0, 1, 2
"""Kinds of rows that come in, in the order in which they are needed."""

INPUT = (
    *("kind", "_chain", "part", "stream_id", "_height", "tx_index", "item", "op", "prev_miniblock_hash", "last_miniblock_hash"),
    *("last_miniblock_num", "nodes", "addresses", "replication_factor", "sealed", "created_height", "updated_height"),
    *("prefix", "leaves", "hash", "key"),
)
SORTED_BY = ("_chain", "part", "kind", "stream_id", "_height", "tx_index", "item")

IMAGE_KIND, RESULT_KIND, NODE_KIND = "image", "result", "node"
OUTPUT = pa.schema(
    {
        "kind": pa.string(),
        "_chain": pa.string(),
        "_height": pa.int64(),
        "stream_id": pa.binary(),
        "last_miniblock_hash": pa.binary(),
        "last_miniblock_num": pa.int64(),
        "nodes": pa.list_(pa.int32()),
        "replication_factor": pa.int32(),
        "sealed": pa.bool_(),
        "created_height": pa.int64(),
        "updated_height": pa.int64(),
        "tx_index": pa.int32(),
        "item": pa.int32(),
        "code": pa.int32(),
        "message": pa.string(),
        "type": pa.string(),
        "attributes": pa.list_(pa.struct({"key": pa.string(), "value": pa.string()})),
        "prefix": pa.string(),
        "leaves": pa.int64(),
        "hash": pa.binary(),
        "key": pa.binary(),
        "deepest": pa.int32(),
    }
)
DDL = (
    "kind string, _chain string, _height bigint, stream_id binary, last_miniblock_hash binary, last_miniblock_num bigint,"
    " nodes array<int>, replication_factor int, sealed boolean, created_height bigint, updated_height bigint, tx_index int,"
    " item int, code int, message string, type string, attributes array<struct<key: string, value: string>>, prefix string,"
    " leaves bigint, hash binary, key binary, deepest int"
)
ENOUGH_ROWS = 50_000

Columns = dict[str, list[Any]]


def fold_parts(batches: Iterable[pa.RecordBatch], registries: Mapping[str, NodeRegistry]) -> Iterator[pa.RecordBatch]:
    """What the rows of whole parts become."""
    made = _Made()
    for (chain, part), rows in groupby(_rows(batches), key=itemgetter(1, 2)):
        _fold(made, chain, part, rows, registries[chain])
        if made.rows >= ENOUGH_ROWS:
            yield from made.take()
    yield from made.take()


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in INPUT), strict=True)


def _fold(made: "_Made", chain: str, part: str, rows: Iterator[tuple[Any, ...]], registry: NodeRegistry) -> None:
    stored: list[Node] = []
    states: dict[bytes, StreamState] = {}
    updates: list[Update] = []
    for (kind, stream_id), group in groupby(rows, key=itemgetter(0, 3)):
        if kind == NODE:
            stored.extend(Node(row[4], *row[17:21]) for row in group)
        elif kind == STATE:
            states.update((stream_id, _state(row)) for row in group)
        else:
            folded = fold_stream(states.get(stream_id), map(_operation, group), registry)
            made.results(chain, folded.results)
            made.images(chain, folded.images)
            for image in folded.images:
                leaf = leaf_hash(stream_id, value_of(image, registry))
                updates.append(Update(image.updated_height, stream_id, leaf))
    made.nodes(chain, fold_part(part, stored, updates).nodes)


def _state(row: tuple[Any, ...]) -> StreamState:
    return StreamState(row[3], row[9], row[10], tuple(row[11]), row[13], row[14], row[15], row[16])


def _operation(row: tuple[Any, ...]) -> StreamOperation:
    operation = operation_of(row[7], (row[3], row[8], row[9], row[10], row[12], row[13], row[14]))
    return StreamOperation(row[4], row[5], row[6], operation)


class _Made:
    """Rows of each kind, column by column, until they are taken."""

    def __init__(self) -> None:
        self._columns: dict[str, Columns] = defaultdict(lambda: defaultdict(list))

    @property
    def rows(self) -> int:
        return sum(len(columns["_height"]) for columns in self._columns.values())

    def images(self, chain: str, images: Iterable[StreamState]) -> None:
        columns = self._columns[IMAGE_KIND]
        for one in images:
            columns["_chain"].append(chain)
            columns["_height"].append(one.updated_height)
            columns["stream_id"].append(one.stream_id)
            columns["last_miniblock_hash"].append(one.last_miniblock_hash)
            columns["last_miniblock_num"].append(one.last_miniblock_num)
            columns["nodes"].append(one.nodes)
            columns["replication_factor"].append(one.replication_factor)
            columns["sealed"].append(one.sealed)
            columns["created_height"].append(one.created_height)
            columns["updated_height"].append(one.updated_height)

    def results(self, chain: str, results: Iterable[OperationResult]) -> None:
        columns = self._columns[RESULT_KIND]
        for height, tx_index, item, code, message, event in results:
            columns["_chain"].append(chain)
            columns["_height"].append(height)
            columns["tx_index"].append(tx_index)
            columns["item"].append(item)
            columns["code"].append(int(code))
            columns["message"].append(message)
            columns["type"].append(event and event.type)
            columns["attributes"].append(event and event.attributes)

    def nodes(self, chain: str, nodes: list[Node]) -> None:
        """Tree rows; the top of the part says how deep the part was changed in its block."""
        deepest: dict[int, int] = {}
        for node in nodes:
            deepest[node.block] = max(deepest.get(node.block, 0), len(node.prefix))
        columns = self._columns[NODE_KIND]
        top = min((len(node.prefix) for node in nodes), default=0)
        for block, prefix, leaves, digest, key in nodes:
            columns["_chain"].append(chain)
            columns["_height"].append(block)
            columns["prefix"].append(prefix)
            columns["leaves"].append(leaves)
            columns["hash"].append(digest)
            columns["key"].append(key)
            columns["deepest"].append(deepest[block] if len(prefix) == top else None)

    def take(self) -> Iterator[pa.RecordBatch]:
        """All rows so far, a batch per kind."""
        for kind, columns in self._columns.items():
            count = len(columns["_height"])
            if count:
                columns["kind"] = [kind] * count
                yield to_batch(OUTPUT, columns, count)
        self._columns.clear()


def to_batch(schema: pa.Schema, columns: Columns, count: int) -> pa.RecordBatch:
    """Rows given column by column; columns that are not given are NULL."""
    arrays = [_array(columns[one.name], one.type) if one.name in columns else pa.nulls(count, one.type) for one in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Attributes of events come as pairs, which Arrow does not take for structs."""
    if not (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        return pa.array(values, kind)
    pairs = [pair for value in values if value for pair in value]
    offsets, size = [0], 0
    for value in values:
        size += len(value) if value else 0
        offsets.append(size)
    keys, texts = pa.array([key for key, _ in pairs], pa.string()), pa.array([text for _, text in pairs], pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.StructArray.from_arrays([keys, texts], ["key", "value"]))
