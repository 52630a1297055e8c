"""Rules that all commands keep: an example in the help, one meaning per exit code, completion in every shell."""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from chainlake import errors
from chainlake.cli import completion_scripts
from chainlake.cli.command_tree import Command, read_commands, subparsers
from chainlake.cli.completion import known_names
from chainlake.cli.events import decode_again
from chainlake.cli.main import LakeParser, _guarded, build_parser, main
from chainlake.cli.operate import _show
from chainlake.lake.visibility import Commit, LedgerView
from chainlake.stages import all_stages
from tests.unit.docs_commands import json_fields

COMMANDS = read_commands(build_parser(), known_names())
BY_NAME = {command.name: command for command in COMMANDS}
NEEDS_NO_HOME = {"tables", "completion"}

each_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)


def examples(command: Command) -> list[list[str]]:
    """The examples of a command as arguments, without what a shell or a reader does with them."""
    lines = re.sub(r"^examples?: ", "", command.example).splitlines()
    shown = [re.split(r" > | && |, then |\s{3,}", line.strip())[0] for line in lines if line.strip().startswith("lake ")]
    return [shlex.split(text)[1:] for text in shown]


@each_command
def test_every_command_has_a_help_line_and_an_example_that_parses(command: Command) -> None:
    assert command.help and examples(command), f"lake {command.name} shows no example"
    for arguments in examples(command):
        assert arguments[0] == command.name
        assert build_parser().parse_args(arguments).run is not None


def leaves(parser: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], LakeParser]]:
    """Every command that has none below it."""
    below = subparsers(parser)
    if below is None:
        yield words, parser
    for name, sub in below.choices.items() if below else ():
        yield from leaves(sub, (*words, name))


each_leaf = pytest.mark.parametrize(
    ("words", "parser"), list(leaves(build_parser())), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)


@each_leaf
def test_help_says_what_a_command_and_each_of_its_arguments_is_for(words: tuple[str, ...], parser: LakeParser) -> None:
    assert parser.description and parser.description in parser.format_help()
    silent = [action.dest for action in parser._actions if not action.help]
    assert silent == [], f"lake {' '.join(words)} --help says nothing of them"


def test_the_first_help_has_examples_that_parse() -> None:
    shown = examples(Command("", "", build_parser().epilog or "", (), ()))
    assert len(shown) >= 5
    for arguments in shown:
        assert build_parser().parse_args(arguments).run is not None


@each_leaf
def test_commands_of_commands_have_examples_too(words: tuple[str, ...], parser: LakeParser) -> None:
    found = examples(Command(words[0], "", parser.epilog or "", (), ()))
    assert found, f"lake {' '.join(words)} shows no example"
    for arguments in found:
        assert tuple(arguments[: len(words)]) == words and build_parser().parse_args(arguments).run is not None


def test_examples_can_be_pasted_from_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = BY_NAME["ingest"].example
    sub = subparsers(build_parser())
    assert sub is not None and max(map(len, text.splitlines())) > 80 and text in sub.choices["ingest"].format_help()


def test_every_command_with_json_documents_its_fields() -> None:
    with_json = {command.name for command in COMMANDS if any("--json" in option.flags for option in command.options)}
    assert with_json == set(json_fields())


