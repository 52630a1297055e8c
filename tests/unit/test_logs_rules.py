"""When segments are merged: soon enough, rarely enough, and never what is large."""

import random
from datetime import datetime, timedelta, timezone
from itertools import pairwise

from chainlake.logs.rules import COLD, HOT, MergePolicy, Segment, mode_of, next_merge

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
POLICY = MergePolicy(few=4, age=timedelta(seconds=600), large=1000)


def run_of(*entries: int, start: int = 0, age: float = 0) -> list[Segment]:
    return [Segment(start + i, start + i + 1, n, NOW - timedelta(seconds=age)) for i, n in enumerate(entries)]


def test_few_fresh_segments_wait_and_old_ones_do_not() -> None:
    assert next_merge(run_of(5, 5, 5), [], None, NOW, POLICY) is None
    assert next_merge(run_of(5, age=601), [], None, NOW, POLICY) is None, "one alone is as good as merged"
    due = next_merge(run_of(5, 5, age=601), [], None, NOW, POLICY)
    assert due and (due.back_to, due.base, due.height) == (None, 0, 2)
    full = next_merge(run_of(5, 5, 5, 5), [], None, NOW, POLICY)
    assert full and (full.base, full.height) == (0, 4)


def test_large_segments_are_passed_over() -> None:
    assert next_merge(run_of(5000, 5000, 5, age=999), [], None, NOW, POLICY) is None
    due = next_merge(run_of(5000, 5, 5, 5000, 5, age=999), [], None, NOW, POLICY)
    assert due and (due.base, due.height) == (1, 3)


def test_what_is_not_larger_is_merged_again_with_what_came_after() -> None:
    index = run_of(*[10] * 12)
    done = [Segment(0, 4, 40, NOW), Segment(4, 8, 40, NOW)]
    due = next_merge(index, done, 8, NOW, POLICY)
    assert due and (due.back_to, due.base, due.height) == (0, 0, 12)
    big = [Segment(0, 8, 800, NOW)]
    due = next_merge(index, big, 8, NOW, POLICY)
    assert due and (due.back_to, due.base, due.height) == (None, 8, 12)


def test_a_long_life_rewrites_each_entry_few_times_and_leaves_few_segments() -> None:
    rng, policy = random.Random(3), MergePolicy(few=8, large=1 << 30)
    index: list[Segment] = []
    merged: list[Segment] = []
    written = 0
    for height in range(2000):
        index.append(Segment(height, height + 1, rng.randrange(1, 100), NOW))
        due = next_merge(index, merged, merged[-1].height if merged else None, NOW, policy)
        if due:
            merged = [segment for segment in merged if segment.height <= due.base]
            entries = sum(s.entries for s in index if due.base <= s.base and s.height <= due.height)
            merged.append(Segment(due.base, due.height, entries, NOW))
            written += entries
    total = sum(segment.entries for segment in index)
    assert len(merged) <= 12 and written < 12 * total
    assert all(a.height == b.base for a, b in pairwise(merged))


def test_hysteresis_of_hot_and_cold() -> None:
    assert [
        mode_of(share, before) for share, before in [(0.02, None), (0.005, HOT), (0.005, COLD), (0.005, None), (0.0005, HOT)]
    ] == [
        HOT,
        HOT,
        COLD,
        COLD,
        COLD,
    ]
