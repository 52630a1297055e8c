"""What is checked of a miniblock on the way in, one by one: each check fails alone, and says what is wrong."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from chainlake.demo.river_node import StreamNode
from chainlake.sources.river import read_pass
from chainlake.sources.wire import field_bytes, field_int, message
from chainlake.sync.hashing import river_hash
from chainlake.sync.miniblock import UNREAD, open_miniblock
from tests.unit.test_sync_fold import bronze

FIRST, SECOND = field_bytes(103, b"one"), field_bytes(103, b"two")
BEFORE = b"p" * 32


def envelope(event: bytes, stated: bytes | None = None) -> bytes:
    return field_bytes(1, river_hash(event) if stated is None else stated) + field_bytes(3, event)


def header(number: int = 7, events: Sequence[bytes] = (FIRST, SECOND), before: bytes = BEFORE) -> bytes:
    listed = b"".join(field_bytes(4, river_hash(event)) for event in events)
    return field_bytes(100, field_int(1, number) + field_bytes(2, before) + listed)


def miniblock(head: bytes, *events: bytes) -> bytes:
    return b"".join(field_bytes(1, event) for event in events) + field_bytes(2, head)


SOUND = (envelope(FIRST), envelope(SECOND))
WRONG = {
    "header of another hash": (miniblock(envelope(header(), river_hash(b"")), *SOUND), "its header does not have the hash"),
    "an event too few": (miniblock(envelope(header()), SOUND[0]), "it has 1 events, its header lists 2"),
    "an event too many": (miniblock(envelope(header()), *SOUND, SOUND[0]), "it has 3 events, its header lists 2"),
    "events in another order": (miniblock(envelope(header()), *SOUND[::-1]), "event 0 states the hash"),
    "an event of another hash": (miniblock(envelope(header()), SOUND[0], envelope(FIRST)), "event 1 states the hash"),
    "an event that was changed": (
        miniblock(envelope(header()), SOUND[0], envelope(FIRST, river_hash(SECOND))),
        "event 1 does not have the hash",
    ),
    "a link that is none": (miniblock(envelope(header(before=b"p" * 31)), *SOUND), "with a previous hash of 31 bytes"),
    "no link": (miniblock(envelope(header(before=b"")), *SOUND), "it is number 7, with a previous hash of 0 bytes"),
}


def test_a_sound_miniblock_has_no_problem() -> None:
    found = open_miniblock(miniblock(envelope(header()), *SOUND))
    assert found.problem is None and (found.number, found.prev_hash) == (7, BEFORE) and found.hash == river_hash(header())
    assert [event.body for event in found.events] == [FIRST, SECOND]
    for before in (b"", bytes(32)):
        assert open_miniblock(miniblock(envelope(header(0, before=before)), *SOUND)).problem is None, "a genesis follows nothing"
    assert open_miniblock(miniblock(envelope(header(events=())))).problem is None, "a miniblock without events"


@pytest.mark.parametrize(("raw", "problem"), WRONG.values(), ids=WRONG)
def test_each_check_says_what_is_wrong(raw: bytes, problem: str) -> None:
    found = open_miniblock(raw)
    assert found.number == 7 and problem in str(found.problem)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xff", miniblock(b""), miniblock(envelope(SECOND)), miniblock(envelope(header(), b"short")), miniblock(b"\x0a")],
)
def test_what_has_no_header_has_no_number(raw: bytes) -> None:
    found = open_miniblock(raw)
    assert (found.number, found.hash) == (UNREAD, b"") and found.problem


def test_an_event_of_a_recorded_minipool_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    node = StreamNode(1)
    (stream_id,) = node.streams
    node.grow(stream_id, 2, minipool=2)
    answer = message(node.answer(stream_id), 1)
    stated = [envelope[2:34] for envelope in node.streams[stream_id].minipool]
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / f"{stream_id.hex()}.bin").write_bytes(field_bytes(1, field_bytes(1, b"\x0a\x20half") + answer))
    (row,), _ = bronze([read_pass(str(tmp_path), 1, bytes(32))])
    assert [event["event_hash"] for event in row["events"]] == [b"", *stated] and row["minipool_gen"] == 3
    assert [event["problem"] for event in row["events"]] == ["it cannot be read, or states no hash", None, None]
    assert row["events"][0]["payload"] == b"\x0a\x20half" and row["events"][0]["creator_address"] == b""


def test_an_unsound_event_of_a_minipool_is_marked_and_no_other(tmp_path: Path) -> None:
    node = StreamNode(1)
    (stream_id,) = node.streams
    node.grow(stream_id, 2, minipool=3)
    (tmp_path / "1").mkdir()
    damaged = node.answer(stream_id).replace(b"message", b"massage", 1)
    (tmp_path / "1" / f"{stream_id.hex()}.bin").write_bytes(damaged)
    (row,), marks = bronze([read_pass(str(tmp_path), 1, bytes(32))])
    stated = [envelope[2:34] for envelope in node.streams[stream_id].minipool]
    assert [event["event_hash"] for event in row["events"]] == stated
    problems = [event["problem"] for event in row["events"]]
    assert "it does not have the hash" in problems[0] and problems[1:] == [None, None]
    assert len(marks) == 3 and not any(mark["problem"] for mark in marks)
