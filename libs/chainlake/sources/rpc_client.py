"""JSON-RPC 2.0 for reading a lot from a node that may be slow, busy or broken.

Calls go in batches. What may pass (timeouts, HTTP 429 and 5xx, limits, garbage) is tried again with growing, jittered pauses, or
when `Retry-After` says; a batch that is too much for the node is sent in halves from then on. What remains is `Unavailable`, in
one line without secrets. An error that the node means is an answer: `RpcFailure`.
"""

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from typing import Any

import orjson

from chainlake.errors import BadInput, Unavailable
from chainlake.sources.endpoint import Endpoint
from chainlake.sources.http_post import Passing, Poster, TooMuch, retry_after
from chainlake.sources.json_text import parse, utf8

FIRST_PAUSE, LONGEST_PAUSE, LONGEST_WAIT = 0.25, 20.0, 120.0
DOUBLINGS = 16
"""Pauses double so often at most: a float cannot hold what thousands of tries would make of them."""
PASSING_CODES = (-32005, -32003, -32002, -32603, 429)
PASSING_WORDS = ("rate limit", "too many", "limit exceeded", "too large", "timeout", "timed out", "try again", "busy")
ABSENT_WORDS = "could not find results for height"
UNSUPPORTED_CODES = (-32601, -32602, -32004)
UNSUPPORTED_WORDS = ("not found", "unknown", "invalid", "does not exist", "not available", "not allowed")


@dataclass(frozen=True)
class Call:
    """A method and its parameters."""

    method: str
    params: tuple[Any, ...]


@dataclass(frozen=True)
class RpcFailure:
    """What the node says is wrong with a call."""

    code: int
    message: str

    @property
    def is_unsupported(self) -> bool:
        """The node does not know the method, does not offer it, or has another one by that name."""
        message = self.message.lower()
        named = "method" in message and any(word in message for word in UNSUPPORTED_WORDS)
        refused = any(words in message for words in ("not support", "unsupported", "not persisting"))
        return named or self.code in UNSUPPORTED_CODES or refused

    @property
    def is_absent(self) -> bool:
        """CometBFT has no results of a block: not yet, or not any more."""
        return ABSENT_WORDS in self.message

    @property
    def is_passing(self) -> bool:
        """The node may answer the same call later."""
        words = any(word in self.message.lower() for word in PASSING_WORDS)
        return not self.is_unsupported and not self.is_absent and (self.code in PASSING_CODES or words)

    @property
    def is_too_much(self) -> bool:
        """The node may answer fewer calls at once."""
        return self.code == -32003 or "too large" in self.message.lower() or "batch" in self.message.lower()


@dataclass(frozen=True)
class Limits:
    """How a node may be asked. `rate` is calls a second; calls of a batch count one by one, as providers count them."""

    batch: int = 20
    rate: float | None = None
    timeout: float = 30.0
    max_response: int = 128 << 20
    retries: int = 6


