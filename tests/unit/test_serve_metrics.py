"""What operators see: Prometheus' format, numbers out of the control tables, and when the gateway is degraded."""

import asyncio
import json
import re
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from chainlake.lake.visibility import Commit
from chainlake.serve.engine import Damaged
from chainlake.serve.metrics import Histogram, Quantiles, Values, counters, render
from chainlake.serve.operations import (
    degraded,
    lease_metrics,
    ledger_metrics,
    of_chain,
    orphan_metrics,
    run_metrics,
    stage_states,
)
from chainlake.serve.router import Request, Response
from tests.unit.serve_memory import NOW, Caller, MemoryControl, MemoryEngine, make_blocks, make_caller

LINE = re.compile(r'[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [-+0-9.eInf]+')


def values(families: Any) -> dict[str, float]:
    """The samples of a page by the text before the number."""
    lines = [line for line in render(families).splitlines() if not line.startswith("#")]
    return {name: float(number) for name, number in (line.rsplit(" ", 1) for line in lines)}


def test_counters_and_gauges_by_labels() -> None:
    calls = Values("calls_total", "counter", "Calls.")
    calls.add(method="a")
    calls.add(2, method="a")
    calls.add(method='b"\\\n')
    text = render([calls])
    assert text.startswith("# HELP calls_total Calls.\n# TYPE calls_total counter\n")
    assert 'calls_total{method="a"} 3\n' in text and 'calls_total{method="b\\"\\\\\\n"} 1\n' in text


def test_histograms_count_what_is_at_most_each_bound() -> None:
    seconds = Histogram("seconds", "Seconds.", (0.1, 1))
    for value in (0.05, 0.1, 0.5, 7):
        seconds.observe(value, method="a")
    assert values([seconds]) == {
        'seconds_bucket{method="a",le="0.1"}': 2,
        'seconds_bucket{method="a",le="1"}': 3,
        'seconds_bucket{method="a",le="+Inf"}': 4,
        'seconds_sum{method="a"}': 7.65,
        'seconds_count{method="a"}': 4,
    }


def test_quantiles_are_those_of_the_last_observations() -> None:
    latency = Quantiles("latency", "Latency.")
    for value in range(1, 101):
        latency.observe(value)
    found = values([latency])
    assert (found['latency{quantile="0.5"}'], found['latency{quantile="0.95"}'], found['latency{quantile="0.99"}']) == (
        50,
        95,
        99,
    )
    for _ in range(5000):
        latency.observe(1)
    assert values([latency])['latency{quantile="0.99"}'] == 1 and values([latency])["latency_count"] == 5100


def test_totals_become_counters() -> None:
    assert "# TYPE lake_index_chunks_read_total counter\nlake_index_chunks_read_total 3" in render(
        counters({"chunks_read": 3}, "lake_index_", "Index.")
    )


def commit(stage: str, seq: int, kind: str, base: int, height: int, **more: Any) -> Commit:
    return Commit(stage, "c", "c", seq, 100 + seq, kind, base, height, 1, NOW + timedelta(seconds=seq), **more)


LEDGER = [
    commit("raw.logs", 1, "advance", -1, 30),
    commit("bronze.logs", 1, "advance", -1, 20),
    commit("bronze.logs", 2, "advance", 20, 30),
    commit("gold.logs", 1, "advance", -1, 20, rows={"gold_log_chunks": 7, "gold_log_tails": 90}),
    commit("gold.logs", 2, "rollback", 20, 15),
    commit("gold.logs", 3, "advance", 15, 22, rows={"gold_log_chunks": 2}),
    Commit("gold.logs", "other", "other", 1, 1, "advance", -1, 9, 1, NOW),
]


def test_the_ledger_tells_heads_lags_and_sealed_chunks() -> None:
    found = values(ledger_metrics(MemoryControl(LEDGER).ledger(), "c"))
    assert found['lake_stage_head_block{stage="gold.logs"}'] == 22
    assert found['lake_stage_lag_blocks{stage="gold.logs"}'] == 8
    assert found['lake_chunks_sealed_total{stage="gold.logs"}'] == 9
    assert found['lake_ledger_commits_total{stage="gold.logs",kind="rollback"}'] == 1
    assert [state.stage for state in stage_states(MemoryControl(LEDGER).ledger(), "c")] == [
        "raw.logs",
        "bronze.logs",
        "gold.logs",
    ]


def run(stage: str, **more: Any) -> dict[str, Any]:
    row = {"stage": stage, "lane": "c", "kind": "advance", "blocks": 10, "bytes": 5, "retries": 0, "seconds": [("append", 1.5)]}
    return {**row, "started_at": NOW, **more}


