"""EVM lines: what becomes a block, what becomes its transactions, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from chainlake.demo import evm as demo
from chainlake.sources.evm import parse_line
from tests.unit.sources_reading import good, read_batch, reason

HASHES = ["0x" + f"{number:02x}" * 32 for number in range(8)]


def block(**changes: Any) -> dict[str, Any]:
    return {"number": "0x10", "hash": HASHES[1], "parentHash": HASHES[2], "timestamp": "0x5", **changes}


def log(index: int, transaction: int, **changes: Any) -> dict[str, Any]:
    return {
        "logIndex": hex(index),
        "transactionHash": HASHES[transaction],
        "transactionIndex": hex(transaction),
        **changes,
    }


def parse(line: dict[str, Any], separators: tuple[str, str] = (",", ":")) -> Any:
    return parse_line(json.dumps(line, separators=separators).encode(), "file", 0)


def test_the_block_keeps_its_json_without_logs() -> None:
    found = parse({"block": block(extra=[1, {"a": None}]), "logs": [log(0, 3)]})
    assert (found.height, found.timestamp_us, found.hash.hex()) == (16, 5_000_000, HASHES[1][2:])
    assert found.parent_hash.hex() == HASHES[2][2:]
    assert found.payload == json.dumps(block(extra=[1, {"a": None}]), separators=(",", ":")).encode()


def test_spaces_in_the_line_do_not_change_what_is_kept() -> None:
    line = {"block": block(transactions=[HASHES[0]]), "receipts": [log(0, 0, logs=[])]}
    assert parse(line, (", ", ": ")) == parse(line)


def test_logs_are_grouped_by_transaction_in_order_and_quiet_transactions_are_kept() -> None:
    logs = [log(0, 1), log(1, 1), log(2, 2)]
    found = parse({"block": block(transactions=[HASHES[0], {"hash": HASHES[1]}, HASHES[2]]), "logs": logs}).transactions
    assert [(one.index, one.hash.hex(), json.loads(one.payload)) for one in found] == [
        (0, HASHES[0][2:], []),
        (1, HASHES[1][2:], logs[:2]),
        (2, HASHES[2][2:], logs[2:]),
    ]


def test_receipts_are_kept_one_by_one_sorted_by_index() -> None:
    receipts = [log(0, 1, status="0x1"), log(0, 0, status="0x0")]
    found = parse({"receipts": receipts, "block": block(transactions=[HASHES[0], HASHES[1]])}).transactions
    assert [json.loads(one.payload) for one in found] == [receipts[1], receipts[0]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"logs": []}, 'no "block" object'),
        ({"block": block()}, 'neither a "receipts" nor a "logs" array'),
        ({"block": block(), "logs": None}, 'neither a "receipts" nor a "logs" array'),
        ({"block": block(number=16), "logs": []}, "block.number is 16"),
        ({"block": block(number="0x1_0"), "logs": []}, "block.number is '0x1_0'"),
        ({"block": block(number="0xffffffffffffffff"), "logs": []}, "at most 63 bits"),
        ({"block": block(hash="0x12"), "logs": []}, "block.hash is '0x12'"),
        ({"block": block(hash="0x" + "zz" * 32), "logs": []}, "block.hash is not hex"),
        ({"block": block(timestamp="0xffffffffffff"), "logs": []}, "out of range"),
        ({"block": block(timestamp=hex(1_700_000_000_000)), "logs": []}, "unix seconds are expected"),
        ({"block": block(transactions=5), "logs": []}, "block.transactions is 5"),
        ({"block": block(), "logs": [log(0, 1, transactionHash=None)]}, "log.transactionHash is None"),
        (
            {"block": block(transactions=HASHES[:2]), "logs": [log(0, 1, transactionIndex="0x0")]},
            "has transaction index 0",
        ),
        ({"block": block(transactions=HASHES[:2]), "receipts": [log(0, 1)]}, "2 transactions but has 1 receipts"),
        ({"block": block(), "receipts": [log(0, 1), log(0, 1)]}, "same transactionIndex"),
        ({"block": block(), "logs": [log(0, 1), log(1, 2, transactionIndex="0x1")]}, "same transactionIndex"),
        (
            {"block": block(transactions=HASHES[:2]), "logs": [log(0, 1), log(1, 3)]},
            "a log is of transaction 3 0x03030303…, the block lists only 2 transactions",
        ),
        (
            {"block": block(transactions=HASHES[:1]), "receipts": [log(0, 3, transactionIndex="0x0")]},
            "a receipt is of transaction 0 0x03030303…, the block lists 0x00000000…",
        ),
        ({"block": block(), "logs": [log(0, 1, blockHash=HASHES[3])]}, "its logs are of block 0x03030303…, not of 0x01010101…"),
        ({"block": block(), "receipts": [log(0, 1, blockHash=HASHES[3])]}, "its receipts are of block 0x03030303…, not of"),
        ({"block": block(), "logs": [log(0, 1, blockNumber="0x11")]}, "its logs are of block 0x11, not of 0x10"),
        ({"block": block(), "receipts": [log(0, 1, logs=[log(0, 1, blockNumber="0x11")])]}, "its logs are of block 0x11"),
        ({"block": block(), "logs": [log(0, 1, blockHash=7)]}, "blockHash of the logs is 7"),
        ({"block": block(), "logs": [log(0, 1, transactionIndex="0x80000000")]}, "at most 31 bits"),
        ({"block": block(), "logs": [7]}, "log.transactionHash is None"),
    ],
)
def test_a_line_that_is_not_a_block_says_what_is_wrong(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n" + json.dumps(line) + "\n")
    found = read_batch("evm", [str(path)])
    assert message in reason(found)
    assert [(bad.source, bad.position) for bad in found] == [(str(path), 1)]


@pytest.mark.parametrize("text", ["{", "[]", '{"block": NaN}', '{"block": {}} x', '{"block"', "[" * 200_000, "\ufeff{}"])
def test_text_that_is_not_a_json_object_is_a_bad_block(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    assert "JSON" in reason(read_batch("evm", [str(tmp_path / "a.jsonl")]))


def test_records_may_name_their_block_in_any_case_or_not_at_all() -> None:
    plain = parse({"block": block(hash="0x" + "ab" * 32), "logs": [log(0, 1)]})
    for said in ({"blockHash": "0x" + "AB" * 32, "blockNumber": "0x010"}, {"blockHash": None}, {"blockNumber": "0x10"}):
        found = parse({"block": block(hash="0x" + "ab" * 32), "logs": [log(0, 1, **said)]})
        assert [one.hash for one in found.transactions] == [one.hash for one in plain.transactions]


def test_blocks_before_a_damaged_one_are_kept_and_those_after_are_not(tmp_path: Path) -> None:
    lines = [json.dumps(line) for line in demo.blocks(5)]
    lines[3] = lines[3][:-9]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    found = read_batch("evm", [str(tmp_path / "a.jsonl")])
    assert [block.height for block in good(found[:-1])] == [0, 1, 2]
    assert "still being written" in reason(found)
