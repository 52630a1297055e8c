"""A pipeline of four stages: batches, time travel on both axes, rollback and forks, always against plain Python."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from chainlake.errors import BadInput
from chainlake.lake import Lake
from chainlake.lake.audit import audit
from tests.spark.domain import (
    STAGES,
    balances,
    block_hash,
    expected_balances,
    expected_total,
    extend,
    payments,
    run_all,
    test_stages,
    total,
)

ONE, TWO = "0:1", "0:1,18:2"


@pytest.fixture(scope="module")
def story(lake: Lake) -> dict[str, object]:
    """30 blocks in batches of 12, back to 17 (in the middle of a batch), then on to 40 on another branch."""
    chain = "story"
    extend(lake, chain, 30, ONE)
    run_all(lake, chain, stages=STAGES[:2])
    run_all(lake, chain, max_blocks=12, stages=STAGES[2:])
    middle = datetime.now(timezone.utc)
    before = lake.ledger.read().of("silver.test", chain).seq()
    lake.pin()
    pinned = lake.pinned
    lake.unpin()
    rolled = lake.rollback("raw.test", chain, 17, why="the source was wrong")
    extend(lake, chain, 40, TWO)
    run_all(lake, chain)
    return {"chain": chain, "middle": middle, "seq": before, "pinned": pinned, "rolled": rolled}


def test_state_equals_the_model_at_every_height_of_the_branch_in_force(lake: Lake, story: dict[str, str]) -> None:
    for height in (1, 11, 12, 13, 17, 18, 24, 40):
        assert balances(lake, story["chain"], height=height) == expected_balances(TWO, height), height


def test_totals_carry_over_batches_and_the_fork(lake: Lake, story: dict[str, str]) -> None:
    assert total(lake, story["chain"]) == (40, expected_total(TWO, 40))


def test_the_view_shows_what_table_shows(lake: Lake, story: dict[str, str]) -> None:
    for name in ("silver.test_balances", "silver.test_totals", "bronze.test_payments", "gold.test_chunks", "raw.test_blocks"):
        view = lake.spark.table(lake.namespace.view(name)).filter(f"chain = '{story['chain']}'")
        table = lake.table(name, chain=story["chain"])
        columns = [column for column in table.columns if column != "notes"]
        shown = sorted(map(tuple, view.select(columns).collect()))
        assert shown and shown == sorted(map(tuple, table.select(columns).collect())), name


def test_reading_by_seq_and_by_time_shows_the_abandoned_branch(lake: Lake, story: dict[str, object]) -> None:
    chain = str(story["chain"])
    for when in ({"seq": story["seq"]}, {"at": story["middle"]}):
        assert balances(lake, chain, **when) == expected_balances(ONE, 30)
        assert balances(lake, chain, height=20, **when) == expected_balances(ONE, 20)


def test_delta_version_and_ledger_filter_agree(lake: Lake, story: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    chain, seq = str(story["chain"]), story["seq"]
    by_version = balances(lake, chain, seq=seq)
    table = lake.catalog.table("silver.test_balances")
    monkeypatch.setitem(lake.catalog.tables, table.name, replace(table, retention=timedelta(0)))
    plan = lake.table("silver.test_balances", chain=chain, seq=seq)  # type: ignore[arg-type]
    assert {row["account"]: row["balance"] for row in plan.collect()} == by_version == expected_balances(ONE, 30)


def test_a_pinned_snapshot_stays_what_it_was(lake: Lake, story: dict[str, object]) -> None:
    rows = story["pinned"].table("silver.test_balances", chain=story["chain"]).collect()  # type: ignore[attr-defined]
    assert {row["account"]: row["balance"] for row in rows} == expected_balances(ONE, 30)


def test_rollback_reaches_every_stage_downstream_first_and_index_stages_stop_at_a_boundary(story: dict[str, object]) -> None:
    rolled = story["rolled"]
    assert [row.stage for row in rolled][-2:] == ["bronze.test", "raw.test"]  # type: ignore[attr-defined]
    heights = {row.stage: row.height for row in rolled}  # type: ignore[attr-defined]
    assert heights == {"gold.test": 12, "silver.test": 17, "bronze.test": 17, "raw.test": 17}


def test_index_rows_cover_the_branch_without_gap(lake: Lake, story: dict[str, str]) -> None:
    rows = sorted(lake.table("gold.test_chunks", chain=story["chain"]).select("first_height", "height", "amount").collect())
    assert [tuple(row)[:2] for row in rows] == [(1, 12), (13, 40)]
    assert rows[1][2] == sum(amount for height in range(13, 41) for _, amount in payments(TWO, height))


def test_audit_tells_what_the_abandoned_fork_said_and_why(lake: Lake, story: dict[str, str]) -> None:
    told = audit(lake, "silver.test", story["chain"], height=20)
    assert list(told["kind"]) == ["advance", "rollback", "advance"]
    assert told["visible_to"].fillna(-1).tolist() == [17, -1, 40], "of the first commit only blocks up to 17 are left"
    assert "the source was wrong" in told["why"][1]
    assert lake.ledger.read().of("raw.test", story["chain"]).commits[-2].block_hash == block_hash(ONE, 17)


def test_history_keeps_every_after_image(lake: Lake, story: dict[str, str]) -> None:
    rows = lake.history("silver.test_balances", chain=story["chain"]).select("_height", "account", "_deleted").collect()
    touched = {(h, account) for h in range(1, 41) for account, _ in payments(TWO, h)}
    assert {(row[0], row[1]) for row in rows} == touched and len(rows) == len(touched)
    assert any(row[2] for row in rows), "the chain deletes an account somewhere"


def test_runs_tell_rows_seconds_and_bytes(lake: Lake, story: dict[str, str]) -> None:
    rows = sorted(lake.control.read("runs"), key=lambda row: row["started_at"])
    runs = [row for row in rows if row["stage"] == "silver.test" and row["lane"] == story["chain"]]
    assert [row["blocks"] for row in runs] == [12, 12, 6, 23]
    assert all(row["bytes"] > 0 and row["rows"] > 0 and {"append", "ledger"} <= dict(row["seconds"]).keys() for row in runs)


def test_a_batch_is_bounded_by_rows(lake: Lake, chain: str) -> None:
    extend(lake, chain, 20)
    lake.run_stage("raw.test", chains=chain)
    lake.run_stage("bronze.test", chains=chain, max_rows=8)
    commits = lake.ledger.read().of("bronze.test", chain).commits
    assert [commit.height - commit.base_height for commit in commits] == [8, 8, 4]


def test_bad_questions_get_one_clear_line(lake: Lake, story: dict[str, str]) -> None:
    chain = story["chain"]
    for ask, words in [
        (lambda: lake.table("silver.nothing"), "unknown table"),
        (lambda: lake.table("silver.test_balances", chain="nowhere"), "unknown chain"),
        (lambda: lake.table("silver.test_balances", chain=chain, height=41), "the head is 40"),
        (lambda: lake.table("silver.test_balances", chain=chain, height=-1), "is not there"),
        (lambda: lake.table("silver.test_balances", chain=chain, seq=999), "does not exist"),
        (lambda: lake.run_stage("silver.none"), "unknown stage"),
        (lambda: lake.run_stage("silver.test", chains="nowhere"), "no chain"),
        (lambda: lake.rollback("raw.test", chain, 41, why="x"), "the head is 40"),
        (lambda: lake.rollback("raw.test", chain, -1, why="x"), "it starts after 0"),
        (lambda: lake.rollback("raw.test", chain, 5, why="  "), "needs a reason"),
        (lambda: lake.rollback("raw.test", "nowhere", 5, why="x"), "nothing of chain"),
    ]:
        with pytest.raises(BadInput, match=words) as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_chains_of_one_lane_advance_in_one_commit_and_roll_back_alone(make_lake) -> None:  # type: ignore[no-untyped-def]
    lake = make_lake(lane="together")
    for number, to in enumerate((9, 14, 12)):
        extend(lake, f"m{number}", to, f"0:{number + 1}")
    run_all(lake, stages=STAGES[:2])
    lake.run_stage("silver.test", max_blocks=7)
    view = lake.ledger.read()
    first = {c.commit_id for n in range(3) for c in view.of("silver.test", f"m{n}").commits if c.seq == 1}
    assert len(first) == 1, "one commit for three chains"
    lake.rollback("bronze.test", "m1", 7, why="one chain only")
    for number, height in enumerate((9, 7, 12)):
        assert balances(lake, f"m{number}") == expected_balances(f"0:{number + 1}", height)
    run_all(lake, stages=("silver.test", "bronze.test", "silver.test"))
    assert balances(lake, "m1") == expected_balances("0:2", 14)
    assert test_stages("x")[1].lane_of("anything") == "x"
