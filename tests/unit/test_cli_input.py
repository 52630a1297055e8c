"""What a user can get wrong is one line and exit code 2, and costs no Spark."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from chainlake.cli.jobs import what_next
from chainlake.cli.main import main
from chainlake.cli.show import table
from chainlake.demo.write import DemoChain
from chainlake.lake.control import ControlTables as Control
from chainlake.lake.names import Namespace
from tests.unit.control_tables import AT, commit_row, made_lake, with_control

DATA = ["demo", "ingest", "sql", "status", "audit", "tables"]
OPERATE = ["rollback", "resume", "verify", "compact", "gc", "restore", "stop"]
COMMANDS = ["up", "run", "bench", "serve", "events", "doctor", "completion", *DATA, *OPERATE]


class SparkStarted(Exception):
    """A command went as far as starting Spark."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and no Spark."""

    def refuse(*_: object) -> None:
        raise SparkStarted

    monkeypatch.setenv("LAKE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setattr("chainlake.lake.server.ensure", refuse)
    monkeypatch.setattr("chainlake.lake.session.get_spark", refuse)
    monkeypatch.setattr("chainlake.lake.lake.get_spark", refuse)
    monkeypatch.setattr("chainlake.jobs.runner.execute_notebook", refuse)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which a command refuses its input."""
    code = main(list(arguments))
    shown = capsys.readouterr()
    assert code == 2, f"exit code {code}: {shown.err}"
    assert shown.out == ""
    assert shown.err.startswith("lake: ") and shown.err.endswith("\n") and shown.err.count("\n") == 1, shown.err
    assert "Traceback" not in shown.err
    return shown.err[len("lake: ") :]


ROLLBACK = ["rollback", "raw.logs", "c"]
COMET = ["ingest", "c", "--kind", "comet", "--from", ".", "--option"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([*ROLLBACK, "ten", "--why", "x"], "height 'ten': a whole number is expected"),
        ([*ROLLBACK, "5-", "--why", "x"], "height '5-'"),
        ([*ROLLBACK, "1.5", "--why", "x"], "height '1.5'"),
        ([*ROLLBACK, "", "--why", "x"], "height ''"),
        ([*ROLLBACK, "²", "--why", "x"], "height '²'"),
        ([*ROLLBACK, "5", "--why", "  "], "a rollback needs a reason: --why TEXT"),
        (["audit", "raw.logs", "c", "--height", "high"], "height 'high': a block number of 0 or more is expected"),
        (["audit", "raw.logs", "c", "--height=-1"], "height '-1'"),
        (["audit", "raw.logs", "c", "--height", "²"], "height '²'"),
        (["audit", "raw.logs", "c", "--height", "9" * 20], "a block number of 0 or more is expected"),
        (["audit", "raw.logs", "c", "--height=--5"], "height '--5'"),
        (["audit", "raw.logs", "c", "--at", "yesterday"], "'yesterday' is not a time: write it like 2026-01-31T12:00:00Z"),
        (["sql", "SELECT 1", "--height", "x"], "height 'x'"),
        (["sql", "SELECT 1", "--at", "2026-13-01"], "'2026-13-01' is not a time"),
        (["sql", "SELECT 1", "--at", ""], "'' is not a time"),
        (["sql", "SELECT 1", "--at", "0001-01-01T00:00:00+14:00"], "is not a time"),
        (["sql", "SELECT 1", "--at", "9999-12-31T23:59:59-14:00"], "is not a time"),
        (["ingest", "c", "--kind", "evm", "--from", "x", "--option", "finalized"], "--option 'finalized': write it as key=value"),
        (["ingest", "c", "--kind", "evm", "--from", "x", "--option", "=true"], "--option '=true': write it as key=value"),
        (["demo", "--size", "huge"], "'huge' is not a demo size: choose one of tiny, small, medium, large"),
        (["demo", "weather"], "'weather' is not a domain: choose one of logs, shards, cage, replica, sync"),
        (["demo", "river"], "lake demo sync writes recordings, lake demo river --serve serves streams"),
        (["demo", "logs", "--serve"], "only streams can be served: lake demo river --serve"),
        (["demo", "river", "--serve", "--size", "tiny"], "--size does not go with --serve"),
        (["demo", "river", "--serve", "--json"], "--json does not go with --serve"),
        (["demo", "river", "--serve", "--streams", "0"], "1 to 100000 streams are expected"),
        (["demo", "river", "--serve", "--port", "65536"], "a port up to 65535"),
        (["up", "--size", "huge"], "'huge' is not a demo size"),
        (["run", "weather"], "weather"),
        (["run", "logs", "--param", "chain"], "--param 'chain': write it as key=value"),
        (["run", "logs", "--param", "whom=me"], "no parameter 'whom'"),
        (["restore", "raw.logs", "c", "--seq", "last"], "--seq 'last': the number of a commit is expected, see lake audit"),
        (["restore", "raw.logs", "c", "--seq", "-1"], "--seq '-1'"),
        (["restore", "raw.logs", "c", "--seq", "²"], "--seq '²'"),
        (["gc", "--retention-days", "week"], "--retention-days 'week': a number of days is expected"),
        (["gc", "--retention-days", "nan"], "--retention-days 'nan'"),
        (["gc", "--retention-days", "inf"], "--retention-days 'inf'"),
        ([*ROLLBACK[:1], "raw.weather", "c", "5", "--why", "x"], "unknown stage 'raw.weather'"),
        (["resume", "raw.logs", "c", "--why", " "], "a resume needs a reason"),
        (["resume", "raw.weather", "c", "--why", "x"], "unknown stage 'raw.weather'"),
        (["audit", "raw.weather", "c"], "unknown stage 'raw.weather'"),
        (["verify", "raw.weather"], "unknown stage 'raw.weather'"),
        (["verify", ""], "unknown stage ''"),
        (["compact", "raw.weather"], "unknown stage 'raw.weather'"),
        (["compact", "raw.logs", "nobody"], "unknown chain 'nobody'"),
        (["restore", "raw.weather", "c", "--seq", "1"], "unknown stage 'raw.weather'"),
        (["ingest", "c", "--kind", "weather", "--from", "x"], "'weather' is not a kind of chain"),
        (["ingest", "c", "--kind", "evm", "--from", "missing.jsonl"], "missing.jsonl"),
        (["ingest", "c", "--kind", "evm", "--from", "x", "--option", "colour=red"], "evm chains have no option 'colour'"),
        (["ingest", "a b", "--kind", "evm", "--from", "x"], "chain name 'a b'"),
        (["sql", "DROP TABLE raw.blocks"], "lake sql only reads: DROP is refused"),
        (["sql", " ; "], "lake sql only reads: an empty text is refused"),
        (["gc", "--retention-days", "-1"], "retention must not be negative"),
        (["run", ""], "there is no job ''"),
        (["run", "logs", "--param", "chain=nobody"], "unknown chain 'nobody': there are none yet, see lake ingest"),
        (["run", "backfill", "--param", "stage=raw.weather"], "unknown stage 'raw.weather'"),
        (["ingest", "c", "--kind", "evm", "--from", " "], "--from is empty: give the file or directory"),
        ([*COMET, "registry=missing.jsonl"], "option registry: there is no file 'missing.jsonl'"),
        ([*COMET, "registry="], "option registry: there is no file ''"),
        (
            ["ingest", "c", "--kind", "cardano", "--from", ".", "--option", "cage_policy=zz"],
            "a policy id of 56 hex digits is expected",
        ),
        (
            ["snapshot", "import", "x", "--chain", "c", "--from", ".", "--option", "results=none"],
            "option results: there is no file",
        ),
        (["bench", "kernel", "--size", "5"], "--size 5: give a number from 1000, less measures nothing"),
        (["bench", "kernel", "--size", "9" * 30], "to 10000000000"),
        (["bench", "kernel", "--json", "."], ". cannot be written (Is a directory): choose another file for --json"),
        (["events", "add", "nonsense("], "expected a type in a signature"),
        (["replica", "propose", "shop", "no json"], "'no json' is not JSON: a command is a JSON object with a type"),
        (["replica", "propose", "shop", "[]"], "'[]' is no command"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2_before_spark_starts(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert text in refused(arguments, capsys)


def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    bad = str(tmp_path / "file" / "home")
    for command in (["demo"], ["status"], ["stop"], ["up"], ["run", "logs"], ["sql", "SELECT 1"], ["verify"]):
        text = refused([*command, "--home", bad], capsys)
        assert f"home directory {bad} cannot be written" in text and "choose another with --home" in text


def test_a_demo_directory_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert "file" in refused(["demo", "logs", "--size", "tiny", "--to", str(tmp_path / "file" / "demo")], capsys)


def test_an_unknown_benchmark_is_refused_and_the_known_ones_named(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("chainlake.bench")
    assert "unknown benchmark 'weather': there are " in refused(["bench", "weather"], capsys)


def test_good_input_goes_as_far_as_spark(tmp_path: Path, home: Path) -> None:
    """Else the checks above could be of anything."""
    with_control(made_lake(home, [commit_row(1, 0, 1)]))
    (tmp_path / "blocks.jsonl").write_text("{}\n", encoding="utf-8")
    for arguments in (
        [*ROLLBACK, "5", "--why", "x"],
        ["sql", "SELECT 1", "--height", "5", "--at", "2026-01-31T12:00:00Z"],
        ["gc"],
        ["gc", "--retention-days", "0"],
        ["verify"],
        ["verify", "raw.logs"],
        ["compact"],
        ["compact", "raw.logs"],
        ["restore", "raw.logs", "c", "--seq", "1"],
        ["ingest", "c", "--kind", "evm", "--from", "blocks.jsonl", "--option", "finalized=true"],
    ):
        with pytest.raises(SparkStarted):
            main(arguments)


def test_records_of_a_lake_are_read_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    assert capsys.readouterr().out.startswith("no chains yet: ") and main(["status", "--json"]) == 0
    assert capsys.readouterr().out == '{"stages": [], "orphan_rows": 0, "orphan_bytes": 0, "orphans_at": null}\n'
    for arguments in (["resume", "raw.logs", "c", "--why", "x"], ["audit", "raw.logs", "c"]):
        assert "there is no lake in " in refused(arguments, capsys)


@pytest.mark.parametrize(
    "words",
    [
        "rollback raw.logs c 5 --why x",
        "verify",
        "verify raw.logs --json",
        "compact",
        "gc --dry-run",
        "restore raw.logs c --seq 1",
        "sql TABLE",
        "events",
    ],
)
def test_a_home_without_a_lake_is_a_mistake_and_stays_without(words: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A lake was made there, and all was well with it."""
    assert f"there is no lake in {home}: give another --home" in refused(words.split(), capsys)
    assert not list(home.iterdir())


def test_a_lake_whose_ledger_is_gone_is_not_taken_for_none(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_control(home)
    assert main(["status"]) == 0, "it may be in the making"
    rows = [{"chain": "c", "kind": "evm", "source": "f", "options": [], "at": AT}]
    Control(None, Namespace(), home / "warehouse").append("chains", rows)
    for command in ("status", "verify"):
        assert main([command]) == 1
        assert "control/ledger is gone, but control.chains has rows: see Repairing" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["weather"],
        ["rollback", "raw.logs"],
        ["rollback", "raw.logs", "c", "5"],
        ["ingest", "c"],
        ["sql"],
        ["status", "--what"],
        ["restore", "raw.logs", "c"],
        ["resume", "raw.logs", "c"],
        ["bench"],
    ],
)
def test_usage_errors_exit_with_2_and_say_how_to_use_it(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("usage: lake") and "error: " in shown.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: lake {command}") and "--home DIR" in text


def test_the_help_lists_every_command_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith("    ") and line.split()}
    for command in COMMANDS:
        assert len(lines[command]) >= 2, f"lake {command} has no help text"


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("chainlake ")


