"""`lake completion`: Tab for commands, options, stages and jobs."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from chainlake.cli.show import emit
from chainlake.errors import LakeError

SHELLS = ("bash", "zsh", "fish")


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    completion = commands.add_parser(
        "completion",
        parents=[common],
        help="a script that lets your shell complete commands, options, stages and jobs",
        epilog="example: lake completion bash > ~/.local/share/bash-completion/completions/lake",
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell that is to complete")
    completion.set_defaults(run=_completion)


def _completion(given: argparse.Namespace) -> int:
    from chainlake.cli.command_tree import read_commands
    from chainlake.cli.completion_scripts import SHELLS as SCRIPTS
    from chainlake.cli.main import build_parser

    emit(SCRIPTS[given.shell](read_commands(build_parser(), known_names())).rstrip("\n"))
    return 0


def known_names() -> dict[str, Sequence[str]]:
    """What may stand for arguments that the parser leaves open."""
    from chainlake.bench import BENCHMARKS
    from chainlake.demo.write import SIZES
    from chainlake.sources.formats import DOMAIN_OF
    from chainlake.stages import all_stages

    return {
        "stage": [stage.name for stage in all_stages()],
        "job": _where_possible(_jobs),
        "domain": tuple(SIZES["small"]),
        "size": tuple(SIZES),
        "kind": tuple(DOMAIN_OF),
        "name": tuple(BENCHMARKS),
    }


def _jobs() -> Sequence[str]:
    from chainlake.jobs.bundle import load_bundle

    return tuple(load_bundle().jobs)


def _where_possible(names: Callable[[], Sequence[str]]) -> Sequence[str]:
    """Jobs are known only in a checkout; elsewhere nothing is completed."""
    try:
        return names()
    except LakeError:
        return ()
