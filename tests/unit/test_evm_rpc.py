"""Reading blocks from a node: what is asked, what is kept, and that no fault of a node loses, doubles or invents a block."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from chainlake.errors import BadInput, Unavailable
from chainlake.sources import evm_rpc, node_splits, rpc_client
from chainlake.sources.base import BadBlock, Cursor, RawBlock, Split
from chainlake.sources.datasource import ARROW, BlockReader, _split_json
from chainlake.sources.endpoint import endpoint
from chainlake.sources.formats import format_of, left, network_of
from chainlake.sources.http_post import Passing
from chainlake.sources.rpc_client import Limits
from tests.unit.evm_node import FakeNode, Json, Reply, answers, serving
from tests.unit.sources_reading import ALL, cursor_of, good

MANY = 1 << 40


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_client, "FIRST_PAUSE", 0.001)


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with serving(FakeNode()) as running:
        yield running


def read(node: FakeNode, cursor: Cursor | None = None, max_blocks: int = ALL, **options: str) -> list[RawBlock | BadBlock]:
    """One batch, planned and read like the raw stage does."""
    splits = evm_rpc.plan(node.url, cursor, max_blocks, MANY, options)
    return [block for split in splits for block in evm_rpc.read(split, options)]


def written(node: FakeNode, path: Path) -> list[RawBlock]:
    """The same chain, read from a file."""
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in node.lines))
    return good(
        [block for split in format_of("evm").plan([str(path)], None, ALL, ALL, {}) for block in format_of("evm").read(split, {})]
    )


def contents(found: list[RawBlock]) -> list[Any]:
    return [(b.height, b.hash, b.parent_hash, b.timestamp_us, b.payload, b.transactions) for b in found]


def read_split(node: FakeNode, start: int = 0, end: int = 10, **options: str) -> list[RawBlock | BadBlock]:
    return list(evm_rpc.read(Split(node.url, start, end, end - start), options))


def heights(found: list[RawBlock | BadBlock]) -> list[int]:
    return [block.height for block in good(found)]


# What is read


def test_a_node_gives_the_same_bytes_as_a_file_of_its_answers(node: FakeNode, tmp_path: Path) -> None:
    found = good(read(node))
    assert contents(found) == contents(written(node, tmp_path / "blocks.jsonl"))
    assert {(block.source, block.position - block.height) for block in found} == {(node.url, 0)}


def test_without_receipts_the_logs_are_taken_by_block_hash_and_the_node_is_not_asked_again(
    node: FakeNode, tmp_path: Path
) -> None:
    node.has_receipts = False
    found = good(read_split(node, 0, 30))
    for block, line in zip(found, node.lines, strict=True):
        assert [json.loads(one.payload) for one in block.transactions] == [receipt["logs"] for receipt in line["receipts"]]
    assert node.methods.count("eth_getBlockReceipts") == 10, "only the first request has them"
    assert [call["params"][0].keys() for request in node.requests for call in request if call["method"] == "eth_getLogs"]


@pytest.mark.parametrize(
    "error",
    [
        {"code": -32004, "message": "nope"},
        {"code": -32000, "message": "Unsupported method"},
        {"code": -32603, "message": "method not supported"},
        {"code": -32602, "message": "invalid argument 0: hex string has length 2, want 64"},
    ],
)
def test_nodes_say_in_many_ways_that_they_have_no_receipts(node: FakeNode, error: Json) -> None:
    node.has_receipts, node.unknown_method = False, error
    assert heights(read_split(node)) == list(range(10))


def test_blocks_go_in_batches_over_one_connection(node: FakeNode) -> None:
    read_split(node, 0, 30, batch="8")
    assert {len(request) for request in node.requests} == {8, 4}
    assert node.connections == 1
    assert all(call["jsonrpc"] == "2.0" and call["params"][-1] in (False, call["params"][0]) for call in node.requests[0])


def test_answers_in_chunks_keep_the_connection(node: FakeNode, tmp_path: Path) -> None:
    node.always = lambda request, found: Reply(answers(found, request).body, headers={"Transfer-Encoding": "chunked"})
    assert contents(good(read_split(node, 0, 30))) == contents(written(node, tmp_path / "blocks.jsonl"))
    assert node.connections == 1


def test_a_batch_of_one_is_sent_as_one_call(node: FakeNode) -> None:
    assert heights(read_split(node, 0, 3, batch="1")) == [0, 1, 2]
    assert all(isinstance(request, dict) for request in node.requests)


# Where reading starts and ends


def test_reading_ends_at_the_finalized_block(node: FakeNode) -> None:
    node.finalized = 12
    assert heights(read(node)) == list(range(13))
    assert heights(read(node, finality="safe")) == list(range(13))
    assert heights(read(node, finality="latest:5")) == list(range(25))
    assert read(node, finality="latest:500") == []


@pytest.mark.parametrize("answer", [{"result": None}, {"error": {"code": -32602, "message": "invalid block tag"}}])
def test_a_node_without_finality_names_the_option_that_helps(node: FakeNode, answer: Json) -> None:
    node.always = lambda request, found: answers([{**one, "result": None, **answer} for one in found], request)
    with pytest.raises(BadInput, match=r"has no finalized block.*--option finality=latest:N"):
        read(node)


def test_resuming_from_any_block_gives_the_rest_in_batches_of_any_size(node: FakeNode) -> None:
    whole = good(read(node))
    for max_blocks in (1, 7, ALL):
        found: list[RawBlock] = []
        while batch := good(read(node, cursor_of(found[-1]) if found else None, max_blocks)):
            assert len(batch) <= max_blocks
            found += batch
        assert found == whole


def test_a_chain_may_begin_anywhere(node: FakeNode) -> None:
    assert heights(read(node, from_block="21")) == list(range(21, 30))
    node.finalized = 20
    assert heights(read(node, from_block="finalized-4")) == list(range(16, 21))
    assert heights(read(node, from_block="finalized-400"))[0] == 0
    assert read(node, from_block="21") == []


def test_a_plan_is_a_few_splits_side_by_side_that_share_the_rate(node: FakeNode) -> None:
    splits = evm_rpc.plan(node.url, None, ALL, MANY, {"batch": "4"})
    assert [(split.start, split.end) for split in splits] == [(0, 8), (8, 16), (16, 24), (24, 30)]
    assert {split.share for split in splits} == {4}
    assert node_splits.limits({"rate": "10"}, share=4).rate == 2.5


def test_large_blocks_make_small_batches(node: FakeNode) -> None:
    sizes = [len(b.payload) + sum(len(t.payload) for t in b.transactions) for b in good(read(node))]
    splits = evm_rpc.plan(node.url, None, ALL, 5 * sum(sizes) // len(sizes), {"batch": "2"})
    assert 2 <= splits[-1].end <= 10
    assert evm_rpc.plan(node.url, None, ALL, 1, {"batch": "2"})[-1].end == 1, "at least one"


def test_a_replaced_block_is_read_again_as_far_back_as_the_window(node: FakeNode) -> None:
    last = cursor_of(read(node, max_blocks=25)[-1])
    node.replace_from(22, seed=9)
    assert heights(read(node, last))[0] == 24, "a final chain: the raw stage refuses the block"
    assert heights(read(node, last, finalized="false", window="5"))[0] == 19
    assert heights(read(node, last, finalized="false", from_block="21"))[0] == 21, "not before the chain's first block"


def test_a_node_that_is_behind_the_lake_has_nothing_new(node: FakeNode) -> None:
    last = cursor_of(read(node)[-1])
    node.finalized = 20
    assert read(node, last) == []
    assert left("evm", [node.url], last, {}) == 0


def test_what_is_left_counts_final_blocks(node: FakeNode) -> None:
    assert left("evm", [node.url], None, {}) == 30
    assert left("evm", [node.url], None, {"from_block": "10"}) == 20
    assert left("evm", [node.url], cursor_of(read(node, max_blocks=4)[-1]), {"finality": "latest:2"}) == 24
    assert left("evm", ["http://127.0.0.1:1"], None, {"retries": "0"}) is None


# Networks


def test_the_network_is_told_and_another_one_is_refused(node: FakeNode) -> None:
    assert network_of("evm", [node.url], {}) == "7"
    assert network_of("evm", [node.url], {"chain_id": "7"}) == "7"
    with pytest.raises(BadInput, match="has chain id 7, this chain has 1: give the URL of the right node, or another chain name"):
        network_of("evm", [node.url], {"chain_id": "1"})
    assert network_of("evm", ["/some/file.jsonl"], {}) is None


def test_something_that_is_no_evm_node_is_named(node: FakeNode) -> None:
    node.always = lambda request, found: answers([{**one, "result": "hello"} for one in found], request)
    with pytest.raises(Unavailable, match=r"does not tell eth_chainId: .*is it a node of an EVM chain"):
        network_of("evm", [node.url], {})


# Faults that pass


def status(code: int, **headers: str) -> Any:
    return lambda request, found: Reply(b"sorry", code, {name.replace("_", "-"): value for name, value in headers.items()})


def failing(code: int, message: str, which: slice = slice(None)) -> Any:
    """Error answers for some of the calls."""

    def fault(request: Any, found: list[Json]) -> Reply:
        for one in found[which]:
            one.pop("result", None)
            one["error"] = {"code": code, "message": message}
        return answers(found, request)

    return fault


def changed(change: Any) -> Any:
    """The right answers with something changed in them."""

    def fault(request: Any, found: list[Json]) -> Reply:
        copies = json.loads(json.dumps(found))
        return answers(change(copies) or copies, request)

    return fault


def put(place: int, name: str, value: Any) -> Any:
    """Another value for a member of a result."""

    def change(found: list[Json]) -> None:
        target = found[place]["result"]
        (target[0] if isinstance(target, list) else target)[name] = value

    return changed(change)


FAULTS = {
    "429": status(429),
    "503": status(503),
    "garbage": lambda request, found: Reply(b"<html>not json</html>"),
    "half a body": lambda request, found: Reply(answers(found, request).body[:100], promised=100_000),
    "truncated json": lambda request, found: Reply(answers(found, request).body[:-20]),
    "broken gzip": lambda request, found: Reply(b"\x1f\x8bxx", headers={"Content-Encoding": "gzip"}),
    "empty": lambda request, found: Reply(b""),
    "no answer to one": changed(lambda found: found[1:]),
    "an answer twice": changed(lambda found: [*found, found[0]]),
    "other ids": changed(lambda found: [{**one, "id": one["id"] + 1} for one in found]),
    "neither result nor error": changed(lambda found: [{"id": one["id"]} for one in found]),
    "rate limit": failing(-32005, "limit exceeded"),
    "rate limit of some": failing(-32005, "limit exceeded", slice(3, 7)),
    "too large": failing(-32003, "response too large", slice(4, None)),
    "busy": failing(-32000, "server is busy, try again"),
    "internal error": failing(-32603, "Internal error"),
    "a missing block": changed(lambda found: [{**one, "result": None} if n == 2 else one for n, one in enumerate(found)]),
    "another block": put(2, "number", "0x63"),
    "a block without a hash": put(2, "hash", None),
    "receipts of another block": put(13, "blockHash", "0x" + "ab" * 32),
    "receipts are missing": changed(
        lambda found: [{**one, "result": one["result"][1:]} if n == 13 else one for n, one in enumerate(found)]
    ),
    "block not found": failing(-32000, "header not found", slice(2, 3)),
    "no batches": lambda request, found: Reply(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch too long"}}'),
    "413": status(413),
    "other order": changed(lambda found: found[::-1]),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("place", [0, 1])
def test_a_fault_that_passes_changes_nothing(node: FakeNode, name: str, place: int, tmp_path: Path) -> None:
    assert len(node.lines[3]["receipts"]) > 1 and len(node.lines[13]["receipts"]) > 1, "else some faults change nothing"
    expected = written(node, tmp_path / "blocks.jsonl")[:20]
    node.faults = [*[answers_as_they_are] * place, FAULTS[name]]
    assert contents(good(read_split(node, 0, 20))) == contents(expected)
    assert not node.faults


def answers_as_they_are(request: Any, found: list[Json]) -> Reply:
    return answers(found, request)


def test_no_logs_of_a_block_that_has_some_are_asked_for_again(node: FakeNode) -> None:
    """As behind a load balancer, where another node gives the logs than the block."""
    node.has_receipts = False
    expected = contents(good(read_split(node, 0, 10)))
    none_yet = changed(lambda found: [{**one, "result": []} for one in found])
    node.faults = [answers_as_they_are, none_yet]
    assert contents(good(read_split(node, 0, 10))) == expected and not node.faults
    node.always = lambda request, found: none_yet(request, found) if "eth_getLogs" in str(request) else answers(found, request)
    (bad,) = read_split(node, 0, 10, retries="1")
    assert isinstance(bad, BadBlock) and bad.unavailable and "has no logs of the block, whose bloom" in bad.reason


# Faults that stay


BLOCK, RECEIPTS = "eth_getBlockByNumber", "eth_getBlockReceipts"


def at(method: str, height: int, change: Any) -> Any:
    """A fault of one call wherever it is made."""

    def fault(request: Any, found: list[Json]) -> Reply:
        copies = json.loads(json.dumps(found))
        for call, one in zip(request if isinstance(request, list) else [request], copies, strict=True):
            if (call["method"], call["params"][0]) == (method, hex(height)):
                one |= change(one["result"])
        return answers(copies, request)

    return fault


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (FAULTS["429"], "answered HTTP 429 (3 tries)"),
        (FAULTS["garbage"], "answered something that is not JSON-RPC"),
        (FAULTS["half a body"], "broke off the connection (IncompleteRead)"),
        (FAULTS["rate limit"], "says: limit exceeded (error -32005)"),
        (at(BLOCK, 2, lambda block: {"result": None}), "gave no usable block 2: the node does not have the block"),
        (
            at(RECEIPTS, 2, lambda found: {"result": None}),
            "block 2: the node does not have its receipts: it is behind, or has pruned",
        ),
        (at(RECEIPTS, 2, lambda found: {"result": {}}), "block 2: its receipts are not an array"),
        (
            at(RECEIPTS, 3, lambda found: {"result": [*found[:-1], {**found[-1], "blockHash": "0x" + "ab" * 32}]}),
            "gave no usable block 3: its receipts are of block 0xabababab…, not of 0x",
        ),
        (at(RECEIPTS, 3, lambda found: {"result": found[1:]}), "transactions but has"),
        (at(BLOCK, 2, lambda block: {"result": {**block, "number": "0x63"}}), "block 2: the node answered with block 99"),
        (
            at(BLOCK, 2, lambda block: {"error": {"code": -32000, "message": "header not found"}}),
            "header not found (error -32000)",
        ),
    ],
)
def test_a_fault_that_stays_is_named_in_one_line_and_not_blamed_on_the_chain(node: FakeNode, fault: Any, words: str) -> None:
    node.always = fault
    (bad,) = read_split(node, 0, 10, retries="2")
    assert isinstance(bad, BadBlock) and bad.unavailable
    assert words in bad.reason and "\n" not in bad.reason and bad.reason.startswith(node.url)
    assert (bad.source, bad.position) == (node.url, 0)


def test_blocks_before_an_outage_are_kept(node: FakeNode) -> None:
    node.faults = [answers_as_they_are, *[status(500)] * 10]
    *before, bad = read_split(node, 0, 30, retries="3")
    assert heights(before) == list(range(10))
    assert isinstance(bad, BadBlock) and bad.position == 10


def test_an_outage_while_planning_is_unavailable(node: FakeNode) -> None:
    node.always = status(502)
    with pytest.raises(Unavailable, match=r"answered HTTP 502 \(2 tries\): see what ails the node, then run again"):
        read(node, retries="1")


def test_a_node_that_is_not_there_is_unavailable_in_one_line() -> None:
    with pytest.raises(Unavailable, match=r"^http://127.0.0.1:1 cannot be reached \(Connection refused\) \(1 tries\): [^\n]*$"):
        evm_rpc.plan("http://127.0.0.1:1", None, 1, 1, {"retries": "0"})
    with pytest.raises(Unavailable, match="cannot be reached"):
        evm_rpc.plan("http://no..host", None, 1, 1, {"retries": "0"})


@pytest.mark.parametrize(
    ("code", "words"),
    [(401, "refused us (HTTP 401): give its key by header_env=NAME"), (403, "refused us"), (404, "HTTP 404: is this")],
)
def test_what_will_not_pass_is_not_tried_again(node: FakeNode, code: int, words: str) -> None:
    node.always = status(code)
    with pytest.raises(Unavailable) as error:
        read(node)
    assert words in str(error.value) and len(node.requests) == 1


# Limits


def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every pause that a client makes from here on, none of which takes time."""
    made: list[float] = []
    monkeypatch.setattr(rpc_client.RpcClient.__init__, "__defaults__", (made.append,))
    return made