def test_runs_tell_latency_retries_and_failures() -> None:
    late = NOW + timedelta(hours=1)
    runs = [
        run("gold.logs", seconds=[("append", 1.5), ("commit", 0.5)], started_at=late),
        run("gold.logs", retries=2, seconds=[("append", 30.0)]),
        run("gold.logs", kind="failed", blocks=0, seconds=None),
        run("gold.logs", lane="other", retries=99),
        run("silver.cage", retries=99),
    ]
    found = values(run_metrics(of_chain(runs, MemoryControl(LEDGER).ledger(), "c")))
    assert found['lake_ingest_seconds_per_block{stage="gold.logs"}'] == 0.2
    assert found['lake_cas_retries_total{stage="gold.logs"}'] == 2
    assert found['lake_ingest_failures_total{stage="gold.logs"}'] == 1
    assert found['lake_ingest_phase_seconds_total{stage="gold.logs",phase="append"}'] == 31.5
    assert not any("silver" in name for name in found)


def test_a_lease_taken_over_without_release_was_lost() -> None:
    states = [(1, "held"), (1, "released"), (2, "held"), (2, "held"), (3, "held")]
    leases = [{"stage": "gold.logs", "lane": "c", "epoch": epoch, "state": state, "at": NOW} for epoch, state in states]
    assert values(lease_metrics(leases)) == {'lake_lease_losses_total{stage="gold.logs"}': 1}


def test_the_backlog_is_that_of_the_last_measurement() -> None:
    row = {"table_name": "gold_log_chunks", "kind": "orphan", "rows": 5, "bytes": 50, "removable": 1}
    found = values(orphan_metrics([{**row, "at": NOW, "rows": 99}, {**row, "at": NOW + timedelta(hours=1)}]))
    assert found['lake_gc_backlog_rows{table="gold_log_chunks",kind="orphan"}'] == 5
    assert found['lake_gc_removable_rows{table="gold_log_chunks",kind="orphan"}'] == 1
    assert values(orphan_metrics([])) == {}


def health_row(stage: str, status: str, minutes: int, chain: str = "test-chain") -> dict[str, Any]:
    return {"stage": stage, "chain": chain, "status": status, "reason": f"why {minutes}", "at": NOW + timedelta(minutes=minutes)}


def test_the_latest_row_of_a_stage_is_its_health() -> None:
    rows = [health_row("gold.logs", "ok", 3), health_row("gold.logs", "degraded", 1), health_row("raw.logs", "degraded", 2)]
    assert degraded(rows, "test-chain") == {"raw.logs": "why 2"}
    assert degraded(rows, "other") == {}


def ask(caller: Caller, path: str) -> Response:
    async def one() -> Response:
        found = caller.gateway.router.find("GET", path)
        assert not isinstance(found, Response)
        return await found[0](Request("GET", path))

    return asyncio.run(one())


def health(caller: Caller) -> tuple[int, dict[str, Any]]:
    response = ask(caller, "/health")
    return response.status, json.loads(response.body)


def test_a_healthy_gateway_says_what_it_reflects() -> None:
    engine = MemoryEngine(make_blocks(5), committed_at=datetime.now(timezone.utc) - timedelta(seconds=30))
    status, report = health(make_caller(engine, MemoryControl([commit("gold.logs", 1, "advance", -1, 4)])))
    assert status == 200 and report["status"] == "ok" and report["reasons"] == []
    assert (report["chain"], report["head"]["number"], report["firstBlock"], report["version"]) == ("test-chain", 4, 0, 1)
    assert 29 < report["lagSeconds"] < 60


def test_a_degraded_stage_an_empty_index_and_unreadable_tables_are_503() -> None:
    control = MemoryControl(
        tables={"health": [health_row("bronze.logs", "degraded", 1), health_row("x", "degraded", 1, "other")]}
    )
    status, report = health(make_caller(MemoryEngine(make_blocks(5)), control))
    assert status == 503 and report["reasons"] == ["bronze.logs test-chain is degraded: why 1"]
    status, report = health(make_caller(MemoryEngine([])))
    assert status == 503 and report["head"] is None and "no block of test-chain is indexed yet" in report["reasons"][0]

    class Unreadable(MemoryControl):
        def rows(self, name: str) -> Any:
            raise OSError("disk is gone")

    caller = make_caller(MemoryEngine(make_blocks(5)), Unreadable())
    status, report = health(caller)
    assert status == 503 and report["reasons"] == ["the lake cannot be read: OSError: disk is gone"]
    assert b"lake_control_readable 0" in ask(caller, "/metrics").body


