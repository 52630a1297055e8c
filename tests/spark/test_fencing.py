"""Those who come late: their commit or rollback must not contradict what others decided meanwhile."""

from pathlib import Path

import pytest

from chainlake.errors import BrokenPromise
from chainlake.lake import Lake
from chainlake.lake.clock import new_commit_id
from chainlake.lake.commit import append_all
from chainlake.lake.guardrail import TooManyOrphans
from chainlake.lake.home import Home
from chainlake.lake.rollback import _append
from chainlake.lake.sql import query
from chainlake.lake.stage import Batch, Output
from tests.spark.domain import expected_balances, expected_total, extend, run_all, total
from tests.spark.test_racing import paused_writer
from tests.spark.writer import killed, spawn

ONE = "0:1"


def test_a_rollback_that_comes_after_a_deeper_one_changes_nothing(lake: Lake, chain: str) -> None:
    extend(lake, chain, 9)
    run_all(lake, chain, stages=("raw.test", "bronze.test", "silver.test"))
    stale = lake.ledger.read()
    lake.rollback("silver.test", chain, 3, why="deep")
    assert _append(lake, stale, lake.stages.get("silver.test"), chain, 6, "late") is None
    commits = lake.ledger.read().of("silver.test", chain).commits
    assert [(commit.kind, commit.height) for commit in commits][-1] == ("rollback", 3)


def test_a_writer_paused_before_the_first_commit_of_a_lane_is_fenced_too(
    lake: Lake, home: Home, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend(lake, chain, 8)
    run_all(lake, chain, stages=("raw.test", "bronze.test"))
    signal_file = tmp_path / "paused"
    sleeper = paused_writer(lake, home, chain, "before_ledger", signal_file)
    monkeypatch.setattr("chainlake.lake.lease.LeaseRow.is_free", lambda self: True)
    with lake.lease("silver.test", chain):
        signal_file.unlink()
        said = sleeper.communicate(timeout=120)[0]
    assert sleeper.returncode == 3 and said.startswith("Fenced:"), said
    assert not lake.ledger.read().of("silver.test", chain).commits
    lake.run_stage("silver.test", chains=chain)
    assert total(lake, chain) == (8, expected_total(ONE, 8))


def test_rows_that_an_attempt_left_stop_writers_without_a_measurement(
    lake: Lake, home: Home, chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend(lake, chain, 5)
    run_all(lake, chain, stages=("raw.test", "bronze.test"))
    assert killed(spawn(home.path, lake.namespace.prefix, "run", chain, "5", "silver.test", failpoint="after_appends"))
    with monkeypatch.context() as limits, pytest.raises(TooManyOrphans, match="run lake gc"):
        limits.setenv("LAKE_ORPHAN_HARD_ROWS", "0")
        lake.run_stage("silver.test", chains=chain)
    lake.run_stage("silver.test", chains=chain)
    assert total(lake, chain) == (5, expected_total(ONE, 5))


def test_rows_of_a_foreign_chain_are_refused(lake: Lake, chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extend(lake, chain, 3)
    run_all(lake, chain, stages=("raw.test", "bronze.test"))
    stage = lake.stages.get("silver.test")
    honest = stage.advance
    assert honest is not None

    def lying(batch: Batch) -> Output:
        made = honest(batch)
        return Output({name: frame.selectExpr("* EXCEPT (_chain)", "'other' AS _chain") for name, frame in made.tables.items()})

    object.__setattr__(stage, "advance", lying)
    try:
        run = lake.run_stage("silver.test", chains=chain)
    finally:
        object.__setattr__(stage, "advance", honest)
    assert list(run["status"]) == ["degraded"] and "a row of other at height" in run["error"][0]
    lake.health.resume("silver.test", chain, "the stage was mended")
    lake.run_stage("silver.test", chains=chain)
    assert total(lake, chain) == (3, expected_total(ONE, 3))


def test_a_row_of_one_chain_at_the_height_of_another_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be seen at once where it is below the blocks of its batch, or never."""
    ranges = {"low": (0, 3), "high": (10, 13)}

    def appended(*places: tuple[str, int]) -> int:
        rows = [(chain, height, "a", 1) for chain, height in places]
        frame = lake.spark.createDataFrame(rows, "_chain string, _height long, account string, balance long")
        done = append_all(lake.catalog, {"silver.test_balances": frame}, new_commit_id(), ranges)
        return done["silver_test_balances"].rows

    assert appended(("low", 1), ("low", 3), ("high", 11), ("high", 13)) == 4
    for chain, height in (("high", 3), ("low", 11), ("high", 10), ("low", 0), ("other", 2)):
        with pytest.raises(
            BrokenPromise, match=f"a row of {chain} at height {height} in a batch of high from 11 to 13, low from 1"
        ):
            appended(("low", 1), (chain, height))
    monkeypatch.setattr("chainlake.lake.commit.MOST_RANGES", 1)
    assert appended(("low", 11)) == 1, "of very many ranges each row is not compared with all"
    for chain, height in (("low", 0), ("high", 14), ("other", 2)):
        with pytest.raises(BrokenPromise, match=f"a row of {chain} at height {height}"):
            appended((chain, height))


def test_a_pinned_lake_reads_one_moment_by_table_and_by_sql(lake: Lake, chain: str) -> None:
    extend(lake, chain, 6)
    run_all(lake, chain, stages=("raw.test", "bronze.test", "silver.test"))
    text = f"SELECT account, balance FROM {lake.namespace.prefix}silver.test_balances WHERE chain = '{chain}'"
    lake.pin()
    try:
        lake.rollback("silver.test", chain, 2, why="while somebody reads")
        by_table = {row["account"]: row["balance"] for row in lake.table("silver.test_balances", chain=chain).collect()}
        by_sql = {row["account"]: row["balance"] for row in query(lake, text).collect()}
    finally:
        lake.unpin()
    assert by_table == by_sql == expected_balances(ONE, 6)
    assert {row["account"]: row["balance"] for row in query(lake, text).collect()} == expected_balances(ONE, 2)
