"""The rules of sync: each case, and thousands of random histories against an oracle that sees the server's own lists."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.demo.river_node import StreamNode
from chainlake.sync import rules
from chainlake.sync.fetch import Budget, Fetched, fetch
from chainlake.sync.hashing import river_hash
from chainlake.sync.miniblock import open_miniblock
from chainlake.sync.rules import Delivery, Mark, State, advance
from chainlake.sync.service import Refused
from tests.unit.sync_model import Flaky, Held, Oracle, Synced, unchanged

ID = b"\x20" + b"\x01" * 31


def node_with(miniblocks: int, **more: int) -> StreamNode:
    node = StreamNode(**more)
    node.create(ID)
    node.grow(ID, miniblocks)
    return node


def synced_with(node: StreamNode) -> Synced:
    synced = Synced()
    synced.sync(node, ID)
    return synced


def all_events(node: StreamNode, first: int = 0) -> list[bytes]:
    return [event.hash for one in node.streams[ID].miniblocks[first:] for event in open_miniblock(one.raw).events]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"Hello, World!", "c6252c41c99028ea8600a2d9818d8dcfdf13ab69f9d4df54cbc1d1ed1a475592"),
        (b"Hello, Universe!", "b8c5bb634af3b0191b7aa98c38d3baceeb0651b15cf252cacad2e0a8cda7f040"),
    ],
)
def test_hashes_are_those_of_river(text: bytes, expected: str) -> None:
    assert river_hash(text).hex() == expected


def test_first_sync_delivers_from_the_snapshot_on_and_nothing_before() -> None:
    node = node_with(12)
    node.earlier = 3
    synced = synced_with(node)
    assert node.streams[ID].snapshot == 10
    assert synced.events == all_events(node, 10)
    assert synced.state is not None
    assert (synced.state.snapshot_miniblock, synced.state.minipool_gen, synced.state.first_miniblock) == (10, 13, 10)
    assert synced.state.genesis_hash == node.streams[ID].miniblocks[0].hash
    assert {note[3] for note in synced.notes} == {True}


def test_case_a_skips_what_is_known_and_is_not_historical() -> None:
    node = node_with(11)
    synced = synced_with(node)
    before = len(synced.notes)
    node.grow(ID, 2)
    synced.sync(node, ID)
    assert synced.events == all_events(node, 10)
    assert {note[3] for note in synced.notes[before:]} == {False}
    assert synced.cases == ["first", "follows"] and synced.writes == 2


def test_case_b_fetches_the_gap_first_and_in_order() -> None:
    node = node_with(11, page_limit=3)
    synced = synced_with(node)
    before = len(synced.notes)
    node.grow(ID, 20, minipool=2)
    synced.sync(node, ID)
    pool = [envelope[2:34] for envelope in node.streams[ID].minipool]
    assert synced.events == all_events(node, 10) + pool
    assert [note[3] for note in synced.notes[before:]] == [True] * (len(synced.notes) - before - 2) + [False] * 2


def test_a_large_gap_comes_in_bounded_passes() -> None:
    node = node_with(11, page_limit=5)
    synced = synced_with(node)
    node.grow(ID, 60)
    synced.sync(node, ID, budget=10)
    assert synced.events == all_events(node, 10)
    assert max(len(one.miniblocks) for one in synced.raw[1:-1]) <= 14 and len(synced.raw) > 5
    assert all(note[3] for note in synced.notes)


def test_a_gap_of_large_miniblocks_comes_in_passes_of_bounded_size() -> None:
    node = node_with(11, page_limit=5)
    synced = synced_with(node)
    node.grow(ID, 60)
    size = sum(len(one.raw) for one in node.streams[ID].miniblocks[12:22])
    for most, count in ((1, 5), (size - 1, 10), (size, 10), (size + 1, 15)):
        found = fetch(node, ID, synced.head, Budget(1000, most))
        assert isinstance(found, Fetched) and found.more and len(found.miniblocks) == count, "whole pages, one at least"


def test_case_c_delivers_nothing_and_records_once_that_the_server_went_back() -> None:
    node = node_with(12)
    node.back_up()
    node.grow(ID, 1)
    synced = synced_with(node)
    count, state = len(synced.notes), synced.state
    node.restore()
    for _ in range(3):
        synced.sync(node, ID)
    assert len(synced.notes) == count and synced.cases[1:] == ["behind"] and len(synced.raw) == 2
    assert state is not None and synced.state == State(
        **{name: getattr(state, name) for name in State.__slots__} | {"reset_reason": "behind"}
    )


def test_a_restored_server_that_goes_another_way_is_followed_from_where_it_parted() -> None:
    node = node_with(12)
    synced = synced_with(node)
    node.back_up()
    node.grow(ID, 4)
    synced.sync(node, ID)
    old = synced.events
    node.restore()
    node.grow(ID, 30)
    synced.sync(node, ID)
    assert synced.events == old + all_events(node, 13)
    assert synced.cases[-1] == "rewound" and synced.state is not None and synced.state.reset_reason == "rewound"


def test_a_server_that_comes_back_to_a_branch_that_was_delivered_is_followed_from_its_end() -> None:
    node = node_with(12)
    parted = node.streams[ID].backup()
    node.grow(ID, 2)
    synced = synced_with(node)
    first = node.streams[ID]
    node.streams[ID] = parted
    parted.rng = random.Random("another way")
    node.grow(ID, 1)
    synced.sync(node, ID)
    assert synced.state is not None and (synced.state.minipool_gen, synced.cases[-1]) == (14, "rewound")
    events, node.streams[ID] = synced.events, first
    synced.sync(node, ID)
    assert (synced.state.minipool_gen, synced.state.prev_miniblock_hash) == (15, first.last_hash) and synced.events == events
    node.grow(ID, 8)
    synced.sync(node, ID)
    assert synced.events == events + all_events(node, 15) and synced.cases[-2:] == ["rewound", "follows"]


def test_the_snapshot_of_a_state_moves_only_with_a_miniblock_that_carries_one() -> None:
    node = node_with(11)
    synced = synced_with(node)
    found = []
    for _ in range(9):
        node.grow(ID, 1)
        synced.sync(node, ID)
        assert synced.state is not None
        found.append((synced.state.minipool_gen, synced.state.snapshot_miniblock))
    assert found == [(gen, 10 if gen < 16 else 15 if gen < 21 else 20) for gen in range(13, 22)] and synced.writes == 10
    node.grow(ID, 17)
    synced.sync(node, ID)
    assert (synced.state.minipool_gen, synced.state.snapshot_miniblock) == (38, 35), "the newest of those in the gap"


def test_a_recreated_stream_is_delivered_from_its_new_genesis() -> None:
    node = node_with(12)
    synced = synced_with(node)
    old = synced.events
    node.create(ID)
    node.grow(ID, 25)
    synced.sync(node, ID)
    assert synced.events == old + all_events(node)
    assert synced.state is not None and synced.state.reset_reason == "recreated"
    assert synced.state.genesis_hash == node.streams[ID].miniblocks[0].hash


def test_trimmed_history_is_a_gap_that_stays_visible() -> None:
    node = node_with(12)
    synced = synced_with(node)
    old = synced.events
    node.grow(ID, 30)
    node.streams[ID].trim(25)
    synced.sync(node, ID)
    assert synced.events == old + all_events(node, 25)
    assert synced.gaps == [rules.Gap(13, 25, rules.TRIMMED)]


def test_an_event_of_the_minipool_does_not_come_again_with_its_miniblock() -> None:
    node = node_with(11)
    node.grow(ID, 0, minipool=3)
    synced = synced_with(node)
    writes = synced.writes
    node.grow(ID, 0, minipool=1)
    synced.sync(node, ID)
    assert synced.writes == writes, "events alone do not move the state"
    node.streams[ID].make_miniblock()
    synced.sync(node, ID)
    assert synced.events == all_events(node, 10) and len(set(synced.events)) == len(synced.events)
    assert synced.writes == writes + 1


def test_nothing_new_writes_nothing() -> None:
    node = node_with(12, page_limit=7)
    synced = synced_with(node)
    for _ in range(5):
        synced.sync(node, ID)
    assert (len(synced.raw), synced.writes) == (1, 1)


def test_history_that_is_gone_is_delivered_from_the_snapshot_and_flagged() -> None:
    node = node_with(12)
    synced = synced_with(node)
    node.back_up()
    node.grow(ID, 6)
    synced.sync(node, ID)
    synced.history = Held()
    node.restore()
    node.grow(ID, 9)
    count = len(synced.notes)
    synced.sync(node, ID)
    assert synced.cases[-1] == "duplicate" and all(note[4] for note in synced.notes[count:])
    again = [note[2] for note in synced.notes[count:]]
    assert set(all_events(node, 13)) <= set(again)


def test_an_unsound_miniblock_is_quarantined_once_and_the_stream_waits_for_a_sound_one() -> None:
    node = node_with(11)
    synced = synced_with(node)
    node.grow(ID, 3)
    stream = node.streams[ID]
    good = stream.miniblocks[13]
    stream.miniblocks[13] = type(good)(good.raw.replace(b"message", b"massage"), good.hash)
    for _ in range(3):
        synced.sync(node, ID)
    assert [one.mark.number for one in synced.quarantined] == [13] and len(synced.raw) == 2
    assert "does not have the hash" in synced.quarantined[0].reason
    assert synced.state is not None and synced.state.minipool_gen == 13 and synced.state.stopped
    stream.miniblocks[13] = good
    synced.sync(node, ID)
    assert synced.events == all_events(node, 10) and synced.state.stopped is None


def test_an_unsound_first_miniblock_leaves_nothing_behind_but_the_reason() -> None:
    node = node_with(10)
    stream = node.streams[ID]
    good = stream.miniblocks[10]
    stream.miniblocks[10] = type(good)(good.raw[:-1], good.hash)
    synced = synced_with(node)
    synced.sync(node, ID)
    assert synced.notes == [] and len(synced.quarantined) == 1 and len(synced.raw) == 1
    assert synced.state is not None and (synced.state.minipool_gen, synced.state.prev_miniblock_hash) == (0, None)
    assert synced.state.stopped == synced.quarantined[0].reason and synced.writes == 1
    stream.miniblocks[10] = good
    synced.sync(node, ID)
    assert synced.events == all_events(node, 10)


def test_recordings_have_gaps_where_nothing_was_recorded() -> None:
    state = State(5, b"e" * 32, 3, 3)
    marks = (Mark(0, 9, b"i" * 32, b"h" * 32), Mark(1, 10, b"j" * 32, b"i" * 32))
    outcome = advance(state, Delivery(marks), Held())
    assert outcome.gaps == (rules.Gap(5, 9, rules.NOT_RECORDED),) and len(outcome.delivered) == 2
    assert outcome.state is not None and outcome.state.minipool_gen == 11


def test_what_was_not_recorded_between_two_pages_is_a_gap_too_and_the_rest_is_delivered() -> None:
    numbers = (5, 6, 9, 10, 14)
    marks = tuple(Mark(at, number, bytes([number]) * 32, bytes([number - 1]) * 32) for at, number in enumerate(numbers))
    outcome = advance(State(5, b"\x04" * 32, 3, 3), Delivery(marks, own=2), Held())
    assert [one.mark.number for one in outcome.delivered] == list(numbers) and outcome.quarantined == ()
    assert [(gap.first, gap.end) for gap in outcome.gaps] == [(7, 9), (11, 14)]
    assert outcome.state is not None and (outcome.state.minipool_gen, outcome.state.first_miniblock) == (15, 14)


def marks_of(node: StreamNode, *numbers: int) -> tuple[Mark, ...]:
    opened = [open_miniblock(node.streams[ID].miniblocks[number].raw) for number in numbers]
    return tuple(Mark(at, one.number, one.hash, one.prev_hash, one.has_snapshot) for at, one in enumerate(opened))


def recorded(line: tuple[Mark, ...], marks: tuple[Mark, ...], own: int) -> rules.Outcome:
    """What becomes of a stream that was delivered from 10 to 19, by its whole history and by what Spark looks up of it alike."""
    state = State(20, line[19].hash, 10, 10, line[0].hash)
    known = {mark.number: {mark.hash} for mark in (line[0], *line[10:20])}
    looked_up = {number for mark in marks for number in (mark.number, mark.number - 1)}
    outcome = advance(state, Delivery(marks, own), Held(known))
    assert advance(state, Delivery(marks, own), Held({one: known[one] for one in known.keys() & looked_up})) == outcome
    return outcome


@pytest.mark.parametrize("before", [(12, 13), (16, 17, 18), (2, 3, 12, 13)])
def test_recorded_pages_of_before_do_not_hide_what_was_not_recorded_after_our_head(before: tuple[int, ...]) -> None:
    node = node_with(40)
    outcome = recorded(marks_of(node, *range(20)), marks_of(node, *before, 30, 31), own=len(before))
    assert outcome.case == "follows" and outcome.gaps == (rules.Gap(20, 30, rules.NOT_RECORDED),)
    flags = [(one.mark.number, one.historical, one.duplicate) for one in outcome.delivered]
    assert flags == [(30, True, False), (31, True, False)]
    assert outcome.state is not None and (outcome.state.first_miniblock, outcome.state.reset_reason) == (30, None)


def test_recorded_pages_of_another_branch_are_delivered_whatever_was_not_recorded_behind_them() -> None:
    node = node_with(12)
    node.back_up()
    node.grow(ID, 7)
    line = marks_of(node, *range(20))
    node.restore()
    node.grow(ID, 27)
    outcome = recorded(line, marks_of(node, 12, 13, 30), own=2)
    assert outcome.case == "rewound" and [one.mark.number for one in outcome.delivered] == [13, 30]
    assert outcome.gaps == (rules.Gap(14, 30, rules.NOT_RECORDED),)
    outcome = recorded(line, marks_of(node, 11, 12, 20, 21), own=2)
    flags = [(one.mark.number, one.duplicate) for one in outcome.delivered]
    assert outcome.case == "rewound" and flags == [(20, False), (21, False)]
    assert outcome.gaps == (rules.Gap(13, 20, rules.NOT_RECORDED),)
    outcome = recorded(line, marks_of(node, 2, 3, 30), own=2)
    assert [one.mark.number for one in outcome.delivered] == [2, 3, 30], "older than our first: nobody can tell whose they are"
    node.create(ID)
    node.grow(ID, 30)
    outcome = recorded(line, marks_of(node, 0, 1, 30), own=2)
    assert outcome.case == "recreated" and [one.mark.number for one in outcome.delivered] == [0, 1, 30]


def test_a_recorded_answer_that_was_out_of_order_is_delivered_from_its_snapshot() -> None:
    marks = tuple(Mark(at, 10 + at, bytes([at]) * 32, bytes([at - 1]) * 32 if at else b"", at == 1) for at in range(4))
    for index, first in ((0, 10), (1, 11), (3, 11), (9, 10)):
        outcome = advance(None, Delivery(marks, snapshot=index), Held())
        assert outcome.delivered[0].mark.number == first and len(outcome.delivered) == 14 - first


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        ((Mark(0, 5, b"f" * 32, b"e" * 32), Mark(1, 7, b"h" * 32, b"g" * 32)), "it came where 6 is expected"),
        ((Mark(0, 5, b"f" * 32, b"e" * 32), Mark(1, 6, b"h" * 32, b"x" * 32)), "it follows 0x78787878…"),
        ((Mark(0, 5, b"f" * 32, b"e" * 32), Mark(1, -1, b"", b"", problem="it cannot be read")), "miniblock 6: it cannot"),
    ],
)
def test_what_does_not_follow_is_refused(marks: tuple[Mark, ...], reason: str) -> None:
    outcome = advance(State(5, b"e" * 32, 3, 3), Delivery(marks, live=True), Held())
    assert len(outcome.delivered) == 1 and len(outcome.quarantined) == 1 and reason in outcome.quarantined[0].reason
    assert outcome.state is not None and outcome.state.minipool_gen == 6 and not outcome.minipool


@settings(max_examples=60, deadline=None)
@given(at=st.floats(0, 1), flip=st.integers(1, 255))
def test_a_changed_byte_is_found_or_does_not_matter(at: float, flip: int) -> None:
    raw = bytearray(GROWN.raw)
    place = int(at * (len(raw) - 1))
    raw[place] ^= flip
    before, after = open_miniblock(GROWN.raw), open_miniblock(bytes(raw))
    kept = [(e.hash, e.body) for e in after.events] == [(e.hash, e.body) for e in before.events] and after.hash == before.hash
    assert before.problem is None and (after.problem is not None or kept)


GROWN = node_with(3).streams[ID].miniblocks[3]
OPERATIONS = ("grow", "grow", "jump", "pool", "sync", "sync", "sync", "trim", "recreate", "backup", "restore", "lag", "kill")


def play(seed: int) -> tuple[Synced, Oracle]:
    """One random life of a stream, its node and its reader."""
    rng = random.Random(seed)
    node = StreamNode(page_limit=rng.randint(1, 6), snapshot_every=rng.randint(2, 7), seed=seed)
    node.create(ID)
    node.back_up()
    node.earlier = rng.choice((0, 0, 2))
    service = Flaky(node, rng, rng.choice((0.0, 0.2)))
    synced, oracle, budget = Synced(), Oracle(), rng.choice((1, 5, 1000))
    for _ in range(rng.randint(3, 14)):
        operation = rng.choice(OPERATIONS)
        if operation == "grow":
            node.grow(ID, rng.randint(0, 3), rng.randint(0, 3), rng.randint(0, 2))
        elif operation == "jump":
            node.grow(ID, rng.randint(5, 15), 1)
        elif operation == "pool":
            node.grow(ID, 0, minipool=rng.randint(1, 2))
        elif operation == "trim":
            node.streams[ID].trim(rng.randint(0, 40))
        elif operation == "recreate":
            node.create(ID)
        elif operation == "backup":
            node.back_up()
        elif operation == "restore":
            node.restore()
        else:
            synced = step(operation, synced, oracle, service, node, budget, rng)
    service.rate = 0.0
    return step("sync", synced, oracle, service, node, budget, rng), oracle


def step(
    operation: str, synced: Synced, oracle: Oracle, service: Flaky, node: StreamNode, budget: int, rng: random.Random
) -> Synced:
    """A run of the reader: whole, or raw alone (the later stages lag), or killed before a commit."""
    more = True
    while more:
        before = unchanged(synced) if operation == "kill" else synced
        try:
            more = synced.pull(service, ID, budget)
        except Refused:
            return before
        if operation == "kill" and rng.random() < 0.5:
            return before
        oracle.look(node.streams[ID], synced.head.minipool_gen if more and synced.head else None)
        while operation != "lag" and synced.done < len(synced.raw):
            if operation == "kill" and rng.random() < 0.3:
                return synced
            synced.derive()
    return synced


def check(seed: int) -> None:
    synced, oracle = play(seed)
    while synced.done < len(synced.raw):
        synced.derive()
    had = [[hash_ for hash_ in events if hash_ not in oracle.lost] for events in (synced.events, oracle.events)]
    assert had[0] == had[1], seed
    assert len(set(synced.events)) == len(synced.events), seed
    assert not any(note[4] for note in synced.notes), seed
    assert synced.gaps or not oracle.lost, seed
    assert synced.writes <= len(synced.raw), seed


@settings(max_examples=50, deadline=None)
@given(st.integers(10_000, 1 << 40))
def test_any_random_history_does(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("chunk", range(8))
def test_random_histories_deliver_everything_after_the_first_sync_once_and_in_order(chunk: int) -> None:
    for seed in range(chunk * 250, chunk * 250 + 250):
        check(seed)
