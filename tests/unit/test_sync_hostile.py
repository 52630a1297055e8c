"""Nodes that mean no good: whatever they send ends in time, is told in one line, and spoils nothing for other streams."""

import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from chainlake.demo.river_node import StreamNode
from chainlake.demo.river_server import RiverServer
from chainlake.errors import BadInput
from chainlake.sources.river import read_pass
from chainlake.sources.wire import field_bytes, field_int, message
from chainlake.sync.client import Asking, ConnectClient
from chainlake.sync.fetching import ARROW
from chainlake.sync.hashing import river_hash
from chainlake.sync.messages import read_answer
from chainlake.sync.miniblock import UNREAD, Block, open_miniblock
from chainlake.sync.service import Refused
from chainlake.sync.settle import walk_back
from tests.unit.test_sync_fold import asked, order
from tests.unit.test_sync_rules import ID, node_with

Script = Callable[[socket.socket], None]


class Liar:
    """A node that does what a script says with each connection."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(peer,), daemon=True).start()

    def _talk(self, peer: socket.socket) -> None:
        with closing(peer):
            try:
                request = peer.makefile("rb")
                lines = iter(request.readline, b"\r\n")
                request.read(sum(int(line.split()[1]) for line in lines if line.lower().startswith(b"content-length:")))
                self._script(peer)
            except OSError:
                return


def says(text: bytes, *, status: bytes = b"200 OK", kind: bytes = b"application/proto", more: bytes = b"") -> Script:
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n" % (status, kind, more, len(text))
    return lambda peer: peer.sendall(head + text)


def drips(start: bytes, again: bytes, seconds: float = 0.02) -> Script:
    def script(peer: socket.socket) -> None:
        peer.sendall(start)
        while True:
            peer.sendall(again)
            time.sleep(seconds)

    return script


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TIMELY: dict[str, tuple[Script, str]] = {
    "headers that never end": (drips(b"HTTP/1.1 200 OK\r\nX: ", b"x"), "no whole answer within 1 s"),
    "a status line that never ends": (drips(b"", b"H"), "no whole answer within 1 s"),
    "always to be continued": (drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0), "no whole answer within 1 s"),
    "a chunk whose length never ends": (drips(CHUNKED, b"0"), "no whole answer within 1 s"),
    "a body that never ends": (drips(CHUNKED, b"1\r\nx\r\n"), "no whole answer within 1 s"),
    "a body that is broken off": (lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), "IncompleteRead"),
    "nothing": (lambda peer: None, "broke off the connection"),
    "another protocol": (lambda peer: peer.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"), "broke off the connection"),
}
WORDY: dict[str, tuple[Script, str]] = {
    "a page of HTML": (says(b"<html>it works</html>", kind=b"text/html"), "cannot be read"),
    "JSON": (says(b'{"stream": {}}', kind=b"application/json"), "cannot be read"),
    "an empty body": (says(b""), "without a miniblock"),
    "garbage": (says(bytes(range(255, 0, -1)) * 9), "cannot be read"),
    "an answer in pieces": (says(field_bytes(1, field_bytes(3, b"x" * 9))[:-1]), "cannot be read"),
    "gzip that is none": (says(b"\x1f\x8bnot", more=b"Content-Encoding: gzip\r\n"), "broke off the connection"),
    "a redirect": (says(b"", status=b"302 Found", more=b"Location: http://127.0.0.1:1/\r\n"), "answered HTTP 302"),
    "a pause until a year that no calendar has": (
        says(b"", status=b"503 Later", more=b"Retry-After: Mon, 01 Jan 99999999999999999999 00:00:00 GMT\r\n"),
        "answered HTTP 503",
    ),
    "no content": (lambda peer: peer.sendall(b"HTTP/1.1 204 No Content\r\n\r\n"), "answered HTTP 204"),
    "an error with controls in it": (
        says(b'{"code": "int\\u001b[2Jernal", "message": "\\n\\u2603"}', status=b"500 No"),
        "says int [2Jernal:  ☃",
    ),
}


@pytest.fixture
def honest() -> Iterator[RiverServer]:
    server = RiverServer(node_with(12, page_limit=7)).start()
    yield server
    server.stop()


@pytest.mark.parametrize(("script", "reason"), [*TIMELY.values(), *WORDY.values()], ids=[*TIMELY, *WORDY])
def test_whatever_a_node_sends_is_refused_in_time_and_the_next_one_answers(
    script: Script, reason: str, honest: RiverServer
) -> None:
    with closing(Liar(script)) as liar:
        started = time.monotonic()
        with pytest.raises(Refused) as refusal:
            ConnectClient([liar.url], {}, Asking(timeout=1, retries=0)).get_stream(ID)
        assert reason in str(refusal.value) and str(refusal.value).isprintable()
        told = ConnectClient([liar.url, honest.url], {}, Asking(timeout=1)).get_stream(ID)
        assert told == honest.node.get_stream(ID) and time.monotonic() - started < 9


def test_an_event_of_a_minipool_that_cannot_be_read_keeps_no_stream_from_going_on(honest: RiverServer) -> None:
    honest.node.grow(ID, 0, minipool=1)
    bent = field_bytes(1, field_bytes(1, b"\x0a\x20half") + message(honest.node.answer(ID), 1))
    with closing(Liar(says(bent))) as liar:
        told = ConnectClient([liar.url], {}, Asking(timeout=1, retries=0)).get_stream(ID)
    assert [event.hash for event in told.minipool] == [b"", honest.node.streams[ID].minipool[0][2:34]]
    assert told.miniblocks == honest.node.get_stream(ID).miniblocks and read_answer(told.rest).minipool == told.minipool


def test_an_answer_larger_than_any_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainlake.sync.client.MAX_RESPONSE", 1 << 20)
    endless = drips(CHUNKED, b"10000\r\n" + bytes(1 << 16) + b"\r\n", 0)
    with closing(Liar(endless)) as liar, pytest.raises(Refused, match="answered with more than 1048576 bytes"):
        ConnectClient([liar.url], {}, Asking(timeout=30, retries=0)).get_stream(ID)


def test_a_minipool_larger_than_any_is_refused_and_the_next_node_asked(
    honest: RiverServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainlake.sync.client.MOST_BESIDE", 1000)
    crowded = StreamNode()
    crowded.streams = {ID: honest.node.streams[ID].backup()}
    crowded.grow(ID, 0, minipool=9)
    server = RiverServer(crowded).start()
    try:
        with pytest.raises(Refused, match=r"bytes besides miniblocks, more than the 1000 of any"):
            ConnectClient([server.url], {}, Asking(retries=0)).get_stream(ID)
        assert ConnectClient([server.url, honest.url], {}, Asking()).get_stream(ID) == honest.node.get_stream(ID)
    finally:
        server.stop()


def test_an_answer_of_countless_little_things_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainlake.sources.wire.MOST_FIELDS", 1000)
    with closing(Liar(says(field_bytes(1, b"") * 1000))) as liar:
        page = ConnectClient([liar.url], {}, Asking(retries=0)).get_miniblocks(ID, 1, 5)
    assert page == [Block(b"")] * 4, "evidence, but no more than was asked for"
    with closing(Liar(says(field_bytes(1, b"") * 1001))) as liar, pytest.raises(Refused, match=r"read .* more than 1000 fields"):
        ConnectClient([liar.url], {}, Asking(retries=0)).get_miniblocks(ID, 1, 5)


def test_a_miniblock_of_countless_little_things_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainlake.sources.wire.MOST_FIELDS", 1000)
    header = field_int(1, 7) + field_bytes(2, b"p" * 32)
    for count, names, number in ((900, 0, 7), (1000, 0, UNREAD), (0, 900, 7), (0, 1001, UNREAD)):
        event = field_bytes(100, header) + field_bytes(100, field_bytes(4, b"") * names)  # protobuf takes both together
        raw = field_bytes(1, b"") * count + field_bytes(2, field_bytes(1, river_hash(event)) + field_bytes(3, event))
        found = open_miniblock(raw)
        problem = f"it has {count} events, its header lists {names}" if number == 7 else "more than 1000 fields"
        assert found.number == number and problem in str(found.problem)
    assert open_miniblock(field_bytes(1, b"x" * 5000)).problem == "it has no header with a hash of 32 bytes", "large, but few"


def test_a_timeout_longer_than_the_system_can_wait_is_a_long_one(honest: RiverServer) -> None:
    assert ConnectClient([honest.url], {}, Asking(timeout=10**17)).get_stream(ID) == honest.node.get_stream(ID)


def test_an_answer_about_another_stream_is_none(honest: RiverServer) -> None:
    class Confused(StreamNode):
        def answer(self, stream_id: bytes) -> bytes:
            return super().answer(next(iter(self.streams)))

    confused = RiverServer(Confused(1)).start()
    other = next(iter(confused.node.streams))
    try:
        both = ConnectClient([confused.url, honest.url], {}, Asking())
        assert both.get_stream(ID) == honest.node.get_stream(ID)
        with pytest.raises(Refused, match=f"answered about the stream {other.hex()}"):
            ConnectClient([confused.url], {}, Asking(retries=0)).get_stream(ID)
    finally:
        confused.stop()


def test_a_recorded_answer_about_another_stream_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / f"{ID.hex()}.bin").write_bytes(node_with(2).answer(ID))
    assert len(read_pass(str(tmp_path), 1, bytes(32)).transactions) == 3
    (folder / "20ff.bin").write_bytes(node_with(2).answer(ID))
    with pytest.raises(BadInput, match=f"20ff.bin is an answer about the stream {ID.hex()}, not about"):
        read_pass(str(tmp_path), 1, bytes(32))


def miniblock(number: int, seconds: int = 0, nanos: int = 0) -> bytes:
    """A miniblock of any number and time, with the right hash."""
    header = field_int(1, number) + field_bytes(2, b"p" * 32) + field_bytes(3, field_int(1, seconds) + field_int(2, nanos))
    event = field_bytes(100, header)
    return field_bytes(2, field_bytes(1, river_hash(event)) + field_bytes(3, event))


LAST_SECOND = 253_402_300_799
ODD = (-(1 << 63), -1, 1 << 62, (1 << 63) - 1)


@pytest.mark.parametrize("number", ODD)
def test_a_number_that_no_miniblock_can_have_stops_its_stream_and_no_other(number: int, honest: RiverServer) -> None:
    found = open_miniblock(miniblock(number))
    assert found.number == UNREAD and found.problem == f"no miniblock can have its number {number}"
    strange = b"\x20" + b"\x02" * 31
    cookie = field_bytes(2, strange) + field_int(3, number)

    class Strange(StreamNode):
        def answer(self, stream_id: bytes) -> bytes:
            stream = field_bytes(2, cookie) + field_bytes(3, miniblock(number)) + field_int(6, number)
            return field_bytes(1, stream) if stream_id == strange else super().answer(stream_id)

    server = RiverServer(Strange()).start()
    server.node.streams = honest.node.streams
    try:
        rows = [row for batch in order([server.url], 99)([asked([strange, ID])]) for row in batch.to_pylist()]
    finally:
        server.stop()
    assert [(row["status"], row["minipool_gen"]) for row in rows] == [("taken", 0), ("taken", 13)]
    assert pa.RecordBatch.from_pylist(rows, ARROW).num_rows == 2 and rows[0]["count"] == 1, "kept as evidence"


@pytest.mark.parametrize(
    ("seconds", "nanos", "micros"),
    [
        (0, 0, 0),
        (LAST_SECOND, 999_999_999, LAST_SECOND * 10**6 + 999_999),
        (LAST_SECOND + 1, 0, None),
        (-1, 0, None),
        (5, -1, None),
    ],
)
def test_times_that_no_calendar_has_are_none(seconds: int, nanos: int, micros: int | None) -> None:
    found = open_miniblock(miniblock(7, seconds, nanos))
    assert found.timestamp_us == micros and found.problem is None
    if micros is not None:
        assert pa.scalar(micros, pa.timestamp("us", tz="UTC")).as_py().year in (1970, 9999)


def test_pages_that_always_begin_later_come_to_an_end() -> None:
    class Receding(StreamNode):
        def page(self, stream_id: bytes, start: int, end: int) -> bytes:
            return field_int(3, end)

    server = RiverServer(Receding()).start()
    try:
        with pytest.raises(Refused, match="again and again that miniblocks begin later"):
            ConnectClient([server.url], {}, Asking()).get_miniblocks(ID, 1, 1 << 61)
        assert server.calls["GetMiniblocks"] < 20
    finally:
        server.stop()


def test_walking_back_keeps_no_miniblocks_only_their_places() -> None:
    node, alive = node_with(60, page_limit=5), []

    class Watched(StreamNode):
        def get_miniblocks(self, stream_id: bytes, start: int, end: int) -> list[Block]:
            alive.append(sum(one() is not None for one in seen))
            found = node.get_miniblocks(stream_id, start, end)
            seen.extend(weakref.ref(block) for block in found)
            return found

    seen: list[weakref.ref[Block]] = []
    places = walk_back(Watched(), ID, 60, 60)
    assert isinstance(places, Sequence) and [number for number, _ in places] == list(range(60))
    assert len(alive) == 12 and max(alive) <= 5, "a page at a time, however far it goes"
