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
    hard_manifests: int = 500_000
    """Of manifests and tails of the log index, those of attempts that never committed are counted apart: a killed bulk load
    leaves many."""
    hard_tails: int = 1_000_000


def limits_from_environment() -> Limits:
    """LAKE_ORPHAN_HARD_BYTES, _ROWS, _MANIFESTS and _TAILS; slow down from half of them."""
    default = Limits()
    hard_bytes = _number("LAKE_ORPHAN_HARD_BYTES", default.hard_bytes)
    hard_rows = _number("LAKE_ORPHAN_HARD_ROWS", default.hard_rows)
    pause = _number("LAKE_ORPHAN_PAUSE", default.pause_seconds)
    manifests = _number("LAKE_ORPHAN_HARD_MANIFESTS", default.hard_manifests)
    tails = _number("LAKE_ORPHAN_HARD_TAILS", default.hard_tails)
    halves = int(hard_bytes / 2), int(hard_bytes), int(hard_rows / 2), int(hard_rows)
    return Limits(*halves, pause, int(manifests), int(tails))


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, str(default))
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"${name} is {text!r}: a number is expected") from None


class Guardrail:
    """Checks the latest measurement in control.orphans, and what was left since."""

    def __init__(self, control: ControlTables, limits: Limits | None = None, sleep: Callable[[float], None] = time.sleep) -> None:
        self._control = control
        self._limits = limits or limits_from_environment()
        self._sleep = sleep

    def check(self, stage: str, abandoned: Callable[[datetime | None], tuple[int, int]]) -> None:
        """Return at once, after a pause, or not at all. `abandoned` tells rows and bytes that were left since the measurement."""
        latest, limits = self._latest(), self._limits
        more = abandoned(latest[0]["at"] if latest else None)
        rows, size = (sum(pair) for pair in zip(_total(latest), more, strict=True))
        if rows > limits.hard_rows or size > limits.hard_bytes:
            raise TooManyOrphans(
                f"{stage} does not write: {rows:,} invisible rows ({size:,} bytes) are more than {limits.hard_rows:,} rows or"
                f" {limits.hard_bytes:,} bytes; run lake gc"
            )
        parts = {"manifests": limits.hard_manifests, "tails": limits.hard_tails}
        left = {part: _orphans_of(latest, f"gold_log_{part}") for part in parts}
        for part, limit in parts.items():
            if left[part] > limit:
                raise TooManyOrphans(
                    f"{stage} does not write: {left[part]:,} {part} of the log index that no commit has are more than {limit:,};"
                    " run lake gc"
                )
        rising = any(left[part] > limit / 2 for part, limit in parts.items())
        if rising or rows > limits.soft_rows or size > limits.soft_bytes:
            self._sleep(limits.pause_seconds)

    def measured(self) -> tuple[int, int]:
        """Invisible rows and bytes at the last measurement."""
        return _total(self._latest())

    def _latest(self) -> list[dict[str, Any]]:
        rows = self._control.read("orphans")
        last = max((row["at"] for row in rows), default=None)
        return [row for row in rows if row["at"] == last]


def _total(measured: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    return sum(row["rows"] for row in measured), sum(row["bytes"] for row in measured)


def _orphans_of(measured: Sequence[Mapping[str, Any]], table: str) -> int:
    """Rows of a table, and of its merged form, that attempts left which never committed."""
    return sum(row["rows"] for row in measured if row["table_name"] in (table, f"{table}_merged") and row["kind"] == ORPHAN)