def test_demo_writes_chains_into_the_home_and_tells_where(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--size", "tiny"]) == 0
    out = capsys.readouterr().out
    for name in ("demo-evm", "demo-shard-0", "demo-shard-1", "demo-cardano", "demo-replica-a", "demo-river"):
        assert name in out
        assert list((home / "demo" / name).iterdir())


def test_demo_writes_one_domain_where_it_is_told(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "logs", "--size", "tiny", "--to", str(tmp_path / "there")]) == 0
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["demo-evm", "sizes.json"]
    assert not home.exists()
    assert main(["demo", "logs", "--size", "small", "--to", str(tmp_path / "there")]) == 0
    assert "demo-shard-0" not in capsys.readouterr().out
    assert "are small, and tiny would cut off" in refused(["demo", "--size", "tiny", "--to", str(tmp_path / "there")], capsys)


def test_home_on_the_command_line_wins(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "logs", "--size", "tiny", "--home", str(tmp_path / "other")]) == 0
    assert (tmp_path / "other" / "demo" / "demo-evm").is_dir() and not home.exists()
    assert os.environ["LAKE_HOME"] == str(tmp_path / "other"), "notebooks of the run must find the same home"
    capsys.readouterr()


def test_tables_are_listed_and_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables"]) == 0
    listed = capsys.readouterr().out
    assert "raw.blocks" in listed and "control.ledger" in listed
    assert main(["tables", "--markdown"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# Tables\n") and "\n## raw.blocks\n" in page and page.endswith("|\n")


def test_stop_without_a_server_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop"]) == 0
    assert capsys.readouterr().out == "no server runs here\n"


def shell(command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A command line in bash, `lake` in it; its exit code is that of `lake`."""
    text = f'lake() {{ {sys.executable} -m chainlake.cli "$@"; }}; {command}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.mark.parametrize("command", ["lake tables --markdown | true", "lake stop | sleep 0"])
def test_a_reader_that_goes_away_is_no_stack_trace(command: str) -> None:
    """Whether it goes before a long answer ends, or before a short one begins."""
    done = shell(command)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("command", ["lake tables > /dev/full", "lake stop > /dev/full"])
def test_an_answer_that_cannot_be_written_is_one_line(command: str) -> None:
    done = shell(command)
    assert done.returncode == 1 and done.stderr.startswith("lake: ") and done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


def test_a_closed_output_and_one_without_unicode_are_no_stack_trace() -> None:
    assert (shell("lake tables >&-").stderr, shell("lake tables >&- 2>&-").returncode) == ("", 0)
    done = shell("lake tables", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and done.stderr == "" and done.stdout.splitlines()[1].startswith("-----")
    assert "\\u2026" in done.stdout, "an ellipsis"


def test_a_home_of_a_user_who_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "doctor", "stop"):
        assert "~nobody-of-that-name: there is no such user" in refused([command, "--home", "~nobody-of-that-name"], capsys)


def test_one_table_is_shown_with_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "silver.streams"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("silver.streams (state, key chain, stream_id): ")
    assert "\nstream_id_hex " in shown and "raw.blocks" not in shown
    assert main(["tables", "silver.streams", "--json"]) == 0
    assert [one["table"] for one in json.loads(capsys.readouterr().out)] == ["silver.streams"]
    assert "unknown table 'silver.stream': did you mean silver.streams" in refused(["tables", "silver.stream"], capsys)
    assert "unknown table 'weather': lake tables lists them" in refused(["tables", "weather"], capsys)


def test_texts_of_strangers_neither_command_the_terminal_nor_break_the_table() -> None:
    lines = table(["who", "n"], [("a\x1b[31m\nb", 1), ("漢字", 2), ("e\u0301", 3)]).splitlines()
    assert lines[:2] == ["who           n", "────────────  ─"]
    assert lines[2:] == ["a\\x1b[31m\\nb  1", "漢字          2", "e\u0301             3"]


def test_what_to_try_next_names_a_block_that_is_there() -> None:
    demo = [DemoChain("demo-evm", "evm", "logs", Path(), {}, blocks) for blocks in (20, 240)]
    assert ["raw.logs demo-evm 10 " in what_next(demo[:1]), "raw.logs demo-evm 120 " in what_next(demo[1:])] == [True, True]


def test_the_module_and_the_command_are_the_same_and_warn_of_nothing() -> None:
    script = "import sys; from chainlake.cli import main; sys.exit(main())"
    for command in (["-m", "chainlake.cli.main"], ["-m", "chainlake.cli"], ["-c", script]):
        done = subprocess.run([sys.executable, *command, "--version"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("chainlake ")
