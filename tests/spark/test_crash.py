"""A real writer process, killed with SIGKILL at every phase boundary, then run again: the same state, nothing lost or doubled."""

from collections.abc import Callable

import pytest

from chainlake.lake import Lake
from chainlake.lake.home import Home
from chainlake.lake.verify import verify
from tests.spark.domain import STAGES, balances, expected_balances, expected_total, extend, run_all, total
from tests.spark.writer import killed, spawn

BATCHES = ["after_lease", "before_appends", "after_append", "after_append:2", "after_appends", "before_ledger", "after_ledger"]


def check(lake: Lake, chain: str, height: int, branches: str = "0:1") -> None:
    assert balances(lake, chain) == expected_balances(branches, height)
    assert total(lake, chain) == (height, expected_total(branches, height))
    for stage in STAGES:
        head = lake.ledger.read().of(stage, chain).head()
        assert head is not None and head.height == height, stage


def test_killed_at_every_boundary_of_a_commit_then_run_again(lake: Lake, home: Home, chain: str) -> None:
    top = len(BATCHES) * 4
    extend(lake, chain, top)
    run_all(lake, stages=("raw.test", "bronze.test"))
    for number, failpoint in enumerate(BATCHES, start=1):
        assert killed(spawn(home.path, lake.namespace.prefix, "run", chain, "4", "silver.test", failpoint=failpoint)), failpoint
        seen = number * 4 if failpoint == "after_ledger" else (number - 1) * 4
        if seen:
            assert balances(lake, chain) == expected_balances("0:1", seen), failpoint
        lake.run_stage("silver.test", chains=chain, to_height=number * 4)
        assert balances(lake, chain) == expected_balances("0:1", number * 4), failpoint
    lake.run_stage("gold.test", chains=chain)
    check(lake, chain, top)
    assert [f.what for f in verify(lake, "silver.test")] == []


def test_a_crash_loop_ends_where_an_uninterrupted_run_does(lake: Lake, home: Home, chain: str) -> None:
    extend(lake, chain, 12)
    loops = ["after_append:2", "before_ledger:2", "after_ledger", "after_appends", "before_ledger"]
    for failpoint in loops:
        spawn(home.path, lake.namespace.prefix, "run", chain, "5", failpoint=failpoint).communicate(timeout=240)
    for stage in STAGES:
        lake.run_stage(stage, chains=chain, max_blocks=5)
    check(lake, chain, 12)


@pytest.mark.parametrize("failpoint", ["compact_after_base", "compact_before_ledger", "compact_after_ledger"])
def test_killed_during_compaction(lake: Lake, home: Home, chain: str, failpoint: str) -> None:
    extend(lake, chain, 9)
    for stage in STAGES[:3]:
        lake.run_stage(stage, chains=chain)
    assert killed(spawn(home.path, lake.namespace.prefix, "compact", chain, failpoint=failpoint))
    assert balances(lake, chain) == expected_balances("0:1", 9)
    extend(lake, chain, 13)
    for stage in STAGES:
        lake.run_stage(stage, chains=chain)
    check(lake, chain, 13)
    assert balances(lake, chain, height=5) == expected_balances("0:1", 5)


def test_killed_during_garbage_collection_then_collected_again(make_lake: Callable[..., Lake], home: Home) -> None:
    lake, chain = make_lake(), "swept"
    extend(lake, chain, 10)
    for stage in STAGES:
        lake.run_stage(stage)
    lake.rollback("raw.test", chain, 6, why="to make garbage")
    assert killed(spawn(home.path, lake.namespace.prefix, "gc", failpoint="gc_after_delete"))
    assert balances(lake, chain) == expected_balances("0:1", 6)
    assert spawn(home.path, lake.namespace.prefix, "gc").wait(180) == 0
    assert [f.what for f in verify(lake)] == []
    for stage in STAGES:
        lake.run_stage(stage)
    check(lake, chain, 10)
    stored = lake.spark.table(lake.namespace.store("raw.test_blocks"))
    assert stored.count() == 10, "the rolled-back rows are gone, the others are there once"
