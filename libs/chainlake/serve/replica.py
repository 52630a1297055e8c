"""Replicas over HTTP: their health, and their rows.

Rows are read in the pool, as by all queries, so that one client cannot take all threads. Health is not: a load balancer hears of
it while queries keep the pool busy.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from chainlake.errors import BadInput
from chainlake.logs.rpc_values import RpcError
from chainlake.replica.query import NotFresh, ReplicaReader
from chainlake.serve.pool import WorkPool
from chainlake.serve.router import Request, Response, Router, json_response


class ReplicaRoutes:
    """`/replica`, `/replica/{id}/health` and `/replica/{id}/rows/{table}?user=…&stale=true`."""

    def __init__(self, reader: ReplicaReader, pool: WorkPool, seconds: float) -> None:
        self._reader = reader
        self._pool = pool
        self._seconds = seconds

    def add_to(self, router: Router) -> None:
        router.add("GET", "/replica", self._list)
        router.add("GET", "/replica/{id}/health", self._health)
        router.add("GET", "/replica/{id}/rows/{table}", self._rows)

    async def _list(self, request: Request) -> Response:
        return await _answer(asyncio.to_thread(lambda: (self._reader.names(), 200)))

    async def _health(self, request: Request) -> Response:
        """200 for a replica that may lead, 503 for one that waits, stopped or has received nothing, so that a load balancer can
        tell."""

        def look() -> tuple[Any, int]:
            health = self._reader.health(request.params["id"])
            return health.to_json(), 200 if health.eligible_leader else 503

        return await _answer(asyncio.to_thread(look))

    async def _rows(self, request: Request) -> Response:
        def look() -> tuple[Any, int]:
            stale = request.query.get("stale", "false") == "true"
            found = self._reader.read(request.params["id"], request.params["table"], request.query.get("user"), stale)
            return vars(found), 200

        return await _answer(self._pool.run(look, self._seconds))


async def _answer(looked: Awaitable[tuple[Any, int]]) -> Response:
    """Files are read in a thread, so that others are not kept waiting."""
    try:
        value, status = await looked
    except BadInput as error:
        return json_response({"error": str(error)}, 404)
    except NotFresh as error:
        return json_response({"error": str(error)}, 409)
    except RpcError as error:
        return json_response({"error": str(error)}, 503)
    return json_response(value, status)
