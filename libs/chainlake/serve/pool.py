"""The threads that do the work of queries: a fixed number, and a queue that does not grow without end."""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from chainlake.logs.rpc_values import RpcError

BUSY = -32005
TIMED_OUT = -32002

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """Work, and who waits for it."""

    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[Any]"


class WorkPool:
    """Runs blocking work beside the event loop. Who comes when all is full is told so at once.

    The threads are daemons: a query that hangs does not keep the process from ending.
    """

    def __init__(self, threads: int, room: int) -> None:
        """`room` is how many may wait for a thread."""
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"query-{n}", daemon=True) for n in range(threads)]
        self._most = threads + room
        self._lock = threading.Lock()
        self.pending = 0
        """Work that runs or waits. Work that timed out counts until its thread is free again."""
        self.refused = 0
        self.timed_out = 0
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[], T], seconds: float) -> T:
        """The result of `work`, or an RpcError that says busy or timed out."""
        with self._lock:
            if self.pending >= self._most:
                self.refused += 1
                raise RpcError(BUSY, "server busy, retry later")
            self.pending += 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        timer = loop.call_later(max(seconds, 0.0), self._expire, answer)
        self._jobs.put(Job(work, loop, answer))
        try:
            return await answer
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the threads as they become free."""
        for _ in self._threads:
            self._jobs.put(None)

    def _expire(self, answer: "asyncio.Future[Any]") -> None:
        if not answer.done():
            self.timed_out += 1
            answer.set_exception(RpcError(TIMED_OUT, "request timed out"))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            result, error = None, None
            if not job.answer.done():
                try:
                    result = job.work()
                except Exception as raised:
                    error = raised
            with self._lock:
                self.pending -= 1
            with suppress(RuntimeError):  # the server ended in the meantime
                job.loop.call_soon_threadsafe(_settle, job.answer, result, error)


def _settle(answer: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    """Hand over the outcome, if somebody still waits for it."""
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
