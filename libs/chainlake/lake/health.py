"""Which stages stopped at a broken promise, and operators letting them go on."""

from chainlake.errors import BadInput, Degraded
from chainlake.lake.clock import actor, now
from chainlake.lake.control import ControlTables

OK, DEGRADED = "ok", "degraded"


class Health:
    """control.health: the latest row of a stage and chain is its state."""

    def __init__(self, control: ControlTables) -> None:
        self._control = control

    def degraded(self) -> dict[tuple[str, str], str]:
        """Reason by stage and chain, of what is degraded now."""
        latest: dict[tuple[str, str], dict[str, object]] = {}
        for row in sorted(self._control.read("health"), key=lambda row: row["at"]):
            latest[row["stage"], row["chain"]] = row
        return {key: str(row["reason"]) for key, row in latest.items() if row["status"] == DEGRADED}

    def degrade(self, stage: str, chain: str, reason: str, run_id: str) -> None:
        self._write(stage, chain, DEGRADED, reason, run_id)

    def resume(self, stage: str, chain: str, why: str) -> None:
        """Let a degraded stage advance again, for a reason that is kept."""
        if not why.strip():
            raise BadInput("a resume needs a reason: --why TEXT")
        if (stage, chain) not in self.degraded():
            raise BadInput(f"{stage} {chain} is not degraded: nothing to resume")
        self._write(stage, chain, OK, why, actor())

    def require(self, stage: str, chains: list[str]) -> None:
        """Raise Degraded if any of the chains is."""
        bad = {chain: why for (name, chain), why in self.degraded().items() if name == stage and chain in chains}
        if bad:
            chain, why = next(iter(bad.items()))
            raise Degraded(f"{stage} {chain} is degraded: {why}; then lake resume {stage} {chain} --why TEXT")

    def _write(self, stage: str, chain: str, status: str, reason: str, who: str) -> None:
        row = {"stage": stage, "chain": chain, "status": status, "reason": reason, "actor": who, "at": now()}
        self._control.append("health", [row])
