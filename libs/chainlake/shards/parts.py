"""Blocks folded part by part: the streams whose path begins with the same two hex digits, and their part of the tree.

Rows of three kinds come part by part, in any order within one: tree rows, streams as they were before the batch, and operations.
Of tree rows and streams older versions may come too; the newest counts. A part needs nothing of the others, so Spark runs as many
side by side as it likes. What comes out is packed: a row holds thousands of after-images of streams, results, events and changed
tree rows, each kind in an array of its own, so that Spark moves and keeps few large rows in place of many wide ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chainlake.arrow_ddl import ddl_of
from chainlake.collector import without_collector
from chainlake.errors import BrokenPromise
from chainlake.merkle.smt import leaf_at, path_of
from chainlake.merkle.smt_fold import PART_DIGITS, Update, fold_part
from chainlake.merkle.smt_nodes import Node
from chainlake.shards.decode import operation_of
from chainlake.shards.fold import OperationResult, StreamOperation, fold_stream
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.state import StreamState, value_of

NODE, STATE, OPERATION = 0, 1, 2
"""Kinds of rows that come in."""

INPUT = (
    *("kind", "_chain", "part", "_height", "stream_id", "name", "hash", "previous", "number", "nodes", "addresses"),
    *("replication_factor", "sealed", "first", "second"),
)
SHARED = {
    NODE: {"key": "stream_id", "prefix": "name", "leaves": "number"},
    STATE: {
        "last_miniblock_hash": "hash",
        "last_miniblock_num": "number",
        "created_height": "first",
        "updated_height": "second",
    },
    OPERATION: {
        "op": "name",
        "prev_miniblock_hash": "previous",
        "last_miniblock_hash": "hash",
        "last_miniblock_num": "number",
        "tx_index": "first",
        "item": "second",
    },
}
"""What the columns of each kind are called among the rows that come in: a column for everything would be NULL in most of them,
and Spark spends as much time on a NULL as on a number."""

PART = ("_chain", "part")
ORDERED = [(name, "ascending") for name in ("_chain", "stream_id", "_height", "first", "second")]
COLUMNS = {
    NODE: (*PART, "_height", "name", "number", "hash", "stream_id"),
    STATE: (*("_chain", "_height", "stream_id", "hash", "number", "nodes", "replication_factor", "sealed", "first", "second"),),
    OPERATION: (
        *(*PART, "stream_id", "_height", "first", "second", "name", "previous", "hash", "number"),
        *("addresses", "replication_factor", "sealed"),
    ),
}
"""The columns that rows of a kind have: `Node`, `StreamState` and `decode.Row` in their order, after what tells their place."""

PLACE = {"_chain": pa.string(), "_height": pa.int64()}
IMAGE = pa.schema(
    {
        **PLACE,
        "stream_id": pa.binary(),
        "last_miniblock_hash": pa.binary(),
        "last_miniblock_num": pa.int64(),
        "nodes": pa.list_(pa.int32()),
        "replication_factor": pa.int32(),
        "sealed": pa.bool_(),
        "created_height": pa.int64(),
        "updated_height": pa.int64(),
    }
)
RESULT = pa.schema({**PLACE, "tx_index": pa.int32(), "code": pa.int32(), "message": pa.string()})
ATTRIBUTES = pa.list_(pa.struct({"key": pa.string(), "value": pa.string()}))
EVENT = pa.schema({**PLACE, "tx_index": pa.int32(), "event_index": pa.int32(), "type": pa.string(), "attributes": ATTRIBUTES})
TREE_ROW = pa.schema({**PLACE, "prefix": pa.string(), "leaves": pa.int64(), "hash": pa.binary(), "key": pa.binary()})
TOP = pa.schema([*TREE_ROW, pa.field("deepest", pa.int32())])
KINDS = {"images": IMAGE, "results": RESULT, "events": EVENT, "tree": TREE_ROW, "tops": TOP}
"""What comes out. `tree` has the rows below the tops of the parts. `tops` has those tops and all above as stored, `deepest` NULL,
and those as a block left them, with the length of the longest prefix that it changed."""

OUTPUT = pa.schema({name: pa.list_(pa.struct(list(rows))) for name, rows in KINDS.items()})
AT_ONCE, ENOUGH_ROWS = 20_000, 50_000

Row = tuple[Any, ...]
Place = tuple[str, str]
"""A chain, and a part or the id of a stream."""


DDL = ddl_of(OUTPUT)


@without_collector
def fold_parts(batches: Iterable[pa.RecordBatch], registries: Mapping[str, NodeRegistry]) -> Iterator[pa.RecordBatch]:
    """What the rows of whole parts become."""
    made = _Made()
    for rows in _portions(batches):
        _fold(made, rows, registries)
        if made.count >= ENOUGH_ROWS:
            yield made.take()
    if made.count:
        yield made.take()


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows of whole parts, enough to be worth the while."""
    held: list[pa.RecordBatch] = []
    size = 0
    seen: set[Place] = set()
    for (chain, part), runs in groupby(_runs(batches), key=itemgetter(0, 1)):
        if (chain, part) in seen:
            raise BrokenPromise(f"rows of part {part} of {chain} came apart: all of a part have to lie beside each other")
        seen.add((chain, part))
        for _, _, rows in runs:
            held.append(rows)
            size += rows.num_rows
        if size >= AT_ONCE:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


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


