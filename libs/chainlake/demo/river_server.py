"""A stream node on loopback, to try every case for real: `lake demo river --serve`.

It speaks the Connect protocol of river's stream service. What it does is steered by POST /control/<what> with a JSON body:
`grow`, `create`, `trim`, `backup`, `restore`, `fail`, `slow`, `damage`, `mend`, `settings`; GET /control/streams lists them.
"""

import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson

from chainlake.demo import write_pieces
from chainlake.demo.river import Miniblock, Stream
from chainlake.demo.river_node import StreamNode
from chainlake.errors import BadInput
from chainlake.sources import wire
from chainlake.sync.service import Refused

SERVICE, STREAMS = "/river.StreamService/", "/control/streams"
MAX_BODY, MOST, LONGEST_ID = 1 << 20, 100_000, 64
FIELDS: dict[str, tuple[str, ...]] = {
    "streams": (),
    "grow": ("stream", "miniblocks", "events", "minipool"),
    "create": ("stream",),
    "trim": ("stream", "before"),
    "backup": (),
    "restore": (),
    "fail": ("requests",),
    "slow": ("seconds",),
    "settings": ("page_limit", "earlier"),
    "damage": ("stream", "miniblock"),
    "mend": (),
}
"""What each control takes."""


class RiverServer(ThreadingHTTPServer):
    """One node. Several may share streams: they answer alike, and fail one by one."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, node: StreamNode, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__((host, port), _Handler)
        self.node = node
        self.lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.failing = 0
        self.slow = 0.0
        self._damaged: list[tuple[Miniblock, Miniblock]] = []

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    def start(self) -> "RiverServer":
        """Serve in a thread of this process."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle is nobody's failure."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def control(self, what: str, given: dict[str, Any]) -> Any:
        """Do what a control request asks for."""
        actions: dict[str, Callable[[dict[str, Any]], Any]] = {
            "streams": self._streams,
            "grow": self._grow,
            "create": self._create,
            "trim": self._trim,
            "backup": lambda _: self.node.back_up(),
            "restore": lambda _: self.node.restore(),
            "fail": lambda one: setattr(self, "failing", _whole(one, "requests", 1)),
            "slow": lambda one: setattr(self, "slow", _number(one, "seconds", 0)),
            "settings": self._settings,
            "damage": self._damage,
            "mend": lambda _: self._mend(),
        }
        if what not in actions:
            raise BadInput(f"there is no control {what[:40]!r}: there are {', '.join(actions)}")
        if unknown := sorted(set(given) - set(FIELDS[what])):
            known = ", ".join(FIELDS[what]) or "nothing"
            raise BadInput(f"{what} knows no {unknown[0][:40]!r}: it takes {known}")
        with self.lock:
            return actions[what](given)

    def answer(self, method: str, body: bytes) -> bytes:
        """The answer to a call of the service, as bytes of protobuf."""
        stream_id = wire.message(body, 1)
        with self.lock:
            self.calls[method] += 1
            if self.failing:
                self.failing -= 1
                raise ConnectionError
        if self.slow:
            time.sleep(self.slow)
        with self.lock:
            if method == "GetStream":
                return self.node.answer(stream_id)
            return self.node.page(stream_id, wire.number(body, 2), wire.number(body, 3))

    def _ids(self, given: dict[str, Any]) -> list[bytes]:
        """The streams that a request means: `stream`, else all. A new one is made by `create` of its id."""
        return [_stream_id(given)] if "stream" in given else list(self.node.streams)

    def _known(self, given: dict[str, Any]) -> list[Stream]:
        """The same, if all of them are there."""
        ids = self._ids(given)
        if missing := [one for one in ids if one not in self.node.streams]:
            raise BadInput(f"there is no stream {missing[0].hex()}: GET /control/streams lists those that are")
        return [self.node.streams[one] for one in ids]

    def _streams(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            stream.stream_id.hex(): {
                "miniblocks": len(stream.miniblocks),
                "snapshot": stream.snapshot,
                "trimmed": stream.trimmed,
                "minipool": len(stream.minipool),
            }
            for stream in self.node.streams.values()
        }

    def _grow(self, given: dict[str, Any]) -> None:
        counts = [_whole(given, *one) for one in (("miniblocks", 1), ("events", 2), ("minipool", 0))]
        for stream in self._known(given):
            self.node.grow(stream.stream_id, *counts)

    def _create(self, given: dict[str, Any]) -> None:
        for stream_id in self._ids(given):
            self.node.create(stream_id)

    def _trim(self, given: dict[str, Any]) -> None:
        before = _whole(given, "before")
        for stream in self._known(given):
            stream.trim(before)

    def _settings(self, given: dict[str, Any]) -> None:
        limit, earlier = _whole(given, "page_limit", self.node.page_limit, 1), _whole(given, "earlier", self.node.earlier)
        self.node.page_limit, self.node.earlier = limit, earlier

    def _damage(self, given: dict[str, Any]) -> None:
        """Change a byte in an event of a miniblock."""
        if "stream" not in given:
            raise BadInput('damage is done to one stream: give {"stream": "20…", "miniblock": N}')
        (stream,), number = self._known(given), _whole(given, "miniblock")
        if number >= len(stream.miniblocks):
            raise BadInput(f"there is no miniblock {number}: the last is {len(stream.miniblocks) - 1}")
        there = stream.miniblocks[number]
        good = next((good for bad, good in self._damaged if bad is there), there)
        bad = Miniblock(good.raw.replace(b"message", b"massage", 1), good.hash)
        if bad == good:
            raise BadInput(f"miniblock {number} has no event to change: take another")
        stream.miniblocks[number] = bad
        self._damaged.append((bad, good))

    def _mend(self) -> None:
        """Change back what was damaged, wherever it is now: a stream may have been restored or made anew since."""
        good = {id(bad): good for bad, good in self._damaged}
        for stream in self.node.streams.values():
            stream.miniblocks = [good.get(id(one), one) for one in stream.miniblocks]