def test_retry_after_is_respected_in_seconds_and_as_a_date(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pauses(monkeypatch)
    soon = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=50), usegmt=True)
    node.faults = [status(429, Retry_After="7"), status(503, Retry_After=soon), status(429, Retry_After="soon")]
    assert heights(read_split(node, 0, 1)) == [0]
    assert made[0] == 7.0 and 40 < made[1] <= 50 and made[2] < 1


def test_a_node_that_asks_for_a_long_wait_is_not_asked_before(node: FakeNode) -> None:
    node.always = status(429, Retry_After="86400")
    with pytest.raises(Unavailable, match="answered HTTP 429, and asks to wait 86400 s"):
        read(node)
    assert len(node.requests) == 1


def test_pauses_grow_are_jittered_and_have_a_limit(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_client, "FIRST_PAUSE", 0.25)
    made = pauses(monkeypatch)
    node.always = status(500)
    read_split(node, 0, 1, retries="12")
    ceilings = [min(20.0, 0.25 * 2**count) for count in range(12)]
    assert all(ceiling / 2 <= pause <= ceiling for pause, ceiling in zip(made, ceilings, strict=True))
    assert made[:9] != ceilings[:9]


def test_pauses_stay_short_however_often_a_node_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = pauses(monkeypatch)
    client = rpc_client.RpcClient(endpoint("http://127.0.0.1:1", {}), Limits(retries=1_000_000))
    client.back_off(1_000_000, Passing("answered HTTP 500"))
    assert made[0] <= 20.0


