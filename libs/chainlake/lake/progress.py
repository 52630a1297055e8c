"""Telling what a long run does: a bar on a terminal, one JSON line per step otherwise."""

import json
import sys
import threading
import time
from typing import IO

from chainlake.lake.clock import now

BAR = 24


class Progress:
    """Progress of one stage over some chains."""

    def __init__(self, stage: str, total: int | None = None, stream: IO[str] | None = None) -> None:
        self._stage = stage
        self._total = total
        self._done = 0
        self._stream = stream or sys.stderr
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._is_terminal = self._stream.isatty()

    def phase(self, phase: str, seconds: float, **fields: object) -> None:
        """One step is done. Not shown on a terminal, where the bar moves."""
        if not self._is_terminal:
            line = {"at": now().isoformat(timespec="milliseconds"), "stage": self._stage, **fields, "phase": phase}
            self._write(json.dumps({**line, "seconds": round(seconds, 3)}) + "\n")

    def advance(self, blocks: int, total: int | None = None) -> None:
        """More blocks are committed."""
        self._done += blocks
        self._total = total if total is not None else self._total
        if self._is_terminal:
            self._write("\r" + self.line() + "\x1b[K")

    def line(self) -> str:
        """The bar: blocks, blocks/s and the time left."""
        rate = self._done / max(time.monotonic() - self._started, 1e-9)
        if not self._total:
            return f"{self._stage}  {self._done:,} blocks  {rate:,.0f} blocks/s"
        filled = round(BAR * min(1.0, self._done / self._total))
        left = max(0, self._total - self._done) / rate if rate else 0
        bar = "█" * filled + "░" * (BAR - filled)
        return f"{self._stage}  {bar}  {self._done:,}/{self._total:,} blocks  {rate:,.0f} blocks/s  {left:.0f} s left"

    def close(self) -> None:
        if self._is_terminal and self._done:
            self._write("\n")

    def _write(self, text: str) -> None:
        with self._lock:
            self._stream.write(text)
            self._stream.flush()
