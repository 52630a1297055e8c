"""What a person needs to know of a notebook that failed: where, and one line of why. Not a wall of Java."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chainlake.errors import BadInput, CheckFailed

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
JAVA_WALL = re.compile(r"^\s*(JVM stacktrace:|Driver stacktrace:|at [\w$.<>/]+\()", re.MULTILINE)
PYTHON_TRACEBACK = "Traceback (most recent call last)"
LONGEST = 400
SHOWN_LINES = 3


class NotebookFailed(CheckFailed):
    """A cell raised, or the kernel died. `source` is the start of the cell, `copy` the notebook as executed."""

    def __init__(self, notebook: Path, cell: int, source: str, reason: str, copy: Path) -> None:
        self.notebook = notebook
        self.cell = cell
        self.source = source
        self.reason = reason
        self.copy = copy
        super().__init__(f"{notebook.name} cell {cell} failed: {reason}; see {copy}")

    @property
    def is_final(self) -> bool:
        """Whether the same again would fail in the same way: what the notebook was given was refused."""
        return self.reason.startswith(f"{BadInput.__name__}:")


class NotebookTimedOut(NotebookFailed):
    """The notebook took longer than its task allows."""


@dataclass
class Position:
    """The code cell that runs now, counted from 1 as people do."""

    cell: int = 0
    source: str = ""

    def move_to(self, cell: Any) -> None:
        if cell.cell_type == "code":
            self.cell += 1
            self.source = "\n".join(cell.source.strip().splitlines()[:SHOWN_LINES])


def one_line(name: str, message: str) -> str:
    """The line of an exception that says what went wrong.

    Spark puts the reason first and stack traces after it. When a function on a worker raised, the reason is the last
    line of the Python traceback inside the message, and carries that exception's own name.
    """
    text = JAVA_WALL.split(ANSI.sub("", message), maxsplit=1)[0]
    _, found, traceback = text.partition(PYTHON_TRACEBACK)
    if found:
        raised = [line for line in traceback.splitlines()[1:] if line.strip() and not line.startswith((" ", "\t"))]
        if raised:
            return raised[-1].strip()[:LONGEST]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{name}: {lines[0]}"[:LONGEST] if lines else name
