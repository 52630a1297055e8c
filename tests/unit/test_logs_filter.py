"""Filters are read as geth 1.17 reads them, down to the words of its refusals."""

from dataclasses import dataclass
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainlake.errors import BadInput
from chainlake.logs.filter import Bounds, Limits, LogFilter, RpcError, match, parse_filter
from chainlake.logs.functions import get_logs, read_filter, where

BOUNDS = Bounds(0, 54)
ADDRESS = "0x" + "aB" * 20
TOPIC = "0x" + "Cd" * 32
INVALID = -32602


def parsed(value: Any, bounds: Bounds | None = BOUNDS, **limits: Any) -> LogFilter:
    return parse_filter([value], bounds, Limits(**limits))


def refused(value: Any, bounds: Bounds | None = BOUNDS, **limits: Any) -> tuple[int, str]:
    with pytest.raises(RpcError) as raised:
        parsed(value, bounds, **limits)
    return raised.value.code, raised.value.message


def test_an_empty_filter_asks_for_the_head_block() -> None:
    assert parsed({}) == parsed(None) == LogFilter(from_block=54, to_block=54)


@pytest.mark.parametrize("value", [[], None])
def test_no_addresses_and_no_topics_mean_any(value: Any) -> None:
    assert parsed({"address": value, "topics": value}) == LogFilter(from_block=54, to_block=54)


def test_hex_may_be_in_any_case_and_addresses_alone_or_in_a_list() -> None:
    wanted = (b"\xab" * 20,)
    texts = (ADDRESS, ADDRESS.lower(), "0X" + "AB" * 20, [ADDRESS])
    assert all(parsed({"address": text}).addresses == wanted for text in texts)


@pytest.mark.parametrize(
    ("topics", "read"),
    [
        ([TOPIC], ((b"\xcd" * 32,),)),
        ([None, TOPIC], ((), (b"\xcd" * 32,))),
        ([[TOPIC, "0x" + "01" * 32]], ((b"\xcd" * 32, b"\x01" * 32),)),
        ([[TOPIC, None]], ((),)),
        ([[None, "what follows a null is not looked at"]], ((),)),
        ([[]], ((),)),
        ([None] * 4, ((),) * 4),
    ],
)
def test_topics_keep_their_positions(topics: Any, read: Any) -> None:
    assert parsed({"topics": topics}).topics == read


def test_the_loose_rule_ignores_wildcards_at_the_end() -> None:
    assert parsed({"topics": [None, TOPIC, None, [None]]}, topic_rule="loose").topics == ((), (b"\xcd" * 32,))
    assert parsed({"topics": [None, []]}, topic_rule="loose").topics == ()


def test_names_of_members_may_be_in_any_case_and_unknown_ones_are_ignored() -> None:
    assert parsed({"FROMBLOCK": "0x1", "toblock": "0x2", "color": "red"}) == LogFilter(from_block=1, to_block=2)


@pytest.mark.parametrize(
    ("start", "end", "read"),
    [
        ("0x0", "0x36", (0, 54)),
        ("earliest", "latest", (0, 54)),
        ("0x5", "safe", (5, 54)),
        ("finalized", "finalized", (54, 54)),
        ("earliest", "0X1f", (0, 31)),
        ("0x5", None, (5, 54)),
    ],
)
def test_tags_become_numbers(start: Any, end: Any, read: tuple[int, int]) -> None:
    wanted = parsed({"fromBlock": start, "toBlock": end})
    assert (wanted.from_block, wanted.to_block) == read


def test_earliest_is_the_first_block_that_is_indexed() -> None:
    assert parsed({"fromBlock": "earliest"}, Bounds(17, 54)).from_block == 17


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"fromBlock": "0x32", "toBlock": "0x2f"}, "invalid block range params"),
        ({"fromBlock": "0x5", "toBlock": "0x0"}, "invalid block range params"),
        ({"fromBlock": "latest", "toBlock": "0x36"}, "invalid block range params"),
        ({"fromBlock": "latest", "toBlock": "finalized"}, "invalid block range params"),
        ({"toBlock": "0x36"}, "invalid block range params"),
        ({"fromBlock": "0x64"}, "invalid block range params"),
        ({"fromBlock": "0x32", "toBlock": "0x38"}, "block range extends beyond current head block"),
        ({"fromBlock": "0x38", "toBlock": "0x3e"}, "block range extends beyond current head block"),
        ({"fromBlock": "pending"}, "pending logs are not supported"),
        ({"fromBlock": "0x1", "toBlock": "pending"}, "pending logs are not supported"),
    ],
)
def test_ranges_that_cannot_be_answered_in_full_are_refused(value: Any, message: str) -> None:
    assert refused(value) == (INVALID, message)


def test_blocks_before_the_first_one_indexed_are_refused() -> None:
    code, message = refused({"fromBlock": "0x0"}, Bounds(17, 54))
    assert (code, message) == (4444, "pruned history unavailable: the first block indexed is 17")


