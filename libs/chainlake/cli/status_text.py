"""`lake status` for people: first what needs attention, then one line per stage and chain."""

import os
from collections.abc import Mapping
from datetime import datetime
from typing import TextIO

from chainlake.cli.show import printable, table
from chainlake.lake.status import StageStatus, Status

GREEN, YELLOW, RED, PLAIN = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
COLUMNS = ("", "stage", "chain", "head", "behind", "commits", "rollbacks", "changed", "writer", "block")
NEEDED = 5
"""Columns that are always shown."""


def may_colour(stream: TextIO, environment: Mapping[str, str] | None = None) -> bool:
    """Colour only where a person looks at it and wants it (https://no-color.org)."""
    settings = os.environ if environment is None else environment
    return stream.isatty() and not settings.get("NO_COLOR") and settings.get("TERM") != "dumb"


def status_text(status: Status, now: datetime, colour: bool, width: int | None = None) -> str:
    """The whole text, on a terminal as wide as that."""
    if not status.stages:
        return headline(status)
    lines = _fitting([_row(stage, now) for stage in status.stages], width)
    if colour:
        coloured = [f"{_colour(s)}{line}{PLAIN}" for s, line in zip(status.stages, lines[2:], strict=True)]
        lines = [*lines[:2], *coloured]
    stopped = [f"{s.stage} {s.chain} is degraded: {printable(s.reason)}" for s in status.stages if s.health != "ok"]
    return "\n".join([headline(status), "", *lines, "", *stopped, garbage(status, now)])


def garbage(status: Status, now: datetime) -> str:
    """Rows that nobody can see, as they were last counted: to count them reads every table."""
    if status.orphans_at is None:
        return "invisible rows were not counted yet: lake gc --dry-run does"
    when = ago(status.orphans_at, now)
    return f"{status.orphan_rows:,} invisible rows ({status.orphan_bytes:,} bytes), counted {when} by lake gc"


def _fitting(rows: list[tuple[object, ...]], width: int | None, count: int = len(COLUMNS)) -> list[str]:
    """As many columns as there is room for, from the left: lines that a terminal breaks cannot be read at a glance."""
    lines = table(COLUMNS[:count], [row[:count] for row in rows]).splitlines()
    fits = width is None or count == NEEDED or max(map(len, lines)) <= width
    return lines if fits else _fitting(rows, width, count - 1)


def headline(status: Status) -> str:
    """What one wants to know first."""
    if not status.stages:
        return "no chains yet: make run builds the demo, lake ingest takes in one of yours"
    stopped = sum(1 for s in status.stages if s.health != "ok")
    behind = sum(1 for s in status.stages if s.health == "ok" and s.lag)
    writing = sum(1 for s in status.stages if s.writer)
    health = f"{stopped} of {len(status.stages)} stopped, see below" if stopped else f"all {len(status.stages)} healthy"
    pace = f"{behind} behind their inputs" if behind else "all caught up"
    return f"{health}; {pace}" + (f"; {writing} being written now" if writing else "")


def _row(stage: StageStatus, now: datetime) -> tuple[object, ...]:
    numbers = (stage.head, stage.lag, stage.commits, stage.rollbacks)
    block = (stage.block_hash or "")[:12]
    return (_mark(stage), stage.stage, stage.chain, *numbers, ago(stage.updated_at, now), stage.writer or "", block)


def _mark(stage: StageStatus) -> str:
    """Told by a word, so that nobody has to tell colours apart."""
    if stage.health != "ok":
        return "STOP"
    return "behind" if stage.lag else "ok" if stage.seq else "new"


def _colour(stage: StageStatus) -> str:
    return {"STOP": RED, "behind": YELLOW, "ok": GREEN, "new": PLAIN}[_mark(stage)]


def ago(time: str | None, now: datetime) -> str:
    """How long ago, in the unit that says enough."""
    if time is None:
        return "never"
    seconds = max(0, int((now - datetime.fromisoformat(time)).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
