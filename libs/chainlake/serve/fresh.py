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
        made, result = self._kept.get(name, (-self._seconds, None))
        if time.monotonic() - made < self._seconds and result is not None:
            return result
        result = await asyncio.get_running_loop().run_in_executor(self._thread, make)
        self._kept[name] = (time.monotonic(), result)
        return result

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