def test_nothing_can_be_asked_for_before_the_first_block() -> None:
    assert refused({}, None) == (-32000, "head block not available: no block is indexed yet")


@pytest.mark.parametrize(
    ("start", "end", "read"),
    [
        ("0x0", "0xff", (17, 54)),
        ("0x30", "0xff", (48, 54)),
        ("0x1", "latest", (17, 54)),
        ("latest", "0xff", (54, 54)),
        ("earliest", "0x11", (17, 17)),
    ],
)
def test_the_clip_rule_answers_for_the_part_that_is_indexed(start: str, end: str, read: tuple[int, int]) -> None:
    wanted = parsed({"fromBlock": start, "toBlock": end}, Bounds(17, 54), range_rule="clip")
    assert (wanted.from_block, wanted.to_block, wanted.empty_range) == (*read, False)


@pytest.mark.parametrize(
    "value",
    [
        {"fromBlock": "0x64"},
        {"fromBlock": "0x64", "toBlock": "0xc8"},
        {"fromBlock": "0x1", "toBlock": "0x2"},
        {"fromBlock": "earliest", "toBlock": "0x2"},
    ],
)
def test_a_range_without_indexed_blocks_is_clipped_to_nothing(value: Any) -> None:
    assert parsed(value, Bounds(17, 54), range_rule="clip").empty_range


@pytest.mark.parametrize("value", [{"fromBlock": "0x5", "toBlock": "0x4"}, {"fromBlock": "latest", "toBlock": "0x4"}])
def test_the_clip_rule_still_refuses_reversed_ranges(value: Any) -> None:
    assert refused(value, range_rule="clip") == (INVALID, "invalid block range params")


HASH_FIELD = "into Go struct field input.blockHash of type common.Hash"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", "json: cannot unmarshal string into Go value of type filters.input"),
        ([], "json: cannot unmarshal array into Go value of type filters.input"),
        (5, "json: cannot unmarshal number into Go value of type filters.input"),
        (True, "json: cannot unmarshal bool into Go value of type filters.input"),
        ({"fromBlock": 5}, "hex string without 0x prefix"),
        ({"fromBlock": True}, "hex string without 0x prefix"),
        ({"fromBlock": {}}, "hex string without 0x prefix"),
        ({"fromBlock": "12"}, "hex string without 0x prefix"),
        ({"fromBlock": "newest"}, "hex string without 0x prefix"),
        ({"fromBlock": ""}, "empty hex string"),
        ({"fromBlock": "0x"}, 'hex string "0x"'),
        ({"fromBlock": "0x01"}, "hex number with leading zero digits"),
        ({"fromBlock": "0x00"}, "hex number with leading zero digits"),
        ({"fromBlock": "0xg"}, "invalid hex string"),
        ({"fromBlock": "0x1_0"}, "invalid hex string"),
        ({"fromBlock": "0x 1"}, "invalid hex string"),
        ({"fromBlock": "0x1" + "0" * 16}, "hex number > 64 bits"),
        ({"fromBlock": "0xffffffffffffffffz"}, "invalid hex string"),
        ({"fromBlock": "0xfffffffffffffffffz"}, "hex number > 64 bits"),
        ({"fromBlock": "0x8000000000000000"}, "block number larger than int64"),
        ({"toBlock": "0x-1"}, "invalid hex string"),
        ({"blockHash": 5}, f"json: cannot unmarshal non-string {HASH_FIELD}"),
        ({"blockHash": "ab" * 32}, f"json: cannot unmarshal hex string without 0x prefix {HASH_FIELD}"),
        ({"blockHash": "0x" + "a" * 63}, f"json: cannot unmarshal hex string of odd length {HASH_FIELD}"),
        ({"blockHash": "0x" + "ab" * 31}, "hex string has length 62, want 64 for common.Hash"),
        ({"blockHash": ""}, "hex string has length 0, want 64 for common.Hash"),
        ({"blockHash": "0x" + "zz" * 32}, f"json: cannot unmarshal invalid hex string {HASH_FIELD}"),
        (
            {"blockHash": TOPIC, "fromBlock": "0x1"},
            "cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other",
        ),
        ({"address": 5}, "invalid addresses in query"),
        ({"address": {}}, "invalid addresses in query"),
        ({"address": "0xab"}, "invalid address: hex has invalid length 1 after decoding; expected 20 for address"),
        ({"address": "ab" * 20}, "invalid address: hex string without 0x prefix"),
        ({"address": ""}, "invalid address: empty hex string"),
        ({"address": "0xabc"}, "invalid address: hex string of odd length"),
        ({"address": "0x" + "zz" * 20}, "invalid address: invalid hex string"),
        ({"address": "0x ab"}, "invalid address: invalid hex string"),
        (
            {"address": [ADDRESS, "0x"]},
            "invalid address at index 1: hex has invalid length 0 after decoding; expected 20 for address",
        ),
        ({"address": [ADDRESS, None]}, "non-string address at index 1"),
        ({"topics": "x"}, "json: cannot unmarshal string into Go struct field input.topics of type []interface {}"),
        ({"topics": {}}, "json: cannot unmarshal object into Go struct field input.topics of type []interface {}"),
        ({"topics": [5]}, "invalid topic(s)"),
        ({"topics": [[5]]}, "invalid topic(s)"),
        ({"topics": ["0xab"]}, "hex has invalid length 1 after decoding; expected 32 for topic"),
        ({"topics": [[TOPIC, ""]]}, "empty hex string"),
        ({"topics": "x", "fromBlock": "y"}, "hex string without 0x prefix"),
    ],
)
def test_what_cannot_be_read_is_refused_in_the_words_of_geth(value: Any, message: str) -> None:
    assert refused(value) == (INVALID, f"invalid argument 0: {message}")


