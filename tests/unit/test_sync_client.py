"""The Connect client against the test server, over loopback: nodes that fail, lag, lie or trim."""

import http.client
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from types import SimpleNamespace

import pytest

from chainlake.demo.river_node import StreamNode
from chainlake.demo.river_server import RiverServer
from chainlake.errors import BadInput
from chainlake.sync.client import UNHEARD, Asking, ConnectClient, asking
from chainlake.sync.miniblock import Block
from chainlake.sync.service import Refused
from chainlake.sync.turns import Turns
from tests.unit.sync_model import Synced
from tests.unit.test_sync_hostile import Liar, says

ID = b"\x20" + b"\x07" * 31


@pytest.fixture
def node() -> StreamNode:
    made = StreamNode(page_limit=7)
    made.create(ID)
    made.grow(ID, 12)
    return made


@pytest.fixture
def servers(node: StreamNode) -> Iterator[list[RiverServer]]:
    made = [RiverServer(node).start() for _ in range(2)]
    yield made
    for server in made:
        server.stop()


def client(servers: list[RiverServer], pauses: list[float] | None = None, **how: float) -> ConnectClient:
    waits = pauses if pauses is not None else []
    return ConnectClient([server.url for server in servers], {}, Asking(**{"timeout": 5, **how}), pause=waits.append)  # type: ignore[arg-type]


def test_streams_and_pages_come_over_the_network_as_they_are(node: StreamNode, servers: list[RiverServer]) -> None:
    asked = client(servers, page_size=5)
    assert asked.get_stream(ID) == node.get_stream(ID)
    blocks = [Block(one.raw) for one in node.streams[ID].miniblocks]
    assert list(asked.get_miniblocks(ID, 1, 13)) == blocks[1:6], "the client's page"
    assert list(client(servers).get_miniblocks(ID, 1, 13)) == blocks[1:8], "the server's page"
    assert servers[1].calls == {}, "the second node is asked only if the first fails"


def test_a_failing_node_is_passed_over_and_a_failing_service_is_asked_again_with_pauses(servers: list[RiverServer]) -> None:
    pauses: list[float] = []
    servers[0].failing = 1
    client(servers, pauses).get_stream(ID)
    assert pauses == [] and servers[1].calls["GetStream"] == 1
    servers[0].failing = servers[1].failing = 2
    client(servers, pauses).get_stream(ID)
    assert len(pauses) == 2 and 0.12 < pauses[0] < 0.26 and 0.24 < pauses[1] < 0.51, "half to all of 0.25 s, then of 0.5 s"
    servers[0].failing = servers[1].failing = 99
    with pytest.raises(Refused, match=r"503|unavailable: this node fails"):
        client(servers, retries=2).get_stream(ID)


def test_what_no_node_has_is_refused_at_once(servers: list[RiverServer]) -> None:
    pauses: list[float] = []
    with pytest.raises(Refused, match="not_found: there is no stream 20ff"):
        client(servers, pauses).get_stream(b"\x20\xff")
    assert pauses == []


def test_an_empty_page_is_unavailable(servers: list[RiverServer]) -> None:
    pauses: list[float] = []
    with pytest.raises(Refused, match="without the miniblocks from 13 on"):
        client(servers, pauses, retries=3).get_miniblocks(ID, 13, 20)
    assert len(pauses) == 3


class Silent(StreamNode):
    """A node that gives nothing in place of what it has trimmed, and does not say so."""

    def page(self, stream_id: bytes, start: int, end: int) -> bytes:
        return b"" if start < self.streams[stream_id].trimmed else super().page(stream_id, start, end)


def test_a_stream_is_followed_without_its_genesis_only_if_every_node_was_heard() -> None:
    silent = Silent()
    silent.create(ID)
    silent.grow(ID, 12)
    silent.streams[ID].trim(9)
    made = [RiverServer(silent).start() for _ in range(2)]
    try:
        made[1].failing = 99
        with pytest.raises(Refused, match=r"without the miniblocks from 0 on; .* unavailable"):
            Synced().sync(client(made, retries=1), ID)
        made[1].failing = 0
        synced = Synced()
        synced.sync(client(made, retries=1), ID)
        assert synced.state is not None and (synced.state.minipool_gen, synced.state.genesis_hash) == (13, None)
        assert [note[0] for note in synced.notes] == [10, 10, 11, 11, 12, 12] and synced.gaps == []
    finally:
        for server in made:
            server.stop()


