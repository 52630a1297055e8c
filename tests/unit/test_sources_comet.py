"""CometBFT blocks in each way that files hold them."""

import base64
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from chainlake.demo import comet as demo
from chainlake.errors import BadInput
from chainlake.sources.base import ZERO_HASH
from chainlake.sources.comet import micros, parse_block
from tests.unit.sources_reading import cursor_of, good, read_all, read_batch, reason


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    return list(demo.blocks(12))


def _facts(path: Path) -> list[Any]:
    found = good(read_all("comet", [str(path)], max_blocks=5))
    return [(block.height, block.hash, block.parent_hash, block.timestamp_us, block.payload) for block in found]


def test_lines_arrays_documents_and_rpc_answers_mean_the_same(tmp_path: Path, results: list[dict[str, Any]]) -> None:
    lines = "\n".join(json.dumps(result) for result in results)
    answers = [{"jsonrpc": "2.0", "id": -1, "result": result} for result in results]
    files = {
        "lines.jsonl": lines,
        "lines.json": lines,
        "array.json": json.dumps(results, indent=1),
        "array.jsonl": json.dumps(results),
        "answers.jsonl": "\n".join(json.dumps(answer) for answer in answers),
        "answers.json": "\n".join(json.dumps(answer, indent=2) for answer in answers),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    expected = _facts(tmp_path / "lines.jsonl")
    assert [height for height, *_ in expected] == list(range(1, 13))
    for name in [*files, *(f"{name}.gz" for name in files)]:
        assert _facts(tmp_path / name) == expected, name


def test_transactions_are_the_decoded_bytes_under_their_sha256(results: list[dict[str, Any]]) -> None:
    texts = results[0]["block"]["data"]["txs"]
    found = parse_block(results[0], "file", 0).transactions
    assert [one.payload for one in found] == [base64.b64decode(text) for text in texts]
    assert [one.hash for one in found] == [hashlib.sha256(one.payload).digest() for one in found]


def test_the_first_block_has_no_parent_and_no_transactions_may_be_null(results: list[dict[str, Any]]) -> None:
    first = json.loads(json.dumps(results[0]))
    first["block"]["data"]["txs"] = None
    found = parse_block(first, "file", 0)
    assert (found.parent_hash, found.transactions) == (ZERO_HASH, ())


def test_nanoseconds_are_cut_to_microseconds() -> None:
    assert micros("1970-01-01T00:00:01.123456789Z") == 1_123_456
    assert micros("1970-01-01T01:00:00.5+01:00") == 500_000
    assert micros("0001-01-01T00:00:00Z") < 0
    for text in ("1970-01-01", "1970-13-01T00:00:00Z", None, 5):
        with pytest.raises(BadInput, match="RFC 3339"):
            micros(text)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("block_id", None, "block_id is missing"),
        ("block_id.hash", "12", "block_id.hash is '12'"),
        ("block.header", [], "block.header is missing"),
        ("block.header.height", 5, "header.height is 5"),
        ("block.header.height", "9" * 19, "header.height is"),
        ("block.header.time", "now", "header.time is 'now'"),
        ("block.header.last_block_id", {"hash": "zz" * 32}, "last_block_id.hash is not hex"),
        ("block.data.txs", ["*"], "transaction 0 is '*'"),
        ("block.data.txs", [5], "transaction 0 is 5"),
        ("block.data.txs", "x", "data.txs is 'x'"),
    ],
)
def test_odd_fields_are_named(results: list[dict[str, Any]], path: str, value: Any, message: str) -> None:
    result = json.loads(json.dumps(results[3]))
    *parents, name = path.split(".")
    target = result
    for parent in parents:
        target = target[parent]
    target[name] = value
    with pytest.raises(BadInput) as error:
        parse_block(result, "file", 0)
    assert message in str(error.value)


def test_a_damaged_array_gives_the_blocks_before_the_damage(tmp_path: Path, results: list[dict[str, Any]]) -> None:
    text = json.dumps(results)
    (tmp_path / "a.json").write_text(text[: text.index('"height": "6"')])
    found = read_batch("comet", [str(tmp_path / "a.json")])
    assert [block.height for block in good(found[:-1])] == [1, 2, 3, 4, 5]
    assert "not JSON" in reason(found)
    assert found[-1].position == 5
    again = read_batch("comet", [str(tmp_path / "a.json")], cursor_of(found[-2]))
    assert again == found[-1:]
