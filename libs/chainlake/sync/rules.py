"""What becomes of a stream when a pass brings an answer of its node: pure rules.

We hold the hash of every miniblock that was delivered. So one rule covers every case: find the highest miniblock that the answer
and we have in common, and deliver what comes after it.

| the highest in common is | case | what happens |
|---|---|---|
| none, the stream is new | first | from the snapshot on, nothing before |
| the last that we delivered | follows | what is new (cases A and B) |
| the last of the answer, below ours | behind | nothing yet: the server went back (case C) |
| lower | rewound | the other branch |
| none, from another genesis | recreated | the new stream from its genesis on |
| unknown, our history is gone | duplicate | from the snapshot on, flagged |

Miniblocks that nobody has any more are a gap, which stays visible. A miniblock that is unsound is put into quarantine, and the
stream stops before it until a sound one comes. State moves only with what was delivered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from chainlake.encoding import short

FIRST, FOLLOWS, BEHIND, REWOUND, RECREATED, DUPLICATE = "first", "follows", "behind", "rewound", "recreated", "duplicate"
CASES = (FIRST, FOLLOWS, BEHIND, REWOUND, RECREATED, DUPLICATE)
TRIMMED, NOT_RECORDED, DIVERGED = "trimmed", "not recorded", "diverged before what the server still has"


class Mark(NamedTuple):
    """What the rules know of a miniblock. `place` says where it lies in the pass."""

    place: int
    number: int
    hash: bytes
    prev_hash: bytes
    has_snapshot: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """How far a stream was delivered. From `first_miniblock` on, nothing is missing."""

    minipool_gen: int
    prev_miniblock_hash: bytes | None
    snapshot_miniblock: int
    first_miniblock: int
    genesis_hash: bytes | None = None
    reset_reason: str | None = None
    stopped: str | None = None


class Delivery(NamedTuple):
    """What one pass brought of one stream. `own` is the place in `marks` where the answer itself begins, after fetched gaps;
    `snapshot` counts from there. A delivery that is not `whole` ends inside a gap; `catch_up` says that the one before did."""

    marks: tuple[Mark, ...]
    own: int = 0
    snapshot: int = 0
    whole: bool = True
    catch_up: bool = False
    live: bool = False


class History(Protocol):
    """The miniblocks of a stream that were delivered before, and its genesis."""

    def held(self, number: int, hash_: bytes) -> bool:
        """This very miniblock was delivered, or is the genesis."""
        ...

    def knows(self, number: int) -> bool:
        """We still have the hash of what was delivered at a number."""
        ...


class Delivered(NamedTuple):
    """A miniblock to deliver."""

    mark: Mark
    historical: bool
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """Miniblocks [first, end) that can no longer be had."""

    first: int
    end: int
    reason: str


class Quarantined(NamedTuple):
    """An unsound miniblock, and what is wrong with it."""

    mark: Mark
    reason: str


class Outcome(NamedTuple):
    """What a pass does to a stream. `state` is None where nothing is to be written; `minipool` says to deliver it too. `genesis`
    came before the first miniblock that is delivered, only to know the stream by."""

    case: str
    state: State | None
    delivered: tuple[Delivered, ...] = ()
    genesis: Mark | None = None
    gap: Gap | None = None
    quarantined: Quarantined | None = None
    minipool: bool = False


class Agreement(NamedTuple):
    """Where answer and history part: deliver `marks[start:]`, which follow `base` where that is known."""

    case: str
    start: int
    base: tuple[int, bytes] | None
    gap: Gap | None = None


def advance(state: State | None, delivery: Delivery, history: History) -> Outcome:
    """The outcome of a delivery. The caller leaves out events whose hash was delivered before."""
    if not delivery.marks:
        return Outcome(FOLLOWS, None, minipool=state is not None and state.stopped is None and delivery.whole)
    found = agree(state, delivery, history)
    if state is not None and state.stopped is None and found.case == FOLLOWS and found.start == len(delivery.marks):
        return Outcome(FOLLOWS, None, minipool=delivery.whole)  # nothing new, as with most streams
    before = state if state is not None and state.prev_miniblock_hash is not None else None
    sound, quarantined = _sound(delivery.marks[found.start :], found.base)
    old = found.case != FOLLOWS or delivery.catch_up or not delivery.whole or found.gap is not None
    old = old or (found.start < delivery.own and bool(sound))
    delivered = tuple(Delivered(mark, old, found.case == DUPLICATE) for mark in sound)
    after = _state_after(before, found, delivery, sound, quarantined)
    if quarantined is not None and state is not None and state.stopped == quarantined.reason:
        quarantined = None  # it is there already
    return Outcome(
        found.case,
        None if after == state else after,
        delivered,
        delivery.marks[0] if found.case == FIRST and sound and found.start and delivery.marks[0].number == 0 else None,
        found.gap if sound else None,
        quarantined,
        minipool=delivery.whole and after is not None and after.stopped is None,
    )


def agree(state: State | None, delivery: Delivery, history: History) -> Agreement:
    """The one rule: the highest miniblock that answer and history have in common."""
    marks = delivery.marks
    if state is None or state.prev_miniblock_hash is None:
        return Agreement(FIRST, _snapshot_place(delivery), None)
    for at in range(len(marks) - 1, -1, -1):
        mark = marks[at]
        if not _holds(state, history, mark.number, mark.hash):
            continue
        case = _case(state, mark.number, mark.hash, at == len(marks) - 1)
        if case == REWOUND and _is_gone(state, history, mark.number + 1, marks[-1].number):
            return _flagged(delivery)
        return Agreement(case, at + 1, (mark.number, mark.hash))
    first = marks[0]
    if first.number > 0 and _holds(state, history, first.number - 1, first.prev_hash):
        return Agreement(_case(state, first.number - 1, first.prev_hash, False), 0, (first.number - 1, first.prev_hash))
    if first.number > state.minipool_gen:
        gap = Gap(state.minipool_gen, first.number, TRIMMED if delivery.live else NOT_RECORDED)
        return Agreement(FOLLOWS, 0, None, gap)
    if first.number == 0 and not first.problem:
        return Agreement(RECREATED, 0, None)
    if first.problem and first.number in (-1, state.minipool_gen):
        return Agreement(FOLLOWS, 0, (state.minipool_gen - 1, state.prev_miniblock_hash))
    if _is_gone(state, history, first.number - 1, marks[-1].number):
        return _flagged(delivery)
    return Agreement(REWOUND, 0, None, Gap(0, first.number, DIVERGED))


def _holds(state: State, history: History, number: int, hash_: bytes) -> bool:
    if number == 0 and hash_ == state.genesis_hash:
        return True
    return (number, hash_) == (state.minipool_gen - 1, state.prev_miniblock_hash) or history.held(number, hash_)


def _is_gone(state: State, history: History, low: int, high: int) -> bool:
    """We delivered miniblocks that could be compared with the server's from `low` to `high`, but no longer know them."""
    compared = range(max(low, state.first_miniblock), min(high + 1, state.minipool_gen - 1))
    return bool(compared) and not any(history.knows(number) for number in compared)


