"""Completion scripts of bash, zsh and fish for a list of commands. They are static: pressing Tab starts no Python."""

from collections.abc import Callable, Iterable, Sequence

from chainlake.cli.command_tree import Argument, Command, Option

BASH = """# Completion of lake for bash: put `source <(lake completion bash)` into ~/.bashrc
_lake() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" command="" option="" index=0 i word
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${{COMP_WORDS[i]}}"
    if [[ -n $option ]]; then option=""; continue; fi
    case "$command $word" in
{valued}
      *" -"*) ;;
      *) if [[ -z $command ]]; then command="$word"; else index=$((index + 1)); fi ;;
    esac
  done
  if [[ -n $option ]]; then
    case "$command $option" in
{option_values}
    esac
    return
  fi
  if [[ $cur == -* ]]; then
    case "$command" in
{options}
    esac
    return
  fi
  case "$command $index" in
{positionals}
  esac
}}
complete -F _lake lake
"""

ZSH = """#compdef lake
# Completion of lake for zsh: put `source <(lake completion zsh)` into ~/.zshrc, after compinit
_lake() {{
  local -a commands
  commands=(
{commands}
  )
  local state line
  _arguments -C '--home[where the lake lives]: :_files' --help --version '1: :->command' '*:: :->rest'
  if [[ $state == command ]]; then
    _describe 'command' commands
    return
  fi
  case "$words[1]" in
{cases}
  esac
}}
compdef _lake lake
"""

FISH_HEADER = """# Completion of lake for fish: lake completion fish > ~/.config/fish/completions/lake.fish
complete -c lake -f
"""
BEFORE = (
    Option(("--home",), "where the lake lives", Argument(is_path=True)),
    Option(("--version",), ""),
    Option(("--help",), ""),
)
"""Options that may stand before a command."""


def bash(commands: Sequence[Command]) -> str:
    """For bash 4 and later."""
    anywhere = [Command("", "", "", BEFORE, ()), *commands]
    valued = [(c, o) for c in anywhere for o in c.options if o.argument]
    names = [f"{c.name} {flag}" for c, o in valued for flag in o.flags]
    lines = {
        "valued": f'      {_alternatives(names)}) option="$word" ;;',
        "option_values": _lines(
            f"      {_alternatives(f'{c.name} {flag}' for flag in o.flags)}) {_compgen(o.argument)} ;;"
            for c, o in valued
            if o.argument and (o.argument.values or o.argument.is_path)
        ),
        "options": _lines(f'      "{c.name}") {_words(_long_flags(c))} ;;' for c in anywhere),
        "positionals": _lines(
            [f'    " 0") {_words(c.name for c in commands)} ;;']
            + [
                f'    "{c.name} {index}") {_compgen(argument)} ;;'
                for c in commands
                for index, argument in enumerate(c.positionals)
                if argument.values or argument.is_path
            ]
        ),
    }
    return BASH.format(**lines)


def _long_flags(command: Command) -> list[str]:
    return [flag for option in command.options for flag in option.flags if flag.startswith("--")]


def _compgen(argument: Argument) -> str:
    return 'COMPREPLY=($(compgen -f -- "$cur"))' if argument.is_path else _words(argument.values)


def _words(values: Iterable[str]) -> str:
    return f"COMPREPLY=($(compgen -W '{' '.join(values)}' -- \"$cur\"))"


def _alternatives(names: Iterable[str]) -> str:
    return " | ".join(f'"{name}"' for name in names)


def zsh(commands: Sequence[Command]) -> str:
    """For zsh with its completion system on."""
    listed = _lines(f"    {_single(c.name + ':' + c.help)}" for c in commands)
    cases = _lines(f"    {c.name})\n      _arguments {' '.join(_zsh_specs(c))} ;;" for c in commands)
    return ZSH.format(commands=listed, cases=cases)


def _zsh_specs(command: Command) -> list[str]:
    options = [_zsh_option(option, flag) for option in command.options for flag in option.flags]
    return options + [_single(f"{i}:: :{_zsh_action(a)}") for i, a in enumerate(command.positionals, 1)]


def _zsh_option(option: Option, flag: str) -> str:
    text = option.help.replace("\\", "").replace("[", "(").replace("]", ")").replace(":", "\\:")
    value = f": :{_zsh_action(option.argument)}" if option.argument else ""
    return _single(f"*{flag}[{text}]{value}")


def _zsh_action(argument: Argument) -> str:
    if argument.is_path:
        return "_files"
    return f"({' '.join(argument.values)})" if argument.values else " "


def fish(commands: Sequence[Command]) -> str:
    """For fish 3 and later."""
    first = f"-n 'not __fish_seen_subcommand_from {' '.join(c.name for c in commands)}'"
    lines = [f"complete -c lake {first} -a {c.name} -d {_fish(c.help)}" for c in commands]
    lines += [f"complete -c lake {first} {_fish_option(option)}" for option in BEFORE]
    for command in commands:
        condition = f"-n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            lines.append(f"complete -c lake {condition} {_fish_option(option)}")
        for values in (a.values for a in command.positionals if a.values):
            lines.append(f"complete -c lake {condition} -a {_fish(' '.join(values))}")
    return FISH_HEADER + "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
    takes = ""
    if option.argument:
        takes = " -r -F" if option.argument.is_path else " -x"
        takes += f" -a {_fish(' '.join(option.argument.values))}" if option.argument.values else ""
    return f"{names}{takes} -d {_fish(option.help)}"


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _single(text: str) -> str:
    """Quoted for zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: dict[str, Callable[[Sequence[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
