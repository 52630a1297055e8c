"""Telling what a long run does: a bar on a terminal, a line per commit in a notebook, one JSON line per step otherwise."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, Any, TypeVar

from chainlake.lake.clock import now

BAR = 24
AT_ONCE = 4
SAID = ("why", "error", "what")
"""Fields of a step that are texts for people."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Progress:
    """Progress of one stage over some chains, or of other work over things of one kind."""

    def __init__(self, stage: str, total: int | None = None, stream: IO[str] | None = None, unit: str = "blocks") -> None:
        self._stage = stage
        self._total = total
        self._unit = unit
        self._done = 0
        self._is_notebook = stream is None and in_notebook()
        self._stream = stream or (sys.stdout if self._is_notebook else sys.stderr)
        self._steps: tuple[str, list[str]] = ("", [])
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self.is_terminal = self._stream.isatty()

    def phase(self, phase: str, seconds: float, **fields: object) -> None:
        """One step is done. Not shown on a terminal, where the bar moves."""
        if self._is_notebook:
            self._note(phase, seconds, fields)
        elif not self.is_terminal:
            line = {"at": now().isoformat(timespec="milliseconds"), "stage": self._stage, **fields, "phase": phase}
            self._write(json.dumps({**line, "seconds": round(seconds, 3)}) + "\n")

    def _note(self, phase: str, seconds: float, fields: Mapping[str, object]) -> None:
        """The steps of a commit become one line, written when it is complete or something else begins."""
        chain, height = fields.get("chain"), fields.get("height")
        about = self._stage + (f" {chain}" if chain else "") + (f", block {height}" if height is not None else "")
        if about != self._steps[0]:
            self._tell_steps()
            self._steps = (about, [])
        told = [f" ({fields[name]})" for name in SAID if fields.get(name)]
        self._steps[1].append(f"{phase} {seconds:.1f} s{''.join(told)}")

    def _tell_steps(self) -> None:
        about, steps = self._steps
        self._steps = ("", [])
        if steps:
            self._write(f"{about}: {', '.join(steps)}\n")

    def advance(self, blocks: int, total: int | None = None) -> None:
        """More blocks are committed."""
        self._tell_steps()
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
        self._tell_steps()
        if self.is_terminal and self._done:
            self._write("\n")

    def _write(self, text: str) -> None:
        with self._lock:
            self._stream.write(text)
            self._stream.flush()


def in_notebook() -> bool:
    """Whether what is printed stands below a cell: in Jupyter, on Databricks, in the copies that `lake run` keeps."""
    return type(sys.stdout).__module__.partition(".")[0] == "ipykernel"


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
