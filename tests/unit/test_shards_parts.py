"""What Spark's tasks do, without Spark: rows shuffled into parts and chains, folded, and compared with the shard run in order."""

import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.merkle.smt_nodes import path_digits
from chainlake.shards import decode, parts, roots
from chainlake.shards.machine import Finalized, Shard
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


class Lake:
    """The tables of one chain as dictionaries, moved on by the functions that Spark calls."""

    def __init__(self) -> None:
        self.streams: dict[bytes, Row] = {}
        self.tree: dict[str, Row] = {}
        self.before = roots.Before("tree")
        self.images: list[Row] = []
        self.results: list[Row] = []
        self.roots: list[Row] = []
        self.problems: list[str] = []

    def advance(self, blocks: dict[int, tuple[list[bytes], bytes | None]], rng: random.Random) -> None:
        operations = []
        for height, (sent, _) in blocks.items():
            rows = {"_chain": ["c"] * len(sent), "_height": [height] * len(sent), "tx_index": range(len(sent)), "hash": sent}
            raw = pa.RecordBatch.from_pydict({**rows, "payload": pa.array(sent, pa.binary())})
            for tx in pa.Table.from_batches(decode.decode([raw])).to_pylist():
                for item, one in enumerate(tx["operations"]):
                    one["addresses"] = one.pop("nodes")
                    operations.append({**tx, **one, "kind": parts.OPERATION, "item": item})
        incoming = [
            *operations,
            *({**row, "kind": parts.STATE} for row in self.streams.values()),
            *({**row, "kind": parts.NODE} for row in self.tree.values() if len(row["prefix"]) >= 2),
        ]
        for row in incoming:
            row["part"] = row["prefix"][:2] if row["kind"] == parts.NODE else path_digits(row["stream_id"])[:2]
        sorted_rows = table(incoming, parts.INPUT, parts.SORTED_BY, TYPES)
        folded = [row for one in parts.fold_parts(cut(sorted_rows, rng), {"c": REGISTRY}) for row in one.to_pylist()]
        tops = [row for row in folded if row["kind"] == "node" and len(row["prefix"]) == 2]
        incoming = [
            *({**row, "kind": roots.STORED} for row in self.tree.values() if len(row["prefix"]) <= 2),
            *({**row, "kind": roots.TOP} for row in tops),
            *({"kind": roots.BLOCK, "_chain": "c", "_height": h, "app_hash": claimed} for h, (_, claimed) in blocks.items()),
        ]
        sorted_rows = table(incoming, roots.INPUT, roots.SORTED_BY, {"app_hash": pa.binary(), **TYPES})
        made = [row for one in roots.fold_roots(cut(sorted_rows, rng), {"c": self.before}) for row in one.to_pylist()]
        self.take(folded, made)

    def take(self, folded: list[Row], made: list[Row]) -> None:
        for row in sorted((row for row in [*folded, *made] if row["kind"] == "node"), key=lambda row: row["_height"]):
            self.tree[row["prefix"]] = row
        self.images += [row for row in folded if row["kind"] == "image"]
        self.streams.update({row["stream_id"]: row for row in sorted(self.images, key=lambda row: row["_height"])})
        self.results += [row for row in folded if row["kind"] == "result"]
        self.roots += [row for row in made if row["kind"] == "root"]
        self.problems += [row["problem"] for row in made if row["kind"] == "problem"]
        last = self.roots[-1]
        self.before = roots.Before("tree", *(last[name] for name in roots.Before._fields[1:]))


def run_in_order(chain: list[list[bytes]]) -> tuple[Shard, list[Finalized]]:
    shard = Shard(REGISTRY)
    return shard, [shard.run(height, sent) for height, sent in enumerate(chain, start=1)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.randoms(use_true_random=False))
def test_parts_and_roots_equal_the_shard_run_in_order(seed: int, size: int, rng: random.Random) -> None:
    chain = conflicting_blocks(seed, 8)
    shard, finalized = run_in_order(chain)
    lake = Lake()
    claims = [None, *(one.app_hash for one in finalized)]
    for start in range(0, len(chain), size):
        lake.advance({start + 1 + n: (sent, claims[start + n]) for n, sent in enumerate(chain[start : start + size])}, rng)
    assert [(row["_height"], row["app_hash"]) for row in lake.roots] == [(one.block.height, one.app_hash) for one in finalized]
    assert lake.problems == []
    assert lake.roots[-1]["stream_count"] == len(shard.streams)
    assert lake.roots[-1]["tree_depth"] == max([2, *(len(prefix) for prefix in lake.tree)])
    ours = {(row["_height"], row["stream_id"]): (row["last_miniblock_num"], tuple(row["nodes"])) for row in lake.images}
    assert ours == {
        (one.block.height, key): (state.last_miniblock_num, state.nodes)
        for one in finalized
        for key, state in one.block.changed.items()
    }
    events = {(row["_height"], row["tx_index"], row["item"]): row for row in lake.results if row["type"]}
    expected = {
        (result.height, result.tx_index, index): event
        for one in finalized
        for result in one.block.results
        for index, event in enumerate(result.events)
    }
    assert {place: (row["type"], tuple(a["key"] for a in row["attributes"])) for place, row in events.items()} == {
        place: (event.type, tuple(key for key, _ in event.attributes)) for place, event in expected.items()
    }
    codes = {(row["_height"], row["tx_index"]): row["code"] for row in lake.results if not row["type"]}
    single = {(r.height, r.tx_index): int(r.code) for one in finalized for r in one.block.results if not r.events}
    assert codes == {place: code for place, code in single.items() if place in codes}


def test_a_header_that_contradicts_the_root_is_named_with_its_remedy() -> None:
    chain = conflicting_blocks(1, 4)
    _, finalized = run_in_order(chain)
    claims = [None, finalized[0].app_hash, b"\x01" * 32, finalized[2].app_hash]
    lake = Lake()
    lake.advance({n: (chain[n - 1], claims[n - 1]) for n in range(1, 5)}, random.Random(1))
    (problem,) = lake.problems
    assert "header of block 3" in problem and "block 2 left" in problem
    lake = Lake()
    placeholder = Shard(REGISTRY, "placeholder", 1).app_hash
    lake.advance({1: (chain[0], b"whatever came before"), 2: (chain[1], placeholder)}, random.Random(1))
    assert "app_hash=placeholder" in lake.problems[0]


def test_a_finalized_block_counts_when_it_is_committed_and_may_be_replaced_before() -> None:
    chain = conflicting_blocks(3, 3)
    shard, finalized = run_in_order(chain)
    other = Shard(REGISTRY)
    other.run(1, chain[0])
    assert other.finalize(2, chain[2]).app_hash != finalized[1].app_hash
    assert other.height == 1 and other.app_hash == finalized[0].app_hash
    assert other.finalize(2, chain[1]) == other.finalize(2, chain[1]) == finalized[1]
    other.commit()
    assert other.run(3, chain[2]) == finalized[2]
    again = Shard(REGISTRY, "tree", 3, other.streams.values())
    assert again.app_hash == shard.app_hash == other.app_hash
