"""The whole lake at a glance, for the web page: pure functions over control rows, values as JSON takes them."""

from collections.abc import Iterable, Mapping
from typing import Any

from chainlake.encoding import to_hex
from chainlake.lake.visibility import ADVANCE, ROLLBACK, History, LedgerView
from chainlake.serve.operations import AS_NEEDED, stopped

Row = Mapping[str, Any]

MOST_STAGES = 500
MOST_COMMITS = 300


def overview(ledger: LedgerView, health: Iterable[Row]) -> dict[str, Any]:
    """Where every stage stands on every chain; those that stopped come first, and a very long list is cut."""
    reasons = stopped(health)
    keys = sorted(ledger.histories().keys() | reasons.keys(), key=lambda key: (key not in reasons, _layer(key[0]), key))
    stages = [_stage(ledger, stage, chain, reasons.get((stage, chain))) for stage, chain in keys[:MOST_STAGES]]
    return {"stages": stages, "leftOff": max(0, len(keys) - MOST_STAGES), "degraded": len(reasons)}


def commits(history: History, most: int = MOST_COMMITS) -> dict[str, Any]:
    """The newest commits of one stage and chain, oldest first, with how far each can be seen."""
    limits = {visible.commit.seq: visible.limit for visible in history.visible()}
    shown = history.commits[-most:]
    rows = [
        {
            "seq": commit.seq,
            "kind": commit.kind,
            "from": commit.base_height,
            "to": commit.height,
            "visibleTo": limits.get(commit.seq) if commit.kind == ADVANCE else None,
            "rows": sum(commit.rows.values()),
            "at": commit.committed_at.isoformat(),
            "why": commit.why,
        }
        for commit in shown
    ]
    return {"commits": rows, "leftOff": len(history.commits) - len(shown)}


def _stage(ledger: LedgerView, stage: str, chain: str, reason: str | None) -> dict[str, Any]:
    history = ledger.of(stage, chain)
    head = history.head()
    last = history.commits[-1] if history.commits else None
    return {
        "stage": stage,
        "chain": chain,
        "head": head.height if head else None,
        "blockHash": to_hex(head.block_hash) if head and head.block_hash else None,
        "lag": _lag(ledger, history, chain, head.height if head else -1),
        "seq": history.seq(),
        "commits": sum(1 for commit in history.commits if commit.kind == ADVANCE),
        "rollbacks": sum(1 for commit in history.commits if commit.kind == ROLLBACK and commit.height < commit.base_height),
        "health": "degraded" if reason is not None else "ok",
        "reason": reason,
        "updatedAt": last.committed_at.isoformat() if last else None,
    }


def _lag(ledger: LedgerView, history: History, chain: str, head: int) -> int:
    """Blocks that the stage is behind what it reads. Which stages it reads, its last advance says."""
    if history.commits and history.commits[-1].stage in AS_NEEDED:
        return 0
    inputs = next((commit.inputs for commit in reversed(history.commits) if commit.kind == ADVANCE), {})
    heads = [found.height for name in inputs if (found := ledger.of(name, chain).head())]
    return max(0, min(heads) - head) if heads else 0


def _layer(stage: str) -> int:
    layer = stage.partition(".")[0]
    order = ("raw", "bronze", "silver", "gold")
    return order.index(layer) if layer in order else len(order)
