"""Readers that join two tables in a loop while commits and rollbacks land never see two heights."""

import threading

from chainlake.lake import Lake
from chainlake.lake.clock import now
from chainlake.lake.runner import LaneRun
from tests.spark.domain import STAGES, expected_balances, expected_total, extend, run_all


def test_no_reader_sees_two_heights(lake: Lake, chain: str) -> None:
    extend(lake, chain, 40)
    run_all(lake, chain, stages=STAGES[:2])
    lake.run_stage("silver.test", chains=chain, to_height=6)
    torn: list[object] = []
    reads = []
    done = threading.Event()

    def by_view() -> None:
        names = (lake.namespace.view("silver.test_balances"), lake.namespace.view("silver.test_totals"))
        while not done.is_set():
            row = lake.spark.sql(
                f"SELECT (SELECT sum(balance) FROM {names[0]} WHERE chain = '{chain}'),"
                f" (SELECT struct(count(*), max(height), max(total)) FROM {names[1]} WHERE chain = '{chain}')"
            ).collect()[0]
            check(row[0], tuple(row[1]))

    def by_table() -> None:
        while not done.is_set():
            snapshot = lake.snapshot(["silver.test_balances"])
            held = snapshot.table("silver.test_balances", chain=chain).groupBy().sum("balance").collect()[0][0]
            rows = snapshot.table("silver.test_totals", chain=chain).select("height", "total").collect()
            check(held, (len(rows), *max(rows)))

    def check(held: int, totals: tuple[int, int, int]) -> None:
        reads.append(totals[1])
        if totals[0] != totals[1] or totals[2] != expected_total("0:1", totals[1]) or held != sums[totals[1]]:
            torn.append((held, totals))

    sums = _sums(40)
    readers = [threading.Thread(target=target) for target in (by_view, by_table)]
    for reader in readers:
        reader.start()
    try:
        with lake.lease("silver.test", chain) as lease:
            run = LaneRun(lake, lake.stages.get("silver.test"), [chain], lease, 3, 10**6)
            run.refresh()
            for back in (0, 5, 0, 0, 8, 0, 3):
                run.step()
                if back:
                    head = run.head(chain)
                    assert head is not None
                    run.roll_back({chain: (head.height - back, f"back at {now()}")})
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert torn == [] and len(reads) >= 4 and len(set(reads)) >= 2, (torn, reads)


def _sums(top: int) -> dict[int, int]:
    return {height: sum(expected_balances("0:1", height).values()) for height in range(1, top + 1)}
