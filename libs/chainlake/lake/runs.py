"""control.runs: what each batch took. Written beside the work, never in its way."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from chainlake.lake.control import ControlTables

BATCH = 50


class Runs:
    """Collects metrics rows and writes them when a run ends, or when there are many."""

    def __init__(self, control: ControlTables) -> None:
        self._control = control
        self._rows: list[Mapping[str, Any]] = []
        self._pool = ThreadPoolExecutor(1)
        self._writes: list[Future[None]] = []

    def add(self, **row: Any) -> None:
        self._rows.append(row)
        if len(self._rows) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Begin to write what was collected."""
        rows, self._rows = self._rows, []
        if rows:
            self._writes.append(self._pool.submit(self._control.append, "runs", rows))

    def close(self) -> None:
        """Write the rest and wait until all is written."""
        self.flush()
        writes, self._writes = self._writes, []
        for write in writes:
            write.result()
