"""GET /notifications: pages by offset, waiting for news, and answers to bad requests."""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from chainlake.errors import BadInput, BrokenPromise
from chainlake.lake.visibility import ADVANCE, ROLLBACK, Commit
from chainlake.serve.embedded import EmbeddedLake
from chainlake.serve.notifications import Notifications
from chainlake.serve.pool import WorkPool
from chainlake.serve.router import Request, Response
from chainlake.sync.feed import Feed
from chainlake.sync.query import Notification, check_range, only_chain
from tests.unit.logs_lake import KERNEL, LEDGER, START


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


NOTES = pa.schema(
    [
        *KERNEL,
        *(("offset", pa.int64()), ("stream_id", pa.binary()), ("miniblock_num", pa.int64()), ("event_index", pa.int32())),
        *(("event_hash", pa.binary()), ("payload", pa.binary())),
        *((name, pa.bool_()) for name in ("historical", "duplicate", "minipool")),
    ]
)


class Written:
    """gold.notifications and the ledger of a lake, written without Spark."""

    def __init__(self, home: Path) -> None:
        self.store, self.ledger = home / "warehouse/store/gold_notifications", home / "warehouse/control/ledger"

    def notes(self, commit: int, height: int, offsets: range, chain: str = "town") -> None:
        rows = [
            {"_chain": chain, "_height": height, "_commit": commit, **asdict(note)}
            for note in FakeFeed(offsets.stop - 1).after(offsets.start - 1, 100)
        ]
        for part in (rows[::2], rows[1::2]):  # files of one commit overlap
            write_deltalake(self.store, pa.Table.from_pylist(part, NOTES), mode="append")

    def commit(self, seq: int, commit_id: int, kind: str, base: int, height: int) -> None:
        row = Commit("gold.sync", "town", "town", seq, commit_id, kind, base, height, committed_at=START, epoch=1)
        write_deltalake(self.ledger, pa.Table.from_pylist([asdict(row)], LEDGER), mode="append")


def test_the_feed_sees_what_is_committed_and_nothing_else(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.notes(10, 1, range(1, 8))
    written.commit(1, 10, ADVANCE, 0, 1)
    feed = Feed(EmbeddedLake(tmp_path), "town")
    assert [note.offset for note in feed.after(0, 5)] == [1, 2, 3, 4, 5]
    assert [note.event_hash for note in feed.after(5, 5)] == [b"\x06", b"\x07"] and feed.after(7, 5) == []
    written.notes(20, 2, range(8, 12))
    assert feed.after(7, 5) == [], "not committed"
    written.notes(30, 2, range(8, 10))
    written.notes(40, 1, range(1, 30), chain="other")
    written.commit(2, 30, ADVANCE, 1, 2)
    assert [note.offset for note in feed.after(5, 50)] == [6, 7, 8, 9]
    written.commit(3, 50, ROLLBACK, 2, 1)
    assert [note.offset for note in feed.after(5, 50)] == [6, 7]


def test_a_page_of_large_notifications_ends_early_and_the_next_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(tmp_path)
    written.notes(10, 1, range(1, 8))
    written.commit(1, 10, ADVANCE, 0, 1)
    feed = Feed(EmbeddedLake(tmp_path), "town")
    asked: list[str] = []
    kept = feed._files.read
    monkeypatch.setattr(feed._files, "read", lambda source, *how: asked.append(source.path) or kept(source, *how))
    for most, pages in ((4 * len(b"event"), [[1, 2, 3, 4], [5, 6, 7]]), (1, [[1], [2], [3], [4], [5], [6], [7]])):
        monkeypatch.setattr("chainlake.sync.feed.MOST_BYTES", most)
        found, offset = [], 0
        while page := feed.after(offset, 50):
            found.append([note.offset for note in page])
            offset = page[-1].offset
        assert found == pages
    written.notes(20, 2, range(8, 15))
    written.commit(2, 20, ADVANCE, 1, 2)
    asked.clear()
    assert [note.offset for note in feed.after(0, 50)] == [1] and len(asked) == 1, "what cannot be on the page is not read"


def test_a_damaged_file_of_notifications_is_named(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.notes(10, 1, range(1, 8))
    written.commit(1, 10, ADVANCE, 0, 1)
    for path in written.store.glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BrokenPromise, match=r"^gold_notifications/\S+\.parquet is damaged \(.+\): run lake verify"):
        Feed(EmbeddedLake(tmp_path), "town").after(0, 50)
