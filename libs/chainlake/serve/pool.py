"""The threads that do the work of queries: a fixed number, room for a few to wait, and no client that takes all of either."""

import asyncio
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from chainlake.logs.rpc_values import RpcError

BUSY = -32005
TIMED_OUT = -32002
CLIENT: ContextVar[str] = ContextVar("client", default="")
"""Whom the work is for: the address that a request came from."""

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """Work, who asked for it, and who waits for it."""

    work: Callable[[], Any]
    client: str
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[Any]"


class WorkPool:
    """Runs blocking work beside the event loop. Who comes when all is full is told so at once.

    Clients take turns, whoever asked first. One client's work never runs on all threads at once, and when no more may wait, the
    client of whom most waits gives a place up to one of whom little does. The threads are daemons: a query that hangs does not
    keep the process from ending.
    """

    def __init__(self, threads: int, room: int) -> None:
        """`room` is how many may wait for a thread."""
        self._starting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"query-{n}", daemon=True) for n in range(threads)]
        self._most_of_one = max(1, threads - 1)
        self._room = room
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[Job]] = {}
        """By client, in the order of their turns. Work that timed out counts until its turn comes."""
        self.refused = 0
        self.timed_out = 0
        for thread in self._threads:
            thread.start()

    @property
    def pending(self) -> int:
        """Work that runs or waits. Work that timed out counts until its thread is free again."""
        with self._lock:
            return self._running.total() + self._held()

    async def run(self, work: Callable[[], T], seconds: float) -> T:
        """The result of `work`, or an RpcError that says busy or timed out."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self._admit(Job(work, CLIENT.get(), loop, answer))
        timer = loop.call_later(max(seconds, 0.0), self._expire, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the threads as they become free."""
        for _ in self._threads:
            self._starting.put(None)

    def _admit(self, job: Job) -> None:
        if self._may_start(job.client):
            self._start(job)
        elif self._held() < self._room or self._has_made_room(job.client):
            self._waiting.setdefault(job.client, deque()).append(job)
        else:
            self.refused += 1
            raise _busy()

    def _held(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _may_start(self, client: str) -> bool:
        return self._running.total() < len(self._threads) and self._running[client] < self._most_of_one

    def _start(self, job: Job) -> None:
        self._running[job.client] += 1
        self._starting.put(job)

    def _has_made_room(self, client: str) -> bool:
        """Refuses the newest work of the client of whom most waits, if much more waits of it than of this one."""
        most = max(self._waiting, key=lambda one: len(self._waiting[one]), default=client)
        if len(self._waiting.get(most, ())) < len(self._waiting.get(client, ())) + 2:
            return False
        self.refused += 1
        _tell(self._waiting[most].pop(), None, _busy())
        return True

    def _expire(self, answer: "asyncio.Future[Any]") -> None:
        if not answer.done():
            self.timed_out += 1
            answer.set_exception(RpcError(TIMED_OUT, "request timed out"))

    def _work(self) -> None:
        while (job := self._starting.get()) is not None:
            result, error = None, None
            if not job.answer.done():
                CLIENT.set(job.client)
                try:
                    result = job.work()
                except Exception as raised:
                    error = raised
            with self._lock:
                self._running -= Counter([job.client])
                self._start_next()
            _tell(job, result, error)

    def _start_next(self) -> None:
        """The next work of the first client that may have a thread; then it is the turn of the others."""
        for client in list(self._waiting):
            if self._may_start(client):
                jobs = self._waiting.pop(client)
                self._start(jobs.popleft())
                if jobs:
                    self._waiting[client] = jobs
                return


def _busy() -> RpcError:
    return RpcError(BUSY, "server busy, retry later")


def _tell(job: Job, result: Any, error: Exception | None) -> None:
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
