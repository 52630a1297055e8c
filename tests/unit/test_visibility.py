"""What exists: the ledger's rules against a store that is really cut on rollback."""

import sqlite3
import time
from dataclasses import astuple, fields, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainlake.lake.names import Namespace
from chainlake.lake.views import visible_view
from chainlake.lake.visibility import ADVANCE, COMPACT, ROLLBACK, Commit, History, LedgerView, problems
from tests.unit.ledger_model import (
    CHAIN,
    STAGE,
    Operation,
    commit,
    commits,
    first_heights,
    history,
    moment,
    operations,
    replay,
    shown,
)

REORG: list[Operation] = [(ADVANCE, 4), (ADVANCE, 4), (ROLLBACK, 7), (ADVANCE, 1), (ROLLBACK, 1), (COMPACT, 1), (ADVANCE, 3)]


@given(first_heights(), operations())
@example(0, REORG)
def test_visible_rows_are_those_that_a_store_really_cut_would_hold(first: int, wanted: list[Operation]) -> None:
    steps = replay(first, wanted)
    if steps:
        world, found = steps[-1].world, history(steps)
        assert shown(found) == world.up_to(None)
        for height in range(first - 1, world.head + 2):
            assert shown(found, height) == world.up_to(height), f"as of {height}"


@given(first_heights(), operations())
@example(0, REORG)
def test_the_head_is_the_last_block_that_was_not_cut(first: int, wanted: list[Operation]) -> None:
    steps = replay(first, wanted)
    head = history(steps).head()
    if not steps:
        assert head is None
    else:
        world = steps[-1].world
        assert head is not None
        assert (head.height, head.block_hash, head.seq) == (world.head, world.hash, steps[-1].commit.seq)
        assert head.roots == ({"root": world.hash} if world.hash else {})


@given(first_heights(), operations())
@example(0, REORG)
def test_a_base_is_usable_until_a_rollback_goes_below_it(first: int, wanted: list[Operation]) -> None:
    steps = replay(first, wanted)
    if steps:
        world, found = steps[-1].world, history(steps)
        newest = world.bases[-1] if world.bases else None
        assert found.base() == newest
        for height in range(first, world.head + 2):
            assert found.base(height) == (newest if newest and newest.height <= height else None)


@given(first_heights(), operations())
@example(0, REORG)
def test_as_of_a_seq_or_a_time_is_what_the_store_held_then(first: int, wanted: list[Operation]) -> None:
    steps = replay(first, wanted)
    found = history(steps)
    for step in steps:
        for then in (found.as_of_seq(step.commit.seq), found.as_of_time(moment(step.commit.seq))):
            head = then.head()
            assert head is not None
            assert (shown(then), head.height, then.seq()) == (step.world.up_to(None), step.world.head, step.commit.seq)
            assert then.base() == (step.world.bases[-1] if step.world.bases else None)
    assert shown(found.as_of_seq(0)) == {}
    assert found.as_of_time(moment(0)).head() is None


@given(first_heights(), operations())
@example(0, REORG)
def test_the_lowest_rollback_since_a_seq_is_the_common_ancestor_of_then_and_now(first: int, wanted: list[Operation]) -> None:
    """What lineage rests on: a consumer that goes back there holds only blocks that its input still has."""
    steps = replay(first, wanted)
    found = history(steps)
    for step in steps:
        now = set(steps[-1].world.blocks)
        kept = [block.height for block in step.world.blocks if block in now]
        low = found.lowest_rollback_after(step.commit.seq)
        assert min(step.world.head, step.world.head if low is None else low) == max(kept, default=first)
        later = [s.commit.height for s in steps if s.commit.kind == ROLLBACK and s.commit.seq > step.commit.seq]
        assert low == min(later, default=None)
    assert found.lowest_rollback_after(10**9) is None


