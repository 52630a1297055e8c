"""What to ask a node for, and what to take of its answer: one stream, one pass, given how far raw holds the stream.

If the answer follows our head, the gap between both is fetched in pages, and what is new is taken. If it does not, where both
agree has to be found out first (`Unsettled`, see settle.py); then the stream is fetched again from that `Base`.
"""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chainlake.sync.messages import Answer
from chainlake.sync.miniblock import Block, Miniblock
from chainlake.sync.service import KNOWN, LAGS, NEW, Missing, Refused, StreamService

UNSOUND = bytes(32)
MOST_BYTES = 128 << 20
"""Of the miniblocks of a task. What is fetched of a stream is one row, and a row has to fit into memory wherever it goes."""


@dataclass(frozen=True, slots=True)
class Head:
    """How far raw holds a stream; `prev_hash` is empty if it holds nothing sound yet. `seen` is where its node stood, `minipool`
    the events that were there, `refused` the digest of an unsound miniblock that was taken as evidence. Not `whole`: there is
    more to fetch."""

    minipool_gen: int
    prev_hash: bytes
    genesis_hash: bytes | None
    seen_gen: int
    seen_hash: bytes
    minipool: frozenset[bytes] = frozenset()
    refused: bytes | None = None
    whole: bool = True


class Budget:
    """How many miniblocks, and bytes of them, a pass may still take; threads share it. A stream that has begun takes at least a
    page."""

    def __init__(self, miniblocks: int, size: int = MOST_BYTES) -> None:
        self._left, self._bytes = miniblocks, size
        self._lock = threading.Lock()

    def spend(self, miniblocks: int, size: int) -> bool:
        """Take so many; False when nothing is left after that."""
        with self._lock:
            self._left -= miniblocks
            self._bytes -= size
            return not self.is_spent

    @property
    def is_spent(self) -> bool:
        return self._left <= 0 or self._bytes <= 0


