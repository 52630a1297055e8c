"""The demo bot: whenever its process ends, the next one goes on with the first event that was not dealt with."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from chainlake.demo import bot
from chainlake.sync.query import Notification


class Town:
    """A lake with so many notifications; keeps what it was asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[tuple[int, int, str]] = []

    def notifications(self, from_offset: int, limit: int, chain: str) -> list[Notification]:
        self.asked.append((from_offset, limit, chain))
        found = range(from_offset, min(self.count, from_offset + limit - 1) + 1)
        return [Notification(n, b"\x20", n, 0, n.to_bytes(4, "big"), b"event", False, False, False) for n in found]


def events(count: int) -> list[tuple[int, bytes]]:
    return [(n, n.to_bytes(4, "big")) for n in range(1, count + 1)]


def test_events_are_dealt_with_page_by_page_and_later_ones_by_the_next_run(tmp_path: Path) -> None:
    town: Any = Town(bot.PAGE * 2 + 7)
    assert bot.work(town, tmp_path / "bot.db", "town") == town.count
    assert town.asked == [(start, bot.PAGE, "town") for start in (1, 51, 101, 108)]
    town.count += 3
    assert bot.work(town, tmp_path / "bot.db", "town") == 3 and bot.work(town, tmp_path / "bot.db", "town") == 0
    assert bot.done(tmp_path / "bot.db") == events(town.count)


@pytest.mark.parametrize("dies_after", [1, bot.PAGE, bot.PAGE + 1, 99])
def test_a_bot_that_died_anywhere_goes_on_with_the_next_event(
    dies_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    town: Any = Town(100)
    left = [dies_after]

    def dies(_: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(bot, "failpoint", dies)
        with pytest.raises(KeyboardInterrupt):
            bot.work(town, tmp_path / "bot.db")
    assert bot.done(tmp_path / "bot.db") == events(dies_after)
    assert bot.work(town, tmp_path / "bot.db") == 100 - dies_after
    assert bot.done(tmp_path / "bot.db") == events(100)


def test_no_event_is_dealt_with_twice_even_if_it_is_given_twice(tmp_path: Path) -> None:
    class Repeats(Town):
        def notifications(self, from_offset: int, limit: int, chain: str) -> list[Notification]:
            return super().notifications(max(1, from_offset - 1), limit, chain)

    town: Any = Repeats(3)
    bot.work(Town(3), tmp_path / "bot.db")  # type: ignore[arg-type]
    with pytest.raises(sqlite3.IntegrityError):
        bot.work(town, tmp_path / "bot.db")
    assert bot.done(tmp_path / "bot.db") == events(3)
