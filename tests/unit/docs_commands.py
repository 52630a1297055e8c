"""The commands that README and docs show, as a reader would type them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chainlake.paths import project_root

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUOTED = r"'[^']*'|\"[^\"]*\""
PLACEHOLDERS = {
    "STAGE": "raw.logs",
    "CHAIN": "demo-evm",
    "HEIGHT": "5",
    "N": "5",
    "DAYS": "7",
    "TIME": "2026-01-31T12:00:00Z",
    "TEXT": "because",
    "NAME": "mychain",
    "KIND": "evm",
    "JOB": "logs",
    "FILE": "out.json",
    "DIR": "somewhere",
    "DOMAIN": "logs",
    "PATH|URL": "blocks.jsonl",
    "KEY=VALUE": "finalized=true",
    "0x…": "0x" + "5a" * 20,
}


@dataclass(frozen=True)
class Shown:
    """One command, and where it stands."""

    where: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where}: lake {shlex.join(self.arguments)}"


def documents() -> list[Path]:
    root = project_root()
    return [root / "README.md", *sorted((root / "docs").glob("*.md")), root / "notebooks" / "README.md"]


def blocks(text: str, *languages: str) -> Iterator[tuple[int, str]]:
    """Fenced blocks in a language, with the line they begin at."""
    for match in FENCE.finditer(text):
        if match.group(1) in languages:
            yield text[: match.start()].count("\n") + 2, match.group(2)


def json_fields() -> dict[str, set[str]]:
    """The fields that docs/operations.md promises for `lake COMMAND --json`, without those of nested values."""
    section = (
        (project_root() / "docs" / "operations.md").read_text(encoding="utf-8").split("## JSON for scripts")[1].split("\n## ")[0]
    )
    rows = re.findall(r"^\| `lake ([a-z]+)` \| .*? \| (.*) \|$", section, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", re.sub(r" \([^)]*\)", "", fields))) for name, fields in rows}


def commands() -> list[Shown]:
    """Every `lake …` in a block of commands. A synopsis counts twice: without its optional parts, and with them."""
    found = []
    for path in documents():
        for start, block in blocks(path.read_text(encoding="utf-8"), "", "bash", "sh", "console"):
            for number, line in enumerate(block.splitlines(), start):
                for arguments in dict.fromkeys(form for text in _commands_of(line) for form in _forms(text)):
                    found.append(Shown(f"{path.name}:{number}", arguments))
    return found


def _commands_of(line: str) -> list[str]:
    """Commands of a line, without comments and explanations."""
    text = re.sub(r"^(\$ |\w+=\S* )+", "", line.strip())
    text = re.sub(r"\s+# .*$", "", text)
    text = re.split(r"\s{3,}", text)[0]
    parts = re.split(r" && | \| (?=lake )", text)
    return [re.sub(r"^\S*bin/lake ", "lake ", part).strip() for part in parts if re.match(r"(\S*bin/)?lake [a-z]", part.strip())]


def _forms(text: str) -> list[tuple[str, ...]]:
    """The command without and with its optional parts, placeholders filled in."""
    text = text.replace(" …", "").split(" > ")[0]
    quoted = re.findall(QUOTED, text)
    numbers = iter(range(len(quoted)))
    bare = re.sub(QUOTED, lambda match: f"\0{next(numbers)}\0", text)
    short = bare
    while "[" in short and short != (shorter := re.sub(r"\s*\[[^][]*\]", "", short)):
        short = shorter
    both = (short, re.sub(r"[][]", "", bare))
    return [_filled(re.sub(r"\0(\d+)\0", lambda match: quoted[int(match.group(1))], form)) for form in both]


def _filled(text: str) -> tuple[str, ...]:
    return tuple(PLACEHOLDERS.get(word, word) for word in shlex.split(text)[1:])
