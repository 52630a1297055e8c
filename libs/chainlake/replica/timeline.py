"""When Meta reached which index, and so when a waiting entry may go on; and how far a shard is at each delivery."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class Timeline(NamedTuple):
    """The Meta index before a batch of deliveries, and after each of those that advanced it."""

    before: int
    heights: Sequence[int] = ()
    indexes: Sequence[int] = ()

    def at(self, height: int) -> int:
        """The Meta index after a delivery."""
        place = bisect_right(self.heights, height)
        return self.indexes[place - 1] if place else self.before

    def reached(self, watermark: int, received: int) -> int | None:
        """The delivery in which an entry is carried out: the first from its own on with enough Meta. None: it waits on."""
        if watermark <= self.at(received):
            return received
        place = bisect_left(self.indexes, watermark)
        return self.heights[place] if place < len(self.heights) else None

    @property
    def end(self) -> int:
        """The Meta index after the batch."""
        return self.indexes[-1] if self.indexes else self.before


class Progress(NamedTuple):
    """How far a group is: what was received (applied, in the words of Raft), what was carried out, and what the next entry waits
    for. All between the two is pending."""

    applied_index: int = 0
    applied_term: int = 0
    executed_index: int = 0
    watermark: int = 0
    waits_for: int | None = None
    waiting_since: int | None = None

    @property
    def pending(self) -> int:
        return self.applied_index - self.executed_index


class Placed(NamedTuple):
    """An entry of a shard: when it was received and when it is carried out (None: not yet)."""

    log_index: int
    log_term: int
    watermark: int
    received: int
    executed: int | None


def progress(before: Progress, entries: Sequence[Placed], waiting: Placed | None, low: int) -> list[tuple[int, Progress]]:
    """The progress after each delivery that changed it. `entries` are those that were received or carried out in the batch (after
    `low`), by log index; `waiting` is the first that was received earlier and waits on."""
    fresh = [entry for entry in entries if entry.received > low]
    received = [entry.received for entry in fresh]
    executed = [entry.executed for entry in entries if entry.executed is not None]
    queue = sorted((*entries, *((waiting,) if waiting else ())))
    found, now = [], before
    for height in sorted({*received, *executed}):
        taken, done = bisect_right(received, height), bisect_right(executed, height)
        if taken:
            last = fresh[taken - 1]
            now = now._replace(applied_index=last.log_index, applied_term=last.log_term, watermark=last.watermark)
        if done:
            now = now._replace(executed_index=queue[done - 1].log_index)
        following = queue[done] if now.pending else None
        waits_for, since = (following.watermark, following.received) if following else (None, None)
        now = now._replace(waits_for=waits_for, waiting_since=since)
        found.append((height, now))
    return found
