"""Receipts and logs to columns: every value right, every broken block named, blooms as the protocol has them."""

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sha3

from chainlake.demo import evm
from chainlake.encoding import from_hex, to_hex
from chainlake.logs.block_rows import Checked, check_blocks, wrong_with
from chainlake.logs.bloom import BloomBits
from chainlake.logs.bundles import bundle_logs, file_bounds, number_logs
from chainlake.logs.decode import SCHEMA, Piece, check_block, decode_batch
from chainlake.logs.headers import BLOCKS as RAW_BLOCKS
from chainlake.logs.headers import read_headers
from chainlake.logs.hex_columns import unhex, unhex_any
from chainlake.logs.log_columns import Transaction, _carefully, _quickly
from chainlake.logs.packing import unpacked
from chainlake.sources.evm import parse_line

BLOCKS = list(evm.blocks(30, seed=5, logs_per_block=12))


def transactions(lines: list[dict[str, Any]]) -> list[Transaction]:
    found = []
    for line in lines:
        block = parse_line(json.dumps(line).encode(), "test", 0)
        found += [Transaction(block.height, block.hash, t.index, t.hash, t.payload) for t in block.transactions]
    return found


def raw(given: list[Transaction]) -> pa.RecordBatch:
    names = {"_height": "height", "block_hash": "block_hash", "tx_index": "index", "hash": "hash", "payload": "payload"}
    return pa.RecordBatch.from_pydict({column: [getattr(t, name) for t in given] for column, name in names.items()})


def logs_of(line: dict[str, Any]) -> list[dict[str, Any]]:
    return line["logs"] if "logs" in line else [log for receipt in line["receipts"] for log in receipt["logs"]]


def pieces(bundles: list[dict[str, Any]]) -> dict[int, list[Piece]]:
    found: dict[int, list[Piece]] = {}
    for piece in (piece for bundle in bundles for piece in bundle["pieces"]):
        found.setdefault(piece.pop("height"), []).append(Piece(**piece))
    return found


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_every_log_comes_out_as_it_was_whatever_the_batches(size: int) -> None:
    given = transactions(BLOCKS)
    random.Random(1).shuffle(given) if size == 10_000 else None
    batches = [raw(given[at : at + size]) for at in range(0, len(given), size)]
    bundles = [row for batch in bundle_logs(batches) for row in batch.to_pylist()]
    assert all(bundle["error"] is None for bundle in bundles)
    rows = [row for bundle in bundles for row in unpacked(bundle["rows"]).to_pylist()]
    for bundle, part in zip(bundles, (unpacked(bundle["rows"]).to_pylist() for bundle in bundles), strict=True):
        ends = [(part[at]["_height"], part[at]["log_index"]) for at in (0, -1)]
        assert [(bundle["first_height"], bundle["first_log"]), (bundle["last_height"], bundle["last_log"])] == ends
        assert bundle["logs"] == len(part)
    rows.sort(key=lambda row: (row["_height"], row["log_index"]))
    expected = [log for line in BLOCKS for log in logs_of(line)]
    assert len(rows) == len(expected) > 200
    for row, log in zip(rows, expected, strict=True):
        assert (row["_height"], row["log_index"]) == (int(log["blockNumber"], 16), int(log["logIndex"], 16))
        assert to_hex(row["address"]) == log["address"] and to_hex(row["data"]) == log["data"]
        assert [to_hex(row[f"topic{k}"]) for k in range(row["topic_count"])] == log["topics"]
        assert all(row[f"topic{k}"] is None for k in range(row["topic_count"], 4))
        assert to_hex(row["transaction_hash"]) == log["transactionHash"]
    blooms = {int(line["block"]["number"], 16): from_hex(line["block"]["logsBloom"]) for line in BLOCKS}
    found = pieces(bundles)
    assert all(check_block(height, found.get(height, []), bloom) is None for height, bloom in blooms.items())


def test_the_bloom_is_that_of_the_protocol() -> None:
    """The example of the yellow paper: bits from the first three pairs of bytes of the hash."""
    digest = sha3.keccak_256(bytes.fromhex("11" * 20)).digest()
    (bits,) = BloomBits().of(np.full((1, 20), 0x11, np.uint8))
    assert {bits >> shift & 2047 for shift in (0, 11, 22)} == {int.from_bytes(digest[k : k + 2], "big") % 2048 for k in (0, 2, 4)}


