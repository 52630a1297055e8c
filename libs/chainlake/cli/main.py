"""Entry point: parse, run, turn errors into one line."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from chainlake import __version__
from chainlake.errors import LakeError, first_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = build_parser().parse_args(arguments)
    home = given.home or given.home_before
    if home:
        os.environ["LAKE_HOME"] = home
    return _guarded(given)


_HOME: dict[str, Any] = {"metavar": "DIR", "help": "where the lake lives (default: $LAKE_HOME, else .lake)"}


class WideHelp(argparse.HelpFormatter):
    """Room for the longest command: argparse does not count its indentation and would break the line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = 16


def build_parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    from chainlake.cli import abci, completion, data, doctor, events, jobs, operate, prove, replica, serve, snapshot

    parser = argparse.ArgumentParser(
        prog="lake",
        description="A lakehouse for block-ordered data: block-atomic, reversible, provable.",
        epilog="lake COMMAND --help tells more, with examples.",
        formatter_class=WideHelp,
    )
    parser.add_argument("--home", **_HOME, dest="home_before")  # a command's own default would overwrite the same name
    parser.add_argument("--version", action="version", version=f"chainlake {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (jobs, data, events, operate, prove, serve, abci, snapshot, replica, doctor, completion):
        module.add_commands(commands, _common())
    return parser


def _common() -> argparse.ArgumentParser:
    """Options that every command has."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--home", **_HOME)
    return common


def _guarded(given: argparse.Namespace) -> int:
    try:
        return int(given.run(given) or 0)
    except LakeError as error:
        sys.stderr.write(f"lake: {error}\n")
        return error.exit_code
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    except OSError as error:  # a full disk, a file that may not be read
        sys.stderr.write(f"lake: {first_line(error)}\n")
        return 1
    except Exception as error:
        if not _is_sparks(error):
            raise
        sys.stderr.write(f"lake: Spark refused: {first_line(error)}\n")
        return 1


def _is_sparks(error: Exception) -> bool:
    """Whether Spark raised it. Commands that never load Spark do not wait for it here either."""
    errors = sys.modules.get("pyspark.errors")
    return errors is not None and isinstance(error, errors.PySparkException)


if __name__ == "__main__":
    sys.exit(main())