def _fold(made: "_Made", rows: pa.Table, registries: Mapping[str, NodeRegistry]) -> None:
    stored, states = _stored(rows), _states(rows)
    operations = _tuples(_of_kind(rows, OPERATION).sort_by(ORDERED))
    updates: dict[Place, list[Update]] = defaultdict(list)
    for chain, of_chain in groupby(operations, key=itemgetter(0)):
        registry = registries[chain]
        results: list[OperationResult] = []
        images: list[StreamState] = []
        for (part, stream_id), ahead in groupby(of_chain, key=itemgetter(1, 2)):
            held = states.get((chain, stream_id))
            folded = fold_stream(held if held is None else _state(held), map(_operation, ahead), registry)
            results += folded.results
            images += folded.images
            path = path_of(stream_id)
            updates[chain, part] += [
                Update(one.updated_height, stream_id, leaf_at(path, value_of(one, registry))) for one in folded.images
            ]
        made.add("results", chain, [(*one[:2], int(one.code), one.message) for one in results if one.event is None])
        made.add("events", chain, [one[:3] + one.event for one in results if one.event is not None])
        made.add("images", chain, [(one.updated_height, *one) for one in images])
    for (chain, part), nodes in stored.items():
        made.add("tops", chain, [(*nodes[part], None)] if part in nodes else [])
    for (chain, part), changes in updates.items():
        _add_nodes(made, chain, part, fold_part(part, stored.get((chain, part), {}).values(), changes).nodes)


def _stored(rows: pa.Table) -> dict[Place, dict[str, Node]]:
    """The tree rows of each part; of several versions of a row, the newest."""
    found: dict[Place, dict[str, Node]] = {}
    for batch in _of_kind(rows, NODE).combine_chunks().to_batches():
        for chain, part, run in _runs([batch]):
            nodes = [Node._make(row) for row in zip(*(column.to_pylist() for column in run.columns[2:]), strict=True)]
            held = {node.prefix: node for node in nodes}
            if len(held) < len(nodes):
                held = {node.prefix: node for node in sorted(nodes, key=attrgetter("block"))}
            found[chain, part] = held
    return found


def _states(rows: pa.Table) -> dict[Place, Row]:
    """The newest version of each stream."""
    found: dict[Place, Row] = {}
    for row in _tuples(_of_kind(rows, STATE)):
        other = found.setdefault((row[0], row[2]), row)
        if other[1] < row[1]:
            found[row[0], row[2]] = row
    return found


def _state(row: Row) -> StreamState:
    _, _, stream_id, last_hash, last_num, nodes, *rest = row
    return StreamState(stream_id, last_hash, last_num, tuple(nodes), *rest)


def _operation(row: Row) -> StreamOperation:
    _, _, stream_id, height, tx_index, item, op, *rest = row
    return StreamOperation(height, tx_index, item, operation_of(op, (stream_id, *rest)))


def _add_nodes(made: "_Made", chain: str, part: str, nodes: list[Node]) -> None:
    """Rows below the part's top level by level, and in a level by prefix: so those that a proof reads are in few places. With
    the top of each block goes how deep the part was changed."""
    deepest: dict[int, int] = {}
    levels: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        depth = len(node.prefix)
        levels[depth].append(node)
        if deepest.get(node.block, 0) < depth:
            deepest[node.block] = depth
    tops = levels.pop(PART_DIGITS, [])
    for _, level in sorted(levels.items()):
        made.add("tree", chain, sorted(level, key=itemgetter(1)))
    made.add("tops", chain, ((*node, deepest[node.block]) for node in tops))


class _Made:
    """Rows of each kind, until they are taken."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Row]] = {name: [] for name in KINDS}
        self._chains: dict[str, list[tuple[str, int]]] = {name: [] for name in KINDS}

    @property
    def count(self) -> int:
        return sum(map(len, self._rows.values()))

    def add(self, kind: str, chain: str, rows: Iterable[Row]) -> None:
        """Rows of one chain, without it."""
        held, chains = self._rows[kind], self._chains[kind]
        before = len(held)
        held.extend(rows)
        if chains and chains[-1][0] == chain:
            chains[-1] = chain, chains[-1][1] + len(held) - before
        else:
            chains.append((chain, len(held) - before))

    def take(self) -> pa.RecordBatch:
        """All rows so far, as one row."""
        arrays = [self._packed(name, schema) for name, schema in KINDS.items()]
        for name in KINDS:
            self._rows[name], self._chains[name] = [], []
        return pa.RecordBatch.from_arrays(arrays, schema=OUTPUT)

    def _packed(self, name: str, schema: pa.Schema) -> pa.ListArray:
        rows = self._rows[name]
        values: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * (len(schema) - 1)
        chains = [pa.repeat(pa.scalar(chain, pa.string()), count) for chain, count in self._chains[name]]
        columns = [_array(column, one.type) for column, one in zip(values, list(schema)[1:], strict=True)]
        first = pa.concat_arrays(chains) if chains else pa.array([], pa.string())
        structs = pa.StructArray.from_arrays([first, *columns], fields=list(schema))
        return pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), structs)


def to_batch(schema: pa.Schema, columns: Mapping[str, Any], count: int) -> pa.RecordBatch:
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
