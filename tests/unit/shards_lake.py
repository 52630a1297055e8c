"""What Spark's tasks do with a shard, without Spark: rows shuffled into parts and chains, and folded. They can be written as a
lake directory by delta-rs, for readers that need no JVM."""

import random
from collections.abc import Iterable
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from chainlake.lake.visibility import ADVANCE, ROLLBACK, Commit
from chainlake.merkle.smt_nodes import path_digits
from chainlake.shards import decode, parts, roots
from chainlake.shards.machine import Finalized, Shard
from tests.unit.logs_lake import KERNEL, LEDGER
from tests.unit.shards_making import REGISTRY, conflicting_blocks

Row = dict[str, Any]


def table(rows: Iterable[Row], columns: tuple[str, ...], order: tuple[str, ...], types: dict[str, pa.DataType]) -> pa.RecordBatch:
    """Rows sorted as Spark sorts them: nulls first."""
    ordered = sorted(rows, key=lambda row: tuple((row.get(name) is not None, row.get(name)) for name in order))
    arrays = [pa.array([row.get(name) for row in ordered], types.get(name)) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


TYPES = {"nodes": pa.list_(pa.int32()), "addresses": pa.list_(pa.binary()), "key": pa.binary(), "hash": pa.binary()}


def cut(batch: pa.RecordBatch, rng: random.Random) -> list[pa.RecordBatch]:
    """Arrow batches end anywhere."""
    edges = sorted({0, batch.num_rows, *(rng.randint(0, batch.num_rows) for _ in range(3))})
    return [batch.slice(low, high - low) for low, high in pairwise(edges)]


class ShardTables:
    """The tables of one chain as dictionaries, moved on by the functions that Spark calls."""

    def __init__(self) -> None:
        self.nodes: list[Row] = []
        self.tree: dict[str, Row] = {}
        self.before = roots.Before("tree")
        self.images: list[Row] = []
        self.results: list[Row] = []
        self.events: list[Row] = []
        self.roots: list[Row] = []
        self.problems: list[str] = []

    def incoming(self, blocks: dict[int, tuple[list[bytes], bytes | None]]) -> list[Row]:
        """What `fold_parts` gets: operations, all versions of all streams, and all versions of all tree rows."""
        operations = []
        for height, (sent, _) in blocks.items():
            rows = {"_chain": ["c"] * len(sent), "_height": [height] * len(sent), "tx_index": range(len(sent)), "hash": sent}
            raw = pa.RecordBatch.from_pydict({**rows, "payload": pa.array(sent, pa.binary())})
            for tx in pa.Table.from_batches(decode.decode([raw])).to_pylist():
                for item, one in enumerate(tx["operations"]):
                    one["addresses"] = one.pop("nodes")
                    operations.append({**tx, **one, "kind": parts.OPERATION, "item": item})
        found = [
            *operations,
            *({**row, "kind": parts.STATE} for row in self.images),
            *({**row, "kind": parts.NODE} for row in self.nodes),
        ]
        for row in found:
            row["part"] = row["prefix"][:2] if row["kind"] == parts.NODE else path_digits(row["stream_id"])[:2]
        return [{parts.SHARED[row["kind"]].get(name, name): value for name, value in row.items()} for row in found]

    def advance(self, blocks: dict[int, tuple[list[bytes], bytes | None]], rng: random.Random) -> list[Row]:
        incoming = self.incoming(blocks)
        rng.shuffle(incoming)
        sorted_rows = table(incoming, parts.INPUT, parts.PART, TYPES)
        packed = [row for one in parts.fold_parts(cut(sorted_rows, rng), {"c": REGISTRY}) for row in one.to_pylist()]
        folded = [{**row, "kind": kind} for one in packed for kind, rows in one.items() for row in rows]
        tops = [row for row in folded if row["kind"] == "tops"]
        incoming = [
            *({**row, "kind": roots.STORED if row["deepest"] is None else roots.TOP} for row in tops),
            *({"kind": roots.BLOCK, "_chain": "c", "_height": h, "app_hash": claimed} for h, (_, claimed) in blocks.items()),
        ]
        sorted_rows = table(incoming, roots.INPUT, roots.SORTED_BY, {"app_hash": pa.binary(), **TYPES})
        made = [row for one in roots.fold_roots(cut(sorted_rows, rng), {"c": self.before}) for row in one.to_pylist()]
        return self.take(folded, made)

    def take(self, folded: list[Row], made: list[Row]) -> list[Row]:
        changed = [row for row in folded if row["kind"] == "tree" or (row["kind"] == "tops" and row["deepest"] is not None)]
        nodes = [{**row, "kind": "node"} for row in (*changed, *(row for row in made if row["kind"] == "node"))]
        self.nodes += nodes
        for row in sorted(nodes, key=lambda row: row["_height"]):
            self.tree[row["prefix"]] = row
        self.images += [row for row in folded if row["kind"] == "images"]
        self.results += [row for row in folded if row["kind"] == "results"]
        self.events += [row for row in folded if row["kind"] == "events"]
        self.roots += [row for row in made if row["kind"] == "root"]
        self.problems += [row["problem"] for row in made if row["kind"] == "problem"]
        last = self.roots[-1]
        self.before = roots.Before("tree", *(last[name] for name in roots.Before._fields[1:]))
        return [*(row for row in folded if row["kind"] == "images"), *nodes, *(row for row in made if row["kind"] != "node")]


STATE = pa.schema([*KERNEL, ("_deleted", pa.bool_())])
TABLES = {
    "silver_streams": (
        STATE,
        "images",
        ("stream_id", "last_miniblock_hash", "last_miniblock_num", "nodes", "replication_factor", "sealed"),
        ("created_height", "updated_height"),
    ),
    "silver_shard_tree": (STATE, "node", ("prefix", "leaves", "hash", "key"), ()),
    "silver_shard_roots": (KERNEL, "root", ("app_hash", "state_root", "stream_count", "tree_depth"), ()),
}
NODES = pa.schema([*STATE, ("permanent_index", pa.int32()), ("address", pa.binary()), ("from_height", pa.int64())])
AT = datetime(2026, 1, 1, tzinfo=timezone.utc)


class ShardsLake:
    """A lake directory with one shard of random blocks, and what each block comes to."""

    def __init__(
        self, home: Path, seed: int = 1, count: int = 12, chain: str = "shard", blocks: list[list[bytes]] | None = None
    ) -> None:
        self.home, self.chain = home, chain
        self.blocks = blocks or conflicting_blocks(seed, count, transactions=25)
        self.shard = Shard(REGISTRY)
        self.finalized: list[Finalized] = []
        self.states = [dict(self.shard.streams)]
        for height, sent in enumerate(self.blocks, start=1):
            self.finalized.append(self.shard.run(height, sent))
            self.states.append(dict(self.shard.streams))
        self.tables, self.head, self.rng = ShardTables(), 0, random.Random(seed)
        self._seq = 0

    def advance(self, count: int) -> None:
        """Commit the next blocks."""
        low, high = self.head, min(self.head + count, len(self.blocks))
        rows = self.tables.advance({h: (self.blocks[h - 1], self._claim(h)) for h in range(low + 1, high + 1)}, self.rng)
        commit = 1000 + self._seq
        for table, (kernel, kind, *columns) in TABLES.items():
            names = [name for some in columns for name in some]
            fields = [field for field in (*parts.IMAGE, *parts.TREE_ROW, *roots.OUTPUT) if field.name in names]
            schema = pa.schema([*kernel, *{field.name: field for field in fields}.values()])
            own = [{**row, "_commit": commit, "_deleted": False} for row in rows if row["kind"] == kind]
            order = "stream_id" if kind == "images" else "prefix" if kind == "node" else "_height"
            self._write(f"store/{table}", sorted(own, key=lambda row: row[order]), schema)
        new = [one for one in REGISTRY.records if low < max(one.from_height, 1) <= high]
        nodes = [{**vars(one), "_height": max(one.from_height, 1)} for one in new]
        self._write(
            "store/silver_shard_nodes", [{**n, "_chain": self.chain, "_commit": commit, "_deleted": False} for n in nodes], NODES
        )
        self._commit(ADVANCE, low, high, commit)

    def rollback(self, height: int) -> None:
        """Take blocks back."""
        self._commit(ROLLBACK, self.head, height, 0)

    def _claim(self, height: int) -> bytes | None:
        """The app hash in the header of a block: what the one before it left."""
        return self.finalized[height - 2].app_hash if height > 1 else None

    def _commit(self, kind: str, low: int, high: int, commit: int) -> None:
        self._seq += 1
        row = vars(Commit("silver.shards", "shards", self.chain, self._seq, commit, kind, low, high, 1, AT))
        maps = {name: list(row[name].items()) for name in ("roots", "inputs", "delta_versions", "rows", "checksums")}
        self._write("control/ledger", [{**row, **maps}], LEDGER)
        self.head = high

    def _write(self, place: str, rows: list[Row], schema: pa.Schema) -> None:
        for row in rows:
            row["_chain"] = self.chain
        table = pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)
        write_deltalake(self.home / "warehouse" / place, table, mode="append")
