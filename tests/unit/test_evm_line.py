"""The quick way through a line gives what the careful one gives, or leaves the line to it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.demo import evm as demo
from chainlake.errors import BadInput
from chainlake.sources.evm_line import _carefully, _quickly, parse_line

LINES = [json.dumps(line, separators=(",", ":")).encode() for line in demo.blocks(40, logs_per_block=8, contracts=20, users=50)]
HASHES = ["0x" + f"{number:02x}" * 32 for number in range(16)]


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def test_lines_of_nodes_and_generators_take_the_quick_way() -> None:
    for line in LINES:
        assert _quickly(line + b"\n") == _carefully(line)


@pytest.mark.parametrize("without", [[], ["transactions"], ["transactions", "logsBloom"]])
def test_so_do_blocks_without_a_list_of_transactions_or_with_whole_ones(without: list[str]) -> None:
    for line in LINES:
        document = json.loads(line)
        document["block"]["transactions"] = [{"hash": name, "value": "0x1"} for name in document["block"]["transactions"]]
        document["block"] = {name: value for name, value in document["block"].items() if name not in without}
        other = compact(document)
        backwards = compact(dict(reversed(document.items())))
        assert _quickly(other) == _carefully(other) == _quickly(backwards)


def block(**changes: Any) -> dict[str, Any]:
    return {
        "number": "0x10",
        "hash": HASHES[1],
        "parentHash": HASHES[2],
        "timestamp": "0x5",
        "transactions": HASHES[:3],
        **changes,
    }


def log(transaction: int, **changes: Any) -> dict[str, Any]:
    return {"transactionHash": HASHES[transaction], "transactionIndex": hex(transaction), "topics": ["0x1", "0x2"], **changes}


TEXT = st.sampled_from(["},{", "}]", '"logs":[', " ", "\\", "é", "\x7f", "\u2028", "0x1", "", "{", "\n"])
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.just({}) | st.just([]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.just("logs"), inner, max_size=3),
    max_leaves=6,
)
PLACE = st.sampled_from(["0x0", "0x1", "0x2", "0x02", "0X1", "1", 1, None, "0x80000000", "-0x1"])
NAME = st.sampled_from([*HASHES[:4], HASHES[2].upper().replace("0X", "0x"), HASHES[1][2:] + "00", None, 5])
RECORD = st.builds(
    lambda extra, logs, keep, place, name: {
        key: value
        for key, value in {"transactionHash": name, "transactionIndex": place, "logs": logs, "extra": extra}.items()
        if keep
    },
    VALUE,
    st.lists(st.builds(lambda extra: {"data": "0x", "extra": extra}, VALUE) | VALUE, max_size=3) | VALUE,
    st.booleans() | st.just(True),
    PLACE,
    NAME,
)
RECORDS = st.lists(RECORD | st.sampled_from([log(0), log(1), log(2), log(1, data="},{")]) | VALUE, max_size=5)
GOOD = st.sampled_from(
    [[log(0), log(0), log(2)], [log(1)], [], [log(0, logs=[]), log(1, logs=[{"a": "0x"}] * 3), log(2, logs=[{}])]]
)


@settings(max_examples=400, deadline=None)
@given(
    records=RECORDS | GOOD | GOOD,
    kind=st.sampled_from(["logs", "receipts"]),
    extra=VALUE,
    listed=st.sampled_from([HASHES[:3], HASHES[:4], [], None, [HASHES[0], HASHES[0]], [HASHES[0], {"hash": HASHES[1]}], 5]),
    spaced=st.booleans(),
)
def test_whatever_a_line_holds_both_ways_agree(records: Any, kind: str, extra: Any, listed: Any, spaced: bool) -> None:
    document = {"block": block(transactions=listed, extra=extra), kind: records}
    line = json.dumps(document).encode() if spaced else compact(document)
    quick = _quickly(line)
    if quick is not None:
        assert quick == _carefully(line)


@settings(max_examples=300, deadline=None)
@given(
    number=st.integers(0, len(LINES) - 1),
    at=st.floats(0, 1),
    put=st.sampled_from([b"", b" ", b'"', b"{", b"}", b"},{", b"]", b"\\", b"\xff", b",", b"0"]),
)
def test_damage_is_left_to_the_careful_way(number: int, at: float, put: bytes) -> None:
    place = int(at * len(LINES[number]))
    line = LINES[number][:place] + put + LINES[number][place + 1 :]
    quick = _quickly(line)
    if quick is not None:
        assert quick == _carefully(line)


@pytest.mark.parametrize(
    "text",
    [
        '{"block":%(b)s,"logs":[%(a)s],"logs":[%(c)s]}',
        '{"block":%(b)s,"logs":[%(a)s],"lo\\u0067s":[%(c)s]}',
        '{"block":%(b)s,"logs":[],"logs":[%(c)s]}',
        '{"block":%(b)s,"logs":[%(a)s],"logs":[%(a)s],"logs":[%(c)s]}',
        '{"block":%(b)s,"logs":[%(a)s],"block":%(b)s,"logs":[%(c)s]}',
        '{"logs":[%(a)s],"logs":[%(c)s],"block":%(b)s}',
        '{"block":%(b)s,"logs":[%(c)s],"more":1}',
        '{"block":%(b)s,"logs":[%(c)s,%(a)s,%(c)s]}',
    ],
)
def test_members_that_come_twice_or_apart_give_what_they_gave(text: str) -> None:
    pieces = {"b": compact(block()).decode(), "a": compact(log(0)).decode(), "c": compact(log(1)).decode()}
    line = (text % pieces).encode()
    assert _quickly(line) is None
    found = parse_line(line, "file", 0)
    assert [one.index for one in found.transactions] == [0, 1, 2]
    assert all(isinstance(json.loads(one.payload), list) for one in found.transactions)


def test_numbers_keep_their_spelling() -> None:
    for spelling in ("1e5", "1E5", "100000000000000000000001", "0.10", "-0"):
        line = compact({"block": block(extra=1), "logs": [log(1)]}).replace(b'"extra":1', b'"extra":' + spelling.encode())
        assert f'"extra":{spelling}'.encode() in parse_line(line, "file", 0).payload


def test_a_file_with_spaces_gives_the_same_payloads(tmp_path: Path) -> None:
    for line in LINES[:10]:
        spaced = json.dumps(json.loads(line)).encode()
        assert parse_line(spaced, "file", 0) == parse_line(line, "file", 0)


def test_a_line_that_is_wrong_is_refused_by_both() -> None:
    line = compact({"block": block(hash="0x12"), "logs": []})
    assert _quickly(line) is None
    with pytest.raises(BadInput, match=r"block\.hash is '0x12'"):
        parse_line(line, "file", 0)


@pytest.mark.parametrize(
    "document",
    [
        {"block": block(), "logs": [log(2, transactionIndex="2")]},
        {"block": block(), "logs": [log(2, transactionIndex="-0x1")]},
        {"block": block(transactions=["ab0x" + "00" * 31]), "logs": []},
        {"block": block(transactions=[HASHES[0] + "0", HASHES[1][:-1]]), "logs": []},
        {"block": block(transactions=[HASHES[0][:-1], "a" + HASHES[1]]), "logs": []},
        {"block": block(), "receipts": [log(0, logs=[]), log(1, logs=[])]},
        {"block": block(timestamp="5"), "logs": [log(0)]},
        {"block": block(), "logs": [log(0, blockHash=HASHES[1], blockNumber="0x11")]},
        {"block": block(), "receipts": [log(n, logs=[log(n, blockHash=HASHES[5], blockNumber="0x10")]) for n in range(3)]},
        {"block": block(), "receipts": [log(n, logs=[], blockHash=HASHES[5]) for n in range(3)]},
        {"block": block(), "receipts": [log(n, logs=[], transactionHash=HASHES[n + 4]) for n in range(3)]},
    ],
)
def test_the_quick_way_is_not_more_lenient(document: dict[str, Any]) -> None:
    assert _quickly(compact(document)) is None
    with pytest.raises(BadInput):
        parse_line(compact(document), "file", 0)


def test_objects_where_none_belong_do_not_shift_the_cuts() -> None:
    receipts = [log(0, logs=[1, 2]), log(1, logs=[], extra=[{}, {}]), log(2, logs=[])]
    found = parse_line(compact({"block": block(), "receipts": receipts}), "file", 0)
    assert [json.loads(one.payload) for one in found.transactions] == receipts
