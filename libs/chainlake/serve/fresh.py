"""Results that may be a moment old, made in a thread of their own: asking often costs little and waits for no query."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

FRESH_SECONDS = 2.0


class Fresh:
    """Remembers what was made, by name, for some seconds."""

    def __init__(self, name: str, seconds: float = FRESH_SECONDS) -> None:
        self._seconds = seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._kept: dict[str, tuple[float, Any]] = {}

    async def get(self, name: str, make: Callable[[], Any]) -> Any:
        """What is remembered, else what `make` gives now."""
        found = self._remembered(name)
        if found is None:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._made, name, make)
        return found

    def _remembered(self, name: str) -> Any:
        made, result = self._kept.get(name, (-self._seconds, None))
        return result if time.monotonic() - made < self._seconds else None

    def _made(self, name: str, make: Callable[[], Any]) -> Any:
        """Of many that ask at once, the first has it made; the others waited for the thread, and find it."""
        found = self._remembered(name)
        if found is None:
            found = make()
            self._kept[name] = (time.monotonic(), found)
        return found

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
