"""The server on a real socket: clients that are slow, silent, greedy or hostile, and those beside them."""

import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from chainlake.errors import BadInput
from chainlake.serve.router import Request, Response
from tests.unit.serve_memory import Caller, MemoryControl, MemoryEngine, make_blocks, make_caller, post, serving

Address = tuple[str, int]

BLOCKS = make_blocks(10)
CALL = {"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber"}
HEAD = {"jsonrpc": "2.0", "id": 1, "result": "0x9"}


@contextmanager
def server(**settings: Any) -> Iterator[tuple[Caller, Address]]:
    caller = make_caller(MemoryEngine(BLOCKS), **settings)
    with serving(caller) as address:
        yield caller, address


@pytest.fixture(scope="module")
def plain() -> Iterator[Address]:
    with server() as (_, address):
        yield address


def fetch(
    address: Address, path: str = "/", method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, Any, bytes]:
    request = urllib.request.Request(f"http://{address[0]}:{address[1]}{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def connect(address: Address) -> socket.socket:
    return socket.create_connection(address, timeout=20)


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionError:
        pass
    return found


def gives_back_all(caller: Caller) -> bool:
    """Whether no bytes count as waiting soon after the last answer: a client may have it before the server knows."""
    deadline = time.monotonic() + 5
    while caller.gateway.budget.used and time.monotonic() < deadline:
        time.sleep(0.01)
    return caller.gateway.budget.used == 0


def request_text(body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (size, body)


def test_calls_and_batches_are_answered(plain: Address) -> None:
    assert post(plain, CALL) == HEAD
    assert post(plain, [CALL, CALL]) == [HEAD, HEAD]
    status, headers, body = fetch(plain, method="POST", body=b"nonsense")
    assert status == 200 and headers["Content-Type"] == "application/json" and json.loads(body)["error"]["code"] == -32700


def test_a_notification_gets_an_empty_answer(plain: Address) -> None:
    status, _, body = fetch(plain, method="POST", body=b'{"jsonrpc":"2.0","method":"eth_chainId"}')
    assert (status, body) == (200, b"")


def test_any_content_type_and_chunked_bodies_are_taken(plain: Address) -> None:
    assert json.loads(fetch(plain, method="POST", body=json.dumps(CALL).encode(), **{"Content-Type": "text/plain"})[2]) == HEAD
    with connect(plain) as connection:
        text = json.dumps(CALL).encode()
        start = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(start + b"".join(b"1\r\n%c\r\n" % byte for byte in text) + b"0\r\n\r\n")
        assert received(connection).endswith(json.dumps(HEAD, separators=(",", ":")).encode())


def test_a_client_may_ask_to_go_on_before_it_sends_its_body(plain: Address) -> None:
    with connect(plain) as connection:
        body = json.dumps(CALL).encode()
        head, _, _ = request_text(b"", len(body)).partition(b"\r\n\r\n")
        connection.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(body)
        assert b"200 OK" in connection.recv(1000)


def test_other_paths_and_methods(plain: Address) -> None:
    status, _, body = fetch(plain)
    assert status == 200 and b"eth_getLogs" in body and b"/metrics" in body
    assert fetch(plain, method="HEAD")[::2] == (200, b"")
    status, _, body = fetch(plain, "/nothing")
    assert status == 404 and b"there is nothing at /nothing" in body
    status, headers, _ = fetch(plain, "/health", "POST", b"")
    assert status == 405 and headers["Allow"] == "GET"
    assert fetch(plain, "/", "DELETE")[0] == 405


def test_health_and_metrics_are_served(plain: Address) -> None:
    post(plain, CALL)
    status, _, body = fetch(plain, "/health")
    assert status == 200 and json.loads(body)["status"] == "ok" and json.loads(body)["head"]["number"] == 9
    status, headers, page = fetch(plain, "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b'lake_rpc_requests_total{method="eth_blockNumber",outcome="ok"}' in page


def test_pages_of_other_origins_are_only_served_if_allowed(plain: Address) -> None:
    page = {"Origin": "https://app.example"}
    assert fetch(plain, method="POST", body=json.dumps(CALL).encode(), **page)[1]["Access-Control-Allow-Origin"] is None
    assert fetch(plain, method="OPTIONS", **page)[0] == 405
    with server(cors=("https://app.example",)) as (_, address):
        status, headers, _ = fetch(address, method="OPTIONS", **page)
        assert (status, headers["Access-Control-Allow-Origin"]) == (204, "https://app.example")
        assert fetch(address, method="POST", body=b"{}", **page)[1]["Access-Control-Allow-Origin"] == "https://app.example"
        assert fetch(address, method="POST", body=b"{}", Origin="https://evil.example")[1]["Access-Control-Allow-Origin"] is None


@pytest.mark.parametrize(
    ("host", "status"), [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:8545", 200), ("evil.example", 403)]
)
def test_names_that_are_not_ours_are_refused(plain: Address, host: str, status: int) -> None:
    """A web page may point a name of its own at 127.0.0.1."""
    assert fetch(plain, Host=host)[0] == status


def test_other_host_names_can_be_allowed() -> None:
    with server(allowed_hosts=("lake.example",)) as (_, address):
        assert [fetch(address, Host=host)[0] for host in ("lake.example", "LAKE.example:8545", "evil.example")] == [200, 200, 403]


def test_a_body_that_is_too_large_is_refused_with_or_without_its_length() -> None:
    with server(max_body=1000) as (_, address):
        status, _, body = fetch(address, method="POST", body=b" " * 1001)
        assert status == 413 and json.loads(body)["error"] == {"code": -32600, "message": "request too large: at most 1000 bytes"}
        with connect(address) as connection:
            start = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(start + b"3e9\r\n" + b" " * 1001 + b"\r\n0\r\n\r\n")
            assert b"413" in connection.recv(1000)
        assert post(address, CALL) == HEAD


def test_compressed_bodies_are_refused(plain: Address) -> None:
    status, _, _ = fetch(plain, method="POST", body=b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    assert status == 415


@pytest.mark.parametrize(
    "text",
    [b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"\x16\x03\x01\x00\xa5"],
)
def test_what_is_not_http_is_refused_quietly(text: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with server(idle_seconds=0.5) as (_, address):
        with connect(address) as connection:
            connection.sendall(text)
            answer = received(connection)
        assert answer == b"" or b" 400 " in answer.splitlines()[0]
        assert post(address, CALL) == HEAD
    assert "Traceback" not in capfd.readouterr().err and b"Traceback" not in answer


def test_a_fault_in_the_server_itself_is_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("secret")

    with server() as (caller, address):
        monkeypatch.setattr(caller.gateway.router, "find", broken)
        status, _, body = fetch(address)
        assert status == 500 and b"secret" not in body
        assert caller.lines()[-1]["failure"] == "ValueError: secret"


def test_a_body_that_comes_too_slowly_is_given_up() -> None:
    with server(body_seconds=0.4) as (_, address), connect(address) as connection:
        connection.sendall(request_text(b'{"jsonrpc"', 5000))
        assert post(address, CALL) == HEAD
        started = time.monotonic()
        answer = received(connection)
        assert b" 408 " in answer.splitlines()[0] and time.monotonic() - started < 20


def test_a_connection_that_brings_no_request_is_closed() -> None:
    with server(idle_seconds=0.4) as (_, address), connect(address) as silent, connect(address) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nHost: local")
        started = time.monotonic()
        assert received(silent) == b"" and received(slow) == b""
        assert time.monotonic() - started < 20


def test_slow_and_silent_connections_do_not_keep_others_waiting() -> None:
    with server(max_connections=50) as (_, address), ExitStack() as open_ones:
        for number in range(200):
            connection = open_ones.enter_context(connect(address))
            if number % 2:
                connection.sendall(request_text(b"[", 5000))
        longest = 0.0
        for _ in range(20):
            started = time.monotonic()
            assert post(address, CALL) == HEAD
            longest = max(longest, time.monotonic() - started)
        assert longest < 2
        page = fetch(address, "/metrics")[2].decode()
        dropped = next(line for line in page.splitlines() if line.startswith('lake_http_dropped_total{reason="too many'))
        assert float(dropped.rsplit(" ", 1)[1]) >= 150


def test_a_client_that_never_reads_is_dropped_and_others_go_on() -> None:
    big = make_blocks(60, logs=60)
    caller = make_caller(MemoryEngine(big), write_seconds=0.5)
    ask = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [{"fromBlock": "0x0"}]}
    with serving(caller) as address, ExitStack() as open_ones:
        for _ in range(5):
            greedy = open_ones.enter_context(connect(address))
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            greedy.sendall(request_text(json.dumps([ask] * 5).encode()))
        deadline = time.monotonic() + 20
        while b'reason="slow reader"' not in fetch(address, "/metrics")[2] and time.monotonic() < deadline:
            assert post(address, CALL)["result"] == hex(59)
            time.sleep(0.1)
        assert b'reason="slow reader"' in fetch(address, "/metrics")[2]


def test_answers_that_wait_for_slow_readers_have_a_limit_together() -> None:
    big = make_blocks(60, logs=60)
    ask = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [{"fromBlock": "0x0"}]}
    with serving(make_caller(MemoryEngine(big), max_outgoing=100_000)) as address:
        assert post(address, ask)["error"] == {"code": -32005, "message": "server busy, retry later"}
        assert post(address, CALL)["result"] == hex(59)


def test_a_route_without_room_for_its_answer_is_unavailable() -> None:
    async def big(request: Request) -> Response:
        return Response(200, b" " * 200_000)

    caller = make_caller(MemoryEngine(BLOCKS), max_outgoing=100_000)
    caller.gateway.router.add("GET", "/big", big)
    with serving(caller) as address:
        status, _, body = fetch(address, "/big")
        assert (status, json.loads(body)) == (503, {"error": "server busy, retry later"})


def test_a_body_that_breaks_off_or_is_malformed_is_refused() -> None:
    start = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server() as (caller, address):
        for body in (b"zz\r\nx\r\n0\r\n\r\n", b"5\r\nabcdefgh\r\n0\r\n\r\n"):
            with connect(address) as connection:
                connection.sendall(start + body)
                answer = received(connection)
                assert b" 400 " in answer.splitlines()[0] and b"500" not in answer
        with connect(address) as connection:
            connection.sendall(request_text(b"[", 50))
        assert post(address, CALL) == HEAD
        assert caller.lines()[-1]["method"] == "eth_blockNumber"


def test_a_client_that_does_not_read_makes_room_for_one_that_does() -> None:
    ask = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [{"fromBlock": "0x0"}]}
    caller = make_caller(MemoryEngine(make_blocks(100, logs=100)), max_outgoing=9_000_000)
    with serving(caller) as address, connect(address) as greedy:
        size = len(json.dumps(post(address, ask)))
        assert 4_600_000 < size < 8_000_000
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.sendall(request_text(json.dumps(ask).encode()))
        deadline = time.monotonic() + 20
        while caller.gateway.budget.used == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert post(address, ask)["error"]["code"] == -32005
        time.sleep(1.2)
        assert len(post(address, ask)["result"]) > 6000
        assert gives_back_all(caller)


def test_batches_that_collect_too_much_together_are_told_so() -> None:
    big = make_blocks(30, logs=60)
    ask = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [{"fromBlock": "0x0", "toBlock": "0x2"}]}
    caller = make_caller(MemoryEngine(big), max_outgoing=300_000)
    with serving(caller) as address:
        answers = post(address, [ask] * 20)
        errors = [answer["error"]["code"] for answer in answers if "error" in answer]
        assert errors and set(errors) == {-32005} and "result" in answers[0]
        assert gives_back_all(caller)


def test_routes_of_other_domains_fail_with_words() -> None:
    async def bad(request: Request) -> Response:
        raise BadInput(f"stream {request.params['id']} is unknown")

    async def broken(request: Request) -> Response:
        raise ValueError("secret")

    with server() as (caller, address):
        caller.gateway.router.add("GET", "/stream/{id}", bad)
        caller.gateway.router.add("GET", "/broken", broken)
        assert fetch(address, "/stream/7")[::2] == (400, b'{"error": "stream 7 is unknown"}\n')
        status, _, body = fetch(address, "/broken")
        assert status == 500 and b"internal error, query id" in body and b"secret" not in body
        assert "ValueError: secret" in caller.lines()[-1]["failure"]


def test_pipelined_requests_are_answered_in_order(plain: Address) -> None:
    with connect(plain) as connection:
        bodies = [json.dumps({**CALL, "id": number}).encode() for number in range(20)]
        connection.sendall(b"".join(map(request_text, bodies)))
        found = b""
        while found.count(b'"id":') < 20 and (piece := connection.recv(65536)):
            found += piece
        assert [int(part.split(b",")[0]) for part in found.split(b'"id":')[1:]] == list(range(20))


def test_hostile_bodies_are_answered(plain: Address) -> None:
    for body in (b"[" * 900_000, b"[" + b"1," * 400_000 + b"1]", b'{"a":' * 150_000, b'"' + b"\\u0000" * 100_000 + b'"'):
        status, _, answer = fetch(plain, method="POST", body=body)
        assert status == 200 and b'"error"' in answer and len(answer) < 1000


class Slow(MemoryEngine):
    """Answers when it is told to."""

    go = threading.Event()

    def snapshot(self) -> Any:
        self.go.wait(10)
        return super().snapshot()


def test_health_and_simple_methods_answer_while_queries_hang() -> None:
    engine = Slow(BLOCKS)
    caller = make_caller(engine, MemoryControl(), threads=1, queue=0, request_seconds=0.3)
    with serving(caller) as address:
        asking = [threading.Thread(target=lambda: post(address, CALL)) for _ in range(4)]
        for thread in asking:
            thread.start()
        time.sleep(0.1)
        assert post(address, {**CALL, "method": "eth_chainId"})["result"] == "0x539"
        assert post(address, CALL)["error"]["code"] == -32005
        engine.go.set()
        for thread in asking:
            thread.join(10)
        assert fetch(address, "/health")[0] == 200


class SlowFor(MemoryEngine):
    """Queries for an address hang until told to go on; others are answered."""

    go = threading.Event()

    def query(self, snapshot: Any, wanted: Any, **how: Any) -> Any:
        if wanted.addresses:
            self.go.wait(10)
        return super().query(snapshot, wanted, **how)


def test_the_slow_queries_of_one_client_do_not_keep_another_waiting() -> None:
    engine = SlowFor(BLOCKS)
    slow = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [{"address": "0x" + "11" * 20}]}
    quick = {**slow, "params": [{"fromBlock": "0x1", "toBlock": "0x1"}]}
    with serving(make_caller(engine, threads=2, queue=8, request_seconds=20)) as (host, port):
        asking = [threading.Thread(target=post, args=((host, port), slow)) for _ in range(12)]
        for thread in asking:
            thread.start()
        time.sleep(0.3)
        connection = http.client.HTTPConnection(host, port, timeout=5, source_address=("127.0.0.2", 0))
        connection.request("POST", "/", json.dumps(quick))
        assert json.loads(connection.getresponse().read())["result"] == [log.to_json() for log in BLOCKS[1].logs]
        connection.close()
        engine.go.set()
        for thread in asking:
            thread.join(10)


def test_many_clients_at_once_get_their_own_answers() -> None:
    with server() as (_, address):
        wrong: list[Any] = []

        def ask(number: int) -> None:
            for turn in range(10):
                wanted = {"fromBlock": hex(number % 10), "toBlock": hex(number % 10)}
                answer = post(address, {"jsonrpc": "2.0", "id": f"{number} {turn}", "method": "eth_getLogs", "params": [wanted]})
                expected = [log.to_json() for log in BLOCKS[number % 10].logs]
                if answer != {"jsonrpc": "2.0", "id": f"{number} {turn}", "result": expected}:
                    wrong.append(answer)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert wrong == []


def test_stopping_finishes_what_is_being_answered() -> None:
    engine = Slow(BLOCKS)
    engine.go = threading.Event()
    answers: list[Any] = []
    with serving(make_caller(engine)) as address:
        asking = threading.Thread(target=lambda: answers.append(post(address, CALL)))
        asking.start()
        time.sleep(0.2)
        threading.Timer(0.3, engine.go.set).start()
    asking.join(10)
    assert answers == [HEAD]
