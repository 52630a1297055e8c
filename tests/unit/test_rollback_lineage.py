"""What an operator's rollback says of the inputs of a stage: a fork that the stage has not followed yet is not forgotten. And of
runs that read what goes while it goes: none of them puts it back."""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.lake.clock import now
from chainlake.lake.lease import HELD
from chainlake.lake.rollback import rollback
from chainlake.lake.runner import LaneRun
from chainlake.lake.stage import Stage, Stages
from chainlake.lake.visibility import ADVANCE, ROLLBACK, Commit, LedgerView
from tests.unit.ledger_model import CHAIN, commit

RAW, BRONZE, SILVER = "raw.test", "bronze.test", "silver.test"
FORKED = [
    commit(ADVANCE, 0, 10, 1, stage=RAW),
    commit(ADVANCE, 10, 18, 2, stage=RAW),
    commit(ROLLBACK, 18, 3, 3, stage=RAW),
    commit(ADVANCE, 3, 10, 4, stage=RAW),
    commit(ADVANCE, 10, 20, 5, stage=RAW),
    commit(ADVANCE, 0, 10, 1, stage=BRONZE, inputs={RAW: 2}),
    commit(ADVANCE, 10, 18, 2, stage=BRONZE, inputs={RAW: 2}),
    commit(ADVANCE, 0, 10, 1, stage=SILVER, inputs={BRONZE: 2}),
    commit(ADVANCE, 10, 18, 2, stage=SILVER, inputs={BRONZE: 2}),
]
"""Raw went back to 3 and took another branch, which bronze and silver have not seen."""


GROWN = [
    commit(ADVANCE, 0, 18, 1, stage=RAW),
    commit(ADVANCE, 0, 18, 1, stage=BRONZE, inputs={RAW: 1}),
    commit(ADVANCE, 0, 12, 1, stage=SILVER, inputs={BRONZE: 1}),
]


class MemoryLedger:
    """A ledger without tables. `after` is called when a row is in, as another process might come then."""

    def __init__(self, rows: Iterable[Commit]) -> None:
        self.view = LedgerView(rows)
        self.after: Callable[[Commit], None] = lambda row: None

    def read(self, _: object) -> LedgerView:
        return self.view

    def append(self, rows: Sequence[Commit]) -> None:
        self.view = self.view.with_commits(rows)
        self.after(rows[0])


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("chainlake.lake.going_back.hash_at", lambda *_: None)
    stages = (Stage(RAW, "test", ()), Stage(BRONZE, "test", (), (RAW,)), Stage(SILVER, "test", (), (BRONZE,)))
    chain = SimpleNamespace(kind="test", options={})
    catalog = SimpleNamespace(of_stage=lambda stage: [])
    leases: list[dict[str, Any]] = []
    control = SimpleNamespace(read=lambda name: leases, leases=leases)
    ledger = MemoryLedger(FORKED)
    return SimpleNamespace(stages=Stages(stages), ledger=ledger, catalog=catalog, chain=lambda name: chain, control=control)


def next_run_goes_back_to(lake: Any, stage: str) -> int | None:
    """Where the next run of a stage takes itself first."""
    run: Any = SimpleNamespace(active=lambda: [CHAIN], view=lake.ledger.view, stage=lake.stages.get(stage))
    targets = LaneRun.overtaken(run)
    return targets[CHAIN][0] if targets else None


@pytest.mark.parametrize("stage", [RAW, BRONZE])
def test_after_a_rollback_above_it_a_fork_of_the_input_is_still_followed(lake: Any, stage: str) -> None:
    assert next_run_goes_back_to(lake, BRONZE) == 3
    rollback(lake, stage, CHAIN, 10, "a test")
    assert next_run_goes_back_to(lake, BRONZE) == 3, "blocks 4 to 10 of bronze are still those of the old branch"


def test_a_rollback_that_went_to_where_the_inputs_are_leaves_nothing_to_follow(lake: Any) -> None:
    rollback(lake, RAW, CHAIN, 3, "a test")
    view = lake.ledger.view
    assert [view.of(stage, CHAIN).head().height for stage in (RAW, BRONZE, SILVER)] == [3, 3, 3]
    assert [next_run_goes_back_to(lake, stage) for stage in (BRONZE, SILVER)] == [None, None]


