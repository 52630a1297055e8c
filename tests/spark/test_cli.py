"""The command line on a real lake, as a new user and as a hostile one."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from chainlake.cli.main import main
from chainlake.cli.prove_cage import CAGE_EXAMPLE, UTXO_EXAMPLE
from chainlake.cli.prove_shards import SHARDS_EXAMPLE
from chainlake.lake.status import StageStatus


@pytest.fixture
def lake_command(demo_home: Path, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main([*arguments, "--home", str(demo_home)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_status_as_documented(lake_command) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = lake_command("status", "--json")
    told = json.loads(out)
    assert code == 0 and set(told) == {"stages", "orphan_rows", "orphan_bytes", "orphans_at"}
    assert {field for one in told["stages"] for field in one} == set(StageStatus.__dataclass_fields__)
    document = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert all(f"`stages[].{field}`" in document for field in StageStatus.__dataclass_fields__)
    heads = {(one["stage"], one["chain"]): one["head"] for one in told["stages"]}
    assert heads["raw.logs", "demo-evm"] == 19 and heads["raw.cage", "demo-cardano"] > 0
    code, out, _ = lake_command("status")
    assert code == 0 and "demo-evm" in out


def test_the_proofs_of_the_help_are_there_to_be_made(lake_command) -> None:  # type: ignore[no-untyped-def]
    for example in (SHARDS_EXAMPLE, CAGE_EXAMPLE, UTXO_EXAMPLE):
        code, out, err = lake_command(*shlex.split(example)[1:])
        assert code == 0 and json.loads(out)["exists"] is True, err


def test_sql_reads_at_the_head_at_a_height_and_at_a_time_and_never_writes(lake_command) -> None:  # type: ignore[no-untyped-def]
    query = (
        "SELECT chain, max(height) AS head, min(hash) AS h FROM raw.blocks /* raw.blocks */ WHERE chain = 'demo-evm' GROUP BY 1"
    )
    rows = json.loads(lake_command("sql", query, "--json")[1])
    assert rows[0]["head"] == 19 and rows[0]["h"].startswith("0x") and len(rows[0]["h"]) == 66
    assert json.loads(lake_command("sql", query, "--height", "7", "--json")[1])[0]["head"] == 7
    assert json.loads(lake_command("sql", query, "--at", "2020-01-01", "--json")[1]) == []
    for statement in (
        "DROP TABLE store.raw_blocks",
        "INSERT INTO store.raw_blocks SELECT * FROM store.raw_blocks",
        "WITH x AS (SELECT 1) INSERT INTO store.raw_blocks SELECT * FROM store.raw_blocks",
        "FROM store.raw_blocks INSERT INTO store.raw_blocks SELECT *",
        "SELECT 1; DROP TABLE store.raw_blocks",
        "SELEC 1",
        "SELECT nothing FROM raw.blocks",
        "",
    ):
        code, out, err = lake_command("sql", statement)
        assert code == 2 and out == "" and err.startswith("lake: ") and err.count("\n") == 1, (statement, err)
    assert json.loads(lake_command("sql", "SELECT count(*) AS n FROM raw.blocks WHERE chain = 'demo-evm'", "--json")[1]) == [
        {"n": 20}
    ]


def test_sql_shows_a_bar_to_people_and_its_rows_to_programs(lake_command, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    code, out, err = lake_command("sql", "SELECT sum(id % 7) AS n FROM range(0, 7000000, 1, 8)", "--json")
    assert (code, json.loads(out)) == (0, [{"n": 21000000}])
    assert err.endswith("\r\x1b[K") and err.count("\n") == 0, "the bar is taken away"


def test_rollback_audit_and_run_bring_a_chain_back(lake_command) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = lake_command("rollback", "raw.logs", "demo-evm", "11", "--why", "to see it come back")
    assert code == 0 and "11" in out
    code, out, _ = lake_command("audit", "raw.logs", "demo-evm", "--height", "15", "--json")
    assert [row["kind"] for row in json.loads(out)][-1] == "rollback" and "to see it come back" in out
    code, out, _ = lake_command("run", "logs", "--param", "chain=demo-evm")
    assert code == 0 and "success" in out
    assert '"n": 20' in lake_command("sql", "SELECT count(*) AS n FROM raw.blocks WHERE chain = 'demo-evm'", "--json")[1]
    assert lake_command("rollback", "raw.logs", "demo-evm", "19", "--why", "already there")[0] == 0


def test_bad_input_is_one_clear_line_and_exit_code_2(lake_command, demo_home: Path) -> None:  # type: ignore[no-untyped-def]
    for arguments in (
        ("rollback", "raw.logs", "demo-evm", "99", "--why", "x"),
        ("rollback", "raw.logs", "demo-evm", "-5", "--why", "x"),
        ("rollback", "raw.logs", "nobody", "3", "--why", "x"),
        ("audit", "raw.logs", "nobody"),
        ("audit", "raw.logs", "demo-evm", "--height", "500"),
        ("resume", "raw.logs", "demo-evm", "--why", "it is fine"),
        ("restore", "raw.logs", "demo-evm", "--seq", "999"),
        ("compact", "raw.nothing"),
        ("run", "nothing"),
        ("run", "logs", "--param", "colour=red"),
        ("run", "logs", "--param", "chain=no-such-chain"),
        ("rollback", "raw.logs", "demo-evm", "9" * 30, "--why", "x"),
        ("compact", "raw.logs", "no-such-chain"),
        ("ingest", "demo-evm", "--kind", "comet", "--from", str(demo_home / "demo" / "demo-shard-0")),
        ("sql", "SELECT 1 FROM raw.blocks", "--height", "999999"),
    ):
        code, _, err = lake_command(*arguments)
        assert code == 2 and err.startswith("lake: ") and err.count("\n") == 1, (arguments, code, err)


def test_maintenance_commands_leave_a_lake_that_verifies(lake_command) -> None:  # type: ignore[no-untyped-def]
    """All of a lake is collected, compacted and verified by the notebooks of the job `maintenance`; here a stage is."""
    assert lake_command("gc", "--retention-days", "0")[0] == 0
    assert lake_command("compact", "silver.shards")[0] == 0
    code, out, err = lake_command("verify", "silver.shards")
    assert (code, out.strip()) == (0, "all tables agree with the ledger"), (out, err)


def test_a_failed_notebook_names_its_cell_and_error_and_fails_the_job(lake_command) -> None:  # type: ignore[no-untyped-def]
    params = ("stage=bronze.logs", "chain=demo-evm", "from_height=999", "why=nothing is there")
    code, out, err = lake_command("run", "backfill", *(word for param in params for word in ("--param", param)))
    assert code == 1 and out.count("running") == 1, "what was refused is not tried again"
    assert "backfill.ipynb cell 2 failed: BadInput: " in err and "998" in err and err.count("\n") == 1
    assert "Traceback" not in err + out and "\tat org." not in err + out
