"""What a long run tells: a bar for people, JSON lines for machines."""

import io
import json
import re
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.lake.progress import BAR, Progress, of_query, side_by_side


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that pass only when a test says so."""
    now = [100.0]
    monkeypatch.setattr("chainlake.lake.progress.time.monotonic", lambda: now[0])
    return now


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_step_is_one_json_line_with_everything_that_identifies_it() -> None:
    stream = io.StringIO()
    shown = Progress("silver.cage", stream=stream)
    shown.phase("append", 0.12345, chain="preprod", height=120, commit=77, epoch=3, seq=9)
    shown.phase("ledger", 1, chain="preprod", height=120, commit=77, epoch=3, seq=9)
    first, second = lines(stream)
    assert set(first) == {"at", "stage", "chain", "height", "commit", "epoch", "seq", "phase", "seconds"} == set(second)
    at = datetime.fromisoformat(first.pop("at"))
    assert at.utcoffset() == timedelta(0)
    assert first == {
        "stage": "silver.cage",
        "chain": "preprod",
        "height": 120,
        "commit": 77,
        "epoch": 3,
        "seq": 9,
        "phase": "append",
        "seconds": 0.123,
    }
    assert (second["phase"], second["seconds"]) == ("ledger", 1)


def test_in_a_notebook_each_commit_is_a_line_that_people_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON on a red ground below every cell is what a reader would see instead."""
    below, errors = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})(), io.StringIO()
    monkeypatch.setattr("sys.stdout", below)
    monkeypatch.setattr("sys.stderr", errors)
    shown = Progress("raw.cage")
    same = {"commit": 77, "epoch": 3}
    shown.phase("rollback", 0.02, chain="preprod", height=118, seq=8, why="the source went another way", **same)
    for phase, seconds in (("read", 1.26), ("append", 2)):
        shown.phase(phase, seconds, chain="preprod", height=120, seq=9, **same)
    shown.advance(2)
    shown.phase("degraded", 0.5, chain="preprod", height=121, error="block 121 has another parent")
    shown.close()
    assert below.getvalue().splitlines() == [
        "raw.cage preprod, block 118: rollback 0.0 s (the source went another way)",
        "raw.cage preprod, block 120: read 1.3 s, append 2.0 s",
        "raw.cage preprod, block 121: degraded 0.5 s (block 121 has another parent)",
    ]
    assert errors.getvalue() == ""


def test_a_line_of_text_can_take_the_place_of_the_bar() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        shown = Progress("bench kernel", 12, stream, unit="results")
        shown.advance(0)
        shown.clear()
    assert terminal.getvalue().endswith("\r\x1b[K") and "0/12 results" in terminal.getvalue()
    assert file.getvalue() == ""


def test_without_a_terminal_there_is_no_bar() -> None:
    stream = io.StringIO()
    shown = Progress("raw.logs", 10, stream)
    shown.advance(5)
    shown.close()
    assert stream.getvalue() == ""


def test_on_a_terminal_there_is_a_bar_with_rate_and_time_left(clock: list[float]) -> None:
    stream = Terminal()
    shown = Progress("raw.logs", 4000, stream)
    clock[0] += 2
    shown.advance(1000)
    text = stream.getvalue()
    assert text.startswith("\r") and text.endswith("\x1b[K") and "\n" not in text
    assert text.strip("\r\x1b[K") == f"raw.logs  {'█' * 6}{'░' * 18}  1,000/4,000 blocks  500 blocks/s  6 s left"
    shown.phase("append", 1)
    assert stream.getvalue() == text, "the bar is not broken by steps"
    clock[0] += 6
    shown.advance(3000)
    assert f"{'█' * BAR}  4,000/4,000 blocks  500 blocks/s  0 s left" in stream.getvalue()
    shown.close()
    assert stream.getvalue().endswith("\n")


def test_the_total_may_become_known_or_change_later(clock: list[float]) -> None:
    shown = Progress("raw.logs", stream=Terminal())
    clock[0] += 1
    shown.advance(100)
    assert shown.line() == "raw.logs  100 blocks  100 blocks/s"
    shown.advance(100, total=400)
    assert "200/400 blocks" in shown.line()
    shown.advance(300, total=400)
    assert f"{'█' * BAR}  500/400 blocks" in shown.line() and shown.line().endswith("0 s left"), "more than expected is no harm"
    assert re.search("[█░]+", shown.line()) is not None


def test_a_bar_before_the_first_block_does_not_divide_by_zero(clock: list[float]) -> None:
    assert "0/5 blocks  0 blocks/s  0 s left" in Progress("raw.logs", 5, Terminal()).line()
    assert clock == [100.0]


def test_closing_without_blocks_leaves_no_empty_line() -> None:
    stream = Terminal()
    Progress("raw.logs", 5, stream).close()
    assert stream.getvalue() == ""


def test_other_work_has_a_bar_too_and_slow_things_are_told_in_seconds_each(clock: list[float]) -> None:
    stream = Terminal()
    for _ in Progress("verify", 2, stream, unit="tables").over(["one", "two"]):
        clock[0] += 4
    bars = stream.getvalue().split("\r")
    assert bars[1].startswith(f"verify  {'█' * 12}{'░' * 12}  1/2 tables  4 s each  4 s left")
    assert bars[2].startswith(f"verify  {'█' * BAR}  2/2 tables  4 s each  0 s left") and bars[2].endswith("\n")


def test_work_side_by_side_keeps_its_order_and_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    assert side_by_side(lambda number: number * number, list(range(20)), "gc", "tables") == [n * n for n in range(20)]
    assert "20/20 tables" in stream.getvalue() and stream.getvalue().endswith("\n")
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda number: 1 // number, [1, 0], "gc", "tables")


class Session:
    """A Spark Connect session, as far as its progress goes."""

    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def registerProgressHandler(self, handler: Any) -> None:
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Any) -> None:
        self.handlers.remove(handler)

    def tell(self, *stages: tuple[int, int]) -> None:
        """So many tasks of so many are done, stage by stage; called as Spark's client does."""
        known = [SimpleNamespace(num_completed_tasks=done, num_tasks=total) for done, total in stages]
        for handler in self.handlers:
            handler(stages=known, inflight_tasks=1, operation_id=None, done=False)


Session.__module__ = "pyspark.sql.connect.session"


def test_a_query_shows_a_bar_of_sparks_tasks_and_takes_it_away() -> None:
    session, stream = Session(), Terminal()
    with of_query(session, stream):
        session.tell()
        assert stream.getvalue() == "", "nothing is known yet"
        session.tell((1, 4), (0, 4))
        session.tell((4, 4), (2, 4))
    assert "1/8 tasks" in stream.getvalue() and "6/8 tasks" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K") and session.handlers == []


def test_a_query_shows_no_bar_to_a_program_or_without_spark_connect() -> None:
    session, stream = Session(), Terminal()
    with of_query(session, io.StringIO()), of_query(object(), stream):
        assert session.handlers == []
    assert stream.getvalue() == ""