def test_a_rate_spaces_calls_and_bounds_batches(node: FakeNode) -> None:
    assert heights(read_split(node, 0, 20, rate="100", batch="20")) == list(range(20))
    assert node.times[1] - node.times[0] >= 0.19
    node.requests.clear()
    read_split(node, 0, 4, rate="50", batch="2")
    node.requests.clear()
    list(evm_rpc.read(Split(node.url, 0, 2, 2, share=20), {"rate": "100"}))
    assert {len(request) for request in node.requests} == {4}, "100 a second for 20 readers: 5 a second, 4 calls at once"


def test_a_batch_that_is_too_much_is_halved_and_stays_small(node: FakeNode) -> None:
    node.faults = [FAULTS["413"], FAULTS["413"]]
    assert heights(read_split(node, 0, 20)) == list(range(20))
    sizes = [len(request) for request in node.requests]
    assert sizes == [20, 10, *[5] * 8]


def test_an_answer_that_is_too_large_is_not_read_to_its_end(node: FakeNode) -> None:
    sizes = [len(json.dumps(line)) for line in node.lines[:10]]
    assert heights(read_split(node, 0, 10, max_response=str(max(sizes) + 200))) == list(range(10))
    node.always = lambda request, found: Reply(b" " * 5_000_000)
    (bad,) = read_split(node, 0, 1, retries="1", max_response="100000")
    assert isinstance(bad, BadBlock) and "more than 100000 bytes (option max_response)" in bad.reason


