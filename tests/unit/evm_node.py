"""A node of an EVM chain for tests: a real HTTP server in a thread, with a generated chain and faults on demand."""

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from chainlake.demo.evm import blocks as demo_blocks

Json = dict[str, Any]


@dataclass
class Reply:
    """What the server sends. `promised` is the length that it announces; `delay` comes before the body."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    promised: int | None = None
    delay: float = 0.0


Fault = Callable[[Any, list[Json]], Reply]
"""From the request and the right answers to what is sent instead."""


def made(count: int, seed: int) -> list[Json]:
    """A chain of whole blocks."""
    return [_whole(line) for line in demo_blocks(count, seed=seed, logs_per_block=6, contracts=20, users=50)]


def answers(found: list[Json], request: Any) -> Reply:
    """The right answers, as nodes send them."""
    return Reply(json.dumps(found if isinstance(request, list) else found[0], separators=(",", ":")).encode())


class FakeNode:
    """A chain behind JSON-RPC. `faults` are used up, one a request; `always` holds for every request."""

    def __init__(self, count: int = 30, chain_id: int = 7, seed: int = 1) -> None:
        self.lines = made(count, seed)
        self.chain_id = chain_id
        self.finalized: int | None = count - 1
        self.has_receipts = True
        self.unknown_method: Json = {"code": -32601, "message": "the method eth_getBlockReceipts does not exist/is not available"}
        self.faults: list[Fault] = []
        self.always: Fault | None = None
        self.requests: list[Any] = []
        self.times: list[float] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.connections = 0
        self.url = ""

    @property
    def head(self) -> int:
        return len(self.lines) - 1

    @property
    def methods(self) -> list[str]:
        """The methods that were called, one after the other."""
        return [call["method"] for request in self.requests for call in (request if isinstance(request, list) else [request])]

    def replace_from(self, height: int, seed: int) -> None:
        """Another branch from this height on."""
        other = made(len(self.lines), seed)
        other[height]["block"]["parentHash"] = self.lines[height - 1]["block"]["hash"]
        self.lines[height:] = other[height:]

    def reply(self, request: Any) -> Reply:
        calls = request if isinstance(request, list) else [request]
        found = [{"jsonrpc": "2.0", "id": call["id"], **self._outcome(call["method"], call["params"])} for call in calls]
        fault = self.faults.pop(0) if self.faults else self.always
        return fault(request, found) if fault else answers(found, request)

    def _outcome(self, method: str, params: list[Any]) -> Json:
        if method == "eth_chainId":
            return {"result": hex(self.chain_id)}
        if method == "eth_blockNumber":
            return {"result": hex(self.head)}
        if method == "eth_getBlockByNumber":
            height = self._height(params[0])
            return {"result": self.lines[height]["block"] if height is not None and height <= self.head else None}
        if method == "eth_getBlockReceipts" and self.has_receipts:
            return {"result": self.lines[int(params[0], 16)]["receipts"]}
        if method == "eth_getLogs":
            (line,) = [line for line in self.lines if line["block"]["hash"] == params[0]["blockHash"]]
            return {"result": [log for receipt in line["receipts"] for log in receipt["logs"]]}
        return {"error": self.unknown_method}

    def _height(self, name: str) -> int | None:
        return self.finalized if name in ("finalized", "safe") else int(name, 16)


@contextmanager
def serving(node: FakeNode) -> Iterator[FakeNode]:
    """The node at `node.url`, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            node.connections += 1
            super().setup()

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            node.requests.append(request)
            node.times.append(time.monotonic())
            node.headers.append(dict(self.headers))
            node.paths.append(self.path)
            _send(self, node.reply(request))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        node.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield node
        finally:
            server.shutdown()
            thread.join()


def _send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    body = reply.body
    if "Content-Encoding" not in reply.headers and "gzip" in handler.headers.get("Accept-Encoding", "") and len(body) > 5_000:
        body = gzip.compress(body, 1)
        reply.headers["Content-Encoding"] = "gzip"
    length = reply.promised if reply.promised is not None else len(body)
    handler.close_connection = handler.close_connection or length != len(body)
    handler.send_response(reply.status)
    if reply.headers.get("Transfer-Encoding") == "chunked":
        body = (
            b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:1], body[1:100], body[100:]) if piece)
            + b"0\r\n\r\n"
        )
    else:
        reply.headers["Content-Length"] = str(length)
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    time.sleep(reply.delay)
    try:
        handler.wfile.write(body)
    except OSError:
        handler.close_connection = True


def _whole(line: Json) -> Json:
    """A block with the receipts of all its transactions, whichever way the generator gave them."""
    if "receipts" in line:
        return line
    block = line["block"]
    return {
        "block": block,
        "receipts": [
            {
                "transactionHash": name,
                "transactionIndex": hex(index),
                "blockHash": block["hash"],
                "blockNumber": block["number"],
                "logs": [log for log in line["logs"] if log["transactionHash"] == name],
            }
            for index, name in enumerate(block["transactions"])
        ],
    }
