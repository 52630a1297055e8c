"""Invisible rows must not pile up: above the soft limit writers slow down, above the hard one they stop until `lake gc` ran."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from chainlake.errors import BadInput, LakeError
from chainlake.lake.control import ControlTables


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
    """LAKE_ORPHAN_HARD_BYTES and LAKE_ORPHAN_HARD_ROWS; slow down from half of them."""
    default = Limits()
    hard_bytes = _number("LAKE_ORPHAN_HARD_BYTES", default.hard_bytes)
    hard_rows = _number("LAKE_ORPHAN_HARD_ROWS", default.hard_rows)
    pause = _number("LAKE_ORPHAN_PAUSE", default.pause_seconds)
    return Limits(int(hard_bytes / 2), int(hard_bytes), int(hard_rows / 2), int(hard_rows), pause)


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, str(default))
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"${name} is {text!r}: a number is expected") from None


class Guardrail:
    """Checks the latest measurement of control.orphans."""

    def __init__(self, control: ControlTables, limits: Limits | None = None, sleep: Callable[[float], None] = time.sleep) -> None:
        self._control = control
        self._limits = limits or limits_from_environment()
        self._sleep = sleep

    def check(self, stage: str) -> None:
        """Return at once, after a pause, or not at all."""
        rows, size = self.measured()
        limits = self._limits
        if rows > limits.hard_rows or size > limits.hard_bytes:
            raise TooManyOrphans(
                f"{stage} does not write: {rows:,} invisible rows ({size:,} bytes) are more than {limits.hard_rows:,} rows or"
                f" {limits.hard_bytes:,} bytes; run lake gc"
            )
        if rows > limits.soft_rows or size > limits.soft_bytes:
            self._sleep(limits.pause_seconds)

    def measured(self) -> tuple[int, int]:
        """Invisible rows and bytes at the last measurement."""
        rows = self._control.read("orphans")
        last = max((row["at"] for row in rows), default=None)
        latest = [row for row in rows if row["at"] == last]
        return sum(row["rows"] for row in latest), sum(row["bytes"] for row in latest)