def serve(streams: int, host: str, port: int, streams_file: Path) -> RiverServer:
    """A node with demo streams that have some history, and a file of their ids for `lake ingest`."""
    node = StreamNode(streams)
    for stream_id in node.streams:
        node.grow(stream_id, 12, minipool=1)
    try:
        server = RiverServer(node, host, port)
        write_pieces(streams_file, [f"{stream_id.hex()}\n".encode() for stream_id in node.streams])
    except OSError as error:
        raise BadInput(f"the demo node cannot start at {host}:{port}: {error.strerror or error}") from None
    return server


def serve_alone(streams: int, pipe: Connection) -> None:
    """A node in this process and nothing else; its URL and the ids of its streams go into the pipe."""
    server = RiverServer(StreamNode(streams))
    pipe.send((server.url, list(server.node.streams)))
    server.serve_forever()


def _stream_id(given: dict[str, Any]) -> bytes:
    """The stream that a control request names."""
    text = given["stream"]
    if not isinstance(text, str) or not re.fullmatch(f"(?:[0-9a-fA-F]{{2}}){{1,{LONGEST_ID}}}", text):
        raise BadInput(f"stream is {str(text)[:140]!r}: an id of 1 to {LONGEST_ID} bytes in hex is expected")
    return bytes.fromhex(text)


def _number(given: dict[str, Any], name: str, default: float | None = None, least: int = 0) -> float:
    """A number of a control request."""
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= MOST:
        raise BadInput(f"{name} is {str(value)[:40]!r}: a number from {least} to {MOST} is expected")
    return value


def _whole(given: dict[str, Any], name: str, default: int | None = None, least: int = 0) -> int:
    value = _number(given, name, default, least)
    if value != int(value):
        raise BadInput(f"{name} is {value:g}: a whole number is expected")
    return int(value)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: RiverServer

    def do_GET(self) -> None:
        if self.path != STREAMS:
            self._send(405, "application/json", json.dumps({"error": f"GET {STREAMS}, or POST: see docs/sync.md"}).encode())
            return
        self._control("{}")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdigit() and len(length) <= 18) or int(length) > MAX_BODY:
            self._send(413, "application/json", b'{"code": "invalid_argument", "message": "the request is too large"}')
            return
        body = self.rfile.read(int(length))
        if not self.path.startswith(SERVICE):
            self._control(body.decode("utf-8", "replace"))
            return
        self._call(self.path[len(SERVICE) :], body)

    def _call(self, method: str, body: bytes) -> None:
        if method not in ("GetStream", "GetMiniblocks"):
            self._fail(404, "unimplemented", f"{method} is not there")
            return
        try:
            self._send(200, "application/proto", self.server.answer(method, body))
        except Refused as error:
            self._fail(404, "not_found", str(error))
        except BadInput as error:
            self._fail(400, "invalid_argument", str(error))
        except ConnectionError:
            self._fail(503, "unavailable", "this node fails as it was told to")

    def _control(self, text: str) -> None:
        what = self.path.removeprefix("/control/")
        try:
            given = orjson.loads(text or "{}")
            if what == self.path or not isinstance(given, dict):
                raise BadInput("POST /control/<what> with a JSON object")
            answer = self.server.control(what, given)
        except ValueError as error:
            self._send(400, "application/json", json.dumps({"error": f"the body is not JSON: {error}"}).encode())
            return
        except BadInput as error:
            self._send(400, "application/json", json.dumps({"error": str(error)}).encode())
            return
        self._send(200, "application/json", json.dumps(answer if answer is not None else {"done": what}).encode())

    def _fail(self, status: int, code: str, message: str) -> None:
        self._send(status, "application/json", json.dumps({"code": code, "message": message}).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: tests and demos ask thousands of times."""