def broken(change: Any) -> list[dict[str, Any]]:
    """Rows of a block of which the logs were changed after the source had let it pass, and of a good one."""
    line = next(b for b in BLOCKS if len(logs_of(b)) > 4)
    records = {t.index: json.loads(t.payload) for t in transactions([line])}
    change([log for record in records.values() for log in (record["logs"] if isinstance(record, dict) else record)])
    given = [replace(t, payload=json.dumps(records[t.index]).encode()) for t in transactions([line])] + transactions(BLOCKS[-1:])
    return [row for batch in decode_batch(given, BloomBits()) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda logs: logs[1].update(address="0x12"), "address '0x12' is not 0x and 20 bytes of hex"),
        (lambda logs: logs[1].update(address="0x" + "zz" * 20), "is not 0x and 20 bytes of hex"),
        (lambda logs: logs[1].update(topics=["0x" + "00" * 31]), "topic"),
        (lambda logs: logs[1].update(topics=["0x" + "00" * 32] * 5), "5 topics"),
        (lambda logs: logs[1].update(data="0x123"), "whole bytes of hex"),
        (lambda logs: logs[1].update(data="1234"), "whole bytes of hex"),
        (lambda logs: logs[1].update(data="0x12 4"), "hex"),
        (lambda logs: logs[1].update(removed=True), "removed"),
        (lambda logs: logs[1].pop("data"), "it lacks 'data'"),
        (lambda logs: logs[1].update(logIndex="0x7fffffffffffffffffff"), "block "),
        (lambda logs: logs[1].update(blockHash="0x" + "ab" * 32), "is of block"),
    ],
)
def test_a_bad_log_is_named_with_its_block_and_the_others_are_kept(change: Any, says: str) -> None:
    rows = broken(change)
    errors = [row for row in rows if row["error"]]
    assert errors and all(says in row["error"] and f"block {row['_height']}" in row["error"] for row in errors)
    assert any(row["error"] is None and row["_height"] == int(BLOCKS[-1]["block"]["number"], 16) for row in rows)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"7",
        b'"x"',
        b"[1]",
        b"[[]]",
        b'{"logs": 3}',
        b'[{"topics": {}}]',
        b"\xff\xfe",
        b"[" * 2000,
        b'[{"x":' * 500_000,
    ],
)
def test_hostile_payloads_give_an_error_row_and_nothing_else(payload: bytes) -> None:
    (batch,) = decode_batch([Transaction(7, b"\1" * 32, 0, b"\2" * 32, payload)], BloomBits())
    assert batch.schema == SCHEMA
    assert [(row["_height"], bool(row["error"])) for row in batch.to_pylist()] == [(7, True)]


def test_pieces_must_be_whole_and_in_order() -> None:
    bloom = bytes(256)
    one, two = Piece(0, 3, 0, 1, bloom), Piece(3, 2, 2, 2, bloom)
    assert check_block(1, [two, one], bloom) is None and check_block(1, [], bloom) is None and check_block(1, [one], None) is None
    assert "log index 3 where 0" in str(check_block(1, [two], bloom))
    assert "log index 4 where 3" in str(check_block(1, [one, Piece(4, 1, 2, 2, bloom)], bloom))
    assert "come after" in str(check_block(1, [one, Piece(3, 1, 1, 1, bloom)], bloom))
    assert "logsBloom" in str(check_block(1, [one, two], b"\1" + bytes(255)))


def read_header(payload: bytes) -> dict[str, Any]:
    times = pa.array([5], pa.timestamp("us", "UTC"))
    columns = {"_height": [7], "hash": [b"h"], "parent_hash": [b"p"], "timestamp": times, "payload": [payload]}
    (batch,) = read_headers([pa.RecordBatch.from_pydict(columns)])
    (row,) = batch.to_pylist()
    assert (row["_height"], row["hash"], row["parent_hash"]) == (7, b"h", b"p")
    return row


def test_a_header_says_what_it_says_and_what_is_no_number_is_left_out() -> None:
    for line in BLOCKS[:3]:
        header = line["block"]
        row = read_header(json.dumps(header).encode())
        assert to_hex(row["bloom"]) == header["logsBloom"] and to_hex(row["miner"]) == header["miner"] and row["error"] is None
        assert row["gas_used"] == int(header["gasUsed"], 16) and row["base_fee_per_gas"] == int(header["baseFeePerGas"], 16)
        assert row["transaction_count"] == len(header["transactions"])
    empty = read_header(b'{"gasUsed":"0xffffffffffffffff","baseFeePerGas":7,"miner":"0xz","transactions":null,"logsBloom":null}')
    names = ("bloom", "miner", "gas_used", "base_fee_per_gas", "transaction_count", "error")
    assert [empty[name] for name in names] == [None] * 6
    assert read_header(b'{"extra":"\\ud800","gasUsed":"0x5"}')["gas_used"] == 5, "half a surrogate pair is no reason to stop"


