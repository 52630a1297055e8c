"""Where everything stands: `lake status`, and the same as data."""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from chainlake.encoding import to_hex
from chainlake.lake.guardrail import Guardrail
from chainlake.lake.lease import HELD, newest_leases
from chainlake.lake.stage import Stage
from chainlake.lake.visibility import LedgerView

if TYPE_CHECKING:
    from chainlake.lake.records import Records


@dataclass(frozen=True)
class StageStatus:
    """One stage on one chain."""

    stage: str
    chain: str
    head: int | None
    block_hash: str | None
    lag: int
    seq: int
    commits: int
    rollbacks: int
    health: str
    reason: str
    writer: str | None
    updated_at: str | None
    roots: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """The whole lake."""

    stages: list[StageStatus]
    orphan_rows: int
    orphan_bytes: int
    orphans_at: str | None
    """When they were counted; None if they never were, and the numbers say nothing."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def status(lake: "Records") -> Status:
    """Heads, lags, roots, health and leases of every stage and chain, and how much garbage there is."""
    view = lake.ledger.read()
    degraded = lake.health.degraded()
    writers = _writers(lake)
    stages = [_one(lake, view, stage, chain, degraded, writers) for stage in lake.stages.all() for chain in lake.chains_of(stage)]
    rows, size, at = Guardrail(lake.control).measured()
    return Status(stages, rows, size, at.isoformat() if at else None)


def _one(
    lake: "Records",
    view: LedgerView,
    stage: Stage,
    chain: str,
    degraded: dict[tuple[str, str], str],
    writers: dict[tuple[str, str], str],
) -> StageStatus:
    history = view.of(stage.name, chain)
    head = history.head()
    inputs = [h.height for name in stage.inputs if (h := view.of(name, chain).head())]
    rows: dict[str, int] = {}
    for v in history.visible():
        for table, count in v.commit.rows.items():
            rows[table] = rows.get(table, 0) + count
    return StageStatus(
        stage=stage.name,
        chain=chain,
        head=head.height if head else None,
        block_hash=to_hex(head.block_hash) if head and head.block_hash else None,
        lag=max(0, min(inputs) - (head.height if head else -1)) if inputs and not stage.as_needed else 0,
        seq=history.seq(),
        commits=sum(1 for c in history.commits if c.kind == "advance"),
        rollbacks=sum(1 for c in history.commits if c.kind == "rollback" and c.height < c.base_height),
        health="degraded" if (stage.name, chain) in degraded else "ok",
        reason=degraded.get((stage.name, chain), ""),
        writer=writers.get((stage.name, view.lane_of(stage.name, chain))),
        updated_at=history.commits[-1].committed_at.isoformat() if history.commits else None,
        roots={name: to_hex(root) for name, root in head.roots.items()} if head else {},
        rows=rows,
    )


def _writers(lake: "Records") -> dict[tuple[str, str], str]:
    """Who holds which lane now."""
    leases = newest_leases(lake.control.read("leases"))
    return {key: row.owner for key, row in leases.items() if row.state == HELD and not row.is_free()}
