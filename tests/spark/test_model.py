"""Random advance, rollback, crash, compact, GC and restart against a model that anybody can check by eye, at every height.

Twenty chains advance in one lane, so that one Spark commit carries up to twenty steps: 300 steps in a minute or two.
"""

import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from chainlake.lake import Lake, Output, Stage, views
from chainlake.lake.chains import Chain
from chainlake.lake.clock import new_commit_id
from chainlake.lake.commit import append_all
from chainlake.lake.compaction import compact
from chainlake.lake.gc import collect
from chainlake.lake.lease import Lease
from chainlake.lake.runner import LaneRun, Timings
from chainlake.lake.verify import verify

SEED, STEPS, CHAINS, KEYS = 20261116, 300, 20, 6
TABLE = "silver.test_balances"


class Model:
    """What one chain must hold: the changes of each height. A rollback truncates the list, and that is all."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.changes: list[dict[str, int | None]] = []

    def state(self, height: int) -> dict[str, int]:
        held: dict[str, int | None] = {}
        for change in self.changes[:height]:
            held.update(change)
        return {key: value for key, value in held.items() if value is not None}

    def grow(self, rng: random.Random, blocks: int) -> list[tuple[str, int, str, int, bool]]:
        """Add blocks; the rows that describe them."""
        rows = []
        for _ in range(blocks):
            change = {
                f"k{rng.randrange(KEYS)}": None if rng.random() < 0.2 else rng.randrange(1000) for _ in range(rng.randrange(1, 4))
            }
            self.changes.append(change)
            height = len(self.changes)
            rows += [(self.name, height, key, value or 0, value is None) for key, value in change.items()]
        return rows


class World:
    """The lake beside its models, with a writer that may be restarted."""

    def __init__(self, lake: Lake, rng: random.Random) -> None:
        self.lake, self.rng = lake, rng
        self.models = {f"model-{n}": Model(f"model-{n}") for n in range(CHAINS)}
        for name in self.models:
            lake.chains.add(Chain(name, "test", "made up", {}))
        self.steps = 0
        self.stage = Stage("silver.test", "test", (TABLE, "silver.test_totals"), ("bronze.test",), lane_of=lambda _: "all")

    def writer(self) -> tuple[Lease, LaneRun]:
        lease = Lease(self.lake.control, self.lake.ledger, self.lake.catalog.control_log("leases"), "silver.test", "all")
        lease.__enter__()
        run = LaneRun(self.lake, self.stage, list(self.models), lease, 100, 10**6)
        run.refresh()
        return lease, run

    def frames(self, rows: list[tuple[str, int, str, int, bool]]) -> dict[str, object]:
        spark = self.lake.spark
        balances = spark.createDataFrame(rows, "_chain string, _height long, account string, balance long, _deleted boolean")
        blocks = sorted({row[:2] for row in rows})
        totals = spark.createDataFrame(
            [(c, h, h, None) for c, h in blocks], "_chain string, _height long, total long, notes map<string,string>"
        )
        return {TABLE: balances.coalesce(1), "silver.test_totals": totals.coalesce(1)}

    def round(self, run: LaneRun) -> None:
        """Every chain takes one random step; those that advance share a commit, those that go back share another."""
        back: dict[str, tuple[int, str]] = {}
        ranges: dict[str, tuple[int, int]] = {}
        rows: list[tuple[str, int, str, int, bool]] = []
        for name, model in self.models.items():
            self.steps += 1
            height = len(model.changes)
            if height > 2 and self.rng.random() < 0.3:
                target = self.rng.randrange(max(0, height - 8), height)
                back[name] = (target, "random")
                del model.changes[target:]
            else:
                rows += model.grow(self.rng, self.rng.randrange(1, 4))
                ranges[name] = (height, len(model.changes))
        if back:
            run.roll_back(back)
        if ranges:
            run.write(ranges, Output(self.frames(rows)), {}, Timings())  # type: ignore[arg-type]

    def crash(self) -> None:
        """What a kill before the ledger append leaves: rows in all tables that no ledger row names."""
        rows = [row for model in self.models.values() for row in Model(model.name).grow(self.rng, len(model.changes) + 1)[-2:]]
        ranges = {name: (0, 10**6) for name in self.models}
        append_all(self.lake.catalog, self.frames(rows), new_commit_id(), ranges)  # type: ignore[arg-type]
        self.steps += 1

    def check_head(self) -> None:
        found = self.read({})
        for name, model in self.models.items():
            assert found.get(name, {}) == model.state(len(model.changes)), (name, len(model.changes))

    def check_every_height(self) -> None:
        snapshot = self.lake.snapshot([TABLE])
        for height in range(1, max(len(model.changes) for model in self.models.values()) + 1):
            heights = {n: min(height, len(m.changes)) for n, m in self.models.items() if m.changes}
            rows = snapshot.state(TABLE, heights).select("_chain", "account", "balance").collect()
            found: dict[str, dict[str, int]] = {}
            for chain, key, value in rows:
                assert found.setdefault(chain, {}).setdefault(key, value) == value
            assert all(found.get(n, {}) == self.models[n].state(h) for n, h in heights.items()), height

    def read(self, _: dict[str, int]) -> dict[str, dict[str, int]]:
        view = self.lake.spark.table(self.lake.namespace.view(TABLE)).select("chain", "account", "balance").collect()
        table = self.lake.table(TABLE).select("chain", "account", "balance").collect()
        assert sorted(map(tuple, view)) == sorted(map(tuple, table)), "view and table differ"
        found: dict[str, dict[str, int]] = {}
        for chain, key, value in table:
            found.setdefault(chain, {})[key] = value
        return found


def test_the_lake_equals_the_model_at_every_height(make_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(make_lake(lane="all"), random.Random(SEED))
    lease, run = world.writer()
    number = 0
    while world.steps < STEPS:
        number += 1
        world.round(run)
        if number % 6 == 2:
            world.crash()
        if number % 7 == 4:
            lease._stop.set()
            lease, run = _restarted(world, lease)
        if number % 7 == 5:
            lease.__exit__(None, None, None)
            compact(world.lake, "silver.test")
            lease, run = world.writer()
            world.steps += 1
        if number % 6 == 1 and number > 1:
            collect(world.lake, timedelta(0), grace=timedelta(0))
            world.steps += 1
        if number % 5 == 0:
            world.check_head()
    world.check_head()
    for limit in ("SMALL_BASE", "MOST_CHAINS"):  # the views of large bases, then those of very many chains
        monkeypatch.setattr(views, limit, 0)
        world.lake.catalog.renew_views([world.lake.catalog.table(TABLE)])
        world.check_head()
    world.check_every_height()
    lease.__exit__(None, None, None)
    assert [finding.what for finding in verify(world.lake, "silver.test")] == []


def _restarted(world: World, old: Lease) -> tuple[Lease, LaneRun]:
    """A new writer takes over from one that never released; the old one can commit nothing more."""
    import chainlake.lake.lease as module

    free = module.LeaseRow.is_free
    module.LeaseRow.is_free = lambda self: True  # type: ignore[method-assign]
    try:
        return world.writer()
    finally:
        module.LeaseRow.is_free = free  # type: ignore[method-assign]
