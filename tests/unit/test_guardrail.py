"""Writers slow down, then stop, when too many rows are invisible."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from chainlake.errors import BadInput
from chainlake.lake.guardrail import Guardrail, Limits, TooManyOrphans, limits_from_environment
from chainlake.lake.stage import OrphanLimit
from chainlake.logs.stages import log_stages, orphan_limits

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
LIMITS = Limits(soft_bytes=100, hard_bytes=200, soft_rows=10, hard_rows=20, pause_seconds=7.5)
OWN = tuple(replace(limit, most=most) for limit, most in zip(orphan_limits(), (40, 60), strict=True))


class Control:
    """control.orphans in memory."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = list(rows)

    def read(self, name: str) -> list[dict[str, Any]]:
        assert name == "orphans"
        return self._rows


def measured(rows: int, size: int, minute: int = 0, table: str = "raw_blocks") -> dict[str, Any]:
    at = START + timedelta(minutes=minute)
    return {"table_name": table, "kind": "orphan", "rows": rows, "bytes": size, "removable": 0, "at": at}


def pauses(
    *rows: dict[str, Any], limits: Limits = LIMITS, since: tuple[int, int] = (0, 0), own: tuple[OrphanLimit, ...] = ()
) -> list[float]:
    """How long a writer was made to wait."""
    slept: list[float] = []
    control: Any = Control(*rows)
    Guardrail(control, limits, slept.append).check("raw.logs", lambda at: since, own)
    return slept


@pytest.mark.parametrize("rows", [[], [measured(0, 0)], [measured(10, 100)], [measured(5, 50), measured(5, 50, table="other")]])
def test_up_to_the_soft_limit_writers_go_on(rows: list[dict[str, Any]]) -> None:
    assert pauses(*rows) == []


@pytest.mark.parametrize(
    "rows", [[measured(11, 0)], [measured(0, 101)], [measured(20, 200)], [measured(6, 0), measured(5, 0, table="b")]]
)
def test_above_the_soft_limit_writers_slow_down(rows: list[dict[str, Any]]) -> None:
    assert pauses(*rows) == [7.5]


@pytest.mark.parametrize("rows", [[measured(21, 0)], [measured(0, 201)], [measured(11, 0), measured(10, 0, table="b")]])
def test_above_the_hard_limit_writers_stop_and_are_told_what_to_do(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(TooManyOrphans, match=r"^raw\.logs does not write: .* invisible rows .*; run lake gc$"):
        pauses(*rows)


@pytest.mark.parametrize("rows", [[], [measured(5, 50)]])
def test_what_was_left_since_the_measurement_counts_too(rows: list[dict[str, Any]]) -> None:
    assert pauses(*rows, since=(5, 50)) == []
    assert pauses(*rows, since=(15, 50)) == [7.5]
    with pytest.raises(TooManyOrphans):
        pauses(*rows, since=(5, 201))


def test_the_time_of_the_measurement_is_what_one_asks_from() -> None:
    asked: list[datetime | None] = []
    for rows in ([], [measured(1, 1, minute=1), measured(1, 1, minute=4)]):
        control: Any = Control(*rows)
        Guardrail(control, LIMITS).check("raw.logs", lambda at: asked.append(at) or (0, 0))
    assert asked == [None, START + timedelta(minutes=4)]


@pytest.mark.parametrize(("part", "limit"), [("manifests", 40), ("tails", 60)])
def test_parts_of_the_log_index_that_no_commit_has_are_limited_by_themselves(part: str, limit: int) -> None:
    def left(rows: int, kind: str = "orphan") -> list[dict[str, Any]]:
        half, rest = rows // 2, rows - rows // 2
        tables = ((f"gold_log_{part}", half), (f"gold_log_{part}_merged", rest))
        return [measured(count, 0, table=name) | {"kind": kind} for name, count in tables]

    limits = Limits(pause_seconds=7.5)
    assert pauses(*left(limit // 2), limits=limits, own=OWN) == pauses(*left(limit + 1), limits=limits) == []
    assert pauses(*left(limit // 2 + 1), limits=limits, own=OWN) == pauses(*left(limit), limits=limits, own=OWN) == [7.5]
    assert pauses(*left(limit + 1, kind="rolled_back"), limits=limits, own=OWN) == []
    with pytest.raises(TooManyOrphans, match=rf"^raw\.logs does not write: {limit + 1} {part} of the log index .*; run lake gc$"):
        pauses(*left(limit + 1), limits=limits, own=OWN)


def test_the_stages_of_the_log_index_have_these_limits_and_operators_may_change_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("MANIFESTS", "TAILS"):
        monkeypatch.delenv(f"LAKE_ORPHAN_HARD_{part}", raising=False)
    found = {stage.name: [limit.most for limit in stage.orphan_limits] for stage in log_stages()}
    assert found == {"bronze.logs": [], "gold.logs": [500_000, 1_000_000], "gold.log_merges": [500_000, 1_000_000]}
    monkeypatch.setenv("LAKE_ORPHAN_HARD_TAILS", "8")
    assert [limit.most for limit in orphan_limits()] == [500_000, 8]


def test_only_the_latest_measurement_counts() -> None:
    assert pauses(measured(1000, 1000, minute=1), measured(1, 1, minute=2), measured(500, 500, minute=0)) == []
    with pytest.raises(TooManyOrphans):
        pauses(measured(1, 1, minute=1), measured(1000, 1000, minute=2))


def test_a_measurement_of_nothing_lets_writers_go_on_again() -> None:
    assert pauses(measured(1000, 1000), measured(0, 0, minute=1, table="")) == []


def test_limits_come_from_the_environment_and_slowing_down_starts_at_half(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BYTES", "ROWS"):
        monkeypatch.delenv(f"LAKE_ORPHAN_HARD_{name}", raising=False)
    monkeypatch.delenv("LAKE_ORPHAN_PAUSE", raising=False)
    assert limits_from_environment() == Limits()
    monkeypatch.setenv("LAKE_ORPHAN_HARD_BYTES", "1000")
    monkeypatch.setenv("LAKE_ORPHAN_HARD_ROWS", "50")
    monkeypatch.setenv("LAKE_ORPHAN_PAUSE", "0.5")
    assert limits_from_environment() == Limits(500, 1000, 25, 50, 0.5)


def test_a_limit_that_is_no_number_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_ORPHAN_HARD_ROWS", "many")
    with pytest.raises(BadInput, match=r"LAKE_ORPHAN_HARD_ROWS is 'many': a number is expected"):
        limits_from_environment()


@pytest.mark.parametrize("text", ["nan", "inf", "-1"])
def test_a_limit_that_nothing_can_be_compared_with_is_refused_too(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAKE_ORPHAN_HARD_ROWS", "LAKE_ORPHAN_PAUSE"):
        with (
            monkeypatch.context() as one,
            pytest.raises(BadInput, match=rf"\${name} is '{text}': a number of 0 or more is expected"),
        ):
            one.setenv(name, text)
            limits_from_environment()