def test_a_slow_answer_is_given_up_and_asked_for_again(node: FakeNode) -> None:
    node.faults = [lambda request, found: Reply(answers(found, request).body, delay=3.0)]
    assert heights(read_split(node, 0, 1, timeout="1")) == [0]
    assert [isinstance(request, list) for request in node.requests] == [True, False, False], "and in smaller pieces"


# The way through Spark's data source


def reader(node: FakeNode, splits: list[Split], **options: str) -> BlockReader:
    given = {
        "kind": "evm",
        "paths": json.dumps([node.url]),
        "cursor": "null",
        "max_blocks": "10",
        "max_bytes": "10",
        "chain_options": json.dumps(options),
        "splits": json.dumps([_split_json(split) for split in splits]),
    }
    return BlockReader(given)


def test_splits_that_were_planned_elsewhere_are_read_as_rows_with_places(node: FakeNode) -> None:
    splits = evm_rpc.plan(node.url, None, 20, MANY, {"batch": "4"})
    source = reader(node, splits)
    rows = [row for part in source.partitions() for batch in source.read(part) for row in batch.to_pylist()]
    assert [row["height"] for row in rows] == list(range(20))
    assert [row["place"] >> 32 for row in rows] == sorted(row["place"] >> 32 for row in rows)
    assert all(batch.schema == ARROW for part in source.partitions() for batch in source.read(part))
    assert rows[5]["transactions"][0]["hash"].hex() == node.lines[5]["block"]["transactions"][0][2:]
    assert {(row["error"], row["unavailable"]) for row in rows} == {(None, None)}


def test_an_outage_is_a_row_that_says_so(node: FakeNode) -> None:
    node.always = status(500)
    source = reader(node, [Split(node.url, 0, 5, 5)], retries="0")
    (row,) = [row for part in source.partitions() for batch in source.read(part) for row in batch.to_pylist()]
    assert (row["height"], row["transactions"], row["unavailable"]) == (None, [], True) and "HTTP 500" in row["error"]


def test_limits_have_the_documented_defaults() -> None:
    assert node_splits.limits({}) == Limits(batch=20, rate=None, timeout=30.0, max_response=128 << 20, retries=6)
