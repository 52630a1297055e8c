"""/health and /metrics: whether answers can be trusted and are fresh, and the numbers behind it.

Both read the control tables in a thread of their own, so that they answer while queries keep all others busy, and remember what
they read for a short time, so that asking often costs little.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from chainlake.serve import operations
from chainlake.serve.engine import ControlTables, LogEngine, Snapshot
from chainlake.serve.fresh import FRESH_SECONDS, Fresh
from chainlake.serve.metrics import Family, Values, counters, render
from chainlake.serve.no_logs import NoLogs
from chainlake.serve.router import Request, Response, json_response, text_response
from chainlake.serve.rpc_metrics import RpcMetrics

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Monitor:
    """Answers /health and /metrics."""

    def __init__(
        self,
        chain: str,
        engine: LogEngine,
        control: ControlTables,
        metrics: RpcMetrics,
        own: Callable[[], list[Family]],
        fresh: float = FRESH_SECONDS,
    ) -> None:
        """`own` gives the metrics of the server itself."""
        self._chain, self._engine, self._control = chain, engine, control
        self._metrics, self._own = metrics, own
        self._fresh = Fresh("monitor", fresh)
        self._started = time.monotonic()

    async def health(self, request: Request) -> Response:
        """200 while all is well, 503 with the reasons while it is not."""
        report = {**await self._fresh.get("health", self._report)}
        reasons = [*report["reasons"], *self._metrics.faults]
        report |= {"status": "degraded" if reasons else "ok", "reasons": reasons}
        report["uptimeSeconds"] = round(time.monotonic() - self._started, 1)
        return json_response(report, 503 if reasons else 200)

    async def page(self, request: Request) -> Response:
        """Prometheus' text format."""
        lake: list[Family] = await self._fresh.get("metrics", self._lake_metrics)
        page = text_response(render([*self._metrics.families(), *self._own(), *lake]))
        return Response(page.status, page.body, PROMETHEUS)

    def close(self) -> None:
        self._fresh.close()

    def _report(self) -> dict[str, Any]:
        reasons = []
        snapshot = None
        stages: list[dict[str, Any]] = []
        try:
            snapshot = self._engine.snapshot()
            stopped = operations.degraded(self._control.rows("health"), self._chain)
            states = operations.stage_states(self._control.ledger(), self._chain)
            stages = [{"stage": s.stage, "head": s.head, "seq": s.seq, "reason": stopped.get(s.stage)} for s in states]
            reasons = [f"{stage} {self._chain} is degraded: {reason}" for stage, reason in stopped.items()]
            if snapshot is None and not isinstance(self._engine, NoLogs):
                reasons.append(f"no block of {self._chain} is indexed yet: run lake run logs")
        except Exception as error:
            reasons.append(f"the lake cannot be read: {type(error).__name__}: {str(error)[:200]}")
        return {"chain": self._chain, **_freshness(snapshot), "reasons": reasons, "stages": stages}

    def _lake_metrics(self) -> list[Family]:
        found: list[Family] = []
        readable = Values("lake_control_readable", "gauge", "Whether the control tables and the index could be read (1) or not.")
        try:
            found = self._families()
            readable.set(1)
        except Exception:
            readable.set(0)
        return [readable, *found]

    def _families(self) -> list[Family]:
        ledger = self._control.ledger()
        stopped = Values("lake_degraded", "gauge", "Stages of the chain that stopped at a broken promise.")
        for stage in operations.degraded(self._control.rows("health"), self._chain):
            stopped.set(1, stage=stage)
        return [
            *_head_metrics(self._engine.snapshot()),
            *counters(self._engine.totals(), "lake_index_", "What all queries together took."),
            *_cache_metrics(self._engine.caches()),
            *operations.ledger_metrics(ledger, self._chain),
            *operations.chunk_metrics(file for table in operations.CHUNK_TABLES for file in self._control.files(table)),
            *operations.run_metrics(operations.of_chain(self._control.rows("runs"), ledger, self._chain)),
            *operations.lease_metrics(operations.of_chain(self._control.rows("leases"), ledger, self._chain)),
            *operations.orphan_metrics(self._control.rows("orphans")),
            stopped,
        ]


def _freshness(snapshot: Snapshot | None) -> dict[str, Any]:
    """What answers reflect."""
    if snapshot is None:
        return {"head": None, "firstBlock": None, "version": None, "committedAt": None, "lagSeconds": None}
    return {
        "head": {**snapshot.head.to_json(), "number": snapshot.head.number},
        "firstBlock": snapshot.first,
        "version": snapshot.version,
        "committedAt": snapshot.committed_at.isoformat() if snapshot.committed_at else None,
        "lagSeconds": _lag(snapshot),
    }


def _lag(snapshot: Snapshot) -> float | None:
    """Seconds since the newest block became visible."""
    if snapshot.committed_at is None:
        return None
    return round((datetime.now(timezone.utc) - snapshot.committed_at).total_seconds(), 1)


def _head_metrics(snapshot: Snapshot | None) -> list[Family]:
    head = Values("lake_head_block", "gauge", "Newest block that queries see.")
    lag = Values("lake_seconds_since_commit", "gauge", "Seconds since it became visible.")
    if snapshot is not None:
        head.set(snapshot.head.number)
        seconds = _lag(snapshot)
        if seconds is not None:
            lag.set(seconds)
    return [head, lag]


def _cache_metrics(caches: Mapping[str, Mapping[str, float]]) -> list[Family]:
    """Counters of what happened, gauges of what there is."""
    found = {name: Values(f"lake_cache_{name}_total", "counter", f"Cache {name}.") for name in ("hits", "misses", "evictions")}
    found |= {name: Values(f"lake_cache_{name}", "gauge", f"Cached {name}.") for name in ("entries", "bytes")}
    for cache, values in caches.items():
        for name, family in found.items():
            family.set(values[name], cache=cache)
    return list(found.values())