def test_what_was_fetched_of_a_gap_is_kept_when_the_nodes_fail_inside_it(node: StreamNode, servers: list[RiverServer]) -> None:
    asked, synced = client(servers, retries=0), Synced()
    synced.sync(asked, ID)
    node.grow(ID, 30)
    full, node.page_limit = node.page, 7

    def broken(stream_id: bytes, start: int, end: int) -> bytes:
        return b"" if start >= 27 else full(stream_id, start, end)

    node.page = broken  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(Refused, match="without the miniblocks from 27 on"):
            synced.sync(asked, ID)
        assert synced.state is not None and synced.state.minipool_gen == 27 and len(synced.raw) == 2, "nothing is fetched twice"
    assert synced.gaps == [], "nobody said that it is gone"
    node.page = full  # type: ignore[method-assign]
    synced.sync(asked, ID)
    assert synced.events == [e.hash for one in node.streams[ID].miniblocks[10:] for e in Block(one.raw).opened.events]
    assert all(note[3] for note in synced.notes)


def test_a_node_that_has_trimmed_or_damaged_its_history_is_bettered_by_the_other(node: StreamNode) -> None:
    other = StreamNode()
    other.streams = {ID: node.streams[ID].backup()}
    poor, rich = RiverServer(other).start(), RiverServer(node).start()
    try:
        other.streams[ID].trim(9)
        blocks = [Block(one.raw) for one in node.streams[ID].miniblocks]
        assert list(client([poor, rich]).get_miniblocks(ID, 1, 5)) == blocks[1:5]
        assert list(client([poor, rich]).get_miniblocks(ID, 1, 13)) == blocks[1:8]
        assert list(client([poor]).get_miniblocks(ID, 1, 13)) == blocks[9:13], "gone everywhere: from where it begins"
        assert client([poor]).get_miniblocks(ID, 1, 5) == [], "gone everywhere"
        poor.control("damage", {"stream": ID.hex(), "miniblock": 11})
        assert client([poor, rich]).get_stream(ID) == node.get_stream(ID)
        assert client([poor]).get_stream(ID) != node.get_stream(ID), "damaged everywhere: as evidence"
    finally:
        poor.stop()
        rich.stop()


def test_a_node_that_lags_is_passed_over_and_believed_only_if_all_do(node: StreamNode) -> None:
    other = StreamNode()
    other.streams = {ID: node.streams[ID].backup()}
    lagging, ahead = RiverServer(other).start(), RiverServer(node).start()
    try:
        synced = Synced()
        synced.sync(client([ahead]), ID)
        node.grow(ID, 3)
        synced.sync(client([ahead]), ID)
        both = client([lagging, ahead])
        synced.sync(both, ID)
        assert len(synced.raw) == 2, "a node with less says nothing about the stream"
        node.grow(ID, 1, minipool=1)
        other.grow(ID, 1)
        synced.sync(both, ID)
        assert synced.cases == ["first", "follows", "follows"] and synced.events[-1] == node.streams[ID].minipool[0][2:34]
        ahead.failing = 99
        with pytest.raises(Refused, match=r"older than what was seen; .* unavailable"):
            synced.sync(client([lagging, ahead], retries=0), ID)
        ahead.failing = 0
        node.streams = {ID: other.streams[ID].backup()}
        other.streams[ID].miniblocks.pop()
        synced.sync(both, ID)
        assert synced.cases[3:] == ["behind"] and synced.head is not None and synced.head.seen_gen == 14, "the further one tells"
        synced.sync(both, ID)
        assert len(synced.raw) == 4
    finally:
        lagging.stop()
        ahead.stop()


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"403 Forbidden"])
@pytest.mark.parametrize("body", [b"", b'{"code": "unauthenticated", "message": "no"}', b'{"code": "permission_denied"}'])
def test_a_node_that_lets_nobody_in_has_not_said_that_anything_is_gone(status: bytes, body: bytes, node: StreamNode) -> None:
    node.streams[ID].trim(9)
    trimmed = RiverServer(node).start()
    try:
        with closing(Liar(says(body, status=status, more=b"Connection: close\r\n"))) as liar:
            asked = ConnectClient([trimmed.url, liar.url], {}, Asking(retries=1), pause=lambda _: None)
            with pytest.raises(Refused, match=r"has no miniblocks before 9; http://127.0.0.1:\d+ (says |answered HTTP 40)"):
                asked.get_miniblocks(ID, 1, 13)
            assert asked.get_miniblocks(ID, 9, 13), "what is there is taken all the same"
            calls = trimmed.calls.total()
            with pytest.raises(Refused):
                ConnectClient([liar.url], {}, Asking(), pause=lambda _: pytest.fail("asked again")).get_stream(ID)
            assert trimmed.calls.total() == calls
    finally:
        trimmed.stop()


