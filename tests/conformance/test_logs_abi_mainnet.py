"""Logs of mainnet blocks decode with the events that are known by default, the same alone and as columns."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chainlake.encoding import from_hex
from chainlake.logs.abi import Reason, default_registry
from chainlake.logs.abi_columns import decode_columns

BLOCKS = Path(__file__).resolve().parents[3] / "shared" / "data" / "evm" / "mainnet_13_blocks.jsonl.gz"

pytestmark = pytest.mark.skipif(not BLOCKS.is_file(), reason=f"the recorded blocks are not at {BLOCKS}")

USDT = "0xdac17f958d2ee523a2206206994597c13d831ec7"


@cache
def logs() -> list[dict[str, Any]]:
    with gzip.open(BLOCKS) as stream:
        return [log for line in stream for log in json.loads(line)["logs"]]


@cache
def rows() -> list[dict[str, Any]]:
    found = {
        f"topic{at}": [from_hex(log["topics"][at]) if at < len(log["topics"]) else None for log in logs()] for at in range(4)
    }
    columns: dict[str, Any] = {name: pa.array(values, pa.binary()) for name, values in found.items()}
    columns |= {name: pa.array([from_hex(log[name]) for log in logs()], pa.binary()) for name in ("address", "data")}
    columns["topic_count"] = pa.array([len(log["topics"]) for log in logs()], pa.int32())
    decoded: list[dict[str, Any]] = decode_columns(pa.table(columns), default_registry()).to_pylist()
    return decoded


def test_nine_of_ten_logs_are_decoded_and_the_rest_says_why() -> None:
    events = Counter(row["event"] for row in rows())
    assert len(rows()) == 14_736
    assert 1 - events[None] / len(rows()) > 0.9
    assert {name: events[name] for name in ("Transfer", "Approval", "Swap", "Sync", "OrderFulfilled")} == {
        "Transfer": 12_340,
        "Approval": 477,
        "Swap": 426,
        "Sync": 194,
        "OrderFulfilled": 20,
    }
    assert {row["reason"] for row in rows() if row["event"] is None} == {
        "the event is not registered",
        "no topics: nothing says which event it is",
        "Deposit(address,uint256) is not registered with 2 indexed parameters",
    }
    assert all((row["reason"] is None) != (row["event"] is None) for row in rows())


def test_one_by_one_gives_the_same() -> None:
    for log, row in zip(logs(), rows(), strict=True):
        found = default_registry().decode(
            from_hex(log["address"]), [from_hex(topic) for topic in log["topics"]], from_hex(log["data"])
        )
        if isinstance(found, Reason):
            assert row["reason"] == found.text
        else:
            assert (row["signature"], dict(row["args"])) == (found[0].text, found[1])


def test_the_first_log_is_a_transfer_of_usdt() -> None:
    log, row = logs()[0], rows()[0]
    assert (log["address"], row["signature"]) == (USDT, "Transfer(address indexed from, address indexed to, uint256 value)")
    assert dict(row["args"]) == {
        "from": "0xdd19b32a084be0a318f11edb3f7034889c03c51f",
        "to": "0x74de5d4fcbf63e00296fd95d33236b9794016631",
        "value": "2543513067",
    }
    assert row["from_address"].hex() == "dd19b32a084be0a318f11edb3f7034889c03c51f"
    assert row["value"] == Decimal(2_543_513_067)


def test_tokens_of_the_merge_block_have_numbers_and_no_value() -> None:
    minted = [
        row for log, row in zip(logs(), rows(), strict=True) if log["address"] == "0x05f08b01971cf70bcd4e743a8906790cfb9a8fb8"
    ]
    numbers = [int(dict(row["args"])["tokenId"]) for row in minted if row["event"] == "Transfer"]
    assert (len(numbers), len(set(numbers))) == (10_000, 10_000)
    assert {row["value"] for row in minted} == {None}
    assert {row["from_address"] for row in minted if row["event"] == "Transfer"} == {bytes(20)}


def test_an_order_with_lists_of_structs_is_read() -> None:
    order = next(row for row in rows() if row["event"] == "OrderFulfilled")
    args = dict(order["args"])
    assert args["offerer"] == "0x8631bc4ca9c0aa25a94c4f2f62a95420832cf154"
    assert json.loads(args["offer"]) == [["2", "0x2f073c4a897c615101fe4df00ea0869191c6fa8d", "1423", "1"]]
    assert [item[3] for item in json.loads(args["consideration"])] == ["18200000000000000", "500000000000000", "1300000000000000"]
