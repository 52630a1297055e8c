"""Physical work on tables, marked in Delta's log and recorded in control.maintenance, so that `verify` can explain it."""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from chainlake.lake.clock import actor, now
from chainlake.lake.control import ControlTables, is_conflict

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class Maintenance:
    """Maintenance actions of one lake."""

    def __init__(self, lake: "Lake") -> None:
        self._lake = lake

    @contextmanager
    def marked(self, action: str, action_id: str, **more: object) -> Iterator[None]:
        """Statements inside carry a mark in the Delta log that names the action."""
        spark = self._lake.spark
        spark.conf.set(METADATA, json.dumps({"maintenance": action, "id": action_id, **more}))
        try:
            yield
        finally:
            spark.conf.unset(METADATA)

    def record(self, action: str, action_id: str, state: str, details: Mapping[str, Any], stage: str | None = None) -> None:
        row = {"id": action_id, "action": action, "state": state, "stage": stage, "details": json.dumps(details)}
        self._lake.control.append("maintenance", [{**row, "actor": actor(), "at": now()}])

    def records(self, action: str) -> list[dict[str, Any]]:
        """Records of an action, oldest first, with their details parsed."""
        return records(self._lake.control, action)

    def optimize(self, full_name: str, name: str) -> None:
        """Pack small files into few. Where others rewrite the same files at that moment, they stay for the next time."""
        try:
            with self.marked("optimize", secrets.token_hex(8), table=name):
                self._lake.spark.sql(f"OPTIMIZE {full_name}")
        except PySparkException as error:
            if not is_conflict(error):
                raise


def records(control: ControlTables, action: str) -> list[dict[str, Any]]:
    """Records of an action in a lake's control.maintenance, oldest first, with their details parsed."""
    rows = [row for row in control.read("maintenance") if row["action"] == action]
    return [{**row, "details": json.loads(row["details"])} for row in sorted(rows, key=lambda row: row["at"])]