@pytest.mark.parametrize("words", ["tables", "demo logs --size tiny", "doctor"])
def test_json_has_the_documented_fields(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that need a lake are asked on one, in tests/spark."""
    monkeypatch.setenv("LAKE_HOME", str(tmp_path))
    assert main([*words.split(), "--json"]) in (0, 1)
    rows = json.loads(capsys.readouterr().out)
    assert rows and {field for row in rows for field in row} == json_fields()[words.split()[0]]


@each_command
def test_a_home_that_is_a_file_is_never_a_stack_trace(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("chainlake.lake.server.ensure", lambda home: pytest.fail("Spark was started"))
    monkeypatch.setenv("LAKE_HOME", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code = main([*examples(command)[0], "--home", str(tmp_path / "file")])
    shown = capsys.readouterr()
    assert code == (0 if command.name in NEEDS_NO_HOME else 1 if command.name == "doctor" else 2), shown.err
    assert shown.err.count("\n") == (code != 0) and "Traceback" not in shown.err


@each_command
def test_an_unknown_option_is_a_usage_error(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*examples(command)[0], "--no-such-option"])
    assert ended.value.code == 2
    assert "--no-such-option" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BadInput("x"), 2),
        (errors.CheckFailed("x"), 1),
        (errors.BrokenPromise("x"), 1),
        (errors.Degraded("x"), 1),
        (errors.Fenced("x"), 1),
        (errors.LeaseHeld("x"), 1),
        (errors.Unavailable("x"), 1),
        (OSError("x"), 1),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
        (None, 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_codes_mean_one_thing(error: BaseException | None, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def run(given: argparse.Namespace) -> None:
        if error is not None:
            raise error

    assert _guarded(argparse.Namespace(run=run)) == code
    assert capsys.readouterr().err == ("lake: x\n" if code in (1, 2) else "")


def test_what_a_function_inside_of_spark_refuses_is_told_in_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    from pyspark.errors import PySparkException

    said = "PySparkRuntimeError: [UDTF_EXEC_ERROR] … the 'eval' method: the filter does not work: invalid argument 0"

    def run(given: argparse.Namespace) -> None:
        raise PySparkException(f"""
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "functions.py", line 63, in eval
chainlake.errors.BadInput: the filter does not work: invalid argument 0

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 2182, in func
{said}
""")

    assert _guarded(argparse.Namespace(run=run)) == 1
    assert capsys.readouterr().err == f"lake: Spark refused: {said}\n"


def test_bad_input_to_a_function_inside_of_spark_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    from pyspark.errors import PySparkException

    def run(given: argparse.Namespace) -> None:
        raise PySparkException("""
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "functions.py", line 31, in eval
chainlake.errors.BadInput: there is no token 0x00 in demo-cardano at block 149
""")

    assert _guarded(argparse.Namespace(run=run)) == 2
    assert capsys.readouterr().err == "lake: there is no token 0x00 in demo-cardano at block 149\n"


def bash_completes(words: str) -> list[str]:
    """What bash offers for a line that ends where Tab is pressed."""
    script = completion_scripts.bash(COMMANDS)
    line = words.split(" ")
    setup = f"COMP_WORDS=({' '.join(shlex.quote(word) for word in line)}); COMP_CWORD={len(line) - 1}"
    program = f'{script}\n{setup}\n_lake\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    "words", [["--home", "{}", "status"], ["status", "--home", "{}"], ["--home", "other", "status", "--home", "{}"]]
)
def test_the_home_may_stand_before_or_after_the_command(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main([word.format(tmp_path / "here") for word in words]) == 0
    assert os.environ["LAKE_HOME"] == str(tmp_path / "here"), "a command's own home wins"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("lake ro", ["rollback"]),
        ("lake rollback raw.lo", ["raw.logs"]),
        ("lake rollback raw.logs demo-evm raw", []),
        ("lake rollback --home x raw.lo", ["raw.logs"]),
        ("lake rollback --why", ["--why"]),
        ("lake ingest c --kind ca", ["cardano"]),
        ("lake run lo", ["logs"]),
        ("lake demo --size me", ["medium"]),
        ("lake bench --size m", []),
        ("lake bench --json", ["--json"]),
        ("lake completion f", ["fish"]),
        ("lake status --json --ho", ["--home"]),
        ("lake serve --topic-rule l", ["loose"]),
        ("lake nothing ", []),
        ("lake --home x ro", ["rollback"]),
        ("lake --home x rollback raw.lo", ["raw.logs"]),
        ("lake --ho", ["--home"]),
    ],
)
def test_bash_completes(words: str, offered: list[str]) -> None:
    assert bash_completes(words) == offered


def test_bash_offers_all_commands_and_all_stages() -> None:
    assert bash_completes("lake ") == list(BY_NAME)
    assert bash_completes("lake verify ") == [stage.name for stage in all_stages()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("lake rol", ["rollback"]),
        ("lake rollback raw.lo", ["raw.logs"]),
        ("lake ingest c --kind ca", ["cardano"]),
        ("lake --home x rol", ["rollback"]),
        ("lake --ho", ["--home"]),
    ],
)
def test_fish_completes(words: str, offered: list[str], tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    (tmp_path / "script").write_text(completion_scripts.fish(COMMANDS))
    program = f"source {tmp_path}/script; complete -C '{words}'"
    done = subprocess.run(["fish", "-N", "-c", program], capture_output=True, text=True, check=True)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == offered


@pytest.mark.parametrize("shell", completion_scripts.SHELLS)
def test_every_script_has_every_command_and_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"\b{command.name}\b", script)
        for option in command.options:
            assert all(flag.lstrip("-") in script for flag in option.flags if flag.startswith("--"))
    assert "raw.logs" in script and "demo-evm" not in script


@pytest.mark.parametrize(("shell", "check"), [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])])
def test_the_shell_itself_accepts_the_script(shell: str, check: list[str], tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    make: Callable[..., str] = completion_scripts.SHELLS[shell]
    (tmp_path / "script").write_text(make(COMMANDS))
    done = subprocess.run([shell, *check, str(tmp_path / "script")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("as_json", "rows", "shown"),
    [
        (True, [("raw.logs", 5)], '[{"stage": "raw.logs", "to": 5}]\n'),
        (True, [], "[]\n"),
        (False, [], "nothing to do\n"),
        (False, [("raw.logs", 5)], "stage     to\n────────  ──\nraw.logs   5\n"),
    ],
)
def test_what_was_done_is_a_table_or_json(
    as_json: bool, rows: list[tuple[object, ...]], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _show(argparse.Namespace(json=as_json), ["stage", "to"], rows, "nothing to do")
    assert capsys.readouterr().out == shown


def test_a_message_names_ten_of_many_chains_and_counts_the_others() -> None:
    assert errors.some_of([]) == "none yet" and errors.some_of([], "none here") == "none here"
    assert errors.some_of({"b": 1, "a": 2}) == "a, b"
    assert errors.some_of(f"shard-{n:04}" for n in range(1024)).endswith(", shard-0008, shard-0009 and 1,014 more")


def test_to_decode_again_each_chain_goes_back_to_before_its_own_first_block() -> None:
    at = datetime(2026, 1, 31, tzinfo=timezone.utc)
    starts = {"demo": -1, "mainnet": 17_999_999}
    view = LedgerView(
        Commit("gold.decoded", name, name, 1, number, "advance", first, first + 9, 1, at)
        for number, (name, first) in enumerate(starts.items())
    )
    given = [build_parser().parse_args(shlex.split(line)[1:]) for line in decode_again(view)]
    assert [(one.command, one.stage, one.chain, int(one.height)) for one in given] == [
        ("rollback", "gold.decoded", name, first) for name, first in starts.items()
    ]