def test_a_thousand_addresses_are_the_most() -> None:
    assert len(parsed({"address": [ADDRESS] * 1000}).addresses) == 1000
    assert refused({"address": [ADDRESS] * 1001}) == (-32000, "exceed max addresses or topics per search position")
    assert len(parsed({"topics": [[TOPIC] * 1000]}).topics[0]) == 1000
    for topics in ([None] * 5, [[TOPIC] * 1001]):
        assert refused({"topics": topics}) == (INVALID, "exceed max topics")


def test_a_filter_is_the_one_parameter() -> None:
    for params, message in (([], "missing value for required argument 0"), ([{}, {}], "too many arguments, want at most 1")):
        with pytest.raises(RpcError, match=message) as raised:
            parse_filter(params, BOUNDS)
        assert raised.value.code == INVALID


@dataclass
class OneLog:
    block_number: int
    block_hash: bytes
    address: bytes
    topics: list[bytes]


A, B = b"a" * 20, b"b" * 20
X, Y = b"x" * 32, b"y" * 32
LOG = OneLog(7, b"h" * 32, A, [X, Y])


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (LogFilter(from_block=7, to_block=7), True),
        (LogFilter(from_block=8, to_block=9), False),
        (LogFilter(from_block=0, to_block=6), False),
        (LogFilter(), False),
        (LogFilter(from_block=0), True),
        (LogFilter((B, A), from_block=0), True),
        (LogFilter((B,), from_block=0), False),
        (LogFilter((), ((X,), (X, Y)), 0), True),
        (LogFilter((), ((), (X,)), 0), False),
        (LogFilter((), ((), ()), 0), True),
        (LogFilter((), ((), (), ()), 0), False),
        (LogFilter(block_hash=b"h" * 32), True),
        (LogFilter(block_hash=b"i" * 32), False),
    ],
)
def test_the_rule_of_matching(wanted: LogFilter, matches: bool) -> None:
    assert match(wanted, LOG, head=9) is matches


def test_open_bounds_are_the_head() -> None:
    assert match(LogFilter(), LOG, head=7) and not match(LogFilter(), LOG, head=8)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=70)
    | st.sampled_from([ADDRESS, TOPIC, "0x1", "latest", "pending"]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
filters = st.dictionaries(st.sampled_from(["fromBlock", "toBlock", "blockHash", "address", "topics", "limit"]), json_values)


@given(
    json_values | filters,
    st.sampled_from([None, BOUNDS]),
    st.sampled_from(["geth", "loose"]),
    st.sampled_from(["strict", "clip"]),
)
def test_anything_is_read_or_refused_and_nothing_else(
    value: Any, bounds: Bounds | None, topic_rule: Any, range_rule: Any
) -> None:
    try:
        wanted = parse_filter([value], bounds, Limits(topic_rule=topic_rule, range_rule=range_rule))
    except RpcError as error:
        assert error.code in (-32602, -32000, 4444) and error.message
    else:
        assert len(wanted.topics) <= 4 and all(len(one) == 32 for position in wanted.topics for one in position)
        assert all(len(one) == 20 for one in wanted.addresses)
        assert wanted.block_hash is not None or (wanted.from_block is not None and wanted.to_block is not None)


def test_a_lake_without_files_is_told_what_filters_there() -> None:
    workspace: Any = SimpleNamespace(catalog=SimpleNamespace(location=None))
    with pytest.raises(BadInput) as raised:
        get_logs(workspace, "main", {})
    assert resolve_name(str(raised.value).split()[-1]) is where


@pytest.mark.parametrize("text", ["", "{", "address=0x12", "{'address': null}", None])
def test_a_filter_in_sql_that_is_no_json_is_refused_with_an_example(text: str | None) -> None:
    with pytest.raises(BadInput, match=r"is no JSON \(.+\): get_logs takes one like \{.address.: .0x…., .fromBlock.: .0x0.\}$"):
        read_filter(text)
    assert read_filter('{"address": null}') == {"address": None}
