"""What Delta's log directory tells of a table."""

import json
from pathlib import Path

import pytest

from chainlake.lake.deltalog import DeltaLog, never_written, writes_since_packed


def log_of(folder: Path, *operations: str) -> DeltaLog:
    place = folder / "_delta_log"
    place.mkdir()
    for version, operation in enumerate(operations):
        info = {"operation": operation, "operationMetrics": {"numOutputRows": "3"}, "userMetadata": f'{{"commit": {version}}}'}
        (place / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n", encoding="utf-8")
    return DeltaLog(None, "t", folder)


@pytest.mark.parametrize(
    ("operations", "writes"),
    [
        (["CREATE TABLE"], 0),
        (["CREATE TABLE", "WRITE"], 1),
        (["CREATE TABLE", "WRITE", "WRITE"], 2),
        (["CREATE TABLE", "WRITE", "WRITE", "OPTIMIZE"], 0),
        (["CREATE TABLE", "WRITE", "OPTIMIZE", "WRITE", "SET TBLPROPERTIES", "DELETE"], 2),
    ],
)
def test_writes_are_counted_since_the_table_was_packed(tmp_path: Path, operations: list[str], writes: int) -> None:
    versions = log_of(tmp_path, *operations).all()
    assert writes_since_packed(versions) == writes
    assert never_written(versions) == ("WRITE" not in operations)


def test_the_newest_version_is_found_from_the_checkpoint_on(tmp_path: Path) -> None:
    log = log_of(tmp_path, *["WRITE"] * 30)
    assert log.latest() == 29
    for version in range(15):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    assert log.latest() == 29, "old versions are cleaned away: the directory is listed"
    for checkpoint in (14, 20, 29):
        (tmp_path / "_delta_log" / "_last_checkpoint").write_text(json.dumps({"version": checkpoint}), encoding="utf-8")
        assert log.latest() == 29
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text("{", encoding="utf-8")
    assert log.latest() == 29


def test_a_commit_is_found_by_its_mark(tmp_path: Path) -> None:
    log = log_of(tmp_path, *["CREATE TABLE"] + ["WRITE"] * 60)
    found = log.version_of("commit", 3)
    assert found is not None
    assert (found.version, found.rows) == (3, 3)
    assert log.version_of("commit", 61) is None