def test_a_slow_node_times_out_and_the_next_one_answers(servers: list[RiverServer]) -> None:
    servers[0].slow = 8
    started, asked = time.monotonic(), client(servers, timeout=1)
    asked.get_stream(ID)
    assert servers[1].calls["GetStream"] == 1 and time.monotonic() - started < 7
    asked.get_stream(ID)
    assert (servers[0].calls["GetStream"], servers[1].calls["GetStream"]) == (1, 2), "it is asked last for a while"


def test_when_nobody_is_there_the_rest_are_refused_without_asking(servers: list[RiverServer]) -> None:
    asked, again = client(servers, retries=0), client(servers, retries=0)
    for server in servers:
        server.stop()
    for _ in range(UNHEARD):
        with pytest.raises(Refused, match="cannot be reached"):
            asked.get_stream(ID)
    with pytest.raises(Refused, match="for the last 32 requests"):
        asked.get_stream(ID)
    with pytest.raises(Refused, match="cannot be reached"):
        again.get_stream(ID)


def test_pauses_stay_short_however_often_a_node_is_asked_again(servers: list[RiverServer]) -> None:
    pauses: list[float] = []
    asked = client(servers[:1], pauses, retries=1_100)
    servers[0].stop()
    with pytest.raises(Refused, match="cannot be reached"):
        asked.get_stream(ID)
    assert len(pauses) == 1_100 and 10 <= min(pauses[10:]) <= max(pauses) <= 20


