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
from chainlake.sync.service import StreamService

UNSOUND = bytes(32)


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
    """How many miniblocks a pass may still take; threads share it. A stream that has begun takes at least a page."""

    def __init__(self, miniblocks: int) -> None:
        self._left = miniblocks
        self._lock = threading.Lock()

    def spend(self, miniblocks: int) -> bool:
        """Take so many; False when nothing is left after that."""
        with self._lock:
            self._left -= miniblocks
            return self._left > 0

    @property
    def is_spent(self) -> bool:
        return self._left <= 0


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
class Unsettled:
    """The answer does not follow our head: (number, hash) of what the server showed, in order."""

    shown: tuple[tuple[int, bytes], ...]


def fetch(
    service: StreamService, stream_id: bytes, head: Head | None, budget: Budget, base: Base | None = None
) -> Fetched | Unsettled | None:
    """What is new of a stream, as far as the budget goes; None if nothing is."""

    def is_known(told: Answer) -> bool:
        return head is not None and bool(head.prev_hash) and base is None and _is_known(told, head)

    answer = service.get_stream(stream_id, is_known)
    if is_known(answer):
        return None
    if head is None or not head.prev_hash:
        return _first(service, stream_id, answer, head)
    own = answer.miniblocks
    ours = Base(head.minipool_gen - 1, head.prev_hash)
    if base is None and not own[0].opened.problem and own[0].opened.number <= head.minipool_gen and not _meets(own, ours):
        return Unsettled(tuple(one.place for one in own))
    gap, reached = _gap(service, stream_id, base or ours, own[0].opened, budget)
    if base is None and gap and not gap[0].opened.problem and not _follows(gap[0].opened, ours):
        return Unsettled(tuple(one.place for one in own))
    if base is None:
        new = [one for one in own if one.opened.number > ours.number or one.opened.problem] if reached else []
        return _taken(head, gap, new, answer, reached, ours)
    again = [one for one in own if one.opened.number >= base.number] if reached else []
    return _taken(head, gap, again, answer, reached, None, base)


def pages(service: StreamService, stream_id: bytes, start: int, end: int) -> Iterator[Sequence[Block]]:
    """Miniblocks [start, end) page by page, each from the number after the last one. Ends behind an unsound one, and where the
    server has nothing more below `end`."""
    at = start
    while at < end:
        page = service.get_miniblocks(stream_id, at, end)
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


def _first(service: StreamService, stream_id: bytes, answer: Answer, head: Head | None) -> Fetched | None:
    """A stream of which we hold nothing: from its snapshot on, and its genesis to know it again by."""
    index = answer.snapshot_index if answer.snapshot_index < len(answer.miniblocks) else 0
    own = answer.miniblocks[index:]
    genesis = [] if own[0].opened.number <= 0 else _genesis(service, stream_id, answer.miniblocks[0])
    return _taken(head, genesis, own, answer, True, None, first=True)


def _genesis(service: StreamService, stream_id: bytes, known: Block) -> list[Block]:
    """The miniblock 0 of a stream; none if the server has trimmed it."""
    found = [known] if known.opened.number == 0 else service.get_miniblocks(stream_id, 0, 1)
    return [one for one in found[:1] if one.opened.number == 0 and not one.opened.problem]


def _is_known(answer: Answer, head: Head) -> bool:
    """The node stands where it stood, and its minipool holds nothing new."""
    same = (answer.minipool_gen, answer.prev_hash) == (head.seen_gen, head.seen_hash)
    return same and head.whole and head.minipool.issuperset(event.hash for event in answer.minipool)


def _meets(own: Sequence[Block], ours: Base) -> bool:
    """The answer holds our head, or begins right behind it."""
    return any(one.place == (ours.number, ours.hash) for one in own) or _follows(own[0].opened, ours)


def _follows(block: Miniblock, base: Base) -> bool:
    """A miniblock right behind a base, or so far behind that what is between must be gone."""
    return block.number > base.number + 1 or (block.number, block.prev_hash) == (base.number + 1, base.hash)


def _gap(service: StreamService, stream_id: bytes, base: Base, first: Miniblock, budget: Budget) -> tuple[list[Block], bool]:
    """The miniblocks between base and answer (with a base that was found out: itself too), and whether they reach it."""
    low = base.start if base.number < 0 else base.number + 1
    found: list[Block] = []
    for page in pages(service, stream_id, low, first.number):
        if found and page[0].opened.number != found[-1].opened.number + 1:
            return found, False
        found += page
        if not budget.spend(len(page)):
            break
    return found, not found or found[-1].opened.number + 1 == first.number


def _taken(
    head: Head | None,
    gap: Sequence[Block],
    own: Sequence[Block],
    answer: Answer,
    reached: bool,
    follow: Base | None,
    base: Base | None = None,
    first: bool = False,
) -> Fetched | None:
    """The sound miniblocks, and the first unsound one as evidence unless we have it."""
    skipped = len(gap) if first else 0
    blocks = [*gap, *own]
    sound = _sound(blocks[skipped:], follow) + skipped
    refused = hashlib.sha256(blocks[sound].raw).digest() if sound < len(blocks) else None
    known = head.refused if head else None
    blocks = blocks[: sound + (refused is not None and refused != known)]
    if refused is not None and len(blocks) == skipped:
        return None
    whole = reached and refused is None
    last = blocks[sound - 1].opened if sound > skipped else None
    return Fetched(
        tuple(one.raw for one in blocks),
        tuple(one.opened.hash if place < sound else UNSOUND for place, one in enumerate(blocks)),
        min(len(gap), len(blocks)),
        answer.rest if whole else b"",
        head is not None and not head.whole and head.refused is None,
        _head_after(head, last, base, answer, blocks, refused, whole),
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
    blocks: Sequence[Block],
    refused: bytes | None,
    whole: bool,
) -> Head:
    genesis = next((one.opened.hash for one in blocks if one.opened.number == 0 and not one.opened.problem), None)
    events = frozenset(event.hash for event in answer.minipool) if whole else frozenset()
    seen = (answer.minipool_gen, answer.prev_hash)
    if head is None:
        head = Head(0, b"", genesis, *seen)
    behind = base is not None and last is not None and (last.number, last.hash) == (base.number, base.hash)
    stays = last is None or (behind and last.number < head.minipool_gen - 1)
    place = (head.minipool_gen, head.prev_hash) if stays or last is None else (last.number + 1, last.hash)
    return Head(*place, genesis or head.genesis_hash, *seen, events, refused, whole)
