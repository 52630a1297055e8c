"""What an operator's rollback says of the inputs of a stage: a fork that the stage has not followed yet is not forgotten."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

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


class MemoryLedger:
    """A ledger without tables."""

    def __init__(self, rows: Iterable[Commit]) -> None:
        self.view = LedgerView(rows)

    def read(self, _: object) -> LedgerView:
        return self.view

    def append(self, rows: Sequence[Commit]) -> None:
        self.view = self.view.with_commits(rows)


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("chainlake.lake.going_back.hash_at", lambda *_: None)
    stages = (Stage(RAW, "test", ()), Stage(BRONZE, "test", (), (RAW,)), Stage(SILVER, "test", (), (BRONZE,)))
    chain = SimpleNamespace(kind="test", options={})
    catalog = SimpleNamespace(of_stage=lambda stage: [])
    return SimpleNamespace(stages=Stages(stages), ledger=MemoryLedger(FORKED), catalog=catalog, chain=lambda name: chain)


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