class RpcClient:
    """Asks one node. Not for several threads at once."""

    def __init__(self, endpoint: Endpoint, limits: Limits, pause: Callable[[float], None] = time.sleep) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._pause = pause
        self._poster = Poster(endpoint, limits.timeout, limits.max_response)
        self._size = limits.batch
        self._ids = itertools.count(1)
        self._turn = 0.0

    def call(self, method: str, *params: Any) -> Any:
        """The result of one call, or an `RpcFailure`."""
        return self.call_all([Call(method, params)])[0]

    def call_all(self, calls: Sequence[Call]) -> list[Any]:
        """The results of many calls, in their order; an `RpcFailure` for each that the node refuses."""
        answers: dict[int, Any] = {}
        waiting = list(range(len(calls)))
        tries = 0
        while waiting:
            chunk = waiting[: self._chunk()]
            try:
                found = dict(zip(chunk, self._exchange([calls[place] for place in chunk]), strict=True))
                kept = {place: answer for place, answer in found.items() if not _is_passing(answer)}
                answers |= kept
                waiting = [place for place in waiting if place not in kept]
                tries = 0 if kept else tries
                self._raise_passing(found.values())
            except TooMuch as problem:
                tries = self._with_less(problem, len(chunk), tries)
            except Passing as problem:
                tries += 1
                self.back_off(tries, problem)
        return [answers[place] for place in range(len(calls))]

    def close(self) -> None:
        """End the connection."""
        self._poster.close()

    def back_off(self, tries: int, problem: Passing) -> None:
        """Wait before the next try, or give up after the last."""
        wait = problem.wait or 0.0
        if tries > self._limits.retries or wait > LONGEST_WAIT:
            asked = f", and asks to wait {wait:.0f} s" if wait > LONGEST_WAIT else ""
            raise Unavailable(f"{self._endpoint.shown} {problem}{asked} ({tries} tries): see what ails the node, then run again")
        self._poster.close()  # behind a load balancer, another connection may reach a better node
        backoff = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, DOUBLINGS))
        self._pause(max(wait, backoff * random.uniform(0.5, 1.0)))

    def _chunk(self) -> int:
        """Calls of the next request: no more than a second's worth."""
        return self._size if self._limits.rate is None else max(1, min(self._size, int(self._limits.rate)))

    def _with_less(self, problem: TooMuch, sent: int, tries: int) -> int:
        """Go on with half as many calls a request; one alone is tried again as it is. The number of tries so far."""
        if sent == 1:
            self.back_off(tries + 1, problem)
            return tries + 1
        self._size = sent // 2
        return tries

    def _raise_passing(self, answers: Any) -> None:
        for failure in answers:
            if isinstance(failure, RpcFailure) and failure.is_passing:
                reason = f"says: {failure.message} (error {failure.code})"
                raise TooMuch(reason) if failure.is_too_much else Passing(reason)

    def _exchange(self, calls: Sequence[Call]) -> list[Any]:
        ids = [next(self._ids) for _ in calls]
        requests = [
            {"jsonrpc": "2.0", "id": id_, "method": call.method, "params": call.params}
            for id_, call in zip(ids, calls, strict=True)
        ]
        self._wait_for_turn(len(calls))
        status, headers, data = self._poster.post(orjson.dumps(requests if len(requests) > 1 else requests[0]))
        return self._matched(ids, self._decoded(status, headers, data))

    def _wait_for_turn(self, calls: int) -> None:
        if self._limits.rate is None:
            return
        now = time.monotonic()
        if self._turn > now:
            self._pause(self._turn - now)
        self._turn = max(now, self._turn) + calls / self._limits.rate

    def _decoded(self, status: int, headers: Message, data: bytes) -> Any:
        """The JSON of an answer; HTTP errors that say nothing in JSON-RPC are raised."""
        if status in (408, 425, 429) or status >= 500:
            raise Passing(f"answered HTTP {status}", retry_after(headers))
        if status == 413:
            raise TooMuch("answered HTTP 413: the request is too large")
        try:
            value = decode(data)
        except BadInput:
            value = None
        if status in (401, 403):
            raise Unavailable(f"{self._endpoint.shown} refused us (HTTP {status}): give its key by header_env=NAME or ${{NAME}}")
        if not isinstance(value, (dict, list)):
            if status != 200:
                raise Unavailable(f"{self._endpoint.shown} answered HTTP {status}: is this the URL of a node's JSON-RPC?")
            raise Passing("answered something that is not JSON-RPC")
        return value

    def _matched(self, ids: Sequence[int], value: Any) -> list[Any]:
        """The answers in the order of their calls; nodes may send them in any order."""
        if isinstance(value, dict) and len(ids) > 1:
            failure = self._outcome(value)
            reason = f": {failure.message}" if isinstance(failure, RpcFailure) else ""
            raise TooMuch(f"refused a batch of {len(ids)} calls{reason}")
        found: dict[int, Any] = {}
        for entry in value if isinstance(value, list) else [_named(value, ids[0])]:
            id_ = entry.get("id") if isinstance(entry, dict) else None
            if type(id_) is not int or id_ not in ids or id_ in found:
                raise Passing(f"answered a call that was not made, or one twice (id {str(id_)[:20]})")
            found[id_] = self._outcome(entry)
        if len(found) < len(ids):
            raise Passing(f"answered {len(found)} of {len(ids)} calls")
        return [found[id_] for id_ in ids]

    def _outcome(self, entry: Mapping[str, Any]) -> Any:
        error = entry.get("error")
        if error is None:
            if "result" not in entry:
                raise Passing("answered something that is not JSON-RPC")
            return entry["result"]
        code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, error)
        if message == "Internal error" and isinstance(error.get("data"), str):  # where CometBFT says what it is
            message = error["data"]
        return RpcFailure(code if type(code) is int else 0, self._endpoint.without_secrets(str(message)))


def decode(data: bytes) -> Any:
    """The value of a JSON text. The fast parser counts only where it loses nothing, which writing the value again shows."""
    try:
        value = orjson.loads(data)
        if orjson.dumps(value) == data.translate(None, b" \t\r\n"):
            return value
    except (ValueError, TypeError):
        pass
    return parse(utf8(data))


def _named(entry: Mapping[str, Any], id_: int) -> Mapping[str, Any]:
    """The answer to a single call, which has no id where the node could not read the call's."""
    return entry if entry.get("id") is not None else {**entry, "id": id_}


def _is_passing(answer: Any) -> bool:
    return isinstance(answer, RpcFailure) and answer.is_passing
