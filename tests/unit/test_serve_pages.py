"""Pages of logs: complete and without doubles whatever their size, and cursors that fit only where they belong."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.logs.filter import Criteria
from chainlake.serve.pages import Cursor, filter_digest
from tests.unit.serve_memory import Caller, MemoryEngine, make_blocks, make_caller

BLOCKS = make_blocks(12)
LOGS = [log.to_json() for one in BLOCKS for log in one.logs]
ALL = {"fromBlock": "0x0"}


@pytest.fixture(scope="module")
def caller() -> Caller:
    return make_caller(MemoryEngine(BLOCKS))


def pages(caller: Caller, wanted: Any, **options: Any) -> list[Any]:
    found = [caller.result("lake_getLogsPage", wanted, options)]
    while cursor := found[-1]["nextCursor"]:
        found.append(caller.result("lake_getLogsPage", wanted, {**options, "cursor": cursor}))
    return found


@settings(max_examples=25)
@given(st.integers(1, 100), st.sampled_from(["asc", "desc", "ascending", "descending"]))
def test_pages_of_any_size_hold_every_log_once(caller: Caller, limit: int, order: str) -> None:
    found = pages(caller, ALL, limit=limit, order=order)
    logs = [log for page in found for log in page["logs"]]
    assert logs == (LOGS if order.startswith("asc") else LOGS[::-1])
    assert all(len(page["logs"]) == limit for page in found[:-1]) and len(found[-1]["logs"]) <= limit


def test_options_may_stand_in_the_filter_or_beside_it(caller: Caller) -> None:
    beside = caller.result("lake_getLogsPage", ALL, {"limit": 3, "order": "desc"})
    assert caller.result("lake_getLogsPage", {**ALL, "limit": "0x3", "order": "desc"}) == beside
    follow = {"limit": 2, "cursor": beside["nextCursor"], "order": "desc"}
    assert caller.result("lake_getLogsPage", {**ALL, **follow}) == caller.result("lake_getLogsPage", ALL, follow)


def test_options_may_stand_in_both_and_those_beside_the_filter_come_first(caller: Caller) -> None:
    first = caller.result("lake_getLogsPage", ALL, {"limit": 3, "order": "desc"})
    wanted = {**ALL, "cursor": first["nextCursor"], "order": "desc", "limit": 2}
    assert caller.result("lake_getLogsPage", wanted, {})["logs"] == LOGS[::-1][3:5]
    assert caller.result("lake_getLogsPage", wanted, {"limit": 4, "order": None})["logs"] == LOGS[::-1][3:7]


def test_a_page_says_which_blocks_it_reflects(caller: Caller) -> None:
    first, *_, last = pages(caller, {"fromBlock": "0x2", "toBlock": "0x9"}, limit=5)
    for page in (first, last):
        assert page["fromBlock"] == BLOCKS[2].block.to_json() and page["toBlock"] == BLOCKS[9].block.to_json()
    assert first["cursorBlock"] == BLOCKS[int(first["logs"][-1]["blockNumber"], 16)].block.to_json()
    assert last["cursorBlock"] == last["toBlock"] and last["nextCursor"] is None
    *_, last = pages(caller, {"fromBlock": "0x2", "toBlock": "0x9"}, limit=5, order="desc")
    assert last["cursorBlock"] == last["fromBlock"]


def test_one_block_can_be_paged_by_hash(caller: Caller) -> None:
    one = max(BLOCKS, key=lambda block: len(block.logs))
    found = pages(caller, {"blockHash": "0x" + one.block.hash.hex()}, limit=2)
    assert [log for page in found for log in page["logs"]] == [log.to_json() for log in one.logs]
    assert {page["toBlock"]["number"] for page in found} == {hex(one.block.number)}
    assert caller.error("lake_getLogsPage", {"blockHash": "0x" + "ab" * 32}) == (-32000, "Block not found.")


def test_a_scan_keeps_its_range_while_the_head_moves_on() -> None:
    engine = MemoryEngine(BLOCKS[:8])
    caller = make_caller(engine)
    page = caller.result("lake_getLogsPage", ALL, {"limit": 3})
    engine.advance(BLOCKS[8:])
    found = page["logs"]
    while page["nextCursor"]:
        page = caller.result("lake_getLogsPage", ALL, {"limit": 3, "cursor": page["nextCursor"]})
        assert page["toBlock"]["number"] == "0x7"
        found += page["logs"]
    assert found == [log.to_json() for one in BLOCKS[:8] for log in one.logs]


def test_a_cursor_outlives_the_server(caller: Caller) -> None:
    cursor = caller.result("lake_getLogsPage", ALL, {"limit": 3})["nextCursor"]
    after = make_caller(MemoryEngine(BLOCKS)).result("lake_getLogsPage", ALL, {"limit": 4, "cursor": cursor})
    assert after["logs"] == LOGS[3:7]


@pytest.mark.parametrize(
    ("wanted", "options"),
    [
        ({"fromBlock": "0x1"}, {}),
        ({**ALL, "address": "0x" + "01" * 20}, {}),
        ({**ALL, "topics": [None]}, {}),
        (ALL, {"order": "desc"}),
    ],
)
def test_a_cursor_of_another_filter_is_refused(caller: Caller, wanted: Any, options: Any) -> None:
    cursor = caller.result("lake_getLogsPage", ALL, {"limit": 3})["nextCursor"]
    code, message = caller.error("lake_getLogsPage", wanted, {**options, "cursor": cursor})
    assert (code, message) == (-32602, "the cursor belongs to another filter or order: start again without it")


def test_a_cursor_whose_block_was_rolled_back_is_refused() -> None:
    for kept, again in ((2, []), (2, make_blocks(9, 3, seed=2, parent=BLOCKS[2].block.hash))):
        engine = MemoryEngine(BLOCKS)
        caller = make_caller(engine)
        page = caller.result("lake_getLogsPage", ALL, {"limit": 30})
        assert int(page["cursorBlock"]["number"], 16) > kept
        engine.rollback(kept)
        engine.advance(again)
        code, message = caller.error("lake_getLogsPage", ALL, {"cursor": page["nextCursor"]})
        assert code == -32000 and message.endswith("of the cursor was rolled back: start again without it")


def test_a_descending_scan_ends_with_a_rollback_of_logs_that_it_told_of_before() -> None:
    engine = MemoryEngine(BLOCKS)
    caller = make_caller(engine)
    options = {"limit": len(LOGS) - 10, "order": "desc"}
    page = caller.result("lake_getLogsPage", ALL, options)
    assert int(page["cursorBlock"]["number"], 16) < 6
    engine.rollback(6)
    engine.advance(make_blocks(9, 7, seed=2, parent=BLOCKS[6].block.hash))
    code, message = caller.error("lake_getLogsPage", ALL, {**options, "cursor": page["nextCursor"]})
    assert (code, message) == (-32000, "block 11 of the cursor was rolled back: start again without it")


def test_an_ascending_scan_goes_on_when_only_blocks_to_come_were_replaced() -> None:
    engine = MemoryEngine(BLOCKS)
    caller = make_caller(engine)
    page = caller.result("lake_getLogsPage", ALL, {"limit": 5})
    assert int(page["cursorBlock"]["number"], 16) < 6
    engine.rollback(6)
    refused = caller.error("lake_getLogsPage", ALL, {"cursor": page["nextCursor"]})
    assert refused == (-32000, "block 11 of the cursor was rolled back: start again without it"), "its range is not there now"
    again = make_blocks(9, 7, seed=2, parent=BLOCKS[6].block.hash)
    engine.advance(again)
    rest = caller.result("lake_getLogsPage", ALL, {"cursor": page["nextCursor"]})
    told = [log.to_json() for one in [*BLOCKS[:7], *again[:5]] for log in one.logs]
    assert page["logs"] + rest["logs"] == told and rest["toBlock"] == again[4].block.to_json()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "limit must be a number from 1 to 10000"),
        ({"limit": 10_001}, "limit must be a number from 1 to 10000"),
        ({"limit": True}, "limit must be a number from 1 to 10000"),
        ({"limit": 1.5}, "limit must be a number from 1 to 10000"),
        ({"limit": "5"}, "hex string without 0x prefix"),
        ({"order": "up"}, "order must be asc or desc"),
        ({"order": []}, "order must be asc or desc"),
        ({"cursor": 5}, "the cursor must be the nextCursor of an earlier page"),
        ({"cursor": "x"}, "the cursor is not one of lake_getLogsPage: give nextCursor as it was answered"),
        ({"cursor": "ä"}, "the cursor is not one of lake_getLogsPage: give nextCursor as it was answered"),
        ({"cursor": ""}, "the cursor is not one of lake_getLogsPage: give nextCursor as it was answered"),
        ({"size": 5}, "page options have no member 'size': there are limit, cursor and order"),
        ([], "page options must be an object with limit, cursor and order"),
    ],
)
def test_options_that_cannot_be_read_are_refused(caller: Caller, options: Any, message: str) -> None:
    assert caller.error("lake_getLogsPage", ALL, options) == (-32602, f"invalid argument 1: {message}")


def test_a_page_holds_no_more_than_a_response_may() -> None:
    caller = make_caller(MemoryEngine(BLOCKS), max_response=3_000)
    found = pages(caller, ALL, limit=50)
    assert [log for page in found for log in page["logs"]] == LOGS
    assert all(1 <= len(page["logs"]) <= 4 for page in found)


places = st.integers(0, (1 << 63) - 1)


@given(
    st.binary(min_size=8, max_size=8),
    places,
    places,
    st.tuples(places, st.integers(0, (1 << 31) - 1)),
    st.binary(min_size=8, max_size=8),
)
def test_cursors_survive_the_wire_and_damage_is_found(digest: bytes, first: int, last: int, place: Any, block: bytes) -> None:
    cursor = Cursor(digest, first, last, place, block)
    text = cursor.encode()
    assert Cursor.decode(text) == cursor and "=" not in text
    with pytest.raises(Exception, match="not one of lake_getLogsPage"):
        Cursor.decode(("A" if text[5] != "A" else "B").join((text[:5], text[6:])))


def test_the_digest_tells_filters_apart() -> None:
    one, two = b"a" * 20, b"b" * 20
    filters = [
        Criteria(),
        Criteria((one,)),
        Criteria((one, two)),
        Criteria((), ((),)),
        Criteria((), ((one,),)),
        Criteria(from_block=1),
    ]
    digests = {filter_digest(criteria, descending) for criteria in filters for descending in (False, True)}
    assert len(digests) == 2 * len(filters)
