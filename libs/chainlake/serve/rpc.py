"""JSON-RPC 2.0 over one request body: single calls, batches and notifications, as geth answers them.

Whatever comes in, what goes out is JSON-RPC: mistakes of callers are errors with geth's codes, and a fault of the server is one
error that names the query id under which the log has the rest.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from chainlake.errors import LakeError
from chainlake.logs.rpc_values import RpcError
from chainlake.serve.access_log import AccessLog
from chainlake.serve.arguments import read_arguments
from chainlake.serve.budget import Budget
from chainlake.serve.engine import Damaged, TooBroad, UnknownBlock
from chainlake.serve.json_text import dump, dump_id, parse
from chainlake.serve.methods import Method, Note, Raw
from chainlake.serve.pool import BUSY, TIMED_OUT, WorkPool
from chainlake.serve.rpc_metrics import RpcMetrics
from chainlake.serve.settings import Settings

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000
TOO_LARGE = -32003

PARSED_INLINE = 16 << 10
"""Bodies up to this size are parsed on the event loop; larger ones would hold it up."""
MAX_METHOD_NAME = 2048


@dataclass(frozen=True)
class Call:
    """One valid message."""

    method: str
    params: Any
    id: Any = None
    notification: bool = False


class Dispatcher:
    """Answers request bodies."""

    def __init__(
        self,
        methods: Iterable[Method],
        pool: WorkPool,
        settings: Settings,
        metrics: RpcMetrics,
        access_log: AccessLog,
        budget: Budget,
    ) -> None:
        self._methods = {method.name: method for method in methods}
        self._pool = pool
        self._settings = settings
        self._metrics = metrics
        self._log = access_log
        self._budget = budget
        self._run_id = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    async def answer(self, body: bytes, remote: str = "") -> bytes:
        """The response body; empty if the caller expects none."""
        deadline = time.monotonic() + self._settings.request_seconds
        try:
            message = await self._parse(body, deadline)
        except RpcError as error:
            return error_body(error)
        if not isinstance(message, list):
            return await self._message(message, deadline, remote)
        if not message:
            self._metrics.refused()
            return error_body(RpcError(INVALID_REQUEST, "empty batch"))
        if len(message) > self._settings.max_batch:
            self._metrics.refused()
            return b"[" + _error(_first_id(message), RpcError(INVALID_REQUEST, "batch too large")) + b"]"
        answers: list[bytes] = []
        try:
            await self._batch(message, answers, deadline, remote)
        finally:
            self._budget.give(sum(map(len, answers)))
        return b"[" + b",".join(answers) + b"]" if answers else b""

    async def _parse(self, body: bytes, deadline: float) -> Any:
        try:
            if len(body) <= PARSED_INLINE:
                return parse(body)
            return await self._pool.run(partial(parse, body), deadline - time.monotonic())
        except ValueError:
            self._metrics.refused()
            raise RpcError(PARSE_ERROR, "parse error") from None

    async def _batch(self, messages: list[Any], answers: list[bytes], deadline: float, remote: str) -> None:
        """One after the other, so that a batch takes one thread at a time; what is late or does not fit is told so."""
        size = 0
        for message in messages:
            if size > self._settings.max_response:
                answer = _refusal(message, RpcError(TOO_LARGE, "response too large"))
            elif time.monotonic() > deadline:
                answer = _refusal(message, RpcError(TIMED_OUT, "request timed out"))
            else:
                answer = await self._message(message, deadline, remote)
            if not self._budget.take(len(answer)):
                answer = _refusal(message, RpcError(BUSY, "server busy, retry later"))
                self._budget.force(len(answer))
            if answer:
                answers.append(answer)
                size += len(answer)
            await asyncio.sleep(0)

    async def _message(self, message: Any, deadline: float, remote: str) -> bytes:
        try:
            call = read_call(message)
        except RpcError as error:
            self._metrics.refused()
            return _error(_id_of(message), error)
        answer = await self._call(call, deadline, remote)
        return b"" if call.notification else answer

    async def _call(self, call: Call, deadline: float, remote: str) -> bytes:
        note = Note(f"{self._run_id}-{next(self._numbers):x}")
        started = time.monotonic()
        try:
            result = await self._run(call, note, deadline)
            error = None
            answer = _result(call.id, result)
        except Exception as raised:
            error = self._explained(raised, note)
            answer = _error(call.id, error)
        seconds = time.monotonic() - started
        known = call.method if call.method in self._methods else "unknown"
        self._metrics.called(known, error, seconds, note)
        self._log.called(call.method, note, error, seconds, remote, len(answer))
        return answer

    async def _run(self, call: Call, note: Note, deadline: float) -> Raw:
        if len(call.method) > MAX_METHOD_NAME:
            raise RpcError(INVALID_REQUEST, f"method name too long: {len(call.method)} > {MAX_METHOD_NAME}")
        if call.method.endswith("_subscribe"):
            raise RpcError(METHOD_NOT_FOUND, "notifications not supported")
        method = self._methods.get(call.method)
        if method is None:
            raise RpcError(METHOD_NOT_FOUND, f"the method {call.method} does not exist/is not available")
        work = partial(_run_method, method, note, call.params)
        return await self._pool.run(work, deadline - time.monotonic()) if method.blocking else work()

    def _explained(self, raised: Exception, note: Note) -> RpcError:
        """What the caller is told of an error."""
        if isinstance(raised, RpcError):
            return raised
        if isinstance(raised, UnknownBlock):
            return RpcError(SERVER_ERROR, "Block not found.")
        if isinstance(raised, TooBroad):
            return RpcError(SERVER_ERROR, "query too broad", str(raised))
        if isinstance(raised, Damaged):
            self._metrics.damaged(str(raised))
        if isinstance(raised, LakeError):
            return RpcError(SERVER_ERROR, str(raised))
        self._log.failed(note, raised)
        return RpcError(INTERNAL_ERROR, f"internal error, query id {note.query_id}")


def read_call(message: Any) -> Call:
    """The call that a message is."""
    if (
        not isinstance(message, dict)
        or message.get("jsonrpc") != "2.0"
        or not isinstance(message.get("method"), str)
        or not message["method"]
        or isinstance(message.get("id"), (dict, list))
    ):
        raise RpcError(INVALID_REQUEST, "invalid request")
    return Call(message["method"], message.get("params"), message.get("id"), "id" not in message)


def error_body(error: RpcError) -> bytes:
    """The answer to a request that could not be read, so that it has no id."""
    return _error(None, error)


def _run_method(method: Method, note: Note, params: Any) -> Raw:
    """Reading the arguments and writing the result belong to the work, so that they too happen in the pool."""
    result = method.run(note, *read_arguments(params, method.arguments))
    return result if isinstance(result, Raw) else Raw(dump(result))


def _id_of(message: Any) -> Any:
    """The id to answer an invalid message with."""
    found = message.get("id") if isinstance(message, dict) else None
    return None if isinstance(found, (dict, list)) else found


def _first_id(messages: list[Any]) -> Any:
    """The id of the first call of a batch, since no other place says that the batch as a whole was refused."""
    return next((_id_of(message) for message in messages if _id_of(message) is not None), None)


def _refusal(message: Any, error: RpcError) -> bytes:
    """The answer to a message of a batch that is not looked at any more."""
    silent = isinstance(message, dict) and "id" not in message and isinstance(message.get("method"), str)
    return b"" if silent else _error(_id_of(message), error)


def _result(call_id: Any, result: Raw) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + dump_id(call_id) + b',"result":' + result.text + b"}"


def _error(call_id: Any, error: RpcError) -> bytes:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return b'{"jsonrpc":"2.0","id":' + dump_id(call_id) + b',"error":' + dump(body) + b"}"
