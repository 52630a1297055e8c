"""A CometBFT node for tests: a real HTTP server in a thread that answers status, block and block_results of a generated chain."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from chainlake.demo import comet
from chainlake.shards.machine import Shard

Json = dict[str, Any]


class FakeComet:
    """A chain behind JSON-RPC, and what may be wrong with it."""

    def __init__(self, count: int = 25, shard: int = 3) -> None:
        self.blocks = list(comet.blocks(count, shard=shard, app_hash="tree"))
        self.network = self.blocks[0]["block"]["header"]["chain_id"]
        self.earliest, self.latest = 1, count
        self.keeps_results = True
        self.first_results = 1
        self.late_results = 0
        self.lies: dict[str, Json] = {}
        self.busy = 0
        self.requests = 0
        self.url = ""
        machine = Shard(comet.registry(), "tree")
        self.results = [self._results(machine, block) for block in self.blocks]

    @staticmethod
    def _results(machine: Shard, block: Json) -> Json:
        height = int(block["block"]["header"]["height"])
        done = machine.run(height, [base64.b64decode(tx) for tx in block["block"]["data"]["txs"]])
        results = [
            {
                "code": int(one.code),
                "log": one.log,
                "codespace": "towns",
                "events": [
                    {"type": event.type, "attributes": [{"key": k, "value": v, "index": True} for k, v in event.attributes]}
                    for event in one.events
                ],
            }
            for one in done.block.results
        ]
        app_hash = base64.b64encode(done.app_hash).decode()
        return {"height": str(height), "txs_results": results or None, "app_hash": app_hash}

    def answer(self, call: Json) -> Json:
        """The answer to one call, as CometBFT words it."""
        method, params = call["method"], call["params"]
        if (lie := self.lies.pop(f"{method} {','.join(params)}", None)) is not None:
            return {"result": lie}
        if method == "status":
            sync = {"earliest_block_height": str(self.earliest), "latest_block_height": str(self.latest)}
            return {"result": {"node_info": {"network": self.network}, "sync_info": sync}}
        if not params[0].isdigit():
            return {"error": {"code": -32603, "message": "Internal error", "data": "tx already exists in cache"}}
        height = int(params[0])
        if not self.earliest <= height <= len(self.blocks):
            text = f"height {height} must be less than or equal to the current blockchain height {self.latest}"
            return {"error": {"code": -32603, "message": "Internal error", "data": text}}
        if method == "block_results" and not self.keeps_results:
            text = "node is not persisting finalize block responses"
            return {"error": {"code": -32603, "message": "Internal error", "data": text}}
        self.late_results -= (is_late := method == "block_results" and height == self.latest and self.late_results > 0)
        if method == "block_results" and (height < self.first_results or is_late):
            text = f"could not find results for height #{height}"
            return {"error": {"code": -32603, "message": "Internal error", "data": text}}
        return {"result": (self.blocks if method == "block" else self.results)[height - 1]}


@contextmanager
def running(node: FakeComet) -> Iterator[FakeComet]:
    """The node behind a port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            node.requests += 1
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            calls = request if isinstance(request, list) else [request]
            found = [{"jsonrpc": "2.0", "id": call["id"], **node.answer(call)} for call in calls]
            status = 503 if node.busy else 200
            node.busy = max(0, node.busy - 1)
            body = json.dumps(found if isinstance(request, list) else found[0]).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """No lines on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    node.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield node
    finally:
        server.shutdown()
        server.server_close()
