"""Two writers on one stage: one commit per seq, the loser stops, a paused writer that wakes up is fenced."""

import subprocess
import time
from pathlib import Path

from chainlake.lake import Lake
from chainlake.lake.home import Home
from chainlake.lake.verify import verify
from tests.spark.domain import expected_total, extend, run_all, total
from tests.spark.writer import spawn


def paused_writer(
    lake: Lake, home: Home, chain: str, failpoint: str, signal_file: Path, max_blocks: int = 8
) -> "subprocess.Popen[str]":
    """A writer of silver.test that stands still at a failpoint until the file is gone."""
    writer = spawn(
        home.path,
        lake.namespace.prefix,
        "run",
        chain,
        str(max_blocks),
        "silver.test",
        failpoint=f"pause:{failpoint}",
        LAKE_FAILPOINT_FILE=str(signal_file),
    )
    deadline = time.monotonic() + 120
    while not signal_file.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert signal_file.exists(), "the writer reached its pause"
    return writer


def test_two_writers_race_and_every_block_is_there_once(lake: Lake, home: Home, chain: str) -> None:
    extend(lake, chain, 12)
    run_all(lake, chain, stages=("raw.test", "bronze.test"))
    writers = [spawn(home.path, lake.namespace.prefix, "run", chain, "3", "silver.test") for _ in range(2)]
    said = [writer.communicate(timeout=240)[0] for writer in writers]
    assert sorted(writer.returncode for writer in writers) in ([0, 0], [0, 3]), said
    lake.run_stage("silver.test", chains=chain)
    commits = lake.ledger.read().of("silver.test", chain).commits
    assert len({commit.seq for commit in commits}) == len(commits)
    assert total(lake, chain) == (12, expected_total("0:1", 12))


def test_a_paused_writer_that_wakes_up_with_an_old_epoch_is_fenced(
    lake: Lake, home: Home, chain: str, tmp_path: Path, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    extend(lake, chain, 4)
    run_all(lake, chain, stages=("raw.test", "bronze.test", "silver.test"))
    extend(lake, chain, 8)
    run_all(lake, chain, stages=("raw.test", "bronze.test"))
    signal_file = tmp_path / "paused"
    sleeper = paused_writer(lake, home, chain, "before_ledger", signal_file)
    monkeypatch.setattr("chainlake.lake.lease.LeaseRow.is_free", lambda self: True)
    with lake.lease("silver.test", chain) as lease:
        taken = lake.ledger.read().of("silver.test", chain).commits[-1]
        assert (taken.kind, taken.epoch, taken.height) == ("rollback", lease.epoch, 4)
        assert "taken over" in (taken.why or "")
        signal_file.unlink()
        said = sleeper.communicate(timeout=120)[0]
    assert sleeper.returncode == 3 and said.startswith("Fenced:"), said
    assert total(lake, chain) == (4, expected_total("0:1", 4)), "nothing of the fenced writer is visible"
    lake.run_stage("silver.test", chains=chain)
    assert total(lake, chain) == (8, expected_total("0:1", 8))
    assert [f.what for f in verify(lake, "silver.test")] == []


def test_a_rollback_stops_the_writer_at_work(lake: Lake, home: Home, chain: str, tmp_path: Path) -> None:
    extend(lake, chain, 6)
    run_all(lake, chain, stages=("raw.test", "bronze.test", "silver.test"))
    extend(lake, chain, 9)
    run_all(lake, chain, stages=("raw.test", "bronze.test"))
    signal_file = tmp_path / "paused"
    writer = paused_writer(lake, home, chain, "after_appends", signal_file)
    lake.rollback("silver.test", chain, 2, why="an operator steps in")
    signal_file.unlink()
    said = writer.communicate(timeout=120)[0]
    assert writer.returncode == 3 and said.startswith("Fenced:"), said
    assert total(lake, chain) == (2, expected_total("0:1", 2))
    lake.run_stage("silver.test", chains=chain)
    assert total(lake, chain) == (9, expected_total("0:1", 9))
