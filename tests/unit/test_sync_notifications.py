"""GET /notifications: pages by offset, waiting for news, and answers to bad requests."""

import asyncio
import json
from typing import Any

import pytest

from chainlake.errors import BadInput
from chainlake.serve.notifications import Notifications
from chainlake.serve.pool import WorkPool
from chainlake.serve.router import Request, Response
from chainlake.sync.query import Notification, check_range, only_chain


class FakeFeed:
    """Notifications that come as time goes by: so many more at each look."""

    chain = "town"

    def __init__(self, there: int, more: int = 0) -> None:
        self.there, self.more, self.looks = there, more, 0

    def after(self, offset: int, limit: int) -> list[Notification]:
        self.looks += 1
        found = range(offset + 1, min(self.there, offset + limit) + 1)
        self.there += self.more
        return [Notification(n, b"\x20", n, 0, bytes([n]), b"event", False, False, False) for n in found]


def ask(feed: FakeFeed, **query: str) -> tuple[int, Any]:
    def opened(chain: str) -> Any:
        if chain not in ("", "town"):
            raise BadInput(f"unknown chain of streams {chain!r}")
        return feed

    async def run() -> Response:
        pool = WorkPool(1, 4)
        try:
            return await Notifications(opened, pool, 5.0).handle(Request("GET", "/notifications", query=query))
        finally:
            pool.close()

    answer = asyncio.run(run())
    return answer.status, json.loads(answer.body)


def test_a_consumer_goes_on_after_its_offset() -> None:
    status, page = ask(FakeFeed(5), after="2", limit="2")
    assert status == 200 and page["chain"] == "town" and page["next"] == 4
    assert [(one["offset"], one["event_hash"], one["payload"]) for one in page["notifications"]] == [
        (3, "0x03", "0x6576656e74"),
        (4, "0x04", "0x6576656e74"),
    ]
    assert ask(FakeFeed(5), after="5", wait="0") == (200, {"chain": "town", "notifications": [], "next": 5})


def test_an_answer_waits_for_news() -> None:
    feed = FakeFeed(4, more=1)
    status, page = ask(feed, after="5")
    assert status == 200 and [one["offset"] for one in page["notifications"]] == [6] and feed.looks == 3


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"after": "-1"}, "after is '-1'"),
        ({"after": "x" * 100}, "a number from 0"),
        ({"limit": "0"}, "a number from 1 to 10000"),
        ({"limit": "99999"}, "a number from 1 to 10000"),
        ({"wait": "26"}, "from 0 to 25"),
        ({"chain": "other"}, "unknown chain of streams 'other'"),
        ({"from": "3"}, "no parameter 'from'"),
    ],
)
def test_bad_requests_are_told_why(query: dict[str, str], message: str) -> None:
    status, answer = ask(FakeFeed(1), **query)
    assert status == 400 and message in answer["error"]


def test_the_only_chain_of_streams_needs_no_name() -> None:
    chains = {"a": {"kind": "evm"}, "town": {"kind": "river"}}
    assert only_chain(chains, "") == only_chain(chains, "town") == "town"
    with pytest.raises(BadInput, match="unknown chain of streams 'a'"):
        only_chain(chains, "a")
    with pytest.raises(BadInput, match="there are b, town"):
        only_chain({**chains, "b": {"kind": "river"}}, "")
    for offset, limit in ((-1, 5), (1, 0), (1, 10_001)):
        with pytest.raises(BadInput, match="is expected"):
            check_range(offset, limit)