def _flagged(delivery: Delivery) -> Agreement:
    """From the snapshot on; a live delivery begins where raw, which holds more, found the agreement."""
    return Agreement(DUPLICATE, 0 if delivery.live else _snapshot_place(delivery), None)


def _case(state: State, number: int, hash_: bytes, is_last: bool) -> str:
    if (number, hash_) == (state.minipool_gen - 1, state.prev_miniblock_hash):
        return FOLLOWS
    return BEHIND if is_last and number < state.minipool_gen - 1 else REWOUND


def _snapshot_place(delivery: Delivery) -> int:
    """Where the snapshot is; the first miniblock of the answer if it says nothing sensible."""
    place = delivery.own + delivery.snapshot
    return place if place < len(delivery.marks) else min(delivery.own, len(delivery.marks) - 1)


def _sound(marks: Sequence[Mark], base: tuple[int, bytes] | None) -> tuple[list[Mark], Quarantined | None]:
    """Miniblocks up to the first that is unsound or does not follow the one before."""
    sound: list[Mark] = []
    for mark in marks:
        reason = mark.problem or (_unlinked(mark, base) if base else None)
        if reason:
            return sound, Quarantined(mark, f"miniblock {_name(mark, base)}: {reason}")
        base = (mark.number, mark.hash)
        sound.append(mark)
    return sound, None


def _unlinked(mark: Mark, base: tuple[int, bytes]) -> str | None:
    number, hash_ = base
    if mark.number != number + 1:
        return f"it came where {number + 1} is expected"
    if mark.prev_hash != hash_:
        return f"it follows {short(mark.prev_hash)}, miniblock {number} is {short(hash_)}"
    return None


def _name(mark: Mark, base: tuple[int, bytes] | None) -> str:
    if mark.number >= 0:
        return f"{mark.number} ({short(mark.hash)})"
    return f"{base[0] + 1}" if base else "of an unknown number"


def _state_after(
    before: State | None, found: Agreement, delivery: Delivery, sound: Sequence[Mark], quarantined: Quarantined | None
) -> State | None:
    stopped = quarantined.reason if quarantined else None
    genesis = next((mark.hash for mark in delivery.marks if mark.number == 0 and not mark.problem), None)
    if before is None:
        if not sound and quarantined is None:
            return None
        number = sound[0].number if sound else max(0, delivery.marks[found.start].number)
        before = State(number, None, number, number, genesis)
    reason = found.case if found.case not in (FIRST, FOLLOWS) else before.reset_reason
    if found.case == BEHIND:
        return replace(before, reset_reason=BEHIND, stopped=None)
    last = (sound[-1].number, sound[-1].hash) if sound else found.base if found.case == REWOUND else None
    return State(
        minipool_gen=last[0] + 1 if last else before.minipool_gen,
        prev_miniblock_hash=last[1] if last else before.prev_miniblock_hash,
        snapshot_miniblock=_snapshot_after(before, found, sound),
        first_miniblock=_first_after(before, found, sound),
        genesis_hash=genesis if genesis and (found.case in (FIRST, RECREATED)) else before.genesis_hash,
        reset_reason=reason if last else before.reset_reason,
        stopped=stopped,
    )


def _first_after(before: State, found: Agreement, sound: Sequence[Mark]) -> int:
    """Where the unbroken line begins that ends with the last miniblock delivered."""
    if not sound:
        return before.first_miniblock
    return sound[0].number if found.base is None else min(before.first_miniblock, sound[0].number)


def _snapshot_after(before: State, found: Agreement, sound: Sequence[Mark]) -> int:
    """The newest miniblock with a snapshot; it goes back only with the branch that held it."""
    kept = before.snapshot_miniblock
    if found.case in (FIRST, RECREATED, DUPLICATE) and sound:
        kept = sound[0].number
    elif found.case == REWOUND and found.base is not None:
        kept = min(kept, found.base[0])
    return max((mark.number for mark in sound if mark.has_snapshot), default=kept)