def test_damaged_data_makes_the_gateway_degraded() -> None:
    class Broken(MemoryEngine):
        def query(self, *_: Any, **__: Any) -> Any:
            raise Damaged("chunk 7 is damaged: lake verify")

    caller = make_caller(Broken(make_blocks(5)))
    assert health(caller)[0] == 200
    caller.call("eth_getLogs", {})
    caller.call("eth_getLogs", {})
    status, report = health(caller)
    assert status == 503 and report["reasons"] == ["chunk 7 is damaged: lake verify"]


def test_the_page_has_every_number_of_the_list_and_nothing_that_is_no_sample() -> None:
    now = NOW
    tables = {
        "runs": [{**run("gold.logs"), "lane": "test-chain"}],
        "leases": [{"stage": "gold.logs", "lane": "test-chain", "epoch": 1, "state": "held", "at": now}],
        "orphans": [{"table_name": "t", "kind": "orphan", "rows": 1, "bytes": 1, "removable": 0, "at": now}],
        "health": [health_row("gold.logs", "degraded", 1)],
    }
    commits = [Commit("gold.logs", "test-chain", "test-chain", 1, 1, "advance", -1, 4, 1, NOW, rows={"gold_log_chunks": 3})]
    caller = make_caller(MemoryEngine(make_blocks(5)), MemoryControl(commits, tables))
    caller.call("eth_getLogs", {"fromBlock": "0x0"})
    caller.call("nonsense")
    caller.send({"id": 1})
    page = ask(caller, "/metrics").body.decode()
    samples = [line for line in page.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in samples), [line for line in samples if not LINE.fullmatch(line)]
    for name in (
        'lake_rpc_requests_total{method="eth_getLogs",outcome="ok"}',
        'lake_rpc_requests_total{method="unknown",outcome="-32601"}',
        "lake_rpc_invalid_requests_total",
        'lake_rpc_seconds_bucket{method="eth_getLogs",le="0.01"}',
        'lake_query_latency_seconds{method="eth_getLogs",quantile="0.99"}',
        'lake_query_candidates_bucket{clause="address",le="10"}',
        "lake_query_logs_total",
        "lake_index_chunks_read_total",
        'lake_cache_hits_total{cache="chunks"} 3',
        'lake_cache_misses_total{cache="chunks"} 2',
        'lake_cache_bytes{cache="chunks"} 100',
        "lake_ingest_seconds_per_block",
        "lake_chunks_sealed_total",
        'lake_chunk_bytes_bucket{le="2048"} 10',
        "lake_answers_waiting_bytes 0",
        "lake_cas_retries_total",
        "lake_lease_losses_total",
        "lake_gc_backlog_rows",
        "lake_head_block",
        "lake_seconds_since_commit",
        'lake_degraded{stage="gold.logs"}',
        "lake_queue_pending",
        "lake_filters_installed",
        "lake_log_lines_lost_total",
    ):
        assert any(line.startswith(name) for line in samples), name


def test_whatever_is_no_call_counts_as_one_invalid_request() -> None:
    caller = make_caller(MemoryEngine(make_blocks(5)), max_batch=2)
    for body in (b"{", b"\xff", b"[]", b"[1,2,3]", b"[1]", b'{"id":1}'):
        caller.raw(body)
    assert "\nlake_rpc_invalid_requests_total 6\n" in ask(caller, "/metrics").body.decode()


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_asking_often_reads_the_tables_once(path: str) -> None:
    class Counted(MemoryControl):
        reads = 0

        def rows(self, name: str) -> Any:
            self.reads += 1
            return []

    control = Counted()
    caller = make_caller(MemoryEngine(make_blocks(2)), control)
    ask(caller, path)
    reads = control.reads
    for _ in range(5):
        ask(caller, path)
    assert control.reads == reads


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_many_who_ask_at_once_have_the_tables_read_once(path: str) -> None:
    class Slow(MemoryControl):
        reads = 0

        def ledger(self) -> Any:
            self.reads += 1
            time.sleep(0.05)
            return super().ledger()

    control = Slow()
    caller = make_caller(MemoryEngine(make_blocks(2)), control)

    async def many() -> list[Response]:
        found = caller.gateway.router.find("GET", path)
        assert not isinstance(found, Response)
        return await asyncio.gather(*(found[0](Request("GET", path)) for _ in range(20)))

    assert len({response.status for response in asyncio.run(many())}) == 1
    assert control.reads == 1
