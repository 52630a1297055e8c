"""GET /notifications?after=N: what came after an offset; if nothing has, the answer waits a while for something to come."""

import asyncio
import time
from collections.abc import Callable, Mapping

from chainlake.errors import BadInput
from chainlake.logs.rpc_values import RpcError
from chainlake.serve.pool import WorkPool
from chainlake.serve.router import Request, Response, Router, json_response
from chainlake.sync.feed import Feed

LOOK_SECONDS = 0.25
DEFAULT_LIMIT, DEFAULT_WAIT, LONGEST_WAIT = 1_000, 20, 25
PARAMETERS = ("after", "limit", "wait", "chain")


class Notifications:
    """The handler. `open_feed` gives the feed of a chain; without a name, of the only one."""

    def __init__(self, open_feed: Callable[[str], Feed], pool: WorkPool, seconds: float) -> None:
        self._open = open_feed
        self._pool = pool
        self._seconds = seconds
        self._feeds: dict[str, Feed] = {}

    def add_to(self, router: Router) -> None:
        router.add("GET", "/notifications", self.handle)

    async def handle(self, request: Request) -> Response:
        """Notifications as JSON, and `next`: the offset to ask after the next time."""
        try:
            unknown = sorted(set(request.query) - set(PARAMETERS))
            if unknown:
                raise BadInput(f"there is no parameter {unknown[0][:40]!r}: there are {', '.join(PARAMETERS)}")
            after = _number(request.query, "after", 0, (1 << 62) - 1)
            limit = _number(request.query, "limit", DEFAULT_LIMIT, 10_000, 1)
            wait = _number(request.query, "wait", DEFAULT_WAIT, LONGEST_WAIT)
            feed = await self._pool.run(lambda: self._feed(request.query.get("chain", "")), self._seconds)
            found = await self._wait(feed, after, limit, time.monotonic() + wait)
        except BadInput as error:
            return json_response({"error": str(error)}, 400)
        except RpcError as error:
            return json_response({"error": str(error)}, 503)
        last = found[-1]["offset"] if found else after
        return json_response({"chain": feed.chain, "notifications": found, "next": last})

    async def _wait(self, feed: Feed, after: int, limit: int, deadline: float) -> "list[dict[str, object]]":
        while True:
            found = await self._pool.run(lambda: feed.after(after, limit), self._seconds)
            if found or time.monotonic() >= deadline:
                return [one.to_json() for one in found]
            await asyncio.sleep(LOOK_SECONDS)

    def _feed(self, chain: str) -> Feed:
        if chain not in self._feeds:
            self._feeds[chain] = self._open(chain)
        return self._feeds[chain]


def _number(query: Mapping[str, str], name: str, default: int, most: int, least: int = 0) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or not least <= int(text) <= most:
        raise BadInput(f"{name} is {text[:40]!r}: a number from {least} to {most} is expected")
    return int(text)
