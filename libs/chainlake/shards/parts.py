"""Blocks folded part by part: the streams whose path begins with the same two hex digits, and their part of the tree.

Rows of three kinds come part by part, in any order within one: tree rows, streams as they were before the batch, and operations.
A part needs nothing of the others, so Spark runs as many side by side as it likes. What comes out, again in one schema:
after-images of streams, results of operations, and tree rows that changed.
"""

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, groupby, pairwise, repeat
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chainlake.errors import BrokenPromise
from chainlake.merkle.smt import leaf_hash
from chainlake.merkle.smt_fold import Update, fold_part
from chainlake.merkle.smt_nodes import Node
from chainlake.shards.decode import operation_of
from chainlake.shards.fold import OperationResult, StreamOperation, fold_stream
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.state import StreamState, value_of

NODE, STATE, OPERATION = 0, 1, 2
"""Kinds of rows that come in."""

INPUT = (
    *("kind", "_chain", "part", "stream_id", "_height", "tx_index", "item", "op", "prev_miniblock_hash", "last_miniblock_hash"),
    *("last_miniblock_num", "nodes", "addresses", "replication_factor", "sealed", "created_height", "updated_height"),
    *("prefix", "leaves", "hash", "key"),
)
PART = ("_chain", "part")
ORDERED = [(name, "ascending") for name in ("stream_id", "_height", "tx_index", "item")]
COLUMNS = {
    NODE: ("_height", "prefix", "leaves", "hash", "key"),
    STATE: StreamState._fields,
    OPERATION: (
        *("stream_id", "_height", "tx_index", "item", "op", "prev_miniblock_hash", "last_miniblock_hash", "last_miniblock_num"),
        *("addresses", "replication_factor", "sealed"),
    ),
}
"""The columns that rows of a kind have."""

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

Columns = Mapping[str, Any]
Row = tuple[Any, ...]


def fold_parts(batches: Iterable[pa.RecordBatch], registries: Mapping[str, NodeRegistry]) -> Iterator[pa.RecordBatch]:
    """What the rows of whole parts become."""
    made = _Made()
    seen: set[tuple[str, str]] = set()
    with _no_collection():
        for (chain, part), runs in groupby(_runs(batches), key=itemgetter(0, 1)):
            if (chain, part) in seen:
                raise BrokenPromise(f"rows of part {part} of {chain} came apart: all of a part have to lie beside each other")
            seen.add((chain, part))
            _fold(made, chain, part, pa.Table.from_batches([run[2] for run in runs]), registries[chain])
            if made.count >= ENOUGH_ROWS:
                yield from made.take()
        yield from made.take()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Millions of values without a cycle among them: to look for one would take an eighth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """Rows of one part that lie beside each other in a batch."""
    for batch in batches:
        edges = {edge for name in PART for edge in pc.run_end_encode(batch.column(name)).run_ends.to_pylist()}
        for low, high in pairwise([0, *sorted(edges)]):
            rows = batch.slice(low, high - low)
            chain, part = (rows.column(name)[0].as_py() for name in PART)
            yield chain, part, rows


def _of_kind(rows: pa.Table, kind: int) -> pa.Table:
    return rows.filter(pc.equal(rows["kind"], kind)).select(COLUMNS[kind])


def _tuples(rows: pa.Table) -> Iterator[Row]:
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)


def _fold(made: "_Made", chain: str, part: str, rows: pa.Table, registry: NodeRegistry) -> None:
    stored = map(Node._make, _tuples(_of_kind(rows, NODE)))
    states = {row[0]: _state(row) for row in _tuples(_of_kind(rows, STATE))}
    results: list[OperationResult] = []
    images: list[StreamState] = []
    for stream_id, operations in groupby(_tuples(_of_kind(rows, OPERATION).sort_by(ORDERED)), key=itemgetter(0)):
        folded = fold_stream(states.get(stream_id), map(_operation, operations), registry)
        results.extend(folded.results)
        images.extend(folded.images)
    updates = [Update(one.updated_height, one.stream_id, leaf_hash(one.stream_id, value_of(one, registry))) for one in images]
    made.add(RESULT_KIND, chain, results)
    made.add(IMAGE_KIND, chain, images)
    made.add(NODE_KIND, chain, with_depth(part, fold_part(part, stored, updates).nodes))


def _state(row: Row) -> StreamState:
    stream_id, last_hash, last_num, nodes, *rest = row
    return StreamState(stream_id, last_hash, last_num, tuple(nodes), *rest)


def _operation(row: Row) -> StreamOperation:
    stream_id, height, tx_index, item, op, *rest = row
    return StreamOperation(height, tx_index, item, operation_of(op, (stream_id, *rest)))


def with_depth(part: str, nodes: list[Node]) -> list[Row]:
    """Tree rows with one more value: on the top of the part, how deep the part was changed in its block."""
    deepest: dict[int, int] = {}
    for node in nodes:
        deepest[node.block] = max(deepest.get(node.block, 0), len(node.prefix))
    return [(*node, deepest[node.block] if node.prefix == part else None) for node in nodes]


class _Made:
    """Rows of each kind, until they are taken."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Row]] = defaultdict(list)
        self._chains: dict[str, list[str]] = defaultdict(list)

    @property
    def count(self) -> int:
        return sum(map(len, self._rows.values()))

    def add(self, kind: str, chain: str, rows: Iterable[Row]) -> None:
        """Rows of one chain."""
        held = self._rows[kind]
        held.extend(rows)
        self._chains[kind].extend(repeat(chain, len(held) - len(self._chains[kind])))

    def take(self) -> Iterator[pa.RecordBatch]:
        """All rows so far, a batch per kind."""
        for kind, rows in self._rows.items():
            if rows:
                columns = _COLUMNS_OF[kind](list(zip(*rows, strict=True)))
                same = {"kind": [kind] * len(rows), "_chain": self._chains[kind]}
                yield to_batch(OUTPUT, {**same, **columns}, len(rows))
        self._rows.clear()
        self._chains.clear()


def _image_columns(values: list[Row]) -> Columns:
    columns = dict(zip(StreamState._fields, values, strict=True))
    return {**columns, "_height": columns["updated_height"]}


def _result_columns(values: list[Row]) -> Columns:
    *plain, events = values
    columns = dict(zip(("_height", "tx_index", "item", "code", "message"), plain, strict=True))
    return {**columns, "type": [one and one.type for one in events], "attributes": [one and one.attributes for one in events]}


def _node_columns(values: list[Row]) -> Columns:
    return dict(zip(("_height", "prefix", "leaves", "hash", "key", "deepest"), values, strict=True))


_COLUMNS_OF = {IMAGE_KIND: _image_columns, RESULT_KIND: _result_columns, NODE_KIND: _node_columns}


def to_batch(schema: pa.Schema, columns: Columns, count: int) -> pa.RecordBatch:
    """Rows given column by column; columns that are not given are NULL."""
    arrays = [_array(columns[one.name], one.type) if one.name in columns else pa.nulls(count, one.type) for one in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Attributes of events come as pairs, which Arrow does not take for structs."""
    if not (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        return pa.array(values, kind)
    pairs = [pair for value in values if value for pair in value]
    offsets = list(accumulate((len(value or ()) for value in values), initial=0))
    keys, texts = pa.array([key for key, _ in pairs], pa.string()), pa.array([text for _, text in pairs], pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.StructArray.from_arrays([keys, texts], ["key", "value"]))
