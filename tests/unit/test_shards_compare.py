"""Our results beside those of a chain: equal ones give nothing, every other one is told where and how."""

import base64
import copy
import json
from typing import Any

import pyarrow as pa
import pytest

from chainlake.errors import BadInput
from chainlake.shards import differences
from chainlake.shards.compare import Difference, compare, parse_block_results
from chainlake.shards.fold import TxResult
from tests.unit.shards_making import Chain, advanced, created, space

ROOT = b"\x07" * 32


def answer_of(height: int, results: list[TxResult], success_log: str = "") -> dict[str, Any]:
    """The `/block_results` result of a chain that agrees with us."""
    found = [
        {
            "code": int(one.code),
            "data": None,
            "log": one.log if one.code else success_log,
            "events": [
                {
                    "type": event.type,
                    "attributes": [{"key": key, "value": value, "index": True} for key, value in event.attributes],
                }
                for event in one.events
            ],
            "codespace": "towns",
        }
        for one in results
    ]
    return {"height": str(height), "txs_results": found or None, "app_hash": base64.b64encode(ROOT).decode()}


@pytest.fixture(scope="module")
def results() -> list[TxResult]:
    chain = Chain()
    chain.block(created("a"), created("b"))
    return chain.block(created("a"), advanced("a", 1, sealed=True), advanced("b", 7), b"\xff").results


@pytest.mark.parametrize("success_log", ["", "OK"])
def test_a_chain_that_agrees_gives_no_difference(results: list[TxResult], success_log: str) -> None:
    answer = answer_of(2, results, success_log)
    assert compare(results, parse_block_results(answer), ROOT) == []
    assert compare(results, parse_block_results({"jsonrpc": "2.0", "id": 1, "result": answer})) == []


def test_empty_blocks_are_null() -> None:
    answer = answer_of(3, [])
    assert answer["txs_results"] is None
    assert compare([], parse_block_results(answer)) == []


def test_an_app_hash_that_was_not_told_is_no_difference_but_an_empty_one_is() -> None:
    for told in ({}, {"app_hash": None}):
        answer = {"height": "3", "txs_results": None, **told}
        assert compare([], parse_block_results(answer), b"\x08" * 32) == []
    empty = compare([], parse_block_results({"height": "3", "app_hash": ""}), b"\x08" * 32)
    assert empty == [Difference(3, None, None, "app_hash", "0x" + "08" * 32, "0x")]


def test_every_difference_is_a_record(results: list[TxResult]) -> None:
    answer = copy.deepcopy(answer_of(2, results))
    txs = answer["txs_results"]
    txs[0].update(code=9, log="FAILED_PRECONDITION")
    txs[1]["events"][0]["attributes"].pop()
    txs[2]["events"].append({"type": "extra", "attributes": None})
    txs[3].update(log="else", codespace="sdk")
    attributes = dict(results[1].events[0].attributes)
    ours = f"mbok sid={space('a').hex()} n=1 h={attributes['h']}"
    assert compare(results, parse_block_results(answer), b"\x08" * 32) == [
        Difference(2, None, None, "app_hash", "0x" + "08" * 32, "0x" + "07" * 32),
        Difference(2, 0, None, "code", "6", "9"),
        Difference(2, 0, None, "log", "ALREADY_EXISTS", "FAILED_PRECONDITION"),
        Difference(2, 1, 0, "event", f"{ours} sealed=true", ours),
        Difference(2, 2, 1, "event", None, "extra"),
        Difference(2, 3, None, "log", "INVALID_ARGUMENT", "else"),
        Difference(2, 3, None, "codespace", "towns", "sdk"),
    ]


def test_missing_and_additional_transactions_are_told(results: list[TxResult]) -> None:
    answer = answer_of(2, results)
    assert compare(results[:3], parse_block_results(answer)) == [Difference(2, 3, None, "transaction", None, "3")]
    answer["txs_results"] = answer["txs_results"][:3]
    assert compare(results, parse_block_results(answer)) == [Difference(2, 3, None, "transaction", "INVALID_ARGUMENT", None)]


def test_a_success_with_another_log_is_a_difference(results: list[TxResult]) -> None:
    answer = answer_of(2, results, "fine")
    assert [one.what for one in compare(results, parse_block_results(answer))] == ["log", "log"]


def test_results_of_another_block_are_refused(results: list[TxResult]) -> None:
    with pytest.raises(BadInput, match="result 0 is of transaction 0 of block 2, block 3 is compared"):
        compare(results, parse_block_results(answer_of(3, results)))
    with pytest.raises(BadInput, match="result 0 is of transaction 1"):
        compare(results[1:], parse_block_results(answer_of(2, results)))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "is not the result of CometBFT's /block_results"),
        ({"txs_results": None}, "height is None"),
        ({"height": 5}, "height is 5: a decimal number in quotes"),
        ({"height": "5", "txs_results": {}}, "txs_results is {}: an array or null"),
        ({"height": "5", "txs_results": [None]}, "txs_results holds None"),
        ({"height": "5", "txs_results": [{"code": "0"}]}, "code is '0'"),
        ({"height": "5", "txs_results": [{"log": 1}]}, "log is 1: a text"),
        ({"height": "5", "txs_results": [{"events": [1]}]}, "events holds 1"),
        ({"height": "5", "txs_results": [{"events": [{"attributes": [1]}]}]}, "attributes of an event"),
        ({"height": "5", "app_hash": "!"}, "app_hash is '!': base64"),
        ({"height": "5", "app_hash": 7}, "app_hash is 7: base64"),
    ],
)
def test_what_is_no_block_results_is_said(value: Any, reason: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_block_results(value)
    assert reason in str(error.value)


def test_differences_are_rows_numbered_in_their_block() -> None:
    told = {"height": "7", "app_hash": "", "txs_results": [{"code": 3, "log": "OK", "codespace": "towns"}, {"code": 0}]}
    rows = [
        {"kind": differences.BLOCK, "_height": 7, "results": json.dumps(told), "app_hash": None},
        {"kind": differences.RESULT, "_height": 7, "tx_index": 0, "code": 0, "message": ""},
        {"kind": differences.RESULT, "_height": 8, "tx_index": 0, "code": 0, "message": ""},
        {"kind": differences.BLOCK, "_height": 9, "results": "{", "app_hash": None},
        {"kind": differences.BLOCK, "_height": 10, "results": json.dumps(told), "app_hash": None},
        {"kind": differences.RESULT, "_height": 10, "tx_index": 0, "code": 0, "message": ""},
    ]
    batch = pa.RecordBatch.from_pylist([{name: {"_chain": "c", **row}.get(name) for name in differences.INPUT} for row in rows])
    found = [row for one in differences.find_differences([batch]) for row in one.to_pylist()]
    assert [(row["_height"], row["difference"], row["tx_index"], row["what"]) for row in found] == [
        (7, 0, 0, "code"),
        (7, 1, 1, "transaction"),
        (9, 0, None, "results"),
        (10, 0, None, "results"),
    ]
    assert (found[-1]["ours"], found[-1]["theirs"]) == ("10", "of block 7")
