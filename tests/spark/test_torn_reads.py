"""Readers that join two tables in a loop while commits and rollbacks land never see two heights."""

import threading
from collections.abc import Callable

from pyspark.errors import PySparkException

from chainlake.lake import Lake
from chainlake.lake.clock import now
from chainlake.lake.compaction import compact
from chainlake.lake.runner import LaneRun
from tests.spark.domain import STAGES, expected_balances, expected_total, extend, run_all


class Readers:
    """Two readers, by view and by `lake.table`, for as long as one is inside."""

    def __init__(self, lake: Lake, chain: str) -> None:
        self._lake, self._chain = lake, chain
        self._sums = {height: sum(expected_balances("0:1", height).values()) for height in range(1, 41)}
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._loop, args=[read]) for read in (self._by_view, self._by_table)]
        self.torn: list[object] = []
        self.heights: list[int] = []

    def __enter__(self) -> "Readers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _loop(self, read: Callable[[], None]) -> None:
        while not self._done.is_set():
            try:
                read()
            except PySparkException as error:
                if "went below a compacted block while this query began" not in str(error):
                    self.torn.append(error)

    def _by_view(self) -> None:
        names = (self._lake.namespace.view("silver.test_balances"), self._lake.namespace.view("silver.test_totals"))
        row = self._lake.spark.sql(
            f"SELECT (SELECT sum(balance) FROM {names[0]} WHERE chain = '{self._chain}'),"
            f" (SELECT struct(count(*), max(height), max(total)) FROM {names[1]} WHERE chain = '{self._chain}')"
        ).collect()[0]
        self._check(row[0], tuple(row[1]))

    def _by_table(self) -> None:
        snapshot = self._lake.snapshot(["silver.test_balances"])
        held = snapshot.table("silver.test_balances", chain=self._chain).groupBy().sum("balance").collect()[0][0]
        rows = snapshot.table("silver.test_totals", chain=self._chain).select("height", "total").collect()
        self._check(held, (len(rows), *max(rows)))

    def _check(self, held: int, totals: tuple[int, int, int]) -> None:
        self.heights.append(totals[1])
        if totals[0] != totals[1] or totals[2] != expected_total("0:1", totals[1]) or held != self._sums[totals[1]]:
            self.torn.append((held, totals))


def test_no_reader_sees_two_heights(lake: Lake, chain: str) -> None:
    extend(lake, chain, 40)
    run_all(lake, chain, stages=STAGES[:2])
    lake.run_stage("silver.test", chains=chain, to_height=6)
    with Readers(lake, chain) as readers, lake.lease("silver.test", chain) as lease:
        run = LaneRun(lake, lake.stages.get("silver.test"), [chain], lease, 3, 10**6)
        run.refresh()
        for back in (0, 5, 0, 0, 8, 0, 3):
            run.step()
            if back:
                head = run.head(chain)
                assert head is not None
                run.roll_back({chain: (head.height - back, f"back at {now()}")})
    assert readers.torn == [] and len(readers.heights) >= 4 and len(set(readers.heights)) >= 2, (readers.torn, readers.heights)


def test_no_reader_sees_two_heights_while_bases_come_and_go(lake: Lake, chain: str) -> None:
    extend(lake, chain, 40)
    run_all(lake, chain, stages=STAGES[:2])
    lake.run_stage("silver.test", chains=chain, to_height=6)
    with Readers(lake, chain) as readers:
        for height in (12, 16, 20):
            lake.run_stage("silver.test", chains=chain, to_height=height)
            assert [one.height for one in compact(lake, "silver.test", chain)] == [height]
            lake.rollback("silver.test", chain, height - 5, why="below the base")
    assert readers.torn == [] and len(readers.heights) >= 4 and len(set(readers.heights)) >= 2, (readers.torn, readers.heights)
