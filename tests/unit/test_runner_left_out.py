"""What was given for some chains of a lane is no use: the others go on, nobody is degraded, and it is told at the end."""

from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.errors import BadInput, LakeError, Unavailable
from chainlake.lake import lake as lake_module
from chainlake.lake.lake import Lake
from chainlake.lake.runner import ChainSummary, LaneRun
from chainlake.lake.stage import Batch, Output, Stage


class Run(LaneRun):
    """A run over a lane whose commits are kept in memory."""

    def __init__(self, unusable: dict[str, str]) -> None:
        self.unusable = unusable
        self.stage = Stage("bronze.test", "test", (), ("raw.test",), self.make)
        self.summaries = {chain: ChainSummary("bronze.test", chain) for chain in "abcd"}
        self.lake: Any = SimpleNamespace(spark=None)
        self.lease: Any = SimpleNamespace(check=lambda: None)
        self.progress: Any = SimpleNamespace(close=lambda: None)
        self.options = {}
        self.heights = dict.fromkeys("abcd", 0)

    def make(self, batch: Batch) -> Output:
        for chain, why in self.unusable.items():
            if chain in batch.ranges:
                error = BadInput(f"{chain}: {why}")
                error.chains = [chain] if why else []
                raise error
        return Output({})

    def available(self) -> dict[str, tuple[int, int]]:
        return {chain: (low, low + 1) for chain in self.active() if (low := self.heights[chain]) < 3}

    def plan(self) -> dict[str, tuple[int, int]]:
        return self.available()

    def write(self, ranges: Any, *_: Any) -> None:
        self.heights |= {chain: high for chain, (_, high) in ranges.items()}

    def degrade(self, *_: Any) -> None:
        raise AssertionError("nobody has to resume a chain for a file")

    def overtaken(self) -> dict[str, tuple[int, str]]:
        return {}

    def refresh(self) -> None: ...
    def check_lane(self) -> None: ...
    def pack(self) -> None: ...
    def snapshot(self) -> Any: ...

    def hashes_at(self, heights: Any) -> dict[str, bytes]:
        return {}


def test_the_others_go_on_and_it_is_told_at_the_end() -> None:
    run = Run({"b": "no file", "d": "no line"})
    with pytest.raises(BadInput, match=r"^b: no file \(and 1 more\)$"):
        run.run()
    assert run.heights == {"a": 3, "b": 0, "c": 3, "d": 0}
    again = Run({})
    again.run()
    assert set(again.heights.values()) == {3}, "as soon as the files are mended"


def test_what_names_no_chain_fails_the_run() -> None:
    run = Run({"b": ""})
    with pytest.raises(BadInput, match=r"^b: "):
        run.run()
    assert set(run.heights.values()) == {0}


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"b": BadInput("b is gone")}, BadInput, "^b is gone$"),
        ({"a": BadInput("a is gone"), "b": BadInput("b is gone")}, BadInput, "^a is gone; b is gone$"),
        ({"a": BadInput("a is gone"), "d": Unavailable("d is ill")}, Unavailable, "^a is gone; d is ill$"),
    ],
)
def test_a_lane_whose_source_is_no_use_does_not_keep_the_next_lanes_from_running(
    wrong: dict[str, LakeError], kind: type[LakeError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def run_lane(stage: Stage, lane: str, *_: Any) -> list[ChainSummary]:
        if lane in wrong:
            raise wrong[lane]
        ran.append(lane)
        return []

    monkeypatch.setattr(lake_module, "Guardrail", lambda control: SimpleNamespace(check=lambda *_: None))
    stage = Stage("bronze.test", "test", (), ("raw.test",), lambda batch: Output({}))
    lake: Any = SimpleNamespace(
        stages=SimpleNamespace(get=lambda name: stage),
        chains=SimpleNamespace(look_again=lambda: None),
        control=None,
        health=SimpleNamespace(degraded=dict),
        runs=SimpleNamespace(close=lambda: None),
        _lanes=lambda stage, wanted: {lane: [lane] for lane in "abcd"},
        _run_lane=run_lane,
    )
    with pytest.raises(kind, match=message):
        Lake.run_stage(lake, "bronze.test")
    assert ran == [lane for lane in "abcd" if lane not in wrong]
