"""One line of JSON on standard error for every call. A reader that does not keep up loses lines, never the gateway its pace."""

import json
import sys
import threading
import traceback
from collections import deque
from datetime import datetime, timezone
from typing import Any, TextIO

from chainlake.logs.rpc_values import RpcError
from chainlake.serve.methods import Note

MAX_WAITING = 10_000
MAX_TEXT = 300
PAUSE_SECONDS = 0.2
"""Lines are collected for this long and written together, so that calls need not wake the writer."""


class AccessLog:
    """Writes lines from a thread of its own."""

    def __init__(self, enabled: bool = True, stream: TextIO | None = None) -> None:
        self._enabled = enabled
        self._stream = stream or sys.stderr
        self._lines: deque[dict[str, Any]] = deque()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="access-log", daemon=True)
        self._thread.start()
        self.lost = 0

    def called(self, method: str, note: Note, error: RpcError | None, seconds: float, remote: str, size: int) -> None:
        """A call was answered."""
        if not self._enabled:
            return
        line: dict[str, Any] = {"query_id": note.query_id, "method": method[:MAX_TEXT], "outcome": error.code if error else "ok"}
        if error:
            line["error"] = error.message[:MAX_TEXT]
        self._put({**line, "ms": round(seconds * 1000, 3), "bytes": size, **note.details, "remote": remote})

    def failed(self, note: Note, error: Exception) -> None:
        """Something went wrong that no caller can be told about; this is the only place that has it."""
        trace = "".join(traceback.format_exception(error))
        self._put({"query_id": note.query_id, "failure": f"{type(error).__name__}: {error}"[:MAX_TEXT], "trace": trace})

    def event(self, what: str, **details: Any) -> None:
        """Anything else that an operator should see."""
        self._put({"event": what, **details})

    def close(self) -> None:
        """Write what is waiting, for at most a second."""
        self._closed.set()
        self._thread.join(1)

    def _put(self, line: dict[str, Any]) -> None:
        if len(self._lines) >= MAX_WAITING:
            self.lost += 1
        else:
            self._lines.append({"at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), **line})

    def _write_all(self) -> None:
        while not self._closed.wait(PAUSE_SECONDS):
            self._write()
        self._write()

    def _write(self) -> None:
        waiting = [self._lines.popleft() for _ in range(len(self._lines))]
        if not waiting:
            return
        try:
            self._stream.write("".join(json.dumps(line, default=str) + "\n" for line in waiting))
            self._stream.flush()
        except (OSError, ValueError):
            self.lost += len(waiting)
