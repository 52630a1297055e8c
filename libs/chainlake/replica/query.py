"""Reads of a replica without Spark: its health, and rows that are fresh or say how stale they are.

Everything of one answer is read as of one look at the ledger. A shard with entries that wait is not fresh: what it shows is
right as of its last entry that was carried out, and a fresh read of it is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chainlake.errors import BadInput, LakeError
from chainlake.lake.visibility import History
from chainlake.replica.groups import META, OLD_META, SHARED, group_of
from chainlake.replica.timeline import Progress
from chainlake.serve.control import LakeControl
from chainlake.serve.embedded import EmbeddedLake, LedgerReader
from chainlake.serve.operations import degraded
from chainlake.serve.scan_rows import state_rows

STAGE = "silver.replica"
CAUGHT_UP, CATCHING_UP, DEGRADED = "caught_up", "catching_up", "degraded"


class NotFresh(LakeError):
    """A fresh read of a shard whose entries wait for Meta."""


@dataclass(frozen=True)
class GroupHealth:
    """How one log of a replica is."""

    group: str
    status: str
    applied_index: int
    executed_index: int
    pending: int
    waits_for: int | None
    waiting_since: int | None
    eligible_leader: bool


@dataclass(frozen=True)
class Health:
    """How a replica is: degraded if one of its stages stopped, catching up while a shard waits."""

    replica: str
    status: str
    delivery: int
    meta_index: int
    eligible_leader: bool
    degraded: Mapping[str, str]
    groups: tuple[GroupHealth, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Read:
    """Rows, and what they may lack: entries that wait, and for which Meta index. `pending` is 0 for a fresh read."""

    rows: list[dict[str, Any]]
    group: str
    pending: int
    waits_for: int | None
    waiting_since: int | None


class ReplicaReader:
    """The replicas of a lake directory."""

    def __init__(self, home: Path, prefix: str = "") -> None:
        self._lake = EmbeddedLake(home, prefix)
        self._control = LakeControl(self._lake)

    def names(self) -> list[str]:
        """The replicas that there are."""
        return sorted(name for name, row in self._control.chains().items() if row["kind"] == "raft")

    def health(self, replica: str, height: int | None = None) -> Health:
        """The health of a replica now, or as of a delivery."""
        history = self._history(replica)
        progress = self._progress(history, height)
        stopped = degraded(self._control.rows("health"), replica)
        groups = tuple(_group(name, now, bool(stopped)) for name, now in sorted(progress.items()))
        waits = any(group.pending for group in groups)
        head = history.head()
        return Health(
            replica,
            DEGRADED if stopped else CATCHING_UP if waits else CAUGHT_UP,
            height if height is not None else head.height if head else 0,
            _meta_index(progress),
            bool(groups) and not stopped and not waits,
            stopped,
            groups,
        )

    def read(self, replica: str, table_id: str, user_id: str | None = None, stale: bool = False) -> Read:
        """The rows of a table that belong to a user, or to all. A fresh read is refused while the shard waits."""
        group = SHARED if user_id is None else group_of(user_id)
        history = self._history(replica)
        now = self._progress(history).get(group, Progress())
        stopped = degraded(self._control.rows("health"), replica)
        if not stale and now.pending:
            raise NotFresh(
                f"{group} of {replica} waits for Meta index {now.waits_for} since delivery {now.waiting_since}, "
                f"{now.pending} entries are pending: wait for Meta, or read what there is with --stale"
            )
        if not stale and stopped:
            raise NotFresh(
                f"{replica} is degraded ({next(iter(stopped.values()))}): resume it, or read what there is with --stale"
            )
        key = ("group_name", "table_id", "row_key")
        wanted = {"group_name": group, "table_id": table_id}
        held = state_rows(self._lake, history, "silver.data_rows", key, ("user_id", "row_key", "row"), wanted)
        rows = [json.loads(row["row"]) for row in sorted(held, key=lambda row: row["row_key"]) if row["user_id"] == user_id]
        return Read(rows, group, now.pending, now.waits_for, now.waiting_since)

    def _history(self, replica: str) -> History:
        if replica not in self.names():
            raise BadInput(f"unknown replica {replica!r}: there are {', '.join(self.names()) or 'none yet'}")
        ledger = LedgerReader(self._lake, replica, (STAGE,))
        ledger.refresh()
        return ledger.view.of(STAGE, replica)

    def _progress(self, history: History, height: int | None = None) -> dict[str, Progress]:
        columns = ("group_name", *Progress._fields)
        rows = state_rows(self._lake, history, "silver.applied", ("group_name",), columns, height=height)
        return {row.pop("group_name"): Progress(**row) for row in rows}


def _group(name: str, now: Progress, stopped: bool) -> GroupHealth:
    status = DEGRADED if stopped else CATCHING_UP if now.pending else CAUGHT_UP
    told = (now.applied_index, now.executed_index, now.pending, now.waits_for, now.waiting_since)
    return GroupHealth(name, status, *told, eligible_leader=status == CAUGHT_UP)


def _meta_index(progress: Mapping[str, Progress]) -> int:
    logs = (META,) if META in progress else OLD_META
    return sum(now.applied_index for group, now in progress.items() if group in logs)
