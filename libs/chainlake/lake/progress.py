"""Telling what a long run does: a bar on a terminal, one JSON line per step otherwise."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, Any, TypeVar

from chainlake.lake.clock import now

BAR = 24
AT_ONCE = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


class Progress:
    """Progress of one stage over some chains, or of other work over things of one kind."""

    def __init__(self, stage: str, total: int | None = None, stream: IO[str] | None = None, unit: str = "blocks") -> None:
        self._stage = stage
        self._total = total
        self._unit = unit
        self._done = 0
        self._stream = stream or sys.stderr
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self.is_terminal = self._stream.isatty()

    def phase(self, phase: str, seconds: float, **fields: object) -> None:
        """One step is done. Not shown on a terminal, where the bar moves."""
        if not self.is_terminal:
            line = {"at": now().isoformat(timespec="milliseconds"), "stage": self._stage, **fields, "phase": phase}
            self._write(json.dumps({**line, "seconds": round(seconds, 3)}) + "\n")

    def advance(self, blocks: int, total: int | None = None) -> None:
        """More blocks are committed."""
        with self._lock:
            self._done += blocks
            self._total = total if total is not None else self._total
        if self.is_terminal:
            self._write("\r" + self.line() + "\x1b[K")

    def clear(self) -> None:
        """Take the bar away, so that a line of text can stand in its place."""
        if self.is_terminal:
            self._write("\r\x1b[K")

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, one after the other, the bar moving on after each."""
        for item in items:
            yield item
            self.advance(1)
        self.close()

    def line(self) -> str:
        """The bar: how much is done, how fast, and the time left."""
        rate = self._done / max(time.monotonic() - self._started, 1e-9)
        if not self._total:
            return f"{self._stage}  {self._done:,} {self._unit}  {self._pace(rate)}"
        filled = round(BAR * min(1.0, self._done / self._total))
        left = max(0, self._total - self._done) / rate if rate else 0
        bar = "█" * filled + "░" * (BAR - filled)
        return f"{self._stage}  {bar}  {self._done:,}/{self._total:,} {self._unit}  {self._pace(rate)}  {left:.0f} s left"

    def _pace(self, rate: float) -> str:
        return f"{rate:,.0f} {self._unit}/s" if rate >= 1 or not rate else f"{1 / rate:,.0f} s each"

    def close(self) -> None:
        if self.is_terminal and self._done:
            self._write("\n")

    def _write(self, text: str) -> None:
        with self._lock:
            self._stream.write(text)
            self._stream.flush()


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], name: str, unit: str) -> list[Result]:
    """The work done on every item, a few at once, with a bar on a terminal. Results are in the order of the items."""
    progress = Progress(name, len(items), unit=unit)

    def one(item: Item) -> Result:
        try:
            return work(item)
        finally:
            progress.advance(1)

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(one, items))
    finally:
        progress.close()


@contextmanager
def of_query(spark: Any, stream: IO[str] | None = None) -> Iterator[None]:
    """On a terminal, a bar of Spark's tasks while a query is answered, as Spark Connect tells of them; then it is taken away."""
    progress = Progress("sql", stream=stream, unit="tasks")
    if not progress.is_terminal or not type(spark).__module__.startswith("pyspark.sql.connect"):
        yield
        return
    told = 0

    def show(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        nonlocal told
        if known := list(stages or ()):
            completed = sum(stage.num_completed_tasks for stage in known)
            progress.advance(completed - told, sum(stage.num_tasks for stage in known))
            told = completed

    spark.registerProgressHandler(show)
    try:
        yield
    finally:
        spark.removeProgressHandler(show)
        progress.clear()
