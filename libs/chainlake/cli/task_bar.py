"""What a person sees while `lake run` and `lake up` work: how many tasks are done, which one runs and for how long."""

import sys
import threading
import time
from types import TracebackType
from typing import IO

from chainlake.cli.show import seconds
from chainlake.lake.progress import BAR

EVERY = 1.0


class TaskBar:
    """A bar on a terminal, moving each second; elsewhere nothing. Lines of text are written above it."""

    def __init__(self, total: int, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total = total
        self._done = 0
        self._task, self._since = "", 0.0
        self._is_terminal = self._stream.isatty()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def __enter__(self) -> "TaskBar":
        if self._is_terminal:
            threading.Thread(target=self._move, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._ended.set()
            self._clear()

    def started(self, task: str) -> None:
        """A task runs from now on."""
        self._task, self._since = task, time.monotonic()

    def ended(self) -> None:
        """One of the tasks that are counted is over."""
        self._done += 1
        self._task = ""

    def write(self, line: str, out: IO[str]) -> None:
        """A line of text, in place of the bar until it moves again."""
        with self._lock:
            self._clear()
            out.write(line + "\n")
            out.flush()

    def line(self) -> str:
        """The bar."""
        filled = round(BAR * self._done / max(1, self._total))
        running = f"  {self._task} {seconds(time.monotonic() - self._since)}" if self._task else ""
        return f"{'█' * filled}{'░' * (BAR - filled)}  {self._done}/{self._total} tasks{running}"

    def _move(self) -> None:
        while not self._ended.wait(EVERY):
            with self._lock:
                if not self._ended.is_set():
                    self._show("\r" + self.line() + "\x1b[K")

    def _clear(self) -> None:
        if self._is_terminal:
            self._show("\r\x1b[K")

    def _show(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
