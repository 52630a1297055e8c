"""A real writer process, killed with SIGKILL at every phase boundary, then run again: the same state, nothing lost or doubled."""

from collections.abc import Callable

from chainlake.lake import Lake
from chainlake.lake.gc import vacuum
from chainlake.lake.home import Home
from chainlake.lake.verify import verify
from tests.spark.domain import STAGES, balances, expected_balances, expected_total, extend, payments, run_all, total
from tests.spark.writer import killed, spawn

BATCHES = ["after_lease", "before_appends", "after_append", "after_append:2", "after_appends", "before_ledger", "after_ledger"]


def check(lake: Lake, chain: str, height: int, branches: str = "0:1") -> None:
    assert balances(lake, chain) == expected_balances(branches, height)
    assert total(lake, chain) == (height, expected_total(branches, height))
    for stage in STAGES:
        head = lake.ledger.read().of(stage, chain).head()
        assert head is not None and head.height == height, stage
        assert head.roots == ({"heights": str(height).encode()} if stage == "silver.test" else {}), stage


def test_killed_at_every_boundary_of_a_commit_then_run_again(lake: Lake, home: Home, chain: str) -> None:
    extend(lake, chain, 12)
    run_all(lake, chain, stages=("raw.test", "bronze.test"))
    lake.run_stage("silver.test", chains=chain, to_height=4)
    for failpoint in BATCHES:
        assert killed(spawn(home.path, lake.namespace.prefix, "run", chain, "4", "silver.test", failpoint=failpoint)), failpoint
        seen = 8 if failpoint == "after_ledger" else 4
        assert balances(lake, chain) == expected_balances("0:1", seen), failpoint
        assert total(lake, chain) == (seen, expected_total("0:1", seen)), failpoint
    run_all(lake, chain, stages=("silver.test", "gold.test"))
    check(lake, chain, 12)
    assert [f.what for f in verify(lake, "silver.test")] == []


def test_a_crash_loop_ends_where_an_uninterrupted_run_does(lake: Lake, home: Home, chain: str) -> None:
    extend(lake, chain, 12)
    stages = ("raw.test", "bronze.test")
    for failpoint in ("after_append:2", "before_ledger:2", "after_ledger", "after_appends"):
        assert killed(spawn(home.path, lake.namespace.prefix, "run", chain, "3", *stages, failpoint=failpoint)), failpoint
    for stage in stages:
        lake.run_stage(stage, chains=chain)
    rows = lake.table("bronze.test_payments", chain=chain).select("height", "tx_index", "account", "amount").collect()
    assert sorted(map(tuple, rows)) == [(h, k, *pair) for h in range(1, 13) for k, pair in enumerate(payments("0:1", h))]


def test_killed_during_compaction(lake: Lake, home: Home, chain: str) -> None:
    extend(lake, chain, 9)
    run_all(lake, chain, stages=STAGES[:3])
    for failpoint in ("compact_after_base", "compact_before_ledger", "compact_after_ledger"):
        assert killed(spawn(home.path, lake.namespace.prefix, "compact", chain, failpoint=failpoint)), failpoint
        assert balances(lake, chain) == expected_balances("0:1", 9), failpoint
    assert lake.ledger.read().of("silver.test", chain).base() is not None
    extend(lake, chain, 13)
    run_all(lake, chain)
    check(lake, chain, 13)
    assert balances(lake, chain, height=5) == expected_balances("0:1", 5)


def test_killed_during_a_rollback_below_a_base_then_rolled_back_again(make_lake: Callable[..., Lake], home: Home) -> None:
    """gold.test goes first, then silver.test: killed before its ledger row, and right after it while views read all history."""
    lake, chain = make_lake(), "back"
    extend(lake, chain, 9)
    run_all(lake, chain)
    assert spawn(home.path, lake.namespace.prefix, "compact", chain).wait(180) == 0
    for failpoint, height in (("rollback_before_ledger:2", 9), ("rollback_after_ledger", 4), ("", 4)):
        command = spawn(home.path, lake.namespace.prefix, "rollback", "raw.test", chain, "4", failpoint=failpoint)
        assert killed(command) if failpoint else command.wait(180) == 0, failpoint
        assert balances(lake, chain) == expected_balances("0:1", height), failpoint
        assert by_view(lake, chain) == expected_balances("0:1", height), failpoint
    assert {lake.ledger.read().of(stage, chain).head().height for stage in STAGES[:3]} == {4}  # type: ignore[union-attr]
    assert lake.ledger.read().of("silver.test", chain).base() is None
    extend(lake, chain, 12, "0:1,5:2")
    run_all(lake, chain)
    check(lake, chain, 12, "0:1,5:2")
    assert by_view(lake, chain) == expected_balances("0:1,5:2", 12)
    assert [f.what for f in verify(lake)] == []


def by_view(lake: Lake, chain: str) -> dict[str, int]:
    view = lake.spark.table(lake.namespace.view("silver.test_balances")).filter(f"chain = '{chain}'")
    return {row["account"]: row["balance"] for row in view.collect()}


def test_killed_during_garbage_collection_then_collected_again(make_lake: Callable[..., Lake], home: Home) -> None:
    lake, chain = make_lake(), "swept"
    extend(lake, chain, 10)
    run_all(lake, chain, stages=STAGES[:3])
    lake.rollback("raw.test", chain, 6, why="to make garbage")
    for failpoint in ("gc_after_plan", "gc_after_delete", "gc_after_delete:2"):
        assert killed(spawn(home.path, lake.namespace.prefix, "gc", failpoint=failpoint)), failpoint
        assert balances(lake, chain) == expected_balances("0:1", 6), failpoint
    assert spawn(home.path, lake.namespace.prefix, "gc").wait(180) == 0
    vacuum(lake)
    assert [f.what for f in verify(lake)] == []
    run_all(lake, chain)
    check(lake, chain, 10)
    stored = lake.spark.table(lake.namespace.store("raw.test_blocks"))
    assert stored.count() == 10, "the rolled-back rows are gone, the others are there once"