@given(first_heights(), operations(), st.booleans())
@example(0, [(ADVANCE, 4), (ADVANCE, 4), (ROLLBACK, 3), (ADVANCE, 4)], False)
def test_a_boundary_cuts_no_visible_commit(first: int, wanted: list[Operation], only_boundaries: bool) -> None:
    steps = replay(first, wanted, only_boundaries)
    if steps and steps[-1].world.blocks:
        world, found = steps[-1].world, history(steps)
        for height in range(first, world.head + 3):
            edge = found.boundary(height)
            assert edge is not None and first <= edge <= min(height, world.head)
            between = range(edge + 1, min(height, world.head) + 1)
            owner = world.up_to(None)
            assert edge in (first, world.head) or owner[edge] != owner[edge + 1], f"{edge} is inside a commit"
            assert all(owner[h] == owner.get(h + 1) for h in between if h < world.head), f"{edge} is not the highest"
        assert found.boundary(first - 1) is None


@given(first_heights(), operations())
def test_the_first_height_is_before_the_first_block_ever_committed(first: int, wanted: list[Operation]) -> None:
    steps = replay(first, wanted)
    assert history(steps).first_height() == (first if steps else None)


@given(first_heights(), operations())
@example(0, REORG)
def test_the_sql_of_control_visible_says_the_same(first: int, wanted: list[Operation]) -> None:
    """SQLite has the same window functions, so the text of the view can be tried without Spark."""
    steps = replay(first, wanted)
    database = sqlite3.connect(":memory:")
    database.create_function("least", 2, min)
    database.execute("ATTACH ':memory:' AS control")
    names = [field.name for field in fields(Commit)]
    database.execute(f"CREATE TABLE control.ledger ({', '.join(names)})")
    elsewhere = [commit(ROLLBACK, first, first - 9, 10**6), commit(ADVANCE, first - 9, first + 99, 1)]
    others = [replace(row, **other) for row in elsewhere for other in ({"stage": "gold.other"}, {"chain": "other"})]
    for row in [*commits(steps), *others]:
        values = [value if isinstance(value, (int, str)) else None for value in astuple(row)]
        database.execute(f"INSERT INTO control.ledger VALUES ({', '.join('?' * len(names))})", values)
    query = visible_view(Namespace()).partition("\nAS ")[2]
    rows = database.execute(f"SELECT stage, chain, kind, commit_id, limit_height FROM ({query})").fetchall()
    database.close()
    found = history(steps)
    advances = [(STAGE, CHAIN, ADVANCE, v.commit.commit_id, v.limit) for v in found.visible()]
    bases = [(STAGE, CHAIN, COMPACT, b.commit_id, b.height) for b in (steps[-1].world.bases if steps else ())]
    assert sorted(rows) == sorted(advances + bases), "other stages and chains show nothing and cut nothing"


def test_a_stage_has_consumed_the_highest_seq_that_any_commit_names() -> None:
    rows = [
        commit(ADVANCE, 0, 5, 1, inputs={"raw.a": 3, "raw.b": 1}),
        commit(ROLLBACK, 5, 2, 2, inputs={"raw.a": 7}),
        commit(ADVANCE, 2, 4, 3, inputs={"raw.b": 2}),
    ]
    found = History(rows)
    assert (found.consumed("raw.a"), found.consumed("raw.b"), found.consumed("raw.c")) == (7, 2, 0)


def test_epoch_and_seq_are_the_highest_and_zero_without_commits() -> None:
    found = History([commit(ADVANCE, 0, 1, 1, epoch=4), commit(ADVANCE, 1, 2, 5, epoch=3)])
    assert (found.seq(), found.epoch()) == (5, 4)
    assert (History(()).seq(), History(()).epoch()) == (0, 0)


def test_an_empty_history_shows_nothing() -> None:
    found = History(())
    assert found.visible() == [] and found.visible(5) == []
    assert found.head() is None and found.base() is None and found.boundary(5) is None and found.first_height() is None