def test_each_node_is_asked_no_faster_than_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainlake.sync.turns.time", SimpleNamespace(monotonic=lambda: 5.0))  # all come in one moment
    waits: list[float] = []
    turns = Turns(50, waits.append)
    threads = [threading.Thread(target=turns.wait) for _ in range(11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(waits) == pytest.approx([turn / 50 for turn in range(1, 11)]), "one every 20 ms, the first at once"
    assert asking({"rate": "30", "page_size": "9", "timeout": "2"}, share=3) == Asking(9, 10.0, 2.0, 4)


def test_a_whole_life_over_the_network(node: StreamNode, servers: list[RiverServer]) -> None:
    asked, synced = client(servers, page_size=4), Synced()
    synced.sync(asked, ID)
    post(servers[0], "grow", {"miniblocks": 20, "minipool": 1})
    post(servers[0], "fail", {"requests": 3})
    synced.sync(asked, ID, budget=6)
    post(servers[0], "backup", {})
    post(servers[0], "grow", {"miniblocks": 3})
    synced.sync(asked, ID)
    post(servers[0], "restore", {})
    post(servers[0], "grow", {"miniblocks": 9})
    synced.sync(asked, ID)
    post(servers[0], "create", {"stream": ID.hex()})
    synced.sync(asked, ID)
    assert [synced.cases[0], *dict.fromkeys(synced.cases[1:])] == ["first", "follows", "rewound", "recreated"]
    assert len(set(synced.events)) == len(synced.events)


def test_pages_are_asked_for_only_where_there_is_a_gap(node: StreamNode, servers: list[RiverServer]) -> None:
    asked, synced, calls = client(servers, page_size=4), Synced(), servers[0].calls
    synced.sync(asked, ID)
    calls.clear()
    node.grow(ID, 2)
    synced.sync(asked, ID)
    assert calls == {"GetStream": 1} and synced.cases[-1] == "follows", "case A: the answer reaches back to what was delivered"
    node.grow(ID, 20)
    calls.clear()
    synced.sync(asked, ID)
    assert node.streams[ID].snapshot == 30 and calls == {"GetStream": 1, "GetMiniblocks": 4}, "case B: 15 to 29, in pages of 4"
    assert synced.events == [e.hash for one in node.streams[ID].miniblocks[10:] for e in Block(one.raw).opened.events]
    calls.clear()
    synced.sync(asked, ID)
    assert calls == {"GetStream": 1} and len(synced.raw) == 3


NOT_UNDERSTOOD: tuple[tuple[str, object, str], ...] = (
    ("nonsense", {}, "there is no control 'nonsense': there are streams, grow"),
    ("restore", {}, "there is no backup to go back to"),
    ("trim", {}, "before is 'None': a number from 0"),
    ("trim", {"before": -5}, "before is '-5'"),
    ("grow", {"stream": "20aa"}, "there is no stream 20aa"),
    ("grow", {"stream": 12}, "stream is '12': an id of 1 to 64 bytes in hex"),
    ("grow", {"miniblocks": "many"}, "miniblocks is 'many'"),
    ("grow", {"miniblocks": 1.5}, "a whole number"),
    ("grow", {"miniblock": 3}, "grow knows no 'miniblock': it takes stream, miniblocks, events, minipool"),
    ("create", {"stream": ""}, "an id of 1 to 64 bytes in hex"),
    ("create", {"stream": "20" * 65}, "an id of 1 to 64 bytes in hex"),
    ("fail", {"requests": -1}, "requests is '-1'"),
    ("fail", {"requests": True}, "requests is 'True'"),
    ("slow", {"seconds": -1}, "a number from 0"),
    ("slow", {"seconds": float("nan")}, "the body is not JSON"),
    ("slow", {"secnds": 2}, "slow knows no 'secnds': it takes seconds"),
    ("settings", {"page_limit": 0, "earlier": 1}, "a number from 1"),
    ("damage", {"miniblock": 3}, "damage is done to one stream"),
    ("damage", {"stream": ID.hex(), "miniblock": -1}, "miniblock is '-1'"),
    ("damage", {"stream": ID.hex(), "miniblock": 99}, "there is no miniblock 99: the last is 12"),
    ("mend", {"stream": ID.hex()}, "mend knows no 'stream': it takes nothing"),
    ("grow", [], "with a JSON object"),
    ("grow", "{", "with a JSON object"),
)


@pytest.fixture
def no_recursion_limit() -> Iterator[None]:
    """As some libraries leave it: then Python's own JSON parser ends the process where text is nested deeply."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(2**31 - 1)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("length", [b"\xb2", b"-1", b"9" * 5_000])
def test_a_length_that_is_none_is_refused(servers: list[RiverServer], length: bytes) -> None:
    with closing(http.client.HTTPConnection(servers[0].url.removeprefix("http://"), timeout=5)) as connection:
        connection.putrequest("POST", "/control/grow")
        connection.putheader("Content-Length", length)
        connection.endheaders()
        assert connection.getresponse().status == 413


@pytest.mark.usefixtures("no_recursion_limit")
def test_controls_refuse_what_they_do_not_understand_and_change_nothing(node: StreamNode, servers: list[RiverServer]) -> None:
    before, settings = node.answer(ID), (node.page_limit, node.earlier)
    for what, given, message in NOT_UNDERSTOOD:
        with pytest.raises(urllib.error.HTTPError, match="400") as refusal:
            post(servers[0], what, given)
        assert message in json.loads(refusal.value.read())["error"], (what, given)
    for body in (b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(urllib.error.HTTPError, match="400") as refusal:
            urllib.request.urlopen(f"{servers[0].url}/control/grow", body, timeout=5)
        assert "the body is not JSON" in json.loads(refusal.value.read())["error"]
    for path in ("/control/restore", "/control/grow", "/"):
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(servers[0].url + path, timeout=5)
    assert (node.answer(ID), (node.page_limit, node.earlier)) == (before, settings) and not servers[0].failing
    with urllib.request.urlopen(f"{servers[0].url}/control/streams", timeout=5) as listed:
        assert json.load(listed) == {ID.hex(): {"miniblocks": 13, "snapshot": 10, "trimmed": 0, "minipool": 0}}


def test_what_was_damaged_is_mended_wherever_it_is_and_nothing_else(node: StreamNode, servers: list[RiverServer]) -> None:
    stream, server = node.streams[ID], servers[0]
    node.grow(ID, 1, events=0)
    good = list(stream.miniblocks)
    server.control("damage", {"stream": ID.hex(), "miniblock": 3})
    server.control("backup", {})
    for _ in range(2):
        server.control("damage", {"stream": ID.hex(), "miniblock": 12})
    with pytest.raises(BadInput, match="miniblock 13 has no event to change"):
        server.control("damage", {"stream": ID.hex(), "miniblock": 13})
    assert [at for at, one in enumerate(stream.miniblocks) if Block(one.raw).opened.problem] == [3, 12]
    server.control("mend", {})
    assert stream.miniblocks == good
    server.control("restore", {})
    assert Block(node.streams[ID].miniblocks[3].raw).opened.problem, "as it was when it was kept"
    server.control("create", {"stream": ID.hex()})
    server.control("grow", {"miniblocks": 14})
    server.control("mend", {})
    new = [Block(one.raw).opened for one in node.streams[ID].miniblocks]
    assert len(new) == 15 and not any(one.problem for one in new)
    assert all(one.prev_hash == before.hash for before, one in pairwise(new)), "nothing old came back"
    server.control("restore", {})
    server.control("mend", {})
    assert node.streams[ID].miniblocks == good


def post(server: RiverServer, what: str, given: object) -> None:
    request = urllib.request.Request(f"{server.url}/control/{what}", json.dumps(given).encode(), method="POST")
    urllib.request.urlopen(request, timeout=5).close()
