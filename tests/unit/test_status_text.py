"""`lake status` at a glance."""

import io
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from chainlake.cli.status_text import ago, may_colour, status_text
from chainlake.lake.status import StageStatus, Status

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
FINE = StageStatus("raw.logs", "demo", 120, "0x" + "ab" * 32, 0, 3, 3, 1, "ok", "", None, NOW.isoformat())
BEHIND = replace(FINE, stage="gold.logs", lag=20, head=100)
STOPPED = replace(FINE, stage="bronze.logs", health="degraded", reason="block 7 is wrong", head=6)
NEW = StageStatus("raw.cage", "other", None, None, 0, 0, 0, 0, "ok", "", None, None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stages", "first"),
    [
        ([FINE], "all 1 healthy; all caught up"),
        ([FINE, BEHIND], "all 2 healthy; 1 behind their inputs"),
        ([FINE, BEHIND, STOPPED], "1 of 3 stopped, see below; 1 behind their inputs"),
        ([replace(FINE, writer="host:1:2:3")], "all 1 healthy; all caught up; 1 being written now"),
        ([], "no chains yet: make run builds the demo, lake ingest takes in one of yours"),
    ],
)
def test_the_first_line_says_what_matters(stages: list[StageStatus], first: str) -> None:
    assert status_text(Status(stages, 0, 0, None), NOW, colour=False).splitlines()[0] == first


def test_what_stopped_is_said_by_a_word_and_with_its_reason() -> None:
    text = status_text(Status([FINE, STOPPED, NEW], 0, 0, None), NOW, colour=False)
    assert re.search(r"^STOP +bronze\.logs", text, re.MULTILINE) and "bronze.logs demo is degraded: block 7 is wrong" in text
    assert re.search(r"^new +raw\.cage .* never", text, re.MULTILINE)
    assert "\x1b" not in text


def test_rows_that_nobody_counted_are_not_told_as_none() -> None:
    never, counted = Status([FINE], 0, 0, None), Status([FINE], 1500, 10, (NOW - timedelta(days=3)).isoformat())
    said = [status_text(one, NOW, colour=False).splitlines()[-1] for one in (never, counted)]
    assert said[0] == "invisible rows were not counted yet: lake gc --dry-run does"
    assert said[1] == "1,500 invisible rows (10 bytes), counted 3 d ago by lake gc"


def test_a_narrow_terminal_has_fewer_columns_not_broken_lines() -> None:
    status = Status([replace(FINE, writer="host:1234:56789:0123456789abcdef"), STOPPED], 0, 0, None)
    whole = status_text(status, NOW, colour=False).splitlines()
    assert max(map(len, whole)) > 80 and whole[2].split()[-1] == "block"
    narrow = status_text(status, NOW, colour=False, width=80).splitlines()
    assert max(map(len, narrow[2:])) <= 80 and narrow[2].split()[-1] == "changed", "the writer does not fit any more"
    assert status_text(status, NOW, colour=False, width=10).splitlines()[2].split() == ["stage", "chain", "head", "behind"]


def test_reasons_with_texts_of_strangers_do_not_command_the_terminal() -> None:
    text = status_text(Status([replace(STOPPED, reason="what \x1b[2J\n this")], 0, 0, None), NOW, colour=False)
    assert "is degraded: what \\x1b[2J\\n this" in text


def test_colour_adds_nothing_but_colour() -> None:
    status = Status([FINE, BEHIND, STOPPED], 0, 0, None)
    coloured = status_text(status, NOW, colour=True)
    assert re.sub(r"\x1b\[\d+m", "", coloured) == status_text(status, NOW, colour=False)
    assert re.findall(r"\x1b\[3(\d)m", coloured) == ["2", "3", "1"]


def test_colour_is_for_terminals_that_want_it() -> None:
    assert may_colour(Terminal(), {"TERM": "xterm"})
    assert not may_colour(io.StringIO(), {}) and not may_colour(Terminal(), {"NO_COLOR": "1"})
    assert not may_colour(Terminal(), {"TERM": "dumb"})


@pytest.mark.parametrize(
    ("past", "text"),
    [
        (timedelta(seconds=5), "5 s ago"),
        (timedelta(minutes=3), "3 min ago"),
        (timedelta(hours=30), "30 h ago"),
        (timedelta(days=9), "9 d ago"),
        (timedelta(seconds=-5), "0 s ago"),
    ],
)
def test_times_are_told_in_the_unit_that_says_enough(past: timedelta, text: str) -> None:
    assert ago((NOW - past).isoformat(), NOW) == text
