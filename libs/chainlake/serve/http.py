"""HTTP for the router, on aiohttp. Clients that are slow, silent or greedy lose their own connection and nobody else's.

A connection waits for its client while a request is on its way in or a response on its way out. All such waiting is bounded in
time; and when the connections are used up, the one that has kept the server waiting longest is closed for a new one.
"""

import asyncio
import ipaddress
import logging
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from chainlake.errors import BadInput, LakeError
from chainlake.logs.rpc_values import RpcError
from chainlake.serve.access_log import AccessLog
from chainlake.serve.gateway import Gateway
from chainlake.serve.methods import Note
from chainlake.serve.pool import BUSY, CLIENT
from chainlake.serve.router import JSON, Request, Response, json_response
from chainlake.serve.rpc import INVALID_REQUEST, error_body
from chainlake.serve.settings import Settings

MAX_PATH = 8190
SMALL = 64 << 10
"""Answers up to this size fit into the socket's buffer and are not counted as waiting."""

PATIENCE_SECONDS = 1.0
"""How long a reader may take while others wait for its place."""


class Refused(Exception):
    """A request that is answered without being looked at, and the last of its connection."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


class BoundedServer(web.Server):
    """Counts connections and knows which of them wait for their client."""

    def __init__(self, http: "HttpServer", **options: Any) -> None:
        super().__init__(http.handle, **options)
        self._gateway = http.gateway
        self._most = http.gateway.settings.max_connections
        self._open = 0
        self._waiting: dict[web.RequestHandler, None] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if self._open >= self._most:
            self._close(next(iter(self._waiting), handler))
        self._open += 1
        self._waiting[handler] = None
        self._gateway.connections(self._open)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open -= 1
        self._waiting.pop(handler, None)
        self._gateway.connections(self._open)

    def _close(self, handler: web.RequestHandler) -> None:
        """Close a connection at once, with what it still has to send."""
        self._gateway.dropped("too many connections")
        self._waiting.pop(handler, None)
        if handler.transport is not None:
            handler.transport.abort()
        handler.force_close()

    def works(self, handler: web.RequestHandler) -> None:
        """The server works for this connection: it is not one to close."""
        self._waiting.pop(handler, None)

    def waits(self, handler: web.RequestHandler) -> None:
        """The connection's client has to do something now."""
        if handler.transport is not None:
            self._waiting.pop(handler, None)
            self._waiting[handler] = None


