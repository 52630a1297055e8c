"""What Delta's log directory tells of a table."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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


def clustered(*columns: str, removed: bool = False) -> dict[str, object]:
    told = json.dumps({"clusteringColumns": [[column] for column in columns]})
    return {"domain": "delta.clustering", "configuration": told, "removed": removed}


def test_the_newest_word_on_clustering_counts(tmp_path: Path) -> None:
    log = log_of(tmp_path, "CREATE TABLE", "WRITE", "CLUSTER BY", "WRITE")
    assert log.clustering() == ()

    def tell(version: int, action: dict[str, object]) -> None:
        with (tmp_path / "_delta_log" / f"{version:020d}.json").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"domainMetadata": action}) + "\n")

    tell(0, clustered("_chain"))
    assert log.clustering() == ("_chain",)
    tell(2, clustered("_chain", "stream_id"))
    assert log.clustering() == ("_chain", "stream_id")
    tell(3, clustered("_chain", removed=True))
    assert log.clustering() == ()


def test_clustering_is_found_in_a_checkpoint_when_its_action_is_cleaned_away(tmp_path: Path) -> None:
    log = log_of(tmp_path, "CREATE TABLE", "WRITE", "WRITE")
    place = tmp_path / "_delta_log"
    actions = pa.table({"domainMetadata": [None, clustered("_chain", "_height")], "txn": ["x", None]})
    pq.write_table(actions, place / f"{1:020d}.checkpoint.parquet")
    (place / "_last_checkpoint").write_text(json.dumps({"version": 1}), encoding="utf-8")
    (place / f"{0:020d}.json").unlink()
    assert log.clustering() == ("_chain", "_height")


@pytest.mark.parametrize("odd", ["\u2028", "\u0085"])
def test_what_texts_end_lines_with_may_stand_in_statistics(tmp_path: Path, odd: str) -> None:
    log = log_of(tmp_path, "CREATE TABLE", "WRITE")
    path = tmp_path / "_delta_log" / f"{1:020d}.json"
    added = json.dumps({"add": {"path": "x", "stats": f"why{odd}not"}}, ensure_ascii=False)
    path.write_text(f"{added}\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
    found = log.version_of("commit", 1)
    assert found is not None and found.version == 1
