"""Raft deliveries: a hash chain over canonical JSON, whatever the file looks like."""

import hashlib
import json
from pathlib import Path

import pytest

from chainlake.demo import raft as demo
from chainlake.sources.base import ZERO_HASH, Cursor
from chainlake.sources.json_text import canonical
from chainlake.sources.raft import RaftFormat
from tests.unit.sources_reading import cursor_of, good, read_batch, reason

ENTRY = {"group": "meta", "log_index": 1, "log_term": 1, "command": {"type": "CreateUser", "user_id": "zoë"}}


def _write(path: Path, numbers: range) -> str:
    lines = list(demo.blocks(30))
    path.write_text("".join(json.dumps(lines[number - 1]) + "\n" for number in numbers))
    return str(path)


def test_the_hash_covers_the_parent_and_the_canonical_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"entries": [ENTRY], "delivery": 1}, indent=None) + "\n")
    (block,) = good(read_batch("raft", [str(path)]))
    entry = '{"command":{"type":"CreateUser","user_id":"zoë"},"group":"meta","log_index":1,"log_term":1}'
    line = f'{{"delivery":1,"entries":[{entry}]}}'.encode()
    assert (block.height, block.payload, block.parent_hash) == (1, line, ZERO_HASH)
    assert block.hash == hashlib.sha256(ZERO_HASH + line).digest()
    other = {"zone": "é", "entries": [ENTRY, {"b": 1, "a": [1.5]}], "delivery": 1, "a": {"y": None, "x": 1}}
    path.write_text(json.dumps(other) + "\n")
    assert good(read_batch("raft", [str(path)]))[0].payload == canonical(other), "members that nobody knows are covered too"
    (one,) = block.transactions
    assert (one.index, one.payload, one.hash) == (0, entry.encode(), hashlib.sha256(entry.encode()).digest())


def test_deliveries_link(tmp_path: Path) -> None:
    found = good(read_batch("raft", [_write(tmp_path / "a.jsonl", range(1, 31))]))
    assert [block.parent_hash for block in found[1:]] == [block.hash for block in found[:-1]]


def test_a_file_that_continues_what_the_lake_holds_needs_no_earlier_file(tmp_path: Path) -> None:
    whole = good(read_batch("raft", [_write(tmp_path / "a.jsonl", range(1, 31))]))
    rest = read_batch("raft", [_write(tmp_path / "b.jsonl", range(11, 31))], cursor_of(whole[9]))
    assert [block.hash for block in good(rest)] == [block.hash for block in whole[10:]]


def test_a_file_from_the_first_delivery_is_read_again_with_the_same_hashes(tmp_path: Path) -> None:
    whole = good(read_batch("raft", [_write(tmp_path / "a.jsonl", range(1, 31))]))
    again = good(read_batch("raft", [_write(tmp_path / "moved.jsonl", range(1, 31))], cursor_of(whole[9])))
    assert [block.hash for block in again] == [block.hash for block in whole]


def test_a_file_whose_parent_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "b.jsonl", range(15, 31))
    found = read_batch("raft", [path], Cursor("/elsewhere", 0, 9, bytes(32)))
    assert "delivery 15 is neither 1 nor the one after the last" in reason(found)
    assert len(found) == 1


def test_a_chain_may_start_at_any_delivery(tmp_path: Path) -> None:
    found = good(read_batch("raft", [_write(tmp_path / "b.jsonl", range(15, 31))]))
    assert (found[0].height, found[0].parent_hash) == (15, ZERO_HASH)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", '"delivery" is None'),
        ('{"delivery": true, "entries": []}', '"delivery" is True'),
        ('{"delivery": -1, "entries": []}', '"delivery" is -1'),
        ('{"delivery": 1}', '"entries" None'),
        ('{"delivery": 1, "entries": [5]}', "entry 0 is 5"),
        ('{"delivery": 1, "entries": [{"a": NaN}]}', "NaN"),
        ('{"delivery": 1, "entries": [{"a": "\\ud800"}]}', "surrogate"),
        ('{"delivery": 1, "entries": []} {}', "something follows"),
    ],
)
def test_odd_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(line)
    assert message in reason(read_batch("raft", [str(tmp_path / "a.jsonl")]))


def test_a_replica_is_followed_before_its_first_delivery(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.touch()
    kind = RaftFormat()
    splits = kind.plan(kind.expand(str(path)), None, 10, 1 << 20, {})
    assert [block for split in splits for block in kind.read(split, {})] == []