class HttpServer:
    """Serves a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._settings: Settings = gateway.settings
        self._sending: dict[web.RequestHandler, tuple[float, int]] = {}
        """Answers on their way: since when, and how many bytes count."""
        self._server: BoundedServer | None = None
        self._listening: asyncio.Server | None = None

    async def start(self) -> tuple[str, int]:
        """Listen, and say where."""
        settings = self._settings
        self._server = BoundedServer(
            self,
            keepalive_timeout=settings.idle_seconds,
            lingering_time=min(2.0, settings.body_seconds),
            max_line_size=MAX_PATH,
            auto_decompress=False,
            access_log=None,
            logger=_logger(self.gateway.access_log),
        )
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._server, settings.host, settings.port, backlog=128)
        host, port = self._listening.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def stop(self) -> None:
        """Finish what is being answered, for at most two seconds."""
        if self._listening is not None:
            self._listening.close()
        if self._server is not None:
            self._server.pre_shutdown()
            await self._server.shutdown(2.0)
        self.gateway.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Read, route, answer."""
        assert self._server is not None
        server, connection = self._server, request.protocol
        last = False
        try:
            body = await self._read(request)
            server.works(connection)
            response = await self._respond(request, body)
        except Refused as refused:
            response, last = refused.response, True
        server.waits(connection)
        return await self._send(request, response, last)

    async def _read(self, request: web.BaseRequest) -> bytes:
        """The whole body, if it is not too long and comes in time."""
        self._check_host(request.headers.get("Host", ""))
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Refused(json_response({"error": "compressed requests are not taken: send plain JSON"}, 415))
        if (request.content_length or 0) > self._settings.max_body:
            raise self._too_large()
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if request.content.is_eof() and request.content.total_bytes <= self._settings.max_body:
            return request.content.read_nowait(-1)
        try:
            return await asyncio.wait_for(self._read_all(request), self._settings.body_seconds)
        except asyncio.TimeoutError:
            self.gateway.dropped("slow request")
            raise Refused(Response(408, error_body(RpcError(INVALID_REQUEST, "read timeout")), JSON)) from None
        except (HttpProcessingError, web.RequestPayloadError):
            raise Refused(Response(400, error_body(RpcError(INVALID_REQUEST, "read error")), JSON)) from None

    async def _read_all(self, request: web.BaseRequest) -> bytes:
        pieces, size = [], 0
        async for piece in request.content.iter_any():
            size += len(piece)
            if size > self._settings.max_body:
                raise self._too_large()
            pieces.append(piece)
        return b"".join(pieces)

    def _too_large(self) -> Refused:
        error = RpcError(INVALID_REQUEST, f"request too large: at most {self._settings.max_body} bytes")
        return Refused(Response(413, error_body(error), JSON))

    def _check_host(self, host: str) -> None:
        """Names that are not ours may have been pointed here by a web page (DNS rebinding)."""
        allowed = self._settings.allowed_hosts
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if "*" in allowed or name.lower() in ("", "localhost", *allowed) or _is_address(name.strip("[]")):
            return
        raise Refused(json_response({"error": f"host {name[:100]!r} is not served: start with --allow-host {name[:100]}"}, 403))

    async def _respond(self, request: web.BaseRequest, body: bytes) -> Response:
        if request.method == "OPTIONS" and self._settings.cors:
            return Response(204)
        found = self.gateway.router.find(request.method, request.rel_url.raw_path)
        if isinstance(found, Response):
            return found
        handler, params = found
        remote = request.remote or ""
        CLIENT.set(remote)
        given = Request(request.method, request.path, params, dict(request.query), request.headers, body, remote)
        try:
            return await handler(given)
        except BadInput as error:
            return json_response({"error": str(error)}, 400)
        except LakeError as error:
            return json_response({"error": str(error)}, 503)
        except Exception as error:
            note = Note(secrets.token_hex(8))
            self.gateway.access_log.failed(note, error)
            return json_response({"error": f"internal error, query id {note.query_id}"}, 500)

    async def _send(self, request: web.BaseRequest, response: Response, last: bool) -> web.StreamResponse:
        """Write the response; a client that does not take it in time is dropped."""
        counted = len(response.body) if len(response.body) > SMALL else 0
        if not self._has_room(counted):
            response, counted = _busy(request.method), 0
        headers = CIMultiDict({**response.headers, **self._cors_headers(request.headers)})
        answer = web.Response(status=response.status, headers=headers)
        answer.headers.update({"Content-Type": response.content_type, "Server": "chainlake"})
        answer.body = b"" if request.method == "HEAD" else response.body
        if last:
            answer.force_close()
        self._sending[request.protocol] = (time.monotonic(), counted)
        timer = asyncio.get_running_loop().call_later(self._settings.write_seconds, self._give_up, request.protocol)
        try:
            await answer.prepare(request)
            await answer.write_eof()
        finally:
            timer.cancel()
            self._sent(request.protocol)
        self.gateway.responded(response.status)
        return answer

    def _has_room(self, size: int) -> bool:
        """Whether an answer may be sent now. Readers that keep others waiting for more than a moment are dropped for it."""
        while not self.gateway.budget.take(size):
            slowest = next((one for one, (since, held) in self._sending.items() if held), None)
            if slowest is None or time.monotonic() - self._sending[slowest][0] < PATIENCE_SECONDS:
                return False
            self._give_up(slowest)
        return True

    def _sent(self, connection: web.RequestHandler) -> None:
        """An answer no longer waits."""
        _, size = self._sending.pop(connection, (0.0, 0))
        self.gateway.budget.give(size)

    def _give_up(self, connection: web.RequestHandler) -> None:
        """Drop a client that does not take its answer; writing it then ends with a ConnectionError."""
        self.gateway.dropped("slow reader")
        self._sent(connection)
        if connection.transport is not None:
            connection.transport.abort()

    def _cors_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        origin = headers.get("Origin")
        allowed = self._settings.cors
        if not origin or not ("*" in allowed or origin in allowed):
            return {}
        return {
            "Access-Control-Allow-Origin": "*" if "*" in allowed else origin,
            "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
            "Access-Control-Allow-Headers": "Content-Type",
            "Access-Control-Max-Age": "600",
            "Vary": "Origin",
        }


def _busy(method: str) -> Response:
    """Instead of an answer that has no room: an error of JSON-RPC to what was a call, and HTTP's to other routes, whose clients
    would take status 200 for what they asked for."""
    text = "server busy, retry later"
    return Response(200, error_body(RpcError(BUSY, text)), JSON) if method == "POST" else json_response({"error": text}, 503)


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False


class _Faults(logging.Handler):
    """What aiohttp reports, for the access log: faults of ours. That clients send what is no HTTP is no news."""

    def __init__(self, access_log: AccessLog) -> None:
        super().__init__()
        self._access_log = access_log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception) and not isinstance(error, (HttpProcessingError, ConnectionError)):
            self._access_log.failed(Note("http"), error)


def _logger(access_log: AccessLog) -> logging.Logger:
    """A logger of its own for each server, known to nobody else."""
    logger = logging.Logger("chainlake.serve.http")
    logger.addHandler(_Faults(access_log))
    return logger