@dataclass(frozen=True, slots=True)
class Base:
    """A miniblock that we and the server have in common. Number -1: there is none, the server's begin at `start`."""

    number: int
    hash: bytes
    start: int = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a pass takes of a stream. `pages` counts the miniblocks that came in pages, ahead of the answer's own. An unsound
    miniblock has no hash here, so that nobody takes it for one that we hold."""

    miniblocks: tuple[bytes, ...]
    hashes: tuple[bytes, ...]
    pages: int
    rest: bytes
    catch_up: bool
    head: Head

    @property
    def more(self) -> bool:
        """The next pass of the same run should go on with this stream."""
        return not self.head.whole and self.head.refused is None

    @property
    def digest(self) -> bytes:
        """What the pass is hashed over."""
        return hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in (*self.miniblocks, self.rest))).digest()


@dataclass(frozen=True, slots=True)
class Came:
    """What was asked for: the pages of a gap, and what the answer itself holds behind it (`reached`: they meet). Beside it, the
    genesis to know a new stream by, and what is spoilt of miniblocks that we have."""

    answer: Answer
    gap: Sequence[Block]
    own: Sequence[Block]
    reached: bool = True
    genesis: Sequence[Block] = ()
    spoilt: Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class Unsettled:
    """The answer does not follow our head: (number, hash) of what the server showed, in order."""

    shown: tuple[tuple[int, bytes], ...]


def fetch(
    service: StreamService, stream_id: bytes, head: Head | None, budget: Budget, base: Base | None = None
) -> Fetched | Unsettled | None:
    """What is new of a stream, as far as the budget goes; None if nothing is."""

    def judge(told: Answer) -> str:
        return NEW if head is None or not head.prev_hash else _judged(told, head, base is None)

    answer = service.get_stream(stream_id, judge)
    if judge(answer) == KNOWN:
        return None
    if head is None or not head.prev_hash:
        return _first(service, stream_id, answer, head)
    own = answer.miniblocks
    if base is not None:
        gap, reached = _gap(service, stream_id, base, own[0].opened, budget)
        at = next((place for place, one in enumerate(own) if one.opened.number >= base.number), len(own))
        return _taken(head, Came(answer, gap, own[at:] if reached else (), reached), base=base)
    ours = Base(head.minipool_gen - 1, head.prev_hash)
    new = _meeting(own, ours)
    if new is not None:
        return _taken(head, Came(answer, (), own[new:], spoilt=_spoilt(own[:new], ours)), ours)
    if not own[0].opened.problem and own[0].opened.number <= head.minipool_gen:
        return Unsettled(tuple(one.place for one in own))
    gap, reached = _gap(service, stream_id, ours, own[0].opened, budget)
    if gap and not gap[0].opened.problem and not _follows(gap[0].opened, ours):
        return Unsettled(tuple(one.place for one in own))
    return _taken(head, Came(answer, gap, own if reached else (), reached), ours)


def pages(service: StreamService, stream_id: bytes, start: int, end: int) -> Iterator[Sequence[Block]]:
    """Miniblocks [start, end) page by page, each from the number after the last one. Ends behind an unsound one, and where the
    server has nothing more below `end`."""
    at = start
    while at < end:
        page = [one for one in service.get_miniblocks(stream_id, at, end) if one.opened.number < end]
        if not page:
            return
        yield page
        if page[-1].opened.problem or page[-1].opened.number < at:
            return
        at = page[-1].opened.number + 1


def unsound(blocks: Sequence[Block]) -> str | None:
    """What is wrong with the first unsound miniblock of those that should follow each other."""
    sound = _sound(blocks, None)
    if sound == len(blocks):
        return None
    bad = blocks[sound].opened
    return f"miniblock {bad.number}: {bad.problem or 'it does not follow the one before'}"


def reach(blocks: Sequence[Block]) -> int:
    """The number of the last miniblock before the first unsound one; -1 if the first already is."""
    sound = _sound(blocks, None)
    return blocks[sound - 1].opened.number if sound else -1


def _first(service: StreamService, stream_id: bytes, answer: Answer, head: Head | None) -> Fetched | None:
    """A stream of which we hold nothing: from its snapshot on, and its genesis to know it again by."""
    index = answer.snapshot_index if answer.snapshot_index < len(answer.miniblocks) else 0
    own = answer.miniblocks[index:]
    genesis = [] if own[0].opened.number <= 0 else _genesis(service, stream_id, answer.miniblocks[0])
    return _taken(head, Came(answer, (), own, genesis=genesis))


def _genesis(service: StreamService, stream_id: bytes, known: Block) -> list[Block]:
    """The miniblock 0 of a stream; none if the server has trimmed it, whether it says so or not. The stream itself can be had
    without."""
    try:
        found = [known] if known.opened.number == 0 else service.get_miniblocks(stream_id, 0, 1)
    except Missing:
        return []
    return [one for one in found[:1] if one.opened.number == 0 and not one.opened.problem]


def _judged(answer: Answer, head: Head, may_be_known: bool) -> str:
    """Known: the node stands where it stood, and its minipool holds nothing new. It lags if it has not even what we have."""
    same = answer.standing == (head.seen_gen, head.seen_hash)
    if may_be_known and same and head.whole and head.minipool.issuperset(event.hash for event in answer.minipool):
        return KNOWN
    last = answer.miniblocks[-1].opened
    return LAGS if not last.problem and last.number + 1 < head.minipool_gen else NEW


def _meeting(own: Sequence[Block], ours: Base) -> int | None:
    """Where in an answer that which follows our head begins; None if the answer does not meet it."""
    for place, one in enumerate(own):
        if one.place == (ours.number, ours.hash):
            return place + 1
        if not one.opened.problem and (one.opened.number, one.opened.prev_hash) == (ours.number + 1, ours.hash):
            return place
    return None


def _spoilt(old: Sequence[Block], ours: Base) -> list[Block]:
    """The highest miniblock up to our head that is no longer what it was when we took it, and our head to tell it by."""
    wanted = (ours.number, ours.hash)
    for one in reversed(old):
        if one.opened.problem or one.place != wanted:
            return [one] if one is old[-1] else [one, old[-1]]
        wanted = (one.opened.number - 1, one.opened.prev_hash)
    return []


def _follows(block: Miniblock, base: Base) -> bool:
    """A miniblock right behind a base, or so far behind that what is between must be gone."""
    return block.number > base.number + 1 or (block.number, block.prev_hash) == (base.number + 1, base.hash)


def _gap(service: StreamService, stream_id: bytes, base: Base, first: Miniblock, budget: Budget) -> tuple[list[Block], bool]:
    """The miniblocks between base and answer, and whether they reach it. If the nodes fail inside the gap, what came is kept."""
    low = base.start if base.number < 0 else base.number + 1
    found: list[Block] = []
    try:
        for page in pages(service, stream_id, low, first.number):
            if found and page[0].opened.number != found[-1].opened.number + 1:
                return found, False
            found += page
            if not budget.spend(len(page), sum(len(one.raw) for one in page)):
                break
    except Refused:
        if not found:
            raise
        return found, False
    return found, not found or found[-1].opened.number + 1 == first.number


def _taken(head: Head | None, came: Came, follow: Base | None = None, base: Base | None = None) -> Fetched | None:
    """The sound miniblocks, and as evidence the first unsound one and what is spoilt of those that we have, unless it was taken
    before."""
    blocks = [*came.gap, *came.own]
    sound = _sound(blocks, follow)
    bad = blocks[sound : sound + 1]
    evidence = [*came.spoilt[:1], *bad]
    refused = hashlib.sha256(b"".join(one.raw for one in evidence)).digest() if evidence else None
    is_new = refused is not None and refused != (head.refused if head else None)
    repeated = sum(one.place == (base.number, base.hash) for one in blocks[:1]) if base else 0
    if bad and sound == repeated and not is_new:
        return None
    trusted = [*came.genesis, *blocks[:sound]]
    genesis = next((one.opened.hash for one in trusted if one.opened.number == 0), None)
    spoilt = came.spoilt if is_new else ()
    rows = [(one, one.opened.hash) for one in came.genesis]
    rows += [(one, UNSOUND if place == 0 else one.opened.hash) for place, one in enumerate(spoilt)]
    rows += [(one, one.opened.hash) for one in blocks[:sound]]
    rows += [(one, UNSOUND) for one in bad if is_new]
    ahead = len(came.genesis) + len(spoilt)
    whole = came.reached and not bad
    last = blocks[sound - 1].opened if sound else None
    return Fetched(
        tuple(one.raw for one, _ in rows),
        tuple(hash_ for _, hash_ in rows),
        min(ahead + len(came.gap), len(rows)),
        came.answer.rest if whole else b"",
        head is not None and not head.whole and head.refused is None,
        _head_after(head, last, base, came.answer, genesis, refused, whole),
    )


def _sound(blocks: Sequence[Block], base: Base | None) -> int:
    """How many miniblocks come before the first unsound one."""
    for count in range(1, len(blocks) + 1):
        if _is_bad(blocks[max(0, count - 2) : count], base if count == 1 else None):
            return count - 1
    return len(blocks)


def _is_bad(blocks: Sequence[Block], base: Base | None) -> bool:
    """The last of these is unsound, or does not follow the one before."""
    last = blocks[-1].opened
    if last.problem:
        return True
    if len(blocks) > 1:
        before = blocks[-2].opened
        return (last.number, last.prev_hash) != (before.number + 1, before.hash)
    return base is not None and not _follows(last, base)


def _head_after(
    head: Head | None,
    last: Miniblock | None,
    base: Base | None,
    answer: Answer,
    genesis: bytes | None,
    refused: bytes | None,
    whole: bool,
) -> Head:
    events = frozenset(event.hash for event in answer.minipool) if whole else frozenset()
    if head is None:
        head = Head(0, b"", genesis, *answer.standing)
    behind = base is not None and last is not None and (last.number, last.hash) == (base.number, base.hash)
    stays = last is None or (behind and last.number < head.minipool_gen - 1)
    place = (head.minipool_gen, head.prev_hash) if stays or last is None else (last.number + 1, last.hash)
    return Head(*place, genesis or head.genesis_hash, *answer.standing, events, refused, whole)