def test_what_an_input_took_back_is_known_until_the_stage_has_followed() -> None:
    view = LedgerView(FORKED)
    assert view.is_overtaken(BRONZE, CHAIN, RAW) and not view.is_overtaken(SILVER, CHAIN, BRONZE)
    followed = view.with_commits([commit(ROLLBACK, 18, 3, 3, stage=BRONZE, inputs={RAW: 5})])
    assert not followed.is_overtaken(BRONZE, CHAIN, RAW) and followed.is_overtaken(SILVER, CHAIN, BRONZE)


def heads(lake: Any) -> list[int]:
    return [lake.ledger.view.of(stage, CHAIN).head().height for stage in (RAW, BRONZE, SILVER)]


def advance(lake: Any, stage: str, height: int) -> None:
    """A run of the stage commits what its inputs have at this moment."""
    of_stage, inputs = lake.ledger.view.of(stage, CHAIN), lake.stages.get(stage).inputs
    consumed = {name: lake.ledger.view.of(name, CHAIN).seq() for name in inputs}
    row = commit(ADVANCE, of_stage.head().height, height, of_stage.seq() + 1, stage=stage, inputs=consumed)
    lake.ledger.view = lake.ledger.view.with_commits([row])


def test_a_run_that_commits_between_two_rows_of_a_rollback_goes_back_too(lake: Any) -> None:
    lake.ledger = MemoryLedger(GROWN)

    def meanwhile(row: Commit) -> None:
        if row.stage == SILVER and row.seq == 2:  # bronze still has the blocks up to 18
            advance(lake, SILVER, 18)

    lake.ledger.after = meanwhile
    done = rollback(lake, RAW, CHAIN, 10, "a test")
    assert heads(lake) == [10, 10, 10]
    assert [(row.stage, row.base_height, row.height) for row in done] == [
        (SILVER, 12, 10),
        (BRONZE, 18, 10),
        (RAW, 18, 10),
        (SILVER, 18, 10),
    ]


def test_what_two_stages_took_in_between_goes_back_furthest_downstream_first(lake: Any) -> None:
    lake.ledger = MemoryLedger(GROWN)

    def meanwhile(row: Commit) -> None:
        if row.stage == BRONZE and row.seq == 2:  # raw still has the blocks up to 18
            advance(lake, BRONZE, 18)
            advance(lake, SILVER, 18)

    lake.ledger.after = meanwhile
    done = rollback(lake, RAW, CHAIN, 10, "a test")
    assert heads(lake) == [10, 10, 10]
    assert [row.stage for row in done] == [SILVER, BRONZE, RAW, SILVER, BRONZE]


def test_a_run_that_took_in_the_new_branch_already_stays(lake: Any) -> None:
    lake.ledger = MemoryLedger(GROWN)

    def meanwhile(row: Commit) -> None:
        if row.stage == RAW:
            for stage in (RAW, BRONZE, SILVER):
                advance(lake, stage, 11)

    lake.ledger.after = meanwhile
    assert len(rollback(lake, RAW, CHAIN, 10, "a test")) == 3
    assert heads(lake) == [11, 11, 11]


@pytest.mark.parametrize("expires_in", [60, -60])
def test_a_writer_at_work_on_a_stage_with_nothing_to_go_back_loses_the_seq_of_its_commit(lake: Any, expires_in: int) -> None:
    """It may have read blocks that are gone now. One whose lease ran out is refused without that."""
    lake.ledger = MemoryLedger(GROWN)
    lease = {"stage": SILVER, "lane": CHAIN, "epoch": 1, "owner": "elsewhere:1:1", "state": HELD, "at": now()}
    lake.control.leases.append({**lease, "expires_at": now() + timedelta(seconds=expires_in)})
    done = rollback(lake, RAW, CHAIN, 14, "a test")
    assert [row.stage for row in done] == [BRONZE, RAW], "what is told took blocks away"
    assert heads(lake) == [14, 14, 12]
    assert lake.ledger.view.of(SILVER, CHAIN).seq() == (2 if expires_in > 0 else 1)