@pytest.mark.parametrize("bloom", ["0x", "0x00", "0x" + "00" * 255, "0x" + "00" * 257, "00" * 257, "0x" + "zz" * 256, 7, ["0x"]])
def test_a_bloom_that_is_none_is_named_and_not_taken_for_a_missing_one(bloom: Any) -> None:
    row = read_header(json.dumps({"logsBloom": bloom}).encode())
    assert row["bloom"] is None and row["error"].startswith("block 7: its logsBloom is ")


def test_a_header_that_cannot_be_read_is_an_error_and_no_crash() -> None:
    for payload in (b"", b"{", b"[]", b'{"a":' * 100_000, b"\xff"):
        assert read_header(payload)["error"].startswith("block 7: ")


def headers(lines: list[dict[str, Any]]) -> pa.Table:
    rows = [
        {
            "_height": int(line["block"]["number"], 16),
            "hash": from_hex(line["block"]["hash"]),
            "parent_hash": from_hex(line["block"]["parentHash"]),
            "timestamp": int(line["block"]["timestamp"], 16) * 1_000_000,
            "payload": json.dumps(line["block"]).encode(),
        }
        for line in lines
    ]
    return pa.Table.from_batches(read_headers([pa.RecordBatch.from_pylist(rows, schema=RAW_BLOCKS)]))


def checked(lines: list[dict[str, Any]], first: int = 100, size: int = 5) -> Checked:
    """The blocks in any order, their logs in bundles of some transactions."""
    given = transactions(lines)
    bundles = list(bundle_logs([raw(given[at : at + size]) for at in range(0, len(given), size)]))
    return check_blocks(headers(lines[::-1]), pa.Table.from_batches(bundles), first)


def test_blocks_are_checked_and_their_logs_numbered_on() -> None:
    found = checked(BLOCKS)
    rows = found.rows.to_pylist()
    counts = [len(logs_of(line)) for line in BLOCKS]
    assert found.wrong is None and found.next_log_id == 100 + sum(counts)
    assert [row["log_count"] for row in rows] == counts
    assert [row["first_log_id"] for row in rows] == [100 + sum(counts[:at]) for at in range(len(counts))]
    assert [to_hex(row["hash"]) for row in rows] == [line["block"]["hash"] for line in BLOCKS]
    assert all(row["bloom_checked"] for row in rows)
    assert [row["transaction_count"] for row in rows] == [len(line["block"]["transactions"]) for line in BLOCKS]


def test_the_first_wrong_block_is_named_with_what_is_wrong() -> None:
    lines = json.loads(json.dumps(BLOCKS))
    busy = [line for line in lines if len(logs_of(line)) > 4]

    def names(line: dict[str, Any], words: str) -> bool:
        height, error = checked(lines).wrong or (None, "")
        return height == int(line["block"]["number"], 16) and words in error

    busy[3]["block"]["logsBloom"] = "0x" + "00" * 256
    assert names(busy[3], "the logsBloom of its header is not that of its")
    busy[2]["block"]["logsBloom"] = "0x12"
    assert names(busy[2], "its logsBloom is '0x12'")
    logs_of(busy[1])[0].update(address="0x12")
    assert names(busy[1], "address '0x12'")


def test_a_block_by_itself_is_checked_in_the_same_way() -> None:
    for line in BLOCKS:
        assert wrong_with(parse_line(json.dumps(line).encode(), "given", 0)) is None
    line = json.loads(json.dumps(next(line for line in BLOCKS if len(logs_of(line)) > 4)))
    line["block"]["logsBloom"] = "0x" + "ff" * 256
    assert "the logsBloom of its header" in str(wrong_with(parse_line(json.dumps(line).encode(), "given", 0)))
    logs_of(line)[2]["logIndex"] = "0x7"
    assert "out of order" in str(wrong_with(parse_line(json.dumps(line).encode(), "given", 0)))


def test_blocks_whose_source_leaves_out_transactions_and_bloom_are_taken() -> None:
    lines = json.loads(json.dumps(BLOCKS))
    for line in lines:
        del line["block"]["transactions"], line["block"]["logsBloom"]
    found = checked(lines)
    assert found.wrong is None and not any(found.rows["bloom_checked"].to_pylist())
    last = [max((int(log["transactionIndex"], 16) + 1 for log in logs_of(line)), default=0) for line in lines]
    assert found.rows["transaction_count"].to_pylist() == last


def test_unhex_of_nothing_and_of_any_case() -> None:
    assert unhex([], 20, "address").shape == (0, 20)
    assert unhex(["0xAb", "0Xff"], 1, "byte").tolist() == [[171], [255]]