@given(first_heights(), operations())
def test_a_valid_ledger_has_no_problems(first: int, wanted: list[Operation]) -> None:
    assert problems(history(replay(first, wanted))) == []


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([commit(ADVANCE, 0, 5, 1), commit(ADVANCE, 6, 8, 2)], "seq 2 advances from 6 to 8, but the head is 5"),
        ([commit(ADVANCE, 0, 5, 1), commit(ADVANCE, 4, 8, 2)], "seq 2 advances from 4 to 8, but the head is 5"),
        ([commit(ADVANCE, 0, 5, 1), commit(ADVANCE, 5, 5, 2)], "seq 2 advances from 5 to 5, but the head is 5"),
        ([commit(ADVANCE, 3, 2, 1)], "seq 1 advances from 3 to 2, but the head is None"),
        ([commit(ADVANCE, 0, 5, 1), commit(ROLLBACK, 5, 6, 2)], "seq 2 rolls back to 6, above the head 5"),
        ([commit(ROLLBACK, 5, 6, 1)], "seq 1 rolls back to 6, above the head None"),
        ([commit(ADVANCE, 0, 5, 1), commit(COMPACT, 6, 6, 2)], "seq 2 compacts at 6, above the head 5"),
        ([commit(COMPACT, 0, 0, 1)], "seq 1 compacts at 0, above the head None"),
        ([commit("vacuum", 0, 5, 1)], "seq 1 has unknown kind 'vacuum'"),
        (
            [commit(ADVANCE, 0, 5, 1, epoch=3), commit(ADVANCE, 5, 6, 2, epoch=2)],
            "seq 2 has epoch 2 after 3: a fenced writer got in",
        ),
        ([commit(ADVANCE, 0, 5, 1), commit(ADVANCE, 5, 6, 1, commit_id=9)], "has seq 1 twice"),
    ],
)
def test_what_a_ledger_contradicts_is_named(rows: list[Commit], text: str) -> None:
    (found,) = problems(History(rows))
    assert found == f"{STAGE} {CHAIN} {text}"


def test_a_rollback_that_is_refused_does_not_move_the_head() -> None:
    rows = [commit(ADVANCE, 0, 5, 1), commit(ROLLBACK, 5, 9, 2), commit(ADVANCE, 5, 6, 3)]
    assert len(problems(History(rows))) == 1
    head = History(rows[:2]).head()
    assert head is not None and head.height == 5


def test_a_ledger_view_keeps_stages_chains_and_lanes_apart() -> None:
    rows = [
        commit(ADVANCE, 0, 5, 1, lane="lane"),
        commit(ADVANCE, 0, 9, 1, lane="lane", chain="two"),
        commit(ADVANCE, 9, 10, 2, lane="lane", chain="two"),
        commit(ADVANCE, 0, 3, 7, stage="gold.test", lane="other"),
    ]
    view = LedgerView(rows)
    assert [c.seq for c in view.of(STAGE, "two").commits] == [1, 2]
    assert view.of(STAGE, "none").head() is None
    assert view.chains([STAGE]) == [CHAIN, "two"] and view.chains(["gold.test"]) == [CHAIN] and view.chains([]) == []
    assert view.stages() == ["gold.test", STAGE] and view.stages("two") == [STAGE]
    assert (view.lane_of(STAGE, CHAIN), view.lane_of(STAGE, "new")) == ("lane", "new")
    assert (view.lane_seq(STAGE, "lane"), view.lane_seq("gold.test", "other"), view.lane_seq(STAGE, "other")) == (2, 7, 0)
    assert sorted(c.seq for c in view.commits()) == [1, 1, 2, 7]
    assert [c.seq for c in view.as_of_time(moment(1)).commits()] == [1, 1]


def test_a_commit_of_a_thousand_chains_does_not_go_through_the_ledger_for_each() -> None:
    """It took 12 s of a core at this size, and more with every commit."""
    chains = [f"c{number}" for number in range(1024)]
    view = LedgerView(commit(ADVANCE, seq - 1, seq, seq, lane="all", chain=chain) for seq in range(1, 31) for chain in chains)
    started = time.process_time()
    assert {view.lane_seq(STAGE, "all") for _ in chains} == {30}
    assert time.process_time() - started < 0.5


def test_adding_commits_to_a_ledger_view_leaves_the_first_as_it_was() -> None:
    view = LedgerView([commit(ADVANCE, 0, 5, 1)])
    later = view.with_commits([commit(ROLLBACK, 5, 2, 2)])
    before, after = view.of(STAGE, CHAIN).head(), later.of(STAGE, CHAIN).head()
    assert before is not None and after is not None
    assert (before.height, after.height) == (5, 2)
