"""What a lake has written down about itself, read without Spark: its status, and whether the demo is built."""

import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from chainlake.cli.jobs import is_built, summary
from chainlake.cli.main import main
from chainlake.demo.write import DemoChain
from chainlake.lake.chains import Chain
from chainlake.lake.records import Records, open_records
from chainlake.serve.operations import AS_NEEDED
from chainlake.stages import all_stages
from tests.unit.control_tables import AT, commit_row, made_lake, with_control

STAGES = ("raw.logs", "bronze.logs", "gold.logs", "gold.decoded")
DEMO = DemoChain("c", "evm", "logs", Path("/demo/blocks.jsonl"), {"finalized": "true"}, 10)


def advance(stage: str, height: int, seq: int = 1, base: int = -1) -> dict[str, Any]:
    return {**commit_row(seq, base, height), "stage": stage}


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    """A lake with ten blocks of one chain in all of its stages."""
    for name in ("SPARK_REMOTE", "LAKE_PREFIX", "LAKE_CATALOG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("chainlake.lake.server.ensure", lambda home: pytest.fail("Spark was started"))
    made_lake(tmp_path, [advance(stage, 9) for stage in STAGES])
    with_control(tmp_path)
    found = open_records(tmp_path)
    assert found is not None
    found.chains.add(Chain(DEMO.name, DEMO.kind, str(DEMO.path), DEMO.options))
    return found


def test_rows_of_the_ledger_come_back_as_they_were_written(tmp_path: Path) -> None:
    at = datetime(2026, 2, 28, 23, 59, 59, 999_999, timezone.utc)
    maps = {"inputs": [("raw.logs", 7)], "rows": [("a", 1), ("b", 2)], "roots": [("state", b"root")]}
    made_lake(tmp_path, [commit_row(1, 0, 1), {**commit_row(2, 1, 5), **maps, "committed_at": at, "commit_id": 1 << 62}])
    records = open_records(tmp_path)
    assert records is not None
    first, second = records.ledger.read().of("raw.logs", "c").commits
    assert (first.committed_at, first.rows, first.height) == (AT, {}, 1)
    assert second.committed_at == at and second.committed_at.tzinfo is timezone.utc
    assert [second.inputs, second.rows, second.roots] == [dict(maps["inputs"]), dict(maps["rows"]), dict(maps["roots"])]
    assert records.ledger.commit_ids() == {1, 1 << 62}


@pytest.mark.parametrize("name", ["stage", "seq", "kind", "height", "epoch", "committed_at"])
def test_a_row_of_the_ledger_without_what_it_must_say_is_one_line(
    name: str, records: Records, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_lake(tmp_path, [{**advance("raw.logs", 12, seq=2, base=9), name: None}], mode="append")
    for arguments in (["status"], ["audit", "raw.logs", "c"]):
        assert main([*arguments, "--home", str(tmp_path)]) == 2
        assert capsys.readouterr().err.startswith(f"lake: control.ledger is corrupt: a row has no {name}; see ")


def test_a_stage_that_works_only_when_needed_is_never_behind(
    records: Records, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("all 5 healthy; all caught up\n")
    assert {stage.name for stage in all_stages() if stage.as_needed} == set(AS_NEEDED) == {"gold.log_merges"}
    made_lake(tmp_path, [advance("raw.logs", 12, seq=2, base=9)], mode="append")
    assert main(["status", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("all 5 healthy; 1 behind their inputs\n")


def test_a_demo_that_is_built_or_longer_than_asked_for_is_not_built_again(records: Records) -> None:
    assert is_built(records, [DEMO]) and is_built(records, [replace(DEMO, blocks=3)])


@pytest.mark.parametrize(
    "demo",
    [
        [replace(DEMO, blocks=11)],
        [replace(DEMO, options={"finalized": "false"})],
        [replace(DEMO, path=Path("/elsewhere"))],
        [DEMO, replace(DEMO, name="d")],
        [],
    ],
    ids=["more blocks", "other options", "another place", "one more chain", "a chain of somebody else"],
)
def test_a_demo_that_differs_is_built(records: Records, demo: list[DemoChain]) -> None:
    assert not is_built(records, demo)


def test_a_demo_that_was_taken_back_is_behind_or_stopped_is_built_again(records: Records, tmp_path: Path) -> None:
    records.health.degrade("gold.logs", "c", "a promise", "run")
    assert not is_built(records, [DEMO])
    records.health.resume("gold.logs", "c", "mended")
    assert is_built(records, [DEMO])
    made_lake(tmp_path, [{**advance("gold.logs", 4, seq=2, base=9), "kind": "rollback"}], mode="append")
    assert not is_built(records, [DEMO])


SHARD = Chain("s", "comet", "/blocks", {})
PROOF = ("prove", "shards", SHARD.name, "0x" + "10" * 32)


def test_a_ledger_of_another_version_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"stage": ["silver.shards"], "chain": [SHARD.name], "seq": [1], "kind": ["advance"], "height": [9]})
    write_deltalake(str(tmp_path / "warehouse" / "control" / "ledger"), rows)
    found = open_records(with_control(tmp_path))
    assert found is not None
    found.chains.add(SHARD)
    for command in (("status",), ("audit", "silver.shards", SHARD.name), PROOF):
        assert main([*command, "--home", str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert said.startswith("lake: control.ledger has no column ") and "made by another version" in said
        assert said.count("\n") == 1


def test_a_damaged_log_of_the_ledger_is_told_in_one_line(
    records: Records, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records.chains.add(SHARD)
    for file in (tmp_path / "warehouse" / "control" / "ledger" / "_delta_log").glob("*.json"):
        file.write_text("{{ not JSON\n")
    for command in (("status",), PROOF):
        assert main([*command, "--home", str(tmp_path)]) == 1
        said = capsys.readouterr().err
        assert "cannot be read (" in said and "see Repairing in docs/operations.md" in said and said.count("\n") == 1


def test_an_audit_and_a_resume_need_no_spark(records: Records, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = ["--home", str(tmp_path)]
    assert main(["audit", "raw.logs", "c", *home]) == 0
    assert AT.isoformat()[:10] in capsys.readouterr().out
    assert main(["resume", "raw.logs", "c", "--why", "x", *home]) == 2
    assert capsys.readouterr().err == "lake: raw.logs c is not degraded: nothing to resume\n"


@pytest.mark.parametrize("damage", ["table gone", "file gone", "file cut short", "log with a gap"])
def test_damaged_records_are_one_line_not_a_stack_trace(
    records: Records, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "warehouse" / "control" / "ledger"
    (file,) = ledger.glob("*.parquet")
    if damage == "table gone":
        shutil.rmtree(tmp_path / "warehouse" / "control" / "health")
    elif damage == "file gone":
        file.unlink()
    elif damage == "file cut short":
        file.write_bytes(file.read_bytes()[:10])
    else:
        (ledger / "_delta_log" / f"{99:020d}.json").write_text("{}")
    assert main(["status", "--home", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"lake: {tmp_path}") and said.count("\n") == 1 and "cannot be read" in said


def test_the_summary_of_a_run_tells_heads_rows_health_and_seconds(tmp_path: Path) -> None:
    with_control(made_lake(tmp_path, [{**commit_row(1, 0, 9), "rows": [("raw_blocks", 9), ("raw_transactions", 5)]}]))
    records = open_records(tmp_path)
    assert records is not None
    records.chains.add(Chain("c", "evm", "somewhere", {}))
    lines = summary(records, {"raw_logs": 1.5}).splitlines()
    assert lines[0].split() == ["stage", "chain", "head", "rows", "health", "task", "time"]
    by_stage = {line.split()[0]: line.split()[1:] for line in lines[2:]}
    assert by_stage["raw.logs"] == ["c", "9", "14", "ok", "1.5", "s"]
    assert by_stage["bronze.logs"][0] == "c" and by_stage["bronze.logs"][-1] == "-", "nothing of it yet"