def test_the_quick_way_and_the_careful_way_give_the_same() -> None:
    given = transactions(BLOCKS)
    quick, careful = _quickly(given), _carefully(given)
    assert quick is not None and quick.data.equals(careful.data)
    for name in ("rows", "indexes", "addresses", "topic_counts", "topics"):
        assert np.array_equal(getattr(quick, name), getattr(careful, name)), name


@pytest.mark.parametrize("change", [lambda text: text.replace("0x", "0X"), lambda text: text.upper().replace("0X", "0x")])
def test_the_quick_way_leaves_hashes_in_other_case_to_the_careful_one(change: Any) -> None:
    line = json.loads(json.dumps(next(b for b in BLOCKS if len(logs_of(b)) > 4)))
    plain = [batch.to_pylist() for batch in decode_batch(transactions([line]), BloomBits())]
    for log in logs_of(line):
        log["blockHash"] = change(log["blockHash"])
    again = transactions([line])
    assert _quickly(again) is None
    if "0x" in logs_of(line)[0]["blockHash"]:
        assert [batch.to_pylist() for batch in decode_batch(again, BloomBits())] == plain


def test_unhex_of_any_length_takes_slices_and_refuses_what_is_odd() -> None:
    texts = pa.array(["0x", "0xab", "0xABcd12", "0x"])
    assert unhex_any(texts).to_pylist() == [b"", b"\xab", b"\xab\xcd\x12", b""]
    assert unhex_any(texts.slice(1, 2)).to_pylist() == [b"\xab", b"\xab\xcd\x12"]
    for bad in ("0xa", "ab", "0", "0xag", "", "x0ab"):
        assert unhex_any(pa.array(["0xab", bad])) is None


def test_logs_are_numbered_by_block_whatever_the_bundles() -> None:
    given = transactions(BLOCKS)
    low = min(t.height for t in given) - 1
    counts = [len(logs_of(line)) for line in BLOCKS]
    first_ids = 1000 + np.cumsum([0, *counts[:-1]])
    times = np.array([int(line["block"]["timestamp"], 16) for line in BLOCKS]) * 1_000_000
    base = int(BLOCKS[0]["block"]["number"], 16) - 1
    bundles = list(bundle_logs([raw(given[at : at + 7]) for at in range(0, len(given), 7)]))
    rows = [row for batch in number_logs(bundles, base, first_ids, times) for row in batch.to_pylist()]
    assert low >= base and [row["log_id"] for row in rows] == list(range(1000, 1000 + sum(counts)))
    expected = [(line, log) for line in BLOCKS for log in logs_of(line)]
    for row, (line, log) in zip(rows, expected, strict=True):
        assert to_hex(row["block_hash"]) == line["block"]["hash"] and to_hex(row["data"]) == log["data"]
        assert row["block_timestamp"].timestamp() == int(line["block"]["timestamp"], 16)


def test_a_bundle_names_the_first_block_that_is_wrong_and_keeps_the_logs_of_the_others() -> None:
    lines = json.loads(json.dumps(BLOCKS[:8]))
    wrong = [line for line in lines if logs_of(line)][1:3]
    for line in wrong:
        logs_of(line)[0].update(address="0x12")
    (bundle,) = (row for batch in bundle_logs([raw(transactions(lines))]) for row in batch.to_pylist())
    height = int(wrong[0]["block"]["number"], 16)
    assert bundle["error_height"] == height and f"block {height}" in bundle["error"]
    assert {row["_height"] for row in unpacked(bundle["rows"]).to_pylist()} >= {int(lines[0]["block"]["number"], 16)}
    (only_wrong,) = (row for batch in bundle_logs([raw(transactions(wrong[:1])[:1])]) for row in batch.to_pylist())
    assert only_wrong["logs"] == 0 and only_wrong["first_height"] is None and only_wrong["error_height"] == height


def test_bundles_go_to_files_as_a_whole_and_only_if_they_do_not_overlap() -> None:
    bundles = [(10, 0, 12, 4, 100), (12, 5, 15, 0, 100), (16, 0, 20, 9, 100), (21, 0, 21, 9, 100)]
    for files, bounds in ((1, []), (2, [(16, 0)]), (4, [(12, 5), (16, 0), (21, 0)]), (9, [(12, 5), (16, 0), (21, 0)])):
        assert file_bounds(bundles[::-1], files) == bounds
    assert file_bounds([], 3) == []
    assert file_bounds([*bundles, (14, 0, 14, 0, 1)], 2) is None
    assert file_bounds([*bundles, (12, 4, 12, 4, 1)], 2) is None
