"""JSON-RPC 2.0 as geth speaks it: whatever comes in, what goes out is JSON-RPC, and never a stack trace."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chainlake.errors import LakeError
from chainlake.logs.rpc_values import RpcError
from chainlake.serve.engine import Damaged, TooBroad
from chainlake.serve.pool import CLIENT, WorkPool
from tests.unit.serve_memory import Caller, MemoryEngine, make_blocks, make_caller


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    caller = make_caller(MemoryEngine(make_blocks(20)))
    yield caller
    caller.gateway.close()


def error(answer: Any) -> tuple[Any, int, str]:
    assert set(answer) == {"jsonrpc", "id", "error"} and answer["jsonrpc"] == "2.0"
    return answer["id"], answer["error"]["code"], answer["error"]["message"]


@pytest.mark.parametrize(
    "id_text", ["1", "0", "-7", '"x"', '""', "null", "true", "1.50", "1e400", "-0.0", "12345678901234567890123", '"\\ud800"']
)
def test_an_id_of_any_simple_type_comes_back_as_it_was(caller: Caller, id_text: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":{id_text},"method":"eth_chainId"}}'
    assert caller.raw(body.encode()) == f'{{"jsonrpc":"2.0","id":{id_text},"result":"0x539"}}'.encode()


@pytest.mark.parametrize(
    "body",
    [b"", b"   ", b"{", b"[1,", b"nonsense", b"\xff\xfe", b"NaN", b'{"id":Infinity}', b"{}{}", b"[" * 100_000, b"1" * 5000],
)
def test_what_is_not_json_is_a_parse_error(caller: Caller, body: bytes) -> None:
    assert error(json.loads(caller.raw(body))) == (None, -32700, "parse error")


@pytest.mark.parametrize(
    ("message", "id_back"),
    [
        (5, None),
        ("x", None),
        (None, None),
        ({}, None),
        ({"id": 4}, 4),
        ({"jsonrpc": "2.0", "id": 4}, 4),
        ({"jsonrpc": "1.0", "id": 4, "method": "eth_chainId"}, 4),
        ({"id": 4, "method": "eth_chainId"}, 4),
        ({"jsonrpc": "2.0", "id": 4, "method": ""}, 4),
        ({"jsonrpc": "2.0", "id": 4, "method": 5}, 4),
        ({"jsonrpc": "2.0", "id": {}, "method": "eth_chainId"}, None),
        ({"jsonrpc": "2.0", "id": [1], "method": "eth_chainId"}, None),
    ],
)
def test_what_is_no_call_is_an_invalid_request(caller: Caller, message: Any, id_back: Any) -> None:
    assert error(caller.send(message)) == (id_back, -32600, "invalid request")
    assert caller.send([message]) == [caller.send(message)]


def test_methods_that_there_are_not(caller: Caller) -> None:
    assert caller.error("eth_mining") == (-32601, "the method eth_mining does not exist/is not available")
    assert caller.error("eth_subscribe", "logs") == (-32601, "notifications not supported")
    assert caller.error("x" * 3000) == (-32600, "method name too long: 3000 > 2048")


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("eth_chainId", [1], "too many arguments, want at most 0"),
        ("eth_blockNumber", {}, "non-array args"),
        ("eth_blockNumber", "x", "non-array args"),
        ("eth_getLogs", None, "missing value for required argument 0"),
        ("eth_getLogs", [], "missing value for required argument 0"),
        ("eth_getLogs", [{}, 1], "too many arguments, want at most 1"),
        ("eth_getLogs", ["x", 1], "invalid argument 0: json: cannot unmarshal string into Go value of type filters.input"),
        ("eth_getLogs", [{"fromBlock": 1.5}], "invalid argument 0: hex string without 0x prefix"),
        ("eth_getBlockByNumber", ["0x1"], "missing value for required argument 1"),
        ("eth_getBlockByNumber", ["0x1", "true"], "invalid argument 1: json: cannot unmarshal string into Go value of type bool"),
        ("eth_getBlockByNumber", [1, True], "invalid argument 0: hex string without 0x prefix"),
        (
            "eth_getBlockByHash",
            ["x", True],
            "invalid argument 0: json: cannot unmarshal hex string without 0x prefix into Go value of type common.Hash",
        ),
        ("eth_uninstallFilter", [5], "invalid argument 0: json: cannot unmarshal number into Go value of type rpc.ID"),
    ],
)
def test_parameters_are_refused_in_the_words_of_geth(caller: Caller, method: str, params: Any, message: str) -> None:
    answer = caller.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert error(answer) == (1, -32602, message)


def test_parameters_may_be_left_out(caller: Caller) -> None:
    for message in ({}, {"params": None}, {"params": []}):
        answer = caller.send({"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber", **message})
        assert answer == {"jsonrpc": "2.0", "id": 1, "result": "0x13"}


def test_a_batch_is_answered_in_order_and_without_its_notifications(caller: Caller) -> None:
    call = {"jsonrpc": "2.0", "method": "eth_chainId"}
    answers = caller.send([{**call, "id": 1}, call, 5, {**call, "id": 1}, {**call, "id": None, "method": "x"}])
    assert [(answer["id"], "result" in answer) for answer in answers] == [(1, True), (None, False), (1, True), (None, False)]


def test_notifications_are_not_answered(caller: Caller) -> None:
    call = {"jsonrpc": "2.0", "method": "eth_chainId"}
    assert caller.raw(json.dumps(call).encode()) == b""
    assert caller.raw(json.dumps([call, {**call, "method": "unknown"}]).encode()) == b""


def test_batches_have_a_limit(caller: Caller) -> None:
    call = {"jsonrpc": "2.0", "id": 9, "method": "eth_chainId"}
    assert error(caller.send([])) == (None, -32600, "empty batch")
    assert len(caller.send([call] * 100)) == 100
    (refusal,) = caller.send([5, call] * 51)
    assert error(refusal) == (9, -32600, "batch too large")


def test_the_answers_of_a_batch_have_a_limit_together() -> None:
    caller = make_caller(MemoryEngine(make_blocks(20)), max_response=20_000)
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [{"fromBlock": "0x1", "toBlock": "0x3"}]}
    answers = caller.send([call] * 10 + [{"jsonrpc": "2.0", "method": "eth_chainId"}])
    assert len(answers) == 10 and "result" in answers[0]
    assert error(answers[-1]) == (1, -32003, "response too large")
    assert sum(len(json.dumps(answer)) for answer in answers) < 40_000


class Slow(MemoryEngine):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(make_blocks(3))
        self.go = threading.Event()

    def snapshot(self) -> Any:
        self.go.wait(10)
        return super().snapshot()


def test_a_call_that_takes_too_long_is_told_so_and_the_rest_of_its_batch_too() -> None:
    engine = Slow()
    caller = make_caller(engine, request_seconds=0.2)
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber"}
    assert error(caller.send(call)) == (1, -32002, "request timed out")
    assert [error(answer)[1] for answer in caller.send([call, call])] == [-32002, -32002]
    engine.go.set()
    assert caller.result("eth_blockNumber") == "0x2"


def test_when_all_threads_and_the_queue_are_full_callers_are_told_at_once() -> None:
    engine = Slow()
    caller = make_caller(engine, threads=1, queue=2, request_seconds=5)
    body = b'{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}'

    async def six() -> list[bytes]:
        calls = [asyncio.create_task(caller.gateway.dispatcher.answer(body)) for _ in range(6)]
        await asyncio.sleep(0.2)
        refused = [call.result() for call in calls if call.done()]
        engine.go.set()
        return [*refused, *await asyncio.gather(*(call for call in calls if call.result not in refused))]

    answers = [json.loads(answer) for answer in asyncio.run(six())]
    busy = [answer for answer in answers[:3] if "error" in answer]
    assert [error(answer)[1:] for answer in busy] == [(-32005, "server busy, retry later")] * 3
    assert sum("result" in answer for answer in answers) == 3
    assert caller.gateway.pool.pending == 0


@dataclass
class Crowd:
    """Clients of a pool. Their work waits until all of it may go."""

    pool: WorkPool
    began: list[str] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)

    async def ask(self, client: str, number: int) -> str:
        CLIENT.set(client)
        name = f"{client}{number}"

        def work() -> str:
            self.began.append(name)
            self.go.wait(10)
            return name

        try:
            return await self.pool.run(work, 10)
        except RpcError as refused:
            return f"{name} {refused.message}"

    async def come(self, client: str, count: int) -> "list[asyncio.Task[str]]":
        tasks = [asyncio.create_task(self.ask(client, number)) for number in range(count)]
        await asyncio.sleep(0.1)
        return tasks


def test_one_client_never_has_all_threads_or_all_room() -> None:
    crowd = Crowd(WorkPool(2, 4))

    async def run() -> list[str]:
        greedy = await crowd.come("greedy", 6)
        assert crowd.began == ["greedy0"], "one thread is kept for others"
        other = await crowd.come("other", 3)
        assert crowd.began == ["greedy0", "other0"] and crowd.pool.pending == 6
        crowd.go.set()
        return await asyncio.gather(*greedy, *other)

    busy = [answer.split()[0] for answer in asyncio.run(run()) if "busy" in answer]
    assert busy == ["greedy3", "greedy4", "greedy5"], "the newest of who has most make room"
    assert crowd.pool.refused == 3 and crowd.pool.pending == 0
    crowd.pool.close()


def test_clients_take_turns() -> None:
    crowd = Crowd(WorkPool(1, 10))

    async def run() -> None:
        tasks = [*await crowd.come("a", 4), *await crowd.come("b", 2), *await crowd.come("c", 1)]
        crowd.go.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert crowd.began == ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]
    crowd.pool.close()


def test_a_large_body_is_parsed_beside_the_event_loop(caller: Caller) -> None:
    padded = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "pad": "x" * 50_000})
    assert json.loads(caller.raw(padded.encode()))["result"] == "0x539"
    assert error(json.loads(caller.raw(b"[" * 50_000))) == (None, -32700, "parse error")


class Failing(MemoryEngine):
    """Raises what it is told to."""

    problem: Exception = ValueError("secret")

    def query(self, *_: Any, **__: Any) -> Any:
        raise self.problem


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (TooBroad("129 topics at position 0, at most 128"), -32000, "query too broad"),
        (Damaged("chunk 7 of stream 5 is damaged"), -32000, "chunk 7 of stream 5 is damaged"),
        (LakeError("the table is gone: restore it"), -32000, "the table is gone: restore it"),
    ],
)
def test_errors_of_the_index_are_told(problem: Exception, code: int, message: str) -> None:
    engine = Failing(make_blocks(3))
    engine.problem = problem
    assert make_caller(engine).error("eth_getLogs", {}) == (code, message)


def test_a_fault_of_the_server_tells_the_caller_an_id_and_the_log_the_rest() -> None:
    caller = make_caller(Failing(make_blocks(3)))
    code, message = caller.error("eth_getLogs", {})
    assert code == -32603 and message.startswith("internal error, query id ") and "secret" not in message
    failure, call = caller.lines()
    assert failure["failure"] == "ValueError: secret" and "Traceback" in failure["trace"]
    assert failure["query_id"] == call["query_id"] == message.rsplit(" ", 1)[1]


def test_every_call_is_one_line_of_the_log() -> None:
    caller = make_caller(MemoryEngine(make_blocks(5)))
    caller.call("eth_getLogs", {"fromBlock": "0x1", "address": ["0x" + "01" * 20], "topics": [None, "0x" + "02" * 32]})
    caller.call("eth_getLogs", {"fromBlock": "0x9"})
    good, bad = caller.lines()
    assert good["method"] == "eth_getLogs" and good["outcome"] == "ok" and good["remote"] == "test"
    assert (good["from"], good["to"], good["head"], good["addresses"], good["topics"]) == (1, 4, 4, 1, [0, 1])
    assert isinstance(good["logs"], int) and good["ms"] > 0 and good["bytes"] > 30
    assert (bad["outcome"], bad["error"]) == (-32602, "invalid block range params")
    assert good["query_id"] != bad["query_id"] and good["at"] <= bad["at"]


def test_answering_many_calls_leaves_the_loop_free() -> None:
    """A batch of a hundred gives way between its calls."""
    caller = make_caller(MemoryEngine(make_blocks(20, logs=20)))
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [{"fromBlock": "0x0"}]}
    body = json.dumps([call] * 50).encode()

    async def both() -> float:
        batch = asyncio.create_task(caller.gateway.dispatcher.answer(body))
        longest = 0.0
        while not batch.done():
            started = time.monotonic()
            await asyncio.sleep(0)
            longest = max(longest, time.monotonic() - started)
        return longest

    assert asyncio.run(both()) < 0.25


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40)
    | st.sampled_from(["2.0", "eth_getLogs", "lake_getLogsPage", "0x1", "latest", "0x" + "01" * 20, "0x" + "01" * 32]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)
METHODS = [
    "eth_getLogs",
    "eth_newFilter",
    "eth_getFilterLogs",
    "eth_getFilterChanges",
    "eth_uninstallFilter",
    "eth_getBlockByNumber",
    "eth_getBlockByHash",
    "eth_blockNumber",
    "lake_getLogsPage",
    "lake_explain",
    "eth_newBlockFilter",
]
filters = st.dictionaries(
    st.sampled_from(["fromBlock", "toBlock", "blockHash", "address", "topics", "limit", "cursor", "order"]),
    json_values,
    max_size=4,
)
calls = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from(METHODS)},
    optional={"id": json_values, "params": st.lists(filters | json_values, max_size=3) | json_values},
)
messages = json_values | calls | st.lists(calls | json_values, max_size=6)


def is_answer(answer: Any) -> bool:
    """Whether a value is one JSON-RPC answer that gives nothing away."""
    if set(answer) == {"jsonrpc", "id", "result"}:
        return True
    text = answer["error"]["message"]
    return set(answer) == {"jsonrpc", "id", "error"} and "Traceback" not in text and answer["error"]["code"] != -32603


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages)
def test_any_json_in_gives_json_rpc_out(caller: Caller, message: Any) -> None:
    answer = caller.raw(json.dumps(message).encode())
    if answer:
        found = json.loads(answer)
        assert all(is_answer(one) for one in (found if isinstance(found, list) else [found]))


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_in_give_json_rpc_out(caller: Caller, body: bytes) -> None:
    answer = caller.raw(body)
    assert not answer or is_answer(json.loads(answer)) or isinstance(json.loads(answer), list)
