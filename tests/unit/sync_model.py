"""Sync in plain Python, end to end: fetch, raw, rules, notifications; and an oracle that looks at the server's own lists."""

import copy
import random
from dataclasses import dataclass, field

from chainlake.demo.river import Stream
from chainlake.demo.river_node import StreamNode
from chainlake.sync import rules
from chainlake.sync.fetch import Budget, Fetched, Head, Unsettled, fetch
from chainlake.sync.messages import Answer, read_answer
from chainlake.sync.miniblock import Block, open_miniblock
from chainlake.sync.service import Judge, Refused, StreamService
from chainlake.sync.settle import settle_all

Note = tuple[int, int, bytes, bool, bool]


@dataclass
class Held:
    """Miniblocks of a stream that were delivered, by number."""

    hashes: dict[int, set[bytes]] = field(default_factory=dict)

    def held(self, number: int, hash_: bytes) -> bool:
        return hash_ in self.hashes.get(number, ())

    def knows(self, number: int) -> bool:
        return number in self.hashes


@dataclass
class Synced:
    """One stream in the lake. `raw` are the deliveries, `done` says how many of them were taken on."""

    head: Head | None = None
    raw: list[Fetched] = field(default_factory=list)
    done: int = 0
    state: rules.State | None = None
    writes: int = 0
    history: Held = field(default_factory=Held)
    notes: list[Note] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)
    gaps: list[rules.Gap] = field(default_factory=list)
    quarantined: list[rules.Quarantined] = field(default_factory=list)
    cases: list[str] = field(default_factory=list)

    def pull(self, service: StreamService, stream_id: bytes, budget: int = 10**9, page_size: int = 4) -> bool:
        """One pass: fetch and write to raw. Whether there is more to fetch."""
        found = fetch(service, stream_id, self.head, Budget(budget))
        if isinstance(found, Unsettled):
            assert self.head is not None
            shown = {stream_id: found.shown}
            base = settle_all(service, {stream_id: self.head}, shown, self._in_raw, page_size)[stream_id]
            if isinstance(base, Refused):
                raise base
            found = fetch(service, stream_id, self.head, Budget(budget), base)
        assert not isinstance(found, Unsettled)
        if found is None:
            return False
        self.head = found.head
        self.raw.append(found)
        return found.more

    def derive(self) -> None:
        """What the later stages make of the next delivery."""
        fetched = self.raw[self.done]
        self.done += 1
        blocks = [Block(raw) for raw in fetched.miniblocks]
        marks = tuple(
            rules.Mark(i, b.opened.number, b.opened.hash, b.opened.prev_hash, b.opened.has_snapshot, b.opened.problem)
            for i, b in enumerate(blocks)
        )
        delivery = rules.Delivery(marks, fetched.pages, 0, whole=fetched.head.whole, catch_up=fetched.catch_up, live=True)
        outcome = rules.advance(self.state, delivery, self.history)
        self.cases.append(outcome.case)
        if outcome.genesis is not None:
            self.history.hashes.setdefault(0, set()).add(outcome.genesis.hash)
        for one in outcome.delivered:
            self.history.hashes.setdefault(one.mark.number, set()).add(one.mark.hash)
            for index, event in enumerate(blocks[one.mark.place].opened.events):
                self._note((one.mark.number, index, event.hash, one.historical, one.duplicate))
        if outcome.state is not None:
            self.state = outcome.state
            self.writes += 1
        self.gaps += outcome.gaps
        self.quarantined += outcome.quarantined
        if outcome.minipool:
            answer = read_answer(fetched.rest)
            for index, event in enumerate(answer.minipool):
                self._note((answer.minipool_gen, index, event.hash, False, False))

    def sync(self, service: StreamService, stream_id: bytes, budget: int = 10**9) -> None:
        """Passes until there is nothing more to fetch, each taken on at once."""
        more = True
        while more:
            more = self.pull(service, stream_id, budget)
            while self.done < len(self.raw):
                self.derive()

    @property
    def events(self) -> list[bytes]:
        return [note[2] for note in self.notes]

    def _note(self, note: Note) -> None:
        if note[4] or note[2] not in self.seen:
            self.notes.append(note)
            self.seen.add(note[2])

    def _in_raw(self, hashes: object) -> set[bytes]:
        return {hash_ for one in self.raw for hash_ in one.hashes}


@dataclass
class Oracle:
    """What a stream's consumer must have seen, told from the server's own lists."""

    met: bool = False
    genesis: bytes = b""
    known: set[bytes] = field(default_factory=set)
    before: set[bytes] = field(default_factory=set)
    events: list[bytes] = field(default_factory=list)
    lost: set[bytes] = field(default_factory=set)

    def look(self, stream: Stream, end: int | None = None) -> None:
        """The stream was fetched while it was like this: all of it, or its miniblocks up to `end`."""
        if not self.met:
            self.before = {miniblock.hash for miniblock in stream.miniblocks[: stream.snapshot]}
            self.genesis = b"" if stream.trimmed and stream.snapshot else stream.miniblocks[0].hash
            self.met = True
        elif self.genesis in (b"", stream.miniblocks[0].hash) and not any(one.hash in self.known for one in stream.miniblocks):
            self.before = {self.genesis}  # it parted before we came: nobody can tell what is new, so all is
        for number, miniblock in enumerate(stream.miniblocks[:end]):
            if miniblock.hash in self.known or miniblock.hash in self.before:
                continue
            self.known.add(miniblock.hash)
            if number < stream.trimmed:
                self.lost |= {event.hash for event in open_miniblock(miniblock.raw).events}
                continue
            self.events += [e.hash for e in open_miniblock(miniblock.raw).events if e.hash not in self.events]
        pool = [envelope[2:34] for envelope in stream.minipool if end is None]
        self.events += [hash_ for hash_ in pool if hash_ not in self.events]


def unchanged(synced: Synced) -> Synced:
    """A copy to go back to."""
    kept = copy.copy(synced)
    kept.raw, kept.notes, kept.seen, kept.cases = list(kept.raw), list(kept.notes), set(kept.seen), list(kept.cases)
    kept.gaps, kept.quarantined, kept.history = list(kept.gaps), list(kept.quarantined), copy.deepcopy(kept.history)
    return kept


class Flaky:
    """A service that fails now and then."""

    def __init__(self, node: StreamNode, rng: random.Random, rate: float) -> None:
        self._node, self._rng, self.rate = node, rng, rate

    def get_stream(self, stream_id: bytes, judge: Judge) -> Answer:
        self._maybe()
        return self._node.get_stream(stream_id, judge)

    def get_miniblocks(self, stream_id: bytes, start: int, end: int) -> list[Block]:
        self._maybe()
        return self._node.get_miniblocks(stream_id, start, end)

    def _maybe(self) -> None:
        if self._rng.random() < self.rate:
            raise Refused("the node is away")
