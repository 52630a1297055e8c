"""The commands as data, read from the argument parser: what completion scripts and tests are made from."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PATH_METAVARS = ("DIR", "FILE", "PATH", "PATH|URL")


@dataclass(frozen=True)
class Argument:
    """A positional argument, or the value of an option."""

    values: tuple[str, ...] = ()
    """What may stand here; empty if that is not known."""
    is_path: bool = False


@dataclass(frozen=True)
class Option:
    """An option by its names; `argument` is None for a switch."""

    flags: tuple[str, ...]
    help: str
    argument: Argument | None = None


@dataclass(frozen=True)
class Command:
    """One command."""

    name: str
    help: str
    example: str
    options: tuple[Option, ...]
    positionals: tuple[Argument, ...]


Names = Mapping[str, Sequence[str]]
"""What may stand for an argument, by its name (`stage`, `job`, …), where the parser leaves it open."""


def read_commands(parser: argparse.ArgumentParser, names: Names) -> list[Command]:
    """All commands of a parser, in its order."""
    commands = subparsers(parser)
    if commands is None:
        return []
    helps = {action.dest: action.help or "" for action in commands._choices_actions}
    return [_command(name, helps.get(name, ""), sub, names) for name, sub in commands.choices.items()]


def _command(name: str, text: str, parser: argparse.ArgumentParser, names: Names) -> Command:
    actions = _actions(parser)
    options = {tuple(a.option_strings): _option(a, names) for a in actions if a.option_strings}
    positionals = tuple(_argument(action, names) for action in parser._actions if not action.option_strings)
    return Command(name, text, _example(parser), tuple(options.values()), positionals)


def _example(parser: argparse.ArgumentParser) -> str:
    """Its own, or that of the first command below it."""
    below = subparsers(parser)
    return parser.epilog or next((_example(sub) for sub in below.choices.values()), "") if below else parser.epilog or ""


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Those of a command and of the commands below it."""
    below = subparsers(parser)
    nested = [] if below is None else [action for sub in below.choices.values() for action in _actions(sub)]
    return [*parser._actions, *(action for action in nested if action.option_strings)]


def subparsers(parser: argparse.ArgumentParser) -> "argparse._SubParsersAction[argparse.ArgumentParser] | None":
    """The commands below a parser, if it has some."""
    return next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)


def _option(action: argparse.Action, names: Names) -> Option:
    switch = action.nargs == 0
    return Option(tuple(action.option_strings), action.help or "", None if switch else _argument(action, names))


def _argument(action: argparse.Action, names: Names) -> Argument:
    open_names = names.get(action.dest, ()) if action.type is None else ()
    values = tuple(map(str, action.choices or open_names))
    return Argument(values, not values and str(action.metavar) in PATH_METAVARS)
