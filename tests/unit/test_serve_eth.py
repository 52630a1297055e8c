"""The methods that Ethereum clients call, over blocks in memory."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.logs.filter import Bounds, Limits, match, parse_filter
from chainlake.serve.log_json import FIXED_BYTES, logs_to_json, sizes
from tests.unit.serve_memory import Caller, MemoryEngine, MemoryLog, make_blocks, make_caller, table

BLOCKS = make_blocks(30)
LOGS = [log for one in BLOCKS for log in one.logs]


@pytest.fixture(scope="module")
def caller() -> Caller:
    return make_caller(MemoryEngine(BLOCKS))


def test_what_a_client_asks_first(caller: Caller) -> None:
    assert caller.result("eth_chainId") == "0x539"
    assert caller.result("net_version") == "1337"
    assert caller.result("web3_clientVersion").startswith("chainlake/v")
    assert caller.result("eth_syncing") is False
    assert caller.result("eth_blockNumber") == "0x1d"


def test_before_the_first_block_there_is_a_chain_id_and_no_head() -> None:
    caller = make_caller(MemoryEngine([]), chain_id=5)
    assert caller.result("eth_chainId") == "0x5"
    for method, params in (("eth_blockNumber", []), ("eth_getLogs", [{}]), ("eth_newFilter", [{}]), ("lake_getLogsPage", [{}])):
        assert caller.error(method, *params) == (-32000, "head block not available: no block is indexed yet")


addresses = st.sampled_from(["0x" + f"{index:02x}" * 20 for index in range(1, 6)])
topics = st.sampled_from(["0x" + f"{index:02x}" * 32 for index in range(1, 7)])
positions = st.lists(st.none() | topics | st.lists(topics | st.none(), max_size=3), max_size=4)


@settings(max_examples=150)
@given(st.integers(0, 29), st.integers(0, 29), st.none() | addresses | st.lists(addresses, max_size=3), st.none() | positions)
def test_logs_are_those_that_match_in_order(caller: Caller, start: int, end: int, address: Any, wanted_topics: Any) -> None:
    wanted = {"fromBlock": hex(min(start, end)), "toBlock": hex(max(start, end)), "address": address, "topics": wanted_topics}
    rule = parse_filter([wanted], Bounds(0, 29), Limits())
    assert caller.result("eth_getLogs", wanted) == [log.to_json() for log in LOGS if match(rule, log, 29)]


def test_an_empty_filter_gives_the_head_block_and_a_block_hash_its_block(caller: Caller) -> None:
    assert caller.result("eth_getLogs", {}) == [log.to_json() for log in BLOCKS[-1].logs]
    for one in BLOCKS:
        found = caller.result("eth_getLogs", {"blockHash": "0x" + one.block.hash.hex()})
        assert found == [log.to_json() for log in one.logs]
    assert caller.error("eth_getLogs", {"blockHash": "0x" + "ab" * 32}) == (-32000, "Block not found.")


def test_a_clipped_range_gives_what_there_is() -> None:
    caller = make_caller(MemoryEngine(BLOCKS), filters=Limits(range_rule="clip"))
    assert caller.result("eth_getLogs", {"fromBlock": "0x0", "toBlock": "0xffff"}) == [log.to_json() for log in LOGS]
    assert caller.result("eth_getLogs", {"fromBlock": "0xff"}) == []
    assert caller.result("lake_explain", {"fromBlock": "0xff"})["logs"] == 0
    assert caller.result("lake_getLogsPage", {"fromBlock": "0xff"})["logs"] == []


@pytest.mark.parametrize("most", [1, 5, 20, 77])
def test_too_many_results_name_a_range_that_works_and_is_as_long_as_can_be(most: int) -> None:
    caller = make_caller(MemoryEngine(BLOCKS), max_results=most)
    start, found = 0, []
    while start <= 29:
        answer = caller.call("eth_getLogs", {"fromBlock": hex(start)})
        if "result" in answer:
            found += answer["result"]
            break
        text = answer["error"]["message"]
        prefix = f"query exceeds max results {most}, "
        assert answer["error"]["code"] == -32602 and text.startswith(prefix)
        if "alone has more" in text:
            assert len(BLOCKS[start].logs) > most and text == f"{prefix}block {start} alone has more: use lake_getLogsPage"
            found += [log.to_json() for log in BLOCKS[start].logs]
            start += 1
            continue
        first, last = (int(number) for number in text.removeprefix(f"{prefix}retry with the range ").split("-"))
        assert answer["error"]["data"] == {"fromBlock": hex(first), "toBlock": hex(last)} and first == start
        part = caller.result("eth_getLogs", {"fromBlock": hex(first), "toBlock": hex(last)})
        assert "error" in caller.call("eth_getLogs", {"fromBlock": hex(first), "toBlock": hex(last + 1)})
        found, start = found + part, last + 1
    assert found == [log.to_json() for log in LOGS]


def test_an_answer_that_would_be_too_long_names_a_range_too() -> None:
    caller = make_caller(MemoryEngine(BLOCKS), max_response=30_000)
    code, message = caller.error("eth_getLogs", {"fromBlock": "0x0"})
    assert code == -32602 and message.startswith("query exceeds max response size 30000 bytes, retry with the range 0-")
    last = int(message.rsplit("-", 1)[1])
    assert len(json.dumps(caller.result("eth_getLogs", {"fromBlock": "0x0", "toBlock": hex(last)}))) < 35_000


def test_the_range_named_keeps_to_both_limits() -> None:
    caller = make_caller(MemoryEngine(BLOCKS), max_results=len(LOGS) - 1, max_response=30_000)
    code, message = caller.error("eth_getLogs", {"fromBlock": "0x0"})
    assert code == -32602 and message.startswith("query exceeds max response size 30000 bytes, retry with the range 0-")
    assert caller.result("eth_getLogs", {"fromBlock": "0x0", "toBlock": hex(int(message.rsplit("-", 1)[1]))})


def test_an_exact_number_of_results_is_no_error() -> None:
    caller = make_caller(MemoryEngine(BLOCKS), max_results=len(LOGS))
    assert len(caller.result("eth_getLogs", {"fromBlock": "0x0"})) == len(LOGS)
    more = make_caller(MemoryEngine(BLOCKS), max_results=len(LOGS) - 1)
    assert more.error("eth_getLogs", {"fromBlock": "0x0"})[0] == -32602


def test_blocks_by_number_tag_and_hash(caller: Caller) -> None:
    head = caller.result("eth_getBlockByNumber", "latest", False)
    assert head == caller.result("eth_getBlockByNumber", "0x1d", None) == caller.result("eth_getBlockByHash", head["hash"], True)
    assert head["parentHash"] == "0x" + BLOCKS[28].block.hash.hex()
    assert head["transactions"] == list(dict.fromkeys("0x" + log.transaction_hash.hex() for log in BLOCKS[-1].logs))
    assert caller.result("eth_getBlockByNumber", "earliest", False)["number"] == "0x0"
    assert caller.result("eth_getBlockByNumber", "finalized", False) == head
    assert (head["difficulty"], head["extraData"], head["uncles"]) == ("0x0", "0x", []) and "baseFeePerGas" not in head


def test_blocks_that_are_not_there_are_null(caller: Caller) -> None:
    for method, block in (("Number", "0x1e"), ("Number", "pending"), ("Hash", "0x" + "ab" * 32)):
        assert caller.result(f"eth_getBlockBy{method}", block, False) is None


def test_transactions_are_objects_only_where_the_source_gave_objects() -> None:
    (one,) = make_blocks(1)
    full = [{"hash": "0x" + "aa" * 32, "value": "0x1"}]
    header = {**json.loads(one.payload), "transactions": full}
    caller = make_caller(MemoryEngine([type(one)(one.block, one.logs, json.dumps(header).encode())]))
    assert caller.result("eth_getBlockByNumber", "0x0", True)["transactions"] == full
    assert caller.result("eth_getBlockByNumber", "0x0", False)["transactions"] == ["0x" + "aa" * 32]


def test_a_query_can_be_explained(caller: Caller) -> None:
    found = caller.result("lake_explain", {"fromBlock": "0x0"})
    assert found == {"head": BLOCKS[-1].block.to_json(), "logs": len(LOGS), "more": False, "plan": {"plan": "scan"}}


hashes = st.binary(min_size=32, max_size=32)
memory_logs = st.builds(
    MemoryLog,
    block_number=st.integers(0, 1 << 62),
    block_hash=hashes,
    seconds=st.integers(0, 1 << 33),
    transaction_hash=hashes,
    transaction_index=st.integers(0, 1 << 30),
    log_index=st.integers(0, 1 << 30),
    address=st.binary(min_size=20, max_size=20),
    topics=st.lists(hashes, max_size=4).map(tuple),
    data=st.binary(max_size=100),
)


@given(st.lists(memory_logs, max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_columns_become_the_json_of_each_log_whatever_the_slice(logs: list[MemoryLog], start: int, length: int) -> None:
    found = table(logs).slice(start, length)
    written = logs_to_json(found)
    expected = [log.to_json() for log in logs[start : start + length]]
    assert written == json.dumps(expected, separators=(",", ":")).encode()
    assert all(len(json.dumps(log)) < size for log, size in zip(expected, sizes(found), strict=True))


def test_the_estimate_of_a_log_is_never_too_low() -> None:
    top = (1 << 63) - 1
    log = MemoryLog(top, b"h" * 32, 253402300799, b"t" * 32, (1 << 31) - 1, (1 << 31) - 1, b"a" * 20, (b"x" * 32,) * 4, b"")
    assert len(logs_to_json(table([log]))) < FIXED_BYTES
