"""What the lake believed on a day, told by the ledger alone."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from chainlake.errors import BadInput
from chainlake.lake.beliefs import MOST_DAYS, believed, by_day, end_of
from chainlake.lake.records import Records, open_records
from tests.unit.control_tables import commit_row, made_lake, with_control

MONDAY = datetime(2026, 1, 5, tzinfo=timezone.utc)


def row(seq: int, base: int, height: int, after: timedelta, kind: str = "advance", why: str = "") -> dict[str, Any]:
    rows = [("raw_blocks", max(0, height - base))]
    return {**commit_row(seq, base, height), "kind": kind, "rows": rows, "committed_at": MONDAY + after, "why": why}


WEEK = [
    row(1, -1, 9, timedelta(hours=10)),
    row(2, 9, 19, timedelta(hours=23, minutes=59, seconds=59, microseconds=999_999)),
    row(3, 19, 19, timedelta(days=1), "rollback", "lease taken over from h"),
    row(4, 19, 9, timedelta(days=3, hours=8), "rollback", "the source was wrong"),
    row(5, 9, 14, timedelta(days=3, hours=9)),
]
"""Blocks 0 to 19 on Monday, nothing on Tuesday but a writer that took over, half of it taken back on Thursday."""


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    monkeypatch.setattr("chainlake.lake.server.ensure", lambda home: pytest.fail("Spark was started"))
    return made(tmp_path, WEEK)


def made(home: Path, commits: list[dict[str, Any]]) -> Records:
    found = open_records(with_control(made_lake(home, commits)))
    assert found is not None
    return found


def test_each_day_ends_with_what_was_believed_then(records: Records) -> None:
    days = by_day(records, "raw.logs", "c")
    assert days.to_dict("list") == {
        "day": ["2026-01-05", "2026-01-06", "2026-01-07", "2026-01-08"],
        "head": [19, 19, 19, 14],
        "rows": [20, 20, 20, 15],
        "commits": [2, 0, 0, 1],
        "rollbacks": [0, 0, 0, 1],
        "why": ["", "lease taken over from h", "", "the source was wrong"],
    }


def test_the_lake_as_it_stood_at_the_end_of_a_day(records: Records) -> None:
    (then,) = believed(records, end_of("2026-01-07")).to_dict("records")
    assert then == {
        "stage": "raw.logs",
        "chain": "c",
        "head": 19,
        "rows": 20,
        "commits": 2,
        "rollbacks": 0,
        "head_now": 14,
        "changes_since": 2,
    }
    before = believed(records, end_of("2026-01-04"))
    assert before["head"].isna().all() and before["rows"].tolist() == [0]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-31", datetime(2026, 1, 31, 23, 59, 59, 999_999, timezone.utc)),
        (" 2026-01-31T12:00:00Z ", datetime(2026, 1, 31, 12, tzinfo=timezone.utc)),
        ("2026-01-31T12:00", datetime(2026, 1, 31, 12, tzinfo=timezone.utc)),
        ("2026-01-31T12:00+02:00", datetime(2026, 1, 31, 10, tzinfo=timezone.utc)),
    ],
)
def test_a_day_ends_at_its_last_moment_and_a_time_is_itself(text: str, at: datetime) -> None:
    assert end_of(text) == at


@pytest.mark.parametrize("text", ["", "tuesday", "2026-02-30", "31.1.2026"])
def test_what_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is neither a day nor a time: write it like 2026-01-31"):
        end_of(text)


@pytest.mark.parametrize(
    ("apart", "step", "first"),
    [
        (timedelta(hours=2), "hour", "2026-01-05 00:00"),
        (timedelta(minutes=2), "minute", "2026-01-05 00:00"),
        (timedelta(seconds=2), "second", "00:00:00"),
        (timedelta(0), "second", "00:00:00"),
    ],
)
def test_a_young_lake_goes_by_shorter_steps(apart: timedelta, step: str, first: str, tmp_path: Path) -> None:
    times = by_day(made(tmp_path, [row(1, -1, 9, timedelta(0)), row(2, 9, 19, apart)]), "raw.logs", "c")
    assert times.columns[0] == step and times[step][0] == first and times["head"].tolist()[-1] == 19
    assert len(times) == (3 if apart else 1)


def test_an_old_lake_shows_its_last_days(tmp_path: Path) -> None:
    days = by_day(made(tmp_path, [row(1, -1, 9, timedelta(0)), row(2, 9, 19, timedelta(days=5_000))]), "raw.logs", "c")
    assert len(days) == MOST_DAYS and days["head"].tolist()[-2:] == [9, 19]


def test_unknown_names_are_refused(records: Records) -> None:
    with pytest.raises(BadInput, match=r"unknown stage 'raw.weather'"):
        by_day(records, "raw.weather", "c")
    with pytest.raises(BadInput, match=r"raw.logs has nothing of chain 'd'"):
        by_day(records, "raw.logs", "d")
    with pytest.raises(BadInput, match="'week' is no length of time: choose one of day"):
        by_day(records, "raw.logs", "c", "week")
