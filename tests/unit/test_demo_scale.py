"""Benchmark chains: deterministic, linked, with true blooms, skewed like mainnet, the same as lines and as columns."""

import gzip
import itertools
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chainlake.demo import evm
from chainlake.demo.evm_scale import COLUMNS, Scale, linked, tables, write
from chainlake.encoding import from_hex
from chainlake.errors import BadInput
from chainlake.sources.base import ZERO_HASH
from tests.unit.sources_reading import good, read_batch

SMALL = Scale(logs=6_000, logs_per_block=40, seed=7, users=2_000)


@cache
def lines(scale: Scale) -> list[dict[str, Any]]:
    return [json.loads(line) for part in linked(scale) for line in part.lines()]


@cache
def logs(scale: Scale) -> list[dict[str, Any]]:
    return [log for line in lines(scale) for log in line["logs"]]


@cache
def rows(scale: Scale) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.concat_tables(tables(scale)).to_pylist()
    return found


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    once, again = write(tmp_path / "a", SMALL), write(tmp_path / "b", SMALL)
    assert [one.read_bytes() for one in once.lines] == [one.read_bytes() for one in again.lines]
    assert once.parquet and again.parquet and once.parquet.read_bytes() == again.parquet.read_bytes()
    other = Scale(logs=10, seed=8, users=2_000)
    assert not {log["transactionHash"] for log in logs(other)} & {log["transactionHash"] for log in logs(SMALL)}


def test_the_bytes_do_not_depend_on_the_machine() -> None:
    """A change of the world changes this; a change of the machine, of Python or of numpy must not."""
    assert lines(SMALL)[-1]["block"]["hash"] == "0x79034d6f160d33a4cf8a273a315f1b9aa1dfb040a18588af7031fc38e28e675d"


@pytest.mark.parametrize("size", [1, 10, 1_000, 120_000])
def test_there_are_exactly_as_many_logs_as_asked_for(size: int) -> None:
    scale = Scale(logs=3_000, logs_per_block=size, users=100)
    assert len(logs(scale)) == 3_000
    assert abs(len(lines(scale)) - max(1, 3_000 / size)) <= max(1, 300 / size)


def test_blocks_link_and_are_read_by_the_source(tmp_path: Path) -> None:
    written = write(tmp_path, SMALL, parquet=False, compress=True)
    found = good(read_batch("evm", [str(path) for path in written.lines]))
    assert (len(found), written.logs) == (written.blocks, 6_000)
    assert found[0].parent_hash == ZERO_HASH
    assert all(two.parent_hash == one.hash and two.height == one.height + 1 for one, two in itertools.pairwise(found))
    assert sum(len(json.loads(one.payload)) for block in found for one in block.transactions) == 6_000


def test_hashes_cover_the_header() -> None:
    for part in linked(Scale(logs=200, users=100)):
        for header, name in zip(part.headers, part.hashes, strict=True):
            assert evm.keccak(header.encode()) == from_hex(name)


def test_blooms_are_true_and_log_indexes_count() -> None:
    for line in lines(SMALL):
        assert line["block"]["logsBloom"] == evm.bloom(line["logs"])
        assert [int(log["logIndex"], 16) for log in line["logs"]] == list(range(len(line["logs"])))
        for log in line["logs"]:
            assert line["block"]["transactions"][int(log["transactionIndex"], 16)] == log["transactionHash"]


def test_blooms_can_be_left_out() -> None:
    scale = Scale(logs=100, users=100, blooms=False)
    assert all("logsBloom" not in line["block"] for line in lines(scale))


def test_columns_hold_the_same_logs_as_lines() -> None:
    made = rows(SMALL)
    assert [row["log_id"] for row in made] == list(range(6_000))
    for row, log in zip(made, logs(SMALL), strict=True):
        topics = [row[f"topic{place}"] for place in range(4)]
        assert topics == [from_hex(one) for one in log["topics"]] + [None] * (4 - len(log["topics"]))
        assert row["topic_count"] == len(log["topics"])
        for column, name in (("address", "address"), ("data", "data"), ("block_hash", "blockHash")):
            assert row[column] == from_hex(log[name])
        assert row["transaction_hash"] == from_hex(log["transactionHash"])
        for column, name in (
            ("block_number", "blockNumber"),
            ("transaction_index", "transactionIndex"),
            ("log_index", "logIndex"),
        ):
            assert row[column] == int(log[name], 16)
        assert int(row["block_timestamp"].timestamp()) == int(log["blockTimestamp"], 16)


def test_the_parquet_file_has_the_columns_and_row_groups_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL, lines=False, row_group=500).parquet
    assert path is not None
    assert pq.read_schema(path).equals(COLUMNS)
    assert pq.ParquetFile(path).num_row_groups == 12
    assert pq.read_table(path).to_pylist() == rows(SMALL)
    assert [one.name for one in tmp_path.iterdir()] == ["logs.parquet"]


def test_a_longer_chain_begins_with_the_shorter_one_but_for_its_last_block() -> None:
    longer = Scale(logs=7_000, logs_per_block=40, seed=7, users=2_000)
    assert lines(longer)[: len(lines(SMALL)) - 1] == lines(SMALL)[:-1]


def test_a_shorter_chain_leaves_no_lines_of_a_longer_one(tmp_path: Path) -> None:
    longer = write(tmp_path, Scale(logs=60_000, users=100), parquet=False)
    shorter = write(tmp_path, SMALL, parquet=False, compress=True)
    assert len(longer.lines) == 2
    assert sorted(tmp_path.iterdir()) == shorter.lines
    assert gzip.decompress(shorter.lines[0].read_bytes()).count(b"\n") == shorter.blocks


def test_logs_are_skewed_like_mainnet() -> None:
    """The bounds are wide around what blocks of mainnet have (in comments)."""
    found = logs(Scale(logs=20_000, seed=3))
    counts = Counter(len(log["topics"]) for log in found)
    assert 0.60 < counts[3] / 20_000 < 0.70  # 0.66
    assert 0.08 < counts[4] / 20_000 < 0.14  # 0.11
    assert counts[0] > 0
    names = Counter(log["topics"][0] for log in found if log["topics"])
    assert names.most_common(1)[0][0] == "0x" + evm.TRANSFER.hex()
    assert 0.45 < names.most_common(1)[0][1] / 20_000 < 0.55  # 0.49
    assert 0.55 < sum(len(log["data"]) == 66 for log in found) / 20_000 < 0.65  # 0.60
    addresses = Counter(log["address"] for log in found).most_common()
    assert 0.35 < sum(count for _, count in addresses[:10]) / 20_000 < 0.55  # 0.49
    users = Counter(log["topics"][1] for log in found if len(log["topics"]) > 1)
    assert 0.20 < sum(count == 1 for count in users.values()) / users.total() < 0.45  # 0.30
    transactions = Counter(log["transactionHash"] for log in found)
    assert 4 < 20_000 / len(transactions) < 6  # 4.6


@pytest.mark.parametrize("wrong", [{"logs": 0}, {"logs_per_block": 0}, {"users": 1}, {"seed": -1}])
def test_impossible_scales_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadInput, match=f"{next(iter(wrong))} is .*: at least"):
        Scale(**wrong)  # type: ignore[arg-type]
