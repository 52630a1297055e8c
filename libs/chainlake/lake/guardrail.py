"""Invisible rows must not pile up: above the soft limit writers slow down, above the hard one they stop until `lake gc` ran."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chainlake.errors import BadInput, LakeError
from chainlake.lake.control import ControlTables
from chainlake.lake.gc import ORPHAN
from chainlake.lake.names import physical
from chainlake.lake.stage import OrphanLimit


class TooManyOrphans(LakeError):
    """Garbage collection does not keep up; writers stop rather than fill the disk."""


@dataclass(frozen=True)
class Limits:
    """When to slow down and when to stop."""

    soft_bytes: int = 16 << 30
    hard_bytes: int = 32 << 30
    soft_rows: int = 50_000_000
    hard_rows: int = 100_000_000
    pause_seconds: float = 5.0


def limits_from_environment() -> Limits:
    """LAKE_ORPHAN_HARD_BYTES and _ROWS; slow down from half of them."""
    default = Limits()
    hard_bytes = number_from_environment("LAKE_ORPHAN_HARD_BYTES", default.hard_bytes)
    hard_rows = number_from_environment("LAKE_ORPHAN_HARD_ROWS", default.hard_rows)
    pause = number_from_environment("LAKE_ORPHAN_PAUSE", default.pause_seconds)
    return Limits(int(hard_bytes / 2), int(hard_bytes), int(hard_rows / 2), int(hard_rows), pause)


def number_from_environment(name: str, default: float) -> float:
    """A limit that an operator may have set."""
    text = os.environ.get(name, str(default))
    try:
        number = float(text)
    except ValueError:
        raise BadInput(f"${name} is {text!r}: a number is expected") from None
    if not 0 <= number < float("inf"):
        raise BadInput(f"${name} is {text!r}: a number of 0 or more is expected")
    return number


class Guardrail:
    """Checks the latest measurement in control.orphans, and what was left since."""

    def __init__(self, control: ControlTables, limits: Limits | None = None, sleep: Callable[[float], None] = time.sleep) -> None:
        self._control = control
        self._limits = limits or limits_from_environment()
        self._sleep = sleep

    def check(self, stage: str, abandoned: Callable[[datetime | None], tuple[int, int]], own: Sequence[OrphanLimit] = ()) -> None:
        """Return at once, after a pause, or not at all. `abandoned` tells rows and bytes that were left since the measurement,
        `own` are the stage's own limits."""
        latest, limits = self._latest(), self._limits
        more = abandoned(latest[0]["at"] if latest else None)
        rows, size = (sum(pair) for pair in zip(_total(latest), more, strict=True))
        if rows > limits.hard_rows or size > limits.hard_bytes:
            raise TooManyOrphans(
                f"{stage} does not write: {rows:,} invisible rows ({size:,} bytes) are more than {limits.hard_rows:,} rows or"
                f" {limits.hard_bytes:,} bytes; run lake gc"
            )
        left = [(limit, _orphans_of(latest, limit.tables)) for limit in own]
        for limit, count in left:
            if count > limit.most:
                raise TooManyOrphans(
                    f"{stage} does not write: {count:,} {limit.what} that no commit has are more than {limit.most:,}; run lake gc"
                )
        rising = any(count > limit.most / 2 for limit, count in left)
        if rising or rows > limits.soft_rows or size > limits.soft_bytes:
            self._sleep(limits.pause_seconds)

    def measured(self) -> tuple[int, int, datetime | None]:
        """Invisible rows and bytes at the last measurement, and when that was; None if there was none yet."""
        latest = self._latest()
        return (*_total(latest), latest[0]["at"] if latest else None)

    def _latest(self) -> list[dict[str, Any]]:
        rows = self._control.read("orphans")
        last = max((row["at"] for row in rows), default=None)
        return [row for row in rows if row["at"] == last]


def _total(measured: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    return sum(row["rows"] for row in measured), sum(row["bytes"] for row in measured)


def _orphans_of(measured: Sequence[Mapping[str, Any]], tables: Sequence[str]) -> int:
    """Rows of some tables that attempts left which never committed."""
    names = {physical(name) for name in tables}
    return sum(row["rows"] for row in measured if row["table_name"] in names and row["kind"] == ORPHAN)
