"""Streams over HTTP: the queries of metadata shards and their proofs, from the embedded reader.

Paths and answers are those of `shards.query`; `?height=` asks for an earlier block, `?chain=` for a shard of several. A stream is
looked for in the shard that its id belongs to, where the chain ids of the shards are known.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from chainlake.errors import BadInput
from chainlake.logs.rpc_values import RpcError
from chainlake.serve.control import LakeControl, Row
from chainlake.serve.gateway import Gateway
from chainlake.serve.router import Request, Response, json_response
from chainlake.shards.codes import Code, Refused
from chainlake.shards.placement import SHARD_MASK, shard_of, shard_of_chain
from chainlake.shards.query import answer, read_stream_id
from chainlake.shards.reader import ShardReader, ShardView

PATHS = ("/stream/{id}", "/stream", "/streams", "/streams/{a}", "/streams/{a}/{b}", "/streams/{a}/{b}/{c}")
PROTOBUF = "application/x-protobuf"
STATUS = {Code.NOT_FOUND: 404}
MAX_HEIGHT = 18
KEPT_READERS = 16
"""Shards that were asked last: a lake may have a thousand, and the reader of each keeps what it has read."""


class ShardRoutes:
    """The routes of all shards of a lake."""

    def __init__(self, gateway: Gateway, home: Path, prefix: str, control: LakeControl, chain: str | None = None) -> None:
        """`chain` is the shard that is meant where none is named."""
        self._gateway, self._home, self._prefix, self._control, self._chain = gateway, home, prefix, control, chain
        self._readers: OrderedDict[str, ShardReader] = OrderedDict()
        self._lock = Lock()
        for path in PATHS:
            gateway.router.add("GET", path, self.query)
        gateway.router.add("GET", "/stream/{id}/proof", self.proof)

    async def query(self, request: Request) -> Response:
        """A stream, a list or a count."""
        return await self._answered(lambda: json_response(answer(self._view(request), request.path, request.query)))

    async def proof(self, request: Request) -> Response:
        """A proof as JSON, or its bytes with `?raw=true`."""
        return await self._answered(lambda: self._proof(request))

    def _proof(self, request: Request) -> Response:
        reader = self._reader(request)
        proven = reader.prove(read_stream_id(request.params["id"]), read_height(request.query))
        if request.query.get("raw", "false") not in ("", "0", "false"):
            return Response(200, proven.proof.to_bytes(), PROTOBUF)
        return json_response(proven.to_json(reader.chain))

    async def _answered(self, work: Callable[[], Response]) -> Response:
        try:
            return await self._gateway.pool.run(work, self._gateway.settings.request_seconds)
        except Refused as refused:
            return _error(refused.code, refused.message)
        except BadInput as error:
            return _error(Code.INVALID_ARGUMENT, str(error))
        except RpcError as error:
            return json_response({"error": str(error)}, 503)

    def _view(self, request: Request) -> ShardView:
        return ShardView(self._reader(request), read_height(request.query))

    def _reader(self, request: Request) -> ShardReader:
        chains = {name: row for name, row in self._control.chains().items() if row["kind"] == "comet"}
        name = request.query.get("chain") or self._chain or (next(iter(chains)) if len(chains) == 1 else None)
        if name is None and "id" in request.params:
            name = placed(chains, read_stream_id(request.params["id"]))
        if name is None or name not in chains:
            there = f"there are {', '.join(sorted(chains)[:10])}" if chains else "there is none yet"
            raise BadInput(f"{there}: name one with ?chain=" if name is None else f"unknown shard {name[:100]!r}: {there}")
        with self._lock:
            if name not in self._readers:
                self._readers[name] = ShardReader(self._home, name, prefix=self._prefix)
                while len(self._readers) > KEPT_READERS:
                    self._readers.popitem(last=False)
            self._readers.move_to_end(name)
            return self._readers[name]


def placed(chains: Mapping[str, Row], stream_id: bytes) -> str | None:
    """The chain that keeps a stream, by the shard in its chain id; None if no chain tells."""
    for name, row in sorted(chains.items()):
        options = dict(row["options"] or {})
        shard = shard_of_chain(options.get("chain_id", name))
        if shard is not None and shard == shard_of(stream_id, int(options.get("mask", SHARD_MASK))):
            return name
    return None


def read_height(query: Mapping[str, str]) -> int | None:
    """The block that a query asks for; None for the last one."""
    text = query.get("height", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_HEIGHT):
        raise Refused(Code.INVALID_ARGUMENT, "invalid height")
    return int(text)


def _error(code: Code, message: str) -> Response:
    body: dict[str, Any] = {"code": int(code), "name": code.name, "message": message}
    return json_response(body, STATUS.get(code, 400))
