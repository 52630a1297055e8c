"""Entry point: parse, run, turn errors into one line."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from chainlake import __version__
from chainlake.cli.command_tree import subparsers
from chainlake.cli.show import printable
from chainlake.errors import BadInput, LakeError, first_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _open_output()
    given = build_parser().parse_args(arguments)
    home = given.home or given.home_before
    if home:
        os.environ["LAKE_HOME"] = home
    return _guarded(given)


EXAMPLES = """examples:
  lake up
  lake status
  lake sql "SELECT chain, max(height) AS head FROM raw.blocks GROUP BY chain"
  lake rollback raw.logs demo-evm 120 --why "bad source file"
  lake serve --port 8545

More, with examples, is in the help of each: lake COMMAND --help. README.md explains the words."""
REFUSED = f"{BadInput.__module__}.{BadInput.__name__}: "
"""How the reason begins that a function of ours gave on a worker of Spark."""
_HOME: dict[str, Any] = {"metavar": "DIR", "help": "where the lake lives (default: $LAKE_HOME, else the nearest .lake)"}


class WideHelp(argparse.RawDescriptionHelpFormatter):
    """Examples as they are written, to be pasted, and room for the longest command: argparse would break those lines."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = 16


class LakeParser(argparse.ArgumentParser):
    """One form of help for every command, and for the commands below it."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": WideHelp, **given})


def build_parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    from chainlake.cli import abci, completion, data, doctor, events, jobs, operate, prove, replica, serve, snapshot

    parser = LakeParser(
        prog="lake",
        description="A lakehouse for block-ordered data: block-atomic, reversible, provable.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--home", **_HOME, dest="home_before")  # a command's own default would overwrite the same name
    parser.add_argument("--version", action="version", version=f"chainlake {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (jobs, data, events, operate, prove, serve, abci, snapshot, replica, doctor, completion):
        module.add_commands(commands, _common())
    _describe(parser)
    return parser


def _describe(parser: argparse.ArgumentParser) -> None:
    """What a list of commands says of each also stands at the top of its own help."""
    below = subparsers(parser)
    if below is None:
        return
    for shown in below._choices_actions:
        below.choices[shown.dest].description = shown.help
        _describe(below.choices[shown.dest])


def _common() -> argparse.ArgumentParser:
    """Options that every command has."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--home", **_HOME)
    return common


def _open_output() -> None:
    """No character ends a command: a terminal without Unicode shows `\\u2500`. Output that was closed goes nowhere."""
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _guarded(given: argparse.Namespace) -> int:
    try:
        code = int(given.run(given) or 0)
        sys.stdout.flush()
        return code
    except LakeError as error:
        sys.stderr.write(f"lake: {printable(str(error))}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stdout = _nowhere()  # or Python would try again at its end, and complain
        return 141
    except OSError as error:  # a full disk, a file that may not be read
        sys.stdout = _nowhere()
        sys.stderr.write(f"lake: {first_line(error)}\n")
        return 1
    except Exception as error:
        if not _is_sparks(error):
            raise
        from chainlake.jobs.failure import one_line

        why = one_line(type(error).__name__, str(error))
        if why.startswith(REFUSED):  # by a function of ours inside of Spark
            sys.stderr.write(f"lake: {printable(why.removeprefix(REFUSED))}\n")
            return BadInput.exit_code
        sys.stderr.write(f"lake: Spark refused: {why}\n")
        return 1


def _is_sparks(error: Exception) -> bool:
    """Whether Spark raised it. Commands that never load Spark do not wait for it here either."""
    errors = sys.modules.get("pyspark.errors")
    return errors is not None and isinstance(error, errors.PySparkException)


if __name__ == "__main__":
    sys.exit(main())
