"""control.runs: what each batch took. Written beside the work, never in its way."""

from collections.abc import Mapping
from typing import Any

from chainlake.lake.control import ControlTables

BATCH = 50


class Runs:
    """Collects metrics rows and writes them when a run ends, or when there are many."""

    def __init__(self, control: ControlTables) -> None:
        self._control = control
        self._rows: list[Mapping[str, Any]] = []

    def add(self, **row: Any) -> None:
        self._rows.append(row)
        if len(self._rows) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Write what was collected."""
        rows, self._rows = self._rows, []
        if rows:
            self._control.append("runs", rows)
