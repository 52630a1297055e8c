"""A backfill: what is taken back, what is run, how far."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from chainlake.errors import BadInput
from chainlake.lake.backfill import backfill
from chainlake.lake.stage import Stage, Stages
from chainlake.lake.visibility import ADVANCE, ROLLBACK, LedgerView
from tests.unit.ledger_model import commit


class Recorder:
    """A lake that notes what it is told to do."""

    def __init__(self) -> None:
        self.stages = Stages(
            (Stage("raw.a", "k", ()), Stage("silver.a", "k", (), ("raw.a",)), Stage("gold.a", "k", (), ("silver.a",)))
        )
        heights = {"one": 99, "two": 20}
        rows = [
            commit(ADVANCE, -1, heights[chain], 1, stage=stage.name, chain=chain)
            for stage in self.stages.all()
            for chain in heights
        ]
        self.rows = rows
        self.ledger = SimpleNamespace(read=lambda _: LedgerView(self.rows))
        self.told: list[tuple[Any, ...]] = []

    def chain(self, name: str) -> Any:
        return SimpleNamespace(kind="test", options={})

    def chains_of(self, stage: Stage) -> list[str]:
        return ["one", "two"]

    def rollback(self, stage: str, chain: str, height: int, **options: Any) -> None:
        self.told.append(("rollback", stage, chain, height, options["why"], options["force"]))

    def run_stage(self, stage: str, *, chains: list[str], to_height: int | None) -> pd.DataFrame:
        self.told.append(("run", stage, tuple(chains), to_height))
        return pd.DataFrame([vars(SimpleNamespace(stage=stage))])


def told(*arguments: Any, lake: Recorder | None = None, **options: Any) -> list[tuple[Any, ...]]:
    lake = lake or Recorder()
    backfill(lake, *arguments, **options)  # type: ignore[arg-type]
    return lake.told


def test_blocks_are_taken_back_first_and_every_consumer_follows_in_order() -> None:
    assert told("silver.a", "one", 10, 20, "fixed", True) == [
        ("rollback", "silver.a", "one", 9, "fixed", True),
        ("run", "silver.a", ("one",), 20),
        ("run", "gold.a", ("one",), 20),
    ]


def test_without_a_first_block_nothing_is_taken_back_and_without_a_last_one_it_goes_to_the_end() -> None:
    both = ("one", "two")
    assert told("raw.a") == [("run", "raw.a", both, None), ("run", "silver.a", both, None), ("run", "gold.a", both, None)]


def test_block_0_can_be_done_again_and_height_0_can_be_the_end() -> None:
    assert told("gold.a", "one", 0, 0, "fixed")[0] == ("rollback", "gold.a", "one", -1, "fixed", False)
    assert told("gold.a", "one", 0, 0, "fixed")[1] == ("run", "gold.a", ("one",), 0)


def test_a_range_that_ends_before_it_begins_and_an_unknown_stage_are_refused() -> None:
    with pytest.raises(BadInput, match="from_height 9 is above to_height 4"):
        told("raw.a", "one", 9, 4)
    with pytest.raises(BadInput, match=r"unknown stage 'raw\.b'"):
        told("raw.b")


def test_if_one_chain_cannot_go_back_none_does() -> None:
    lake = Recorder()
    with pytest.raises(BadInput, match=r"cannot roll silver\.a two back to 29: the head is 20"):
        told("silver.a", "", 30, 40, "fixed", lake=lake)
    with pytest.raises(BadInput, match="needs a reason"):
        told("silver.a", "", 10, lake=lake)
    assert lake.told == [], "neither is the first one"
    assert [what[:4] for what in told("silver.a", "", 20, 40, "fixed", lake=lake)[:2]] == [
        ("rollback", "silver.a", "one", 19),
        ("rollback", "silver.a", "two", 19),
    ]


def test_a_backfill_that_is_tried_again_goes_on_from_a_boundary_below_its_first_block() -> None:
    """A stage with an index went back further than asked, and then the run failed."""
    lake = Recorder()
    lake.rows.append(commit(ROLLBACK, 99, 4, 2, stage="silver.a", chain="one"))
    assert told("silver.a", "one", 10, 40, "fixed", lake=lake)[0] == ("run", "silver.a", ("one",), 40)
    with pytest.raises(BadInput, match=r"cannot roll .* back to 199: the head is 4"):
        told("silver.a", "one", 200, 240, "fixed", lake=lake)
