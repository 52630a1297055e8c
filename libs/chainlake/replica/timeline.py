"""When Meta reached which index, and so when a waiting entry may go on; and how far a shard is at each delivery."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
NEVER = -1
"""In place of a delivery: the entry waits on."""


class Timeline(NamedTuple):
    """The Meta index before a batch of deliveries, and after each of those that advanced it."""

    before: int
    heights: Sequence[int] = ()
    indexes: Sequence[int] = ()

    def at(self, heights: Numbers) -> Numbers:
        """The Meta index after each of the deliveries."""
        place = np.searchsorted(_numbers(self.heights), heights, "right")
        return _numbers([self.before, *self.indexes])[place]

    def reached(self, watermarks: Numbers, received: Numbers) -> Numbers:
        """The delivery in which each entry is carried out: the first from its own on with enough Meta, or `NEVER`."""
        place = np.searchsorted(_numbers(self.indexes), watermarks, "left")
        later = _numbers([*self.heights, NEVER])[place]
        return np.where(watermarks <= self.at(received), received, later)

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


class Waiting(NamedTuple):
    """An entry that waits."""

    log_index: int
    watermark: int
    received: int


class Placed(NamedTuple):
    """Entries of a shard by log index: when each was received, and when it is carried out."""

    log_index: Numbers
    log_term: Numbers
    watermark: Numbers
    received: Numbers
    executed: Numbers


def progress(before: Progress, entries: Placed, waiting: Waiting | None, low: int) -> list[tuple[int, Progress]]:
    """The progress after each delivery that changed it. `entries` are those that were received or carried out in the batch (after
    `low`), by log index; `waiting` is the first that was received earlier and waits on."""
    fresh = np.flatnonzero(entries.received > low)
    received, executed = entries.received[fresh], entries.executed[entries.executed != NEVER]
    queue = [entries.log_index, entries.watermark, entries.received]
    if waiting is not None:
        place = np.searchsorted(entries.log_index, waiting.log_index)
        queue = [np.insert(column, place, value) for column, value in zip(queue, waiting, strict=True)]
    indexes, watermarks, since = queue
    heights = np.unique(np.concatenate([received, executed]))
    found, now = [], before
    taken, done = np.searchsorted(received, heights, "right"), np.searchsorted(executed, heights, "right")
    for height, count, last in zip(heights.tolist(), taken.tolist(), done.tolist(), strict=True):
        if count:
            at = fresh[count - 1]
            now = now._replace(
                applied_index=int(entries.log_index[at]),
                applied_term=int(entries.log_term[at]),
                watermark=int(entries.watermark[at]),
            )
        if last:
            now = now._replace(executed_index=int(indexes[last - 1]))
        following = (int(watermarks[last]), int(since[last])) if now.pending else (None, None)
        now = now._replace(waits_for=following[0], waiting_since=following[1])
        found.append((height, now))
    return found


def _numbers(values: Sequence[int]) -> Numbers:
    return np.array(values, np.int64)
