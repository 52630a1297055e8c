"""What servers do to miniblocks that were delivered long ago: damage them, serve others, or no longer have them."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from chainlake.demo.river import Miniblock
from chainlake.demo.river_node import StreamNode
from chainlake.sources.wire import field_bytes, field_int
from chainlake.sync.fetch import Base, Budget, fetch
from chainlake.sync.messages import Answer
from chainlake.sync.miniblock import Block, open_miniblock
from chainlake.sync.rules import Delivery, Mark, State, advance
from chainlake.sync.service import Refused
from chainlake.sync.settle import settle_all
from tests.unit.sync_model import Held, Synced
from tests.unit.test_sync_rules import ID, all_events, node_with, synced_with

Change = Callable[[Miniblock], Miniblock]


def event_damaged(good: Miniblock) -> Miniblock:
    return Miniblock(good.raw.replace(b"message", b"massage", 1), good.hash)


def header_damaged(good: Miniblock) -> Miniblock:
    return Miniblock(good.raw[:-1] + bytes([good.raw[-1] ^ 1]), good.hash)


def unreadable(good: Miniblock) -> Miniblock:
    return Miniblock(b"\xff\xff", good.hash)


def another(good: Miniblock) -> Miniblock:
    """A sound miniblock of the same number, which is not the one that was there."""
    other = node_with(20, seed=99).streams[ID].miniblocks[open_miniblock(good.raw).number]
    return Miniblock(other.raw, other.hash)


CHANGES: tuple[Change, ...] = (event_damaged, header_damaged, unreadable, another)


def change(node: StreamNode, number: int, how: Change) -> Miniblock:
    blocks = node.streams[ID].miniblocks
    good, blocks[number] = blocks[number], how(blocks[number])
    return good


@pytest.mark.parametrize(
    ("number", "how"), [(number, how) for number in (10, 11, 12) for how in CHANGES if number < 12 or how != another]
)
def test_what_was_delivered_and_is_spoilt_now_is_noted_once_and_stops_nothing(number: int, how: Change) -> None:
    node = node_with(12)
    synced = synced_with(node)
    good = change(node, number, how)
    for _ in range(2):
        node.grow(ID, 1, minipool=1)
        synced.sync(node, ID)
    for _ in range(3):
        synced.sync(node, ID)
    assert len(synced.raw) == 3 and len(synced.quarantined) == 1, "evidence is taken once"
    assert synced.cases == ["first", "follows", "follows"]
    state = synced.state
    assert state is not None and (state.minipool_gen, state.stopped, state.reset_reason) == (15, None, None)
    node.streams[ID].miniblocks[number] = good
    assert synced.events[:-1] == all_events(node, 10) and len(set(synced.events)) == len(synced.events)
    node.grow(ID, 1)
    synced.sync(node, ID)
    assert synced.events == all_events(node, 10) and synced.head is not None and synced.head.refused is None


@pytest.mark.parametrize("number", [10, 11, 12])
def test_spoilt_miniblocks_are_noted_when_only_the_minipool_has_news(number: int) -> None:
    node = node_with(12)
    synced = synced_with(node)
    change(node, number, event_damaged)
    node.grow(ID, 0, minipool=1)
    for _ in range(2):
        synced.sync(node, ID)
    pool = [envelope[2:34] for envelope in node.streams[ID].minipool]
    assert synced.events[-1:] == pool and [one.mark.number for one in synced.quarantined] == [number]
    assert synced.writes == 1 and len(synced.raw) == 2


def test_another_miniblock_in_place_of_ours_is_never_delivered_nor_believed() -> None:
    node = node_with(12)
    synced = synced_with(node)
    change(node, 11, another)
    node.grow(ID, 1)
    synced.sync(node, ID)
    other = {event.hash for event in open_miniblock(node.streams[ID].miniblocks[11].raw).events}
    assert not other & set(synced.events) and "it is not the one that was delivered" in synced.quarantined[0].reason
    assert node.streams[ID].miniblocks[11].hash not in {hash_ for one in synced.raw for hash_ in one.hashes}


def test_a_chain_that_is_broken_at_our_last_miniblock_stops_the_stream_and_is_written_once() -> None:
    node = node_with(12)
    synced = synced_with(node)
    change(node, 12, another)
    node.grow(ID, 1)
    for _ in range(3):
        synced.sync(node, ID)
    state = synced.state
    assert len(synced.raw) == 2 and [one.mark.number for one in synced.quarantined] == [12]
    assert state is not None and state.stopped and (state.minipool_gen, state.reset_reason) == (13, None)


def test_a_damaged_last_miniblock_is_no_other_branch_and_once_mended_all_goes_on() -> None:
    node = node_with(12)
    synced = synced_with(node)
    good = change(node, 12, unreadable)
    node.streams[ID].miniblocks[12] = replace(node.streams[ID].miniblocks[12], hash=b"x" * 32)
    for _ in range(2):
        synced.sync(node, ID)
    state = synced.state
    assert state is not None and state.stopped and (state.minipool_gen, state.reset_reason) == (13, None)
    assert len(synced.raw) == 2 and len(synced.quarantined) == 1
    node.streams[ID].miniblocks[12] = good
    node.grow(ID, 0, minipool=1)
    synced.sync(node, ID)
    pool = [envelope[2:34] for envelope in node.streams[ID].minipool]
    assert synced.events == [*all_events(node, 10), *pool]
    assert synced.state is not None and synced.state.stopped is None and synced.state.reset_reason is None


def test_damage_to_the_answer_of_a_restored_server_stops_the_stream_and_records_no_reset() -> None:
    node = node_with(10)
    synced = synced_with(node)
    node.back_up()
    node.grow(ID, 2)
    synced.sync(node, ID)
    node.restore()
    node.grow(ID, 1)
    good = change(node, 10, event_damaged)
    for _ in range(2):
        synced.sync(node, ID)
    state = synced.state
    assert state is not None and state.stopped and state.reset_reason is None and len(synced.quarantined) == 1
    node.streams[ID].miniblocks[10] = good
    node.grow(ID, 3)
    synced.sync(node, ID)
    assert synced.events[-len(all_events(node, 11)) :] == all_events(node, 11)
    assert synced.state is not None and (synced.state.stopped, synced.state.reset_reason) == (None, "rewound")


def test_a_stream_that_went_back_to_before_what_stopped_it_goes_on() -> None:
    node = node_with(12)
    synced = synced_with(node)
    node.back_up()
    node.grow(ID, 1)
    change(node, 13, event_damaged)
    synced.sync(node, ID)
    assert synced.state is not None and synced.state.stopped
    node.restore()
    node.grow(ID, 0, minipool=1)
    synced.sync(node, ID)
    assert synced.state.stopped is None and synced.events[-1] == node.streams[ID].minipool[0][2:34]


def test_walking_back_over_what_cannot_be_read_ends_with_a_refusal() -> None:
    node = node_with(21, page_limit=3)
    synced = synced_with(node)
    node.create(ID)
    node.grow(ID, 24)
    for number in range(10, 20):
        change(node, number, unreadable)
    with pytest.raises(Refused, match="miniblock -1: it cannot be read"):
        synced.sync(node, ID)
    assert synced.cases == ["first"]


def test_a_restored_server_is_settled_some_streams_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainlake.sync.settle.TOGETHER", 3)
    node = StreamNode(7, page_limit=4)
    synced = {stream_id: Synced() for stream_id in node.streams}
    for stream_id, one in synced.items():
        node.grow(stream_id, 22)
        one.sync(node, stream_id)
    heads = {stream_id: one.head for stream_id, one in synced.items() if one.head}
    wanted = {hash_ for one in synced.values() for item in one.raw for hash_ in item.hashes}
    asked: list[int] = []

    def held(hashes: Sequence[bytes]) -> set[bytes]:
        asked.append(len(hashes))
        return wanted & set(hashes)

    places = {stream_id: [(22, bytes(32))] for stream_id in heads}
    found = settle_all(node, heads, places, held, 2)
    assert found == {stream_id: Base(21, stream.miniblocks[21].hash) for stream_id, stream in node.streams.items()}
    assert asked == [3, 6, 3, 6, 1, 2], "what was shown of three at most, then what is below it"


def test_a_miniblock_that_came_twice_is_delivered_once() -> None:
    """Pages that overlap the answer, or an answer that repeats itself, as in recordings."""
    names = "efgh"
    marks = [Mark(0, number, names[number - 4].encode() * 32, names[number - 5].encode() * 32) for number in (5, 6, 5, 6, 6, 7)]
    marks = [mark._replace(place=place) for place, mark in enumerate(marks)]
    outcome = advance(State(5, b"e" * 32, 3, 3), Delivery(tuple(marks), own=2), Held())
    assert [one.mark.number for one in outcome.delivered] == [5, 6, 7] and outcome.quarantined == ()


def test_recorded_answers_tell_of_damage_below_the_head_too() -> None:
    ours = {number: bytes([number]) * 32 for number in range(9, 14)}
    marks = tuple(Mark(place, number, ours[number], ours[number - 1]) for place, number in enumerate((10, 11, 12, 13)))
    marks = (marks[0], marks[1]._replace(problem="event 0 is bad"), *marks[2:])
    state = State(13, ours[12], 10, 10)
    outcome = advance(state, Delivery(marks), Held({number: {ours[number]} for number in (10, 11, 12)}))
    assert [one.mark.number for one in outcome.delivered] == [13] and outcome.case == "follows"
    assert [one.mark.number for one in outcome.quarantined] == [11]
    assert outcome.state is not None and outcome.state.stopped is None


@pytest.mark.parametrize("cookie", [b"", field_int(3, 7) + field_bytes(5, b"z" * 32)])
def test_a_node_whose_cookie_does_not_fit_its_miniblocks_is_followed_by_these(cookie: bytes) -> None:
    class Careless(StreamNode):
        def get_stream(self, stream_id: bytes, judge: object = None) -> Answer:
            told = super().get_stream(stream_id)
            return replace(told, minipool_gen=7 if cookie else 0, prev_hash=b"z" * 32 if cookie else b"")

    node = Careless()
    node.create(ID)
    node.grow(ID, 12)
    synced = synced_with(node)
    node.grow(ID, 1)
    for _ in range(3):
        synced.sync(node, ID)
    assert synced.events == all_events(node, 10) and len(synced.raw) == 2


def test_a_page_that_gives_more_than_was_asked_for_is_cut() -> None:
    class Generous(StreamNode):
        def get_miniblocks(self, stream_id: bytes, start: int, end: int) -> list[Block]:
            return super().get_miniblocks(stream_id, start, end + 2)

    node = Generous()
    node.create(ID)
    node.grow(ID, 12)
    synced = synced_with(node)
    node.grow(ID, 20)
    assert fetch(node, ID, synced.head, Budget(1000)) is not None
    synced.sync(node, ID)
    assert synced.events == all_events(node, 10) and synced.quarantined == []


def spoil(node: StreamNode, rng: random.Random, damaged: dict[str, Miniblock]) -> None:
    blocks = node.streams[ID].miniblocks
    number = rng.randrange(len(blocks))
    damaged.setdefault(blocks[number].hash.hex(), blocks[number])
    blocks[number] = rng.choice(CHANGES[:3])(blocks[number])


def mend(node: StreamNode, damaged: dict[str, Miniblock]) -> None:
    stream = node.streams[ID]
    stream.miniblocks = [damaged.get(one.hash.hex(), one) for one in stream.miniblocks]


@pytest.mark.parametrize("chunk", range(4))
def test_whatever_was_damaged_once_all_is_mended_everything_has_come_once(chunk: int) -> None:
    for seed in range(chunk * 150, chunk * 150 + 150):
        rng = random.Random(seed)
        node = StreamNode(page_limit=rng.randint(1, 6), snapshot_every=rng.randint(2, 7), seed=seed)
        node.create(ID)
        node.grow(ID, rng.randint(0, 9))
        node.earlier = rng.choice((0, 2))
        synced, damaged, budget = Synced(), {}, rng.choice((1, 5, 1000))
        synced.sync(node, ID)
        first = node.streams[ID].snapshot
        node.back_up()
        for _ in range(rng.randint(3, 12)):
            operation = rng.choice(("grow", "grow", "spoil", "spoil", "sync", "sync", "sync", "mend", "pool", "restore"))
            if operation == "grow":
                node.grow(ID, rng.randint(1, 8), rng.randint(1, 2))
            elif operation == "pool":
                node.grow(ID, 0, minipool=1)
            elif operation == "spoil":
                spoil(node, rng, damaged)
            elif operation == "mend":
                mend(node, damaged)
            elif operation == "restore":
                mend(node, damaged)
                node.restore()
                node.grow(ID, 1)
            else:
                try:
                    synced.sync(node, ID, budget)
                except Refused:
                    continue
        mend(node, damaged)
        node.grow(ID, 1)
        synced.sync(node, ID, budget)
        wanted = all_events(node, first)
        came = [event for event in synced.events if event in set(wanted)]
        assert sorted(came) == sorted(wanted) and len(set(synced.events)) == len(synced.events), seed
        assert synced.state is not None and synced.state.stopped is None and synced.gaps == [], seed
        assert not any(note[4] for note in synced.notes), seed
