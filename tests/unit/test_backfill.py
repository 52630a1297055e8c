"""A backfill: what is taken back, what is run, how far."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from chainlake.errors import BadInput
from chainlake.lake.backfill import backfill
from chainlake.lake.stage import Stage, Stages


class Recorder:
    """A lake that notes what it is told to do."""

    def __init__(self) -> None:
        self.stages = Stages(
            (Stage("raw.a", "k", ()), Stage("silver.a", "k", (), ("raw.a",)), Stage("gold.a", "k", (), ("silver.a",)))
        )
        self.told: list[tuple[Any, ...]] = []

    def chains_of(self, stage: Stage) -> list[str]:
        return ["one", "two"]

    def rollback(self, stage: str, chain: str, height: int, **options: Any) -> None:
        self.told.append(("rollback", stage, chain, height, options["why"], options["force"]))

    def run_stage(self, stage: str, *, chains: list[str], to_height: int | None) -> pd.DataFrame:
        self.told.append(("run", stage, tuple(chains), to_height))
        return pd.DataFrame([vars(SimpleNamespace(stage=stage))])


def told(*arguments: Any, **options: Any) -> list[tuple[Any, ...]]:
    lake = Recorder()
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
    assert told("gold.a", "one", 0, 0)[0] == ("rollback", "gold.a", "one", -1, "", False)
    assert told("gold.a", "one", 0, 0)[1] == ("run", "gold.a", ("one",), 0)


def test_a_range_that_ends_before_it_begins_and_an_unknown_stage_are_refused() -> None:
    with pytest.raises(BadInput, match="from_height 9 is above to_height 4"):
        told("raw.a", "one", 9, 4)
    with pytest.raises(BadInput, match=r"unknown stage 'raw\.b'"):
        told("raw.b")
