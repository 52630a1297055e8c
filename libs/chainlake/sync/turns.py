"""Whose turn it is to ask a node: so many requests a second, all threads of a process together."""

import threading
import time
from collections.abc import Callable


class Turns:
    """A queue in front of one node. Without a rate nobody waits."""

    def __init__(self, rate: float | None, pause: Callable[[float], None] = time.sleep) -> None:
        self._rate = rate
        self._pause = pause
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        """Until it is the caller's turn."""
        if not self._rate:
            return
        with self._lock:
            turn = max(time.monotonic(), self._next)
            self._next = turn + 1 / self._rate
        delay = turn - time.monotonic()
        if delay > 0:
            self._pause(delay)
