"""The rules over recorded passes: pages that overlap, reach back or leave holes, of servers that do as they please."""

import random
from dataclasses import dataclass, field

import pytest

from chainlake.demo.river_node import StreamNode
from chainlake.sources import wire
from chainlake.sync import rules
from chainlake.sync.messages import read_answer
from chainlake.sync.miniblock import Block
from chainlake.sync.rules import Delivery, Mark, State, advance
from tests.unit.sync_model import Held

ID = b"\x20" + b"\x02" * 31
OPERATIONS = ("grow", "grow", "jump", "trim", "recreate", "backup", "restore", "record", "record", "record")


@dataclass
class Recorded:
    """A stream whose passes are taken on as they are recorded."""

    node: StreamNode
    rng: random.Random
    state: State | None = None
    history: Held = field(default_factory=Held)
    events: list[bytes] = field(default_factory=list)
    shown: set[bytes] = field(default_factory=set)
    older: set[bytes] = field(default_factory=set)
    gaps: list[rules.Gap] = field(default_factory=list)
    replaced: bool = False

    def record(self) -> None:
        """One pass: what the node answers, behind some of the pages before it."""
        self.node.earlier = self.rng.choice((0, 0, 2, 5))
        answer = read_answer(wire.message(self.node.answer(ID), 1))
        pages = self._pages(answer.miniblocks[0].opened.number)
        blocks = [*pages, *answer.miniblocks]
        opened = [one.opened for one in blocks]
        marks = tuple(Mark(at, one.number, one.hash, one.prev_hash, one.has_snapshot) for at, one in enumerate(opened))
        delivery = Delivery(marks, len(pages), answer.snapshot_index)
        outcome = advance(self.state, delivery, self.history)
        assert outcome == advance(self.state, delivery, self._shown_by_spark(marks)), "what Spark looks up is enough"
        self._check(outcome)
        self._take(blocks, outcome)

    def _pages(self, end: int) -> list[Block]:
        if self.state is None or self.rng.random() < 0.3:
            return []
        gen = self.state.minipool_gen
        low = max(self.rng.choice((gen, gen, max(0, gen - 3), self.rng.randint(0, gen))), self.node.streams[ID].trimmed)
        high = self.rng.choice((end, end, end - 2, low + 2))
        return [Block(one.raw) for one in self.node.streams[ID].miniblocks[low : max(low, high)]]

    def _shown_by_spark(self, marks: tuple[Mark, ...]) -> Held:
        numbers = {number for mark in marks for number in (mark.number, mark.number - 1)}
        return Held({number: hashes for number, hashes in self.history.hashes.items() if number in numbers})

    def _check(self, outcome: rules.Outcome) -> None:
        assert not any(one.duplicate for one in outcome.delivered), "our history is never gone here"
        line = self.node.streams[ID].miniblocks
        if self.state is None or outcome.case != rules.FOLLOWS or not outcome.delivered:
            return
        ours = range(self.state.first_miniblock, self.state.minipool_gen)
        missing = {number for gap in outcome.gaps for number in range(gap.first, gap.end)}
        assert not any(self.history.held(number, line[number].hash) for number in missing & {*ours}), "what we have is no gap"
        come = missing | {one.mark.number for one in outcome.delivered}
        assert come == set(range(self.state.minipool_gen, max(come) + 1)), "never a silent jump"

    def _take(self, blocks: list[Block], outcome: rules.Outcome) -> None:
        if self.state is None:
            first = outcome.delivered[0].mark.number
            self.older = {e.hash for one in self.node.streams[ID].miniblocks[:first] for e in Block(one.raw).opened.events}
        missing = {number for gap in self.gaps for number in range(gap.first, gap.end)}
        if self.state is not None and outcome.case == rules.FOLLOWS:
            missing |= set(range(self.state.first_miniblock))  # a gap ends there, or the first sync: nothing links them with ours
        self.shown |= {e.hash for one in blocks if one.opened.number not in missing for e in one.opened.events} - self.older
        self.state, self.replaced = outcome.state or self.state, self.replaced or bool(outcome.quarantined)
        self.gaps += outcome.gaps
        if outcome.genesis is not None:
            self.history.hashes.setdefault(0, set()).add(outcome.genesis.hash)
        for one in outcome.delivered:
            self.history.hashes.setdefault(one.mark.number, set()).add(one.mark.hash)
            self.events += [e.hash for e in blocks[one.mark.place].opened.events if e.hash not in self.events]


def play(seed: int) -> Recorded:
    """One random life of a stream that is recorded now and then."""
    rng = random.Random(seed)
    node = StreamNode(snapshot_every=rng.randint(2, 7), seed=seed)
    node.create(ID)
    node.back_up()
    recorded = Recorded(node, rng)
    for operation in (*rng.choices(OPERATIONS, k=rng.randint(3, 14)), "record"):
        if operation == "record":
            recorded.record()
        elif operation in ("grow", "jump"):
            node.grow(ID, rng.randint(0, 3) if operation == "grow" else rng.randint(5, 15), rng.randint(1, 2))
        elif operation == "trim":
            node.streams[ID].trim(rng.randint(0, 40))
        elif operation == "recreate":
            node.create(ID)
        else:
            node.back_up() if operation == "backup" else node.restore()
    return recorded


@pytest.mark.parametrize("chunk", range(4))
def test_whatever_was_recorded_is_delivered_and_what_was_not_is_a_gap(chunk: int) -> None:
    for seed in range(chunk * 250, chunk * 250 + 250):
        recorded = play(seed)
        assert recorded.shown <= set(recorded.events) or recorded.replaced, seed
