"""Parts and roots, folded as Spark folds them, equal the shard run in order; contradictions are named."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.errors import BrokenPromise
from chainlake.merkle import smt_fold
from chainlake.merkle.smt_nodes import Node, path_digits
from chainlake.shards import parts, roots
from chainlake.shards.machine import Finalized, Shard
from chainlake.shards.state import placeholder_app_hash
from tests.unit.shards_lake import TYPES, ShardTables, cut, table
from tests.unit.shards_making import REGISTRY, conflicting_blocks, created


def run_in_order(chain: list[list[bytes]]) -> tuple[Shard, list[Finalized]]:
    shard = Shard(REGISTRY)
    return shard, [shard.run(height, sent) for height, sent in enumerate(chain, start=1)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.randoms(use_true_random=False))
def test_parts_and_roots_equal_the_shard_run_in_order(seed: int, size: int, rng: random.Random) -> None:
    chain = conflicting_blocks(seed, 8)
    shard, finalized = run_in_order(chain)
    lake = ShardTables()
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
    events = {(row["_height"], row["tx_index"], row["event_index"]): row for row in lake.events}
    expected = {
        (result.height, result.tx_index, index): event
        for one in finalized
        for result in one.block.results
        for index, event in enumerate(result.events)
    }
    assert {place: (row["type"], tuple(a["key"] for a in row["attributes"])) for place, row in events.items()} == {
        place: (event.type, tuple(key for key, _ in event.attributes)) for place, event in expected.items()
    }
    codes = {(row["_height"], row["tx_index"]): row["code"] for row in lake.results}
    single = {(r.height, r.tx_index): int(r.code) for one in finalized for r in one.block.results if not r.events}
    assert codes == {place: code for place, code in single.items() if place in codes}


def test_a_header_that_contradicts_the_root_is_named_with_its_remedy() -> None:
    chain = conflicting_blocks(1, 4)
    _, finalized = run_in_order(chain)
    claims = [None, finalized[0].app_hash, b"\x01" * 32, finalized[2].app_hash]
    lake = ShardTables()
    lake.advance({n: (chain[n - 1], claims[n - 1]) for n in range(1, 5)}, random.Random(1))
    (problem,) = lake.problems
    assert "header of block 3" in problem and "block 2 left" in problem
    lake = ShardTables()
    placeholder = Shard(REGISTRY, "placeholder", 1).app_hash
    lake.advance({1: (chain[0], b"whatever came before"), 2: (chain[1], placeholder)}, random.Random(1))
    assert "app_hash=placeholder" in lake.problems[0]


def test_a_block_that_changes_nothing_keeps_the_root_and_a_placeholder_follows_its_height() -> None:
    top = Node(5, "", 3, b"\x01" * 32)
    for mode, app_hashes in (("tree", [top.hash] * 2), ("placeholder", [placeholder_app_hash(5), placeholder_app_hash(6)])):
        five = roots.after_block(roots.Before(mode), 5, top, 4)
        six = roots.after_block(five, 6, None, 0)
        assert [five.app_hash, six.app_hash] == app_hashes
        assert five[2:] == six[2:] == (top.hash, 3, 4)


def test_only_the_first_block_may_have_no_app_hash() -> None:
    chain = conflicting_blocks(1, 4)
    _, finalized = run_in_order(chain)
    claims = [None, finalized[0].app_hash, None, finalized[2].app_hash]
    for size in (4, 2, 1):
        lake = ShardTables()
        for start in range(0, 4, size):
            lake.advance({n + 1: (chain[n], claims[n]) for n in range(start, start + size)}, random.Random(1))
        (problem,) = lake.problems
        assert "header of block 3 has no app hash" in problem and "block 2 left" in problem


def test_a_finalized_block_counts_when_it_is_committed_and_may_be_replaced_before() -> None:
    chain = conflicting_blocks(3, 3)
    shard, finalized = run_in_order(chain)
    other = Shard(REGISTRY)
    other.run(1, chain[0])
    for replaced in (chain[2], [created("a stream that no other block has")]):
        assert other.finalize(2, replaced).app_hash != finalized[1].app_hash
    assert other.height == 1 and other.app_hash == finalized[0].app_hash
    assert other.finalize(2, chain[1]) == other.finalize(2, chain[1]) == finalized[1]
    other.commit()
    assert other.run(3, chain[2]) == finalized[2]
    again = Shard(REGISTRY, "tree", 3, other.streams.values())
    assert again.app_hash == shard.app_hash == other.app_hash


def test_portions_and_other_chains_beside_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of two chains with the same parts, folded at once or part by part."""
    chain = conflicting_blocks(4, 3)
    lake = ShardTables()
    lake.advance({1: (chain[0], None), 2: (chain[1], lake_root(chain, 1))}, random.Random(1))
    rows = lake.incoming({3: (chain[2], None)})
    both = [{**row, "_chain": name} for name in ("a", "b") for row in rows]
    batch = table(both, parts.INPUT, parts.PART, TYPES)

    def folded() -> list[str]:
        made = parts.fold_parts(cut(batch, random.Random(2)), {"a": REGISTRY, "b": REGISTRY})
        return sorted(
            repr((kind, row)) for one in made for packed in one.to_pylist() for kind, some in packed.items() for row in some
        )

    at_once = folded()
    for name in ("AT_ONCE", "ENOUGH_ROWS"):
        monkeypatch.setattr(parts, name, 1)
    assert folded() == at_once
    assert [row.replace("'a'", "'b'") for row in at_once if "'_chain': 'a'" in row] == [
        r for r in at_once if "'_chain': 'b'" in r
    ]


def test_tree_rows_of_a_part_come_level_by_level_with_siblings_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a proof reads is then in few places of a file."""
    monkeypatch.setattr(smt_fold, "path_digits", lambda key: "0777" + path_digits(key)[4:])
    lake = ShardTables()
    rows = lake.incoming({n: (sent, None) for n, sent in enumerate(conflicting_blocks(4, 8), start=1)})
    one = [{**row, "part": "07"} for row in rows]
    (made,) = parts.fold_parts([table(one, parts.INPUT, parts.PART, TYPES)], {"c": REGISTRY})
    places = [(len(row["prefix"]), row["prefix"], row["_height"]) for row in made.to_pydict()["tree"][0]]
    assert places == sorted(places) and len({depth for depth, _, _ in places}) > 2


def test_a_part_that_comes_apart_is_refused() -> None:
    lake = ShardTables()
    rows = lake.incoming({1: (conflicting_blocks(4, 1)[0], None)})
    batch = table(rows, parts.INPUT, parts.PART, TYPES)
    with pytest.raises(BrokenPromise, match="came apart"):
        list(parts.fold_parts([batch, batch], {"c": REGISTRY}))


def lake_root(chain: list[list[bytes]], height: int) -> bytes:
    return run_in_order(chain)[1][height - 1].app_hash
