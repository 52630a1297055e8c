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
stream stops before it until a sound one comes. One that was sound when it was delivered and no longer is goes there too, but
stops nothing: what follows is linked to what we hold. State moves only with what was delivered.
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
    gaps: tuple[Gap, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
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
        return _nothing_new(state, delivery)
    found = agree(state, delivery, history)
    spoilt = _spoilt(state, delivery.marks[: found.start], found.base, history) if state is not None and found.base else ()
    if state is not None and state.stopped is None and found.case == FOLLOWS and found.start == len(delivery.marks):
        return Outcome(FOLLOWS, None, quarantined=spoilt, minipool=delivery.whole)  # nothing new, as with most streams
    before = state if state is not None and state.prev_miniblock_hash is not None else None
    sound, holes, bad = sound_line(delivery.marks[found.start :], found.base, delivery.live)
    gaps = (*filter(None, [found.gap if sound else None]), *holes)
    old = found.case != FOLLOWS or delivery.catch_up or not delivery.whole or bool(gaps)
    old = old or (found.start < delivery.own and bool(sound))
    delivered = tuple(Delivered(mark, old, found.case == DUPLICATE) for mark in sound)
    after = _state_after(before, found, delivery, sound, bad)
    if after is not None and holes:
        after = replace(after, first_miniblock=holes[-1].end)
    is_known = bad is not None and state is not None and state.stopped == bad.reason
    return Outcome(
        found.case,
        None if after == state else after,
        delivered,
        delivery.marks[0] if found.case == FIRST and sound and found.start and delivery.marks[0].number == 0 else None,
        gaps,
        spoilt if bad is None or is_known else (*spoilt, bad),
        minipool=delivery.whole and after is not None and after.stopped is None,
    )


def _nothing_new(state: State | None, delivery: Delivery) -> Outcome:
    """No miniblock came. A node that was asked, and stands where we do, no longer has what stopped the stream."""
    if state is None or not delivery.whole:
        return Outcome(FOLLOWS, None)
    after = replace(state, stopped=None) if state.stopped and state.prev_miniblock_hash and delivery.live else None
    return Outcome(FOLLOWS, after, minipool=(after or state).stopped is None)


def agree(state: State | None, delivery: Delivery, history: History) -> Agreement:
    """The one rule: the highest miniblock that answer and history have in common."""
    marks = delivery.marks
    if state is None or state.prev_miniblock_hash is None:
        return Agreement(FIRST, _snapshot_place(delivery), None)
    for at in range(len(marks) - 1, -1, -1):
        base = _common(state, history, marks[at], delivery.whole)
        if base is None:
            continue
        start = at + 1 if base[0] == marks[at].number else at
        case = _case(state, *base, start == len(marks))
        if case != REWOUND:
            return Agreement(case, start, base)
        if base[0] < state.minipool_gen - 1 and (beyond := _beyond(state, delivery, start)):
            return beyond
        if _is_gone(state, history, base[0] + 1, marks):
            return _flagged(delivery)
        return Agreement(case, start, base)
    if beyond := _beyond(state, delivery, 0):
        return beyond
    first = marks[0]
    if first.problem:
        return Agreement(FOLLOWS, 0, (state.minipool_gen - 1, state.prev_miniblock_hash))
    if first.number == 0:
        return Agreement(RECREATED, 0, None)
    if _is_gone(state, history, first.number - 1, marks):
        return _flagged(delivery)
    return Agreement(REWOUND, 0, None, Gap(0, first.number, DIVERGED))


def _common(state: State, history: History, mark: Mark, whole: bool) -> tuple[int, bytes] | None:
    """What a miniblock shows that we have in common with the server: itself, or the one it follows. An unsound one shows nothing
    where it is what stops the stream."""
    if mark.problem and not whole:
        return None
    if _holds(state, history, mark.number, mark.hash):
        return mark.number, mark.hash
    linked = not mark.problem and mark.number > 0 and _holds(state, history, mark.number - 1, mark.prev_hash)
    return (mark.number - 1, mark.prev_hash) if linked else None


def _spoilt(state: State, marks: Sequence[Mark], base: tuple[int, bytes], history: History) -> tuple[Quarantined, ...]:
    """Miniblocks that were delivered, and are no longer what they were."""
    found = []
    for mark in marks:
        is_same = (mark.number, mark.hash) == base or not history.knows(mark.number)
        is_other = not is_same and not _holds(state, history, mark.number, mark.hash)
        if reason := mark.problem or ("it is not the one that was delivered" if is_other else None):
            found.append(Quarantined(mark, f"miniblock {_name(mark, None)}: {reason}"))
    return tuple(found)


def _holds(state: State, history: History, number: int, hash_: bytes) -> bool:
    if number == 0 and hash_ == state.genesis_hash:
        return True
    return (number, hash_) == (state.minipool_gen - 1, state.prev_miniblock_hash) or history.held(number, hash_)


def _beyond(state: State, delivery: Delivery, at: int) -> Agreement | None:
    """An answer that goes on beyond our head: what is between is gone. A recording may show some of ours before that."""
    first = delivery.marks[at].number
    if first <= state.minipool_gen or (at and delivery.live):
        return None
    return Agreement(FOLLOWS, at, None, Gap(state.minipool_gen, first, TRIMMED if delivery.live else NOT_RECORDED))


def _is_gone(state: State, history: History, low: int, marks: Sequence[Mark]) -> bool:
    """We delivered miniblocks that could be compared with those of the server from `low` on, but no longer know them."""
    shown = {number for mark in marks for number in (mark.number - 1, mark.number)}
    compared = [number for number in shown if max(low, state.first_miniblock) <= number < state.minipool_gen - 1]
    return bool(compared) and not any(history.knows(number) for number in compared)


def _flagged(delivery: Delivery) -> Agreement:
    """From the snapshot on; a live delivery begins where raw, which holds more, found the agreement."""
    return Agreement(DUPLICATE, 0 if delivery.live else _snapshot_place(delivery), None)


def _case(state: State, number: int, hash_: bytes, is_last: bool) -> str:
    if (number, hash_) == (state.minipool_gen - 1, state.prev_miniblock_hash):
        return FOLLOWS
    return BEHIND if is_last and number < state.minipool_gen - 1 else REWOUND


def _snapshot_place(delivery: Delivery) -> int:
    """Where the snapshot is, or the last one before: recordings may be out of order. The first miniblock of the answer if it says
    nothing sensible."""
    last = len(delivery.marks) - 1
    if delivery.own + delivery.snapshot > last:
        return min(delivery.own, last)
    places = range(delivery.own + delivery.snapshot, delivery.own - 1, -1)
    return next((place for place in places if delivery.marks[place].has_snapshot), min(delivery.own, last))


def sound_line(
    marks: Sequence[Mark], base: tuple[int, bytes] | None, live: bool
) -> tuple[list[Mark], list[Gap], Quarantined | None]:
    """Miniblocks up to the first that is unsound or does not follow the one before. One that came twice counts once; those that
    were not recorded in between are gaps."""
    sound: list[Mark] = []
    gaps: list[Gap] = []
    came: set[tuple[int, bytes]] = set()
    for mark in marks:
        if not mark.problem and (mark.number, mark.hash) in came:
            continue
        hole = Gap(base[0] + 1, mark.number, NOT_RECORDED) if base and not live and mark.number > base[0] + 1 else None
        reason = mark.problem or (_unlinked(mark, base) if base and hole is None else None)
        if reason:
            return sound, gaps, Quarantined(mark, f"miniblock {_name(mark, base)}: {reason}")
        gaps += [hole] if hole else []
        base = (mark.number, mark.hash)
        came.add(base)
        sound.append(mark)
    return sound, gaps, None


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
    if quarantined is not None and not sound:
        return replace(before, stopped=stopped)
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
