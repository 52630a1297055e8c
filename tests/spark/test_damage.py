"""Damage done around the ledger: `verify` finds each kind, `restore` repairs what Delta still has and says what it cannot."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chainlake.errors import BadInput
from chainlake.lake import Lake
from chainlake.lake.ddl import Column
from chainlake.lake.home import Home
from chainlake.lake.names import physical
from chainlake.lake.restore import restore, unfinished
from chainlake.lake.session import settings
from chainlake.lake.verify import verify
from tests.spark.domain import STAGES, balances, expected_balances, expected_total, extend, run_all, total
from tests.spark.writer import killed, spawn

CHAIN = "frail"


@pytest.fixture(scope="module")
def frail(make_lake: Callable[..., Lake]) -> Iterator[Lake]:
    """Three silver commits of four blocks each. Delta packs no files by itself, so that the newest one is that of the newest
    commit."""
    lake = make_lake()
    with settings(lake.spark, {"spark.databricks.delta.autoCompact.enabled": "false"}):
        yield _filled(lake)


def _filled(lake: Lake) -> Lake:
    extend(lake, CHAIN, 12)
    run_all(lake, stages=STAGES[:2])
    lake.run_stage("silver.test", max_blocks=4)
    return lake


def found(lake: Lake) -> str:
    return "\n".join(finding.what for finding in verify(lake, "silver.test"))


def newest_file(lake: Lake, home: Home, table: str) -> Path:
    files = (home.warehouse / f"{lake.namespace.prefix}store" / physical(table)).glob("*.parquet")
    return max(files, key=lambda path: path.stat().st_mtime_ns)


def check_whole(lake: Lake, height: int = 12) -> None:
    assert found(lake) == ""
    assert balances(lake, CHAIN) == expected_balances("0:1", height)
    assert total(lake, CHAIN) == (height, expected_total("0:1", height))


def test_rows_deleted_around_the_ledger_are_found_and_restored(frail: Lake) -> None:
    frail.spark.sql(f"DELETE FROM {frail.namespace.store('silver.test_totals')} WHERE _height = 6")
    said = found(frail)
    assert "has 3 rows, the ledger says 4" in said and "(DELETE) was made around the ledger" in said
    done = restore(frail, "silver.test", CHAIN, 2)
    assert done.lost == [] and done.carried["silver_test_totals"] == 4, "commit 3 came later and is brought forward"
    check_whole(frail)


def test_a_commit_made_while_rows_were_missing_reads_whole_once_they_are_back(make_lake: Callable[..., Lake]) -> None:
    """Its own Delta version lacks them for ever."""
    lake = _filled(make_lake())
    lake.spark.sql(f"DELETE FROM {lake.namespace.store('silver.test_totals')} WHERE _height = 2")
    extend(lake, CHAIN, 14)
    run_all(lake, stages=STAGES[:3])
    assert restore(lake, "silver.test", CHAIN, 3).lost == []
    seq = lake.ledger.read().of("silver.test", CHAIN).seq()
    assert total(lake, CHAIN, seq=seq) == (14, expected_total("0:1", 14))


def test_rows_changed_and_added_around_the_ledger_are_found(frail: Lake) -> None:
    name = frail.namespace.store("silver.test_totals")
    frail.spark.sql(f"UPDATE {name} SET total = total + 1 WHERE _height = 9")
    assert "has other contents than were committed" in found(frail)
    restore(frail, "silver.test", CHAIN, 2)
    check_whole(frail)
    frail.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE _height = 2")
    assert "has 5 rows, the ledger says 4" in found(frail)
    restore(frail, "silver.test", CHAIN, 3)
    check_whole(frail)


def test_a_restore_of_what_is_not_there_takes_no_lease(frail: Lake) -> None:
    with pytest.raises(BadInput, match="has nothing of chain 'nobody': it has frail"):
        restore(frail, "silver.test", "nobody", 1)
    assert "nobody" not in {row["lane"] for row in frail.control.read("leases")}


def test_a_restore_killed_in_the_middle_is_finished_by_running_it_again(frail: Lake, home: Home) -> None:
    frail.spark.sql(f"DELETE FROM {frail.namespace.store('silver.test_totals')} WHERE _height = 1")
    for failpoint in ("restore_after_plan", "restore_after_restore", "restore_after_carry"):
        prefix = frail.namespace.prefix
        assert killed(spawn(home.path, prefix, "restore", "silver.test", CHAIN, "1", failpoint=failpoint)), failpoint
        assert unfinished(frail, "silver.test") is not None
        assert "was interrupted: run it again" in found(frail)
    assert restore(frail, "silver.test", CHAIN, 1).lost == []
    assert unfinished(frail) is None
    check_whole(frail)


def test_a_deleted_file_is_found_and_what_delta_lost_is_said_and_rolled_back(frail: Lake, home: Home) -> None:
    extend(frail, CHAIN, 14)
    run_all(frail, stages=STAGES[:3])
    newest_file(frail, home, "silver.test_totals").unlink()
    assert "silver_test_totals cannot be read" in found(frail)
    seq = frail.ledger.read().of("silver.test", CHAIN).seq() - 1
    killed_at = "restore_before_healing"
    assert killed(spawn(home.path, frail.namespace.prefix, "restore", "silver.test", CHAIN, str(seq), failpoint=killed_at))
    done = restore(frail, "silver.test", CHAIN, seq)
    assert len(done.lost) == 1 and done.rolled_back == {f"silver.test {CHAIN}": 12}
    check_whole(frail, 12)
    frail.run_stage("silver.test", chains=CHAIN)
    check_whole(frail, 14)


def test_a_truncated_file_is_found(frail: Lake, home: Home) -> None:
    extend(frail, CHAIN, 16)
    run_all(frail, stages=STAGES[:3])
    path = newest_file(frail, home, "silver.test_balances")
    path.write_bytes(path.read_bytes()[:-20])
    assert "silver_test_balances cannot be read" in found(frail)
    done = restore(frail, "silver.test", CHAIN, frail.ledger.read().of("silver.test", CHAIN).seq() - 1)
    assert done.rolled_back == {f"silver.test {CHAIN}": 14}
    frail.run_stage("silver.test", chains=CHAIN)
    check_whole(frail, 16)


def test_a_restore_to_before_a_migration_keeps_what_the_migration_changed(frail: Lake, tmp_path: Path) -> None:
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / "0001_know_more.sql").write_text(
        "ALTER TABLE store.silver_test_totals ADD COLUMN more BIGINT COMMENT 'Later';\n"
        "ALTER TABLE store.silver_test_totals ADD CONSTRAINT Positive CHECK (total >= 0);\n"
    )
    catalog = frail.catalog
    declared = catalog.tables["silver.test_totals"]
    more = (*declared.columns, Column("more", "BIGINT", True, "Later"))
    catalog.tables[declared.name] = replace(declared, columns=more, checks=(("Positive", "total >= 0"),))
    catalog.directories.append(tmp_path)
    assert catalog.ensure()
    frail.spark.sql(f"DELETE FROM {frail.namespace.store('silver.test_totals')} WHERE _height = 6")
    done = restore(frail, "silver.test", CHAIN, 2)
    assert done.lost == [] and done.carried["silver_test_totals"] == 8 + 2, "heights 9 to 16, two of them once more: rolled back"
    check_whole(frail, 16)
    assert total(frail, CHAIN, seq=1) == (4, expected_total("0:1", 4)), "its Delta version does not have the new column"
    catalog._check_drift()


def test_a_corrupt_ledger_is_refused_with_one_line_and_named_by_verify(frail: Lake) -> None:
    before = balances(frail, CHAIN)
    version = frail.catalog.control_log("ledger").latest()
    frail.spark.sql(f"UPDATE {frail.ledger.table} SET kind = 'nonsense' WHERE stage = 'silver.test' AND seq = 1")
    with pytest.raises(BadInput, match=r"control\.ledger is corrupt") as caught:
        frail.table("silver.test_totals")
    assert "\n" not in str(caught.value)
    assert "unknown kind 'nonsense'" in found(frail)
    frail.spark.sql(f"RESTORE TABLE {frail.ledger.table} TO VERSION AS OF {version}").collect()
    assert balances(frail, CHAIN) == before
