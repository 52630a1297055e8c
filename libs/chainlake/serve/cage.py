"""The cage and the UTxO set over HTTP, from the embedded reader.

Paths and answers are those of `cage.query`; `?height=` asks for an earlier block, `?chain=` for one of several chains, `?limit=`
and `?offset=` for a part of a list.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock

from chainlake.cage.query import answer, proof
from chainlake.cage.reader import CageReader
from chainlake.errors import BadInput
from chainlake.logs.rpc_values import RpcError
from chainlake.serve.control import LakeControl, chain_of_kind
from chainlake.serve.gateway import Gateway
from chainlake.serve.router import Request, Response, json_response

PATHS = (
    *("/cage", "/cage/tokens", "/cage/requests", "/cage/token/{token}", "/cage/token/{token}/facts"),
    *("/utxo/{txin}", "/utxos/address/{address}", "/utxos/asset/{policy}", "/utxos/asset/{policy}/{name}"),
)
PROOFS = ("/cage/token/{token}/proof/{key}", "/utxo/{txin}/proof")
CBOR = "application/cbor"


class CageRoutes:
    """The routes of all Cardano chains of a lake."""

    def __init__(self, gateway: Gateway, home: Path, prefix: str, control: LakeControl) -> None:
        self._gateway, self._home, self._prefix, self._control = gateway, home, prefix, control
        self._readers: dict[str, CageReader] = {}
        self._lock = Lock()
        for path in PATHS:
            gateway.router.add("GET", path, self.query)
        for path in PROOFS:
            gateway.router.add("GET", path, self.proof)

    async def query(self, request: Request) -> Response:
        """Tokens, requests, facts, outputs."""
        return await self._answered(lambda: self._found(request))

    async def proof(self, request: Request) -> Response:
        """A proof as JSON, or its CBOR with `?raw=true`."""
        return await self._answered(lambda: self._proven(request))

    def _found(self, request: Request) -> Response:
        found = answer(self._reader(request.query), _path(request), request.query)
        response, most = json_response(found, 404 if found is None else 200), self._gateway.settings.max_response
        if len(response.body) > most:
            raise BadInput(f"an answer of {len(response.body):,} bytes, where {most:,} are the most: ask for less with limit")
        return response

    def _proven(self, request: Request) -> Response:
        reader = self._reader(request.query)
        proven = proof(reader, _path(request), request.query)
        if request.query.get("raw", "false") not in ("", "0", "false"):
            return Response(200, proven.proof.to_bytes(), CBOR)
        return json_response(proven.to_json(reader.chain))

    async def _answered(self, work: Callable[[], Response]) -> Response:
        try:
            return await self._gateway.pool.run(work, self._gateway.settings.request_seconds)
        except BadInput as error:
            return json_response({"error": str(error)}, 404 if str(error).startswith("there is no token") else 400)
        except RpcError as error:
            return json_response({"error": str(error)}, 503)

    def _reader(self, query: Mapping[str, str]) -> CageReader:
        name = chain_of_kind(self._control.chains(), "cardano", query.get("chain") or None, "name one with ?chain=")
        with self._lock:
            if name not in self._readers:
                self._readers[name] = CageReader(self._home, name, prefix=self._prefix)
            return self._readers[name]


def _path(request: Request) -> str:
    """The path with its parts unquoted, so that `txid%23index` is an output."""
    from urllib.parse import unquote

    return unquote(request.path)
