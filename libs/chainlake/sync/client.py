"""A stream service over the Connect protocol: several nodes in order of preference, asked with patience.

What a node does not answer, answers with an error or unsoundly, the next one is asked for. When none is left, all are asked again
after growing, jittered pauses, a bounded number of times. Only what every node says is believed of the bad: that there is no such
stream, that old miniblocks are gone, that a miniblock is unsound, that the stream is not as far as it was. A node that lets
nobody in has not said so.

Thousands of streams share a client. So a node that could not be reached is asked last for a while, and once many requests in a
row have reached none, the rest are refused at once: the next run will ask again.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from chainlake.errors import BadInput, Unavailable
from chainlake.sources import wire
from chainlake.sources.endpoint import Endpoint, endpoint
from chainlake.sources.http_post import Passing, Poster, retry_after
from chainlake.sources.rpc_client import FIRST_PAUSE, LONGEST_PAUSE, decode
from chainlake.sync.fetch import reach, unsound
from chainlake.sync.messages import (
    PAGE_FROM,
    PAGE_MINIBLOCKS,
    RESPONSE_STREAM,
    Answer,
    get_miniblocks_request,
    get_stream_request,
    read_answer,
)
from chainlake.sync.miniblock import Block
from chainlake.sync.service import LAGS, NEW, NOBODY, Judge, Missing, Refused, anything
from chainlake.sync.turns import Turns

SERVICE = "/river.StreamService/"
MAX_RESPONSE, MOST_BESIDE = 256 << 20, 16 << 20
SILENT_SECONDS, UNHEARD, MOST_JUMPS = 30.0, 32, 8
FAR, FLAWED, DOUBLINGS = 1 << 62, -2, 16
"""Ranks of doubtful answers, the lowest is best: unsound ones, by how far they are sound, since what a node has is not gone; then
those of nodes that have trimmed or lag, by how much."""
FINAL_CODES = ("not_found", "invalid_argument", "unimplemented", "failed_precondition")
CLOSED_CODES = ("unauthenticated", "permission_denied")

Found = TypeVar("Found")


@dataclass(frozen=True)
class Asking:
    """How nodes may be asked. `rate` is requests a second and node."""

    page_size: int = 200
    rate: float | None = None
    timeout: float = 30.0
    retries: int = 4


class Empty(Passing):
    """A node that was heard, and did not give what was asked for."""


class Final(Exception):
    """A node means what it says: asking it again is no use."""


class Doubtful(Exception):
    """An answer that another node may better."""

    def __init__(self, reason: str, answer: object, rank: int) -> None:
        super().__init__(reason)
        self.answer = answer
        self.rank = rank


def asking(options: Mapping[str, str], share: int = 1) -> Asking:
    """How nodes may be asked, by the options of the chain, when `share` processes ask them side by side."""
    rate = int(options.get("rate", "0"))
    return Asking(
        page_size=max(1, int(options.get("page_size", Asking.page_size))),
        rate=rate / share if rate else None,
        timeout=max(1.0, float(options.get("timeout", Asking.timeout))),
        retries=int(options.get("retries", Asking.retries)),
    )


class ConnectClient:
    """A `StreamService`. Threads may share it: each has connections of its own."""

    def __init__(
        self, urls: Sequence[str], options: Mapping[str, str], how: Asking, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._nodes = [_connect(endpoint(url, options)) for url in urls]
        self._how = how
        self._pause = pause
        self._turns = [Turns(how.rate, pause) for _ in urls]
        self._local = threading.local()
        self._silent_until = [0.0] * len(urls)
        self._unheard = 0

    def get_stream(self, stream_id: bytes, judge: Judge = anything) -> Answer:
        def read(data: bytes) -> Answer:
            answer = read_answer(wire.message(data, RESPONSE_STREAM))
            if answer.stream_id not in (b"", stream_id):
                raise Passing(f"answered about the stream {answer.stream_id[:64].hex()}, not about the one asked for")
            if not answer.miniblocks:
                raise Passing("answered without a miniblock")
            if len(answer.rest) > MOST_BESIDE:
                raise Passing(f"answered with {len(answer.rest)} bytes besides miniblocks, more than the {MOST_BESIDE} of any")
            verdict = judge(answer)
            if verdict == LAGS:
                last = answer.miniblocks[-1].opened.number
                raise Doubtful(f"has nothing behind miniblock {last}, which is older than what was seen", answer, FAR - last)
            if verdict == NEW and (reason := unsound(answer.miniblocks)):
                raise Doubtful(reason, answer, FLAWED - reach(answer.miniblocks))
            return answer

        return self._ask("GetStream", get_stream_request(stream_id), read)

    def get_miniblocks(self, stream_id: bytes, start: int, end: int) -> Sequence[Block]:
        for _ in range(MOST_JUMPS):
            if start >= end:
                return []
            page = self._page(stream_id, start, min(end, start + self._how.page_size))
            if not isinstance(page, int):
                return page
            start = page
        raise Refused(f"the nodes say again and again that miniblocks begin later, {start} at last, and give none")

    def _page(self, stream_id: bytes, start: int, end: int) -> list[Block] | int:
        """Miniblocks from [start, end), or where the server's begin if that is later."""

        def read(data: bytes) -> list[Block] | int:
            page = [Block(raw) for raw in wire.messages(data, PAGE_MINIBLOCKS)[: end - start]]
            begins = wire.number(data, PAGE_FROM)
            if not page and begins >= end:
                raise Doubtful(f"has no miniblocks before {begins}", begins, begins)
            if not page:
                raise Empty(f"answered without the miniblocks from {start} on")
            if reason := unsound(page):
                raise Doubtful(reason, page, FLAWED - reach(page))
            first = page[0].opened.number
            if not start <= first < end:
                raise Passing(f"answered with miniblock {first}, not with those from {start} to {end - 1}")
            if first > start:
                raise Doubtful(f"has no miniblocks before {first}", page, first)
            return page

        return self._ask("GetMiniblocks", get_miniblocks_request(stream_id, start, end), read)

    def close(self) -> None:
        """End the connections of this thread."""
        for poster in self._posters():
            poster.close()

    def _ask(self, method: str, body: bytes, read: Callable[[bytes], Found]) -> Found:
        """The first good answer; else the best of the doubtful ones, if every node was heard."""
        if self._unheard >= UNHEARD:
            raise Refused(f"{NOBODY} for the last {UNHEARD} requests")
        said: dict[int, str] = {}
        for tries in range(1, self._how.retries + 2):
            waits: list[float] = []
            doubtful: dict[int, Doubtful] = {}
            final = without = closed = 0
            for number in self._order():
                node = self._nodes[number]
                try:
                    return self._answer(number, method, body, read)
                except Doubtful as doubt:
                    doubtful[number] = doubt
                    said[number] = f"{node.shown} {doubt}"
                except Final as meant:
                    final, without = final + 1, without + 1
                    said[number] = f"{node.shown} {meant}"
                except Passing as problem:
                    without += isinstance(problem, Empty)
                    waits.append(problem.wait or 0.0)
                    said[number] = f"{node.shown} {problem}"
                except Unavailable as problem:
                    closed += 1
                    said[number] = str(problem)
            if doubtful and len(doubtful) + final == len(self._nodes):
                best: Found = min(doubtful.values(), key=lambda doubt: doubt.rank).answer  # type: ignore[assignment]
                return best
            if final + closed == len(self._nodes):
                break
            if tries <= self._how.retries:
                backoff = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, DOUBLINGS)) * random.uniform(0.5, 1.0)
                self._pause(min(LONGEST_PAUSE, max([backoff, *waits])))
        self._unheard += all(until > time.monotonic() for until in self._silent_until)
        refused = Missing if without == len(self._nodes) else Refused
        raise refused("; ".join(said[number] for number in sorted(said)) or "there is no node")

    def _order(self) -> list[int]:
        """Nodes by preference, those that could not be reached lately behind the others."""
        now = time.monotonic()
        return sorted(range(len(self._nodes)), key=lambda number: self._silent_until[number] > now)

    def _answer(self, number: int, method: str, body: bytes, read: Callable[[bytes], Found]) -> Found:
        node = self._nodes[number]
        self._turns[number].wait()
        try:
            status, headers, data = self._posters()[number].post(body, node.target.rstrip("/") + SERVICE + method)
        except (Passing, Unavailable):
            self._silent_until[number] = time.monotonic() + SILENT_SECONDS
            raise
        self._silent_until[number] = 0.0
        self._unheard = 0
        if status != 200:
            code, message = _error(data)
            told = f"says {node.without_secrets(f'{code}: {message}')}" if code else f"answered HTTP {status}"
            if code in CLOSED_CODES or (not code and status in (401, 403)):
                raise Unavailable(f"{node.shown} {told}")
            if code in FINAL_CODES or (not code and status in (404, 405)):
                raise Final(told)
            raise Passing(told, retry_after(headers))
        try:
            return read(data)
        except BadInput as error:
            raise Passing(f"answered something that cannot be read ({error})") from None

    def _posters(self) -> list[Poster]:
        posters: list[Poster] | None = getattr(self._local, "posters", None)
        if posters is None:
            posters = [Poster(node, self._how.timeout, MAX_RESPONSE) for node in self._nodes]
            self._local.posters = posters
        return posters


def _connect(node: Endpoint) -> Endpoint:
    return replace(node, headers={**node.headers, "Content-Type": "application/proto", "Connect-Protocol-Version": "1"})


def _error(data: bytes) -> tuple[str, str]:
    """Code and message of an error, both empty if the body is none."""
    try:
        value = decode(data)
    except BadInput:
        return "", ""
    if not isinstance(value, dict) or not isinstance(value.get("code"), str):
        return "", ""
    return value["code"], str(value.get("message", ""))
