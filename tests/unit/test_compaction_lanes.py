"""Lanes are compacted one by one: where somebody else is at work, the others are done all the same."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.errors import Fenced, LakeError, LeaseHeld
from chainlake.lake import compaction
from chainlake.lake.compaction import Compacted, compact
from chainlake.lake.stage import Stage


@pytest.mark.parametrize("busy", [LeaseHeld("is being written"), Fenced("seq 2 was taken by another writer")])
def test_a_lane_that_somebody_writes_or_rolls_back_is_skipped(busy: LakeError, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(lake: Any, stage: Stage, chains: list[str], lease: object) -> list[Compacted]:
        if chains == ["busy"]:
            raise busy
        return [Compacted(stage.name, name, 9, 1) for name in chains]

    monkeypatch.setattr(compaction, "_lanes", lambda *_: {"a": ["busy"], "b": ["free"]})
    monkeypatch.setattr(compaction, "_compact_lane", one)
    monkeypatch.setattr(compaction, "_pack", lambda *_: None)
    stages = SimpleNamespace(all=lambda: [Stage("silver.test", "test", ())])
    catalog = SimpleNamespace(renew_views=list)
    lake: Any = SimpleNamespace(stages=stages, catalog=catalog, lease=lambda stage, lane: nullcontext())
    done = compact(lake)
    assert [(row.chain, row.height, row.note) for row in done] == [("busy", None, f"skipped: {busy}"), ("free", 9, "")]
