"""When to merge segments of the index, and when a signature is hot. Pure rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

STEP_BLOCKS = 1_000
WINDOW_STEPS = 50
HOT, COLD = "hot", "cold"
HOT_ABOVE, COLD_BELOW = 0.01, 0.001


@dataclass(frozen=True)
class Segment:
    """A part of the index that one commit wrote: heights in (base, height], and how many entries."""

    base: int
    height: int
    entries: int
    committed_at: datetime


@dataclass(frozen=True)
class MergePolicy:
    """Merge at `few` segments, or as soon as two have grown older than `age`; leave alone what is `large`."""

    few: int = 8
    age: timedelta = timedelta(seconds=600)
    large: int = 4_000_000


@dataclass(frozen=True)
class Merge:
    """What to do next: take the merged segments back to `back_to`, pass over what is large up to `base`, merge (base, height]."""

    back_to: int | None
    base: int
    height: int


def next_merge(
    segments: Sequence[Segment], merged: Sequence[Segment], head: int | None, now: datetime, policy: MergePolicy
) -> Merge | None:
    """The next merge, if one is due.

    `segments` are those of the index in order, `merged` those that earlier merges made, `head` is how far merging has come. A
    merged segment that is not larger than what comes after it is merged again with it: so sizes grow by doubling, and an entry
    is rewritten a logarithmic number of times.
    """
    ahead = [segment for segment in segments if head is None or segment.base >= head]
    while ahead and ahead[0].entries >= policy.large:
        ahead = ahead[1:]
    fresh = _until_large(ahead, policy.large)
    if len(fresh) < policy.few and not (len(fresh) > 1 and now - fresh[0].committed_at >= policy.age):
        return None
    base, entries, back_to = fresh[0].base, sum(s.entries for s in fresh), None
    for last in reversed(merged):
        if last.height != base or last.entries > entries or last.entries + entries > policy.large:
            break
        base = back_to = last.base
        entries += last.entries
    return Merge(back_to, base, fresh[-1].height)


def _until_large(segments: Sequence[Segment], large: int) -> list[Segment]:
    """Small segments from the first on, until one is large or they are together."""
    found: list[Segment] = []
    for segment in segments:
        if segment.entries >= large or sum(s.entries for s in found) >= large:
            break
        found.append(segment)
    return found


def mode_of(share: float, before: str | None) -> str:
    """Hot or cold by the share of blocks that have the signature; between the limits it stays what it was."""
    if share > HOT_ABOVE:
        return HOT
    if share < COLD_BELOW:
        return COLD
    return before or COLD
