"""Small append-only tables of the control schema: ledger, leases, health, runs, chains, maintenance, orphans.

Local ones are written and read without Spark (delta-rs): a run does so often, and milliseconds instead of half a second each are
most of what a small run costs. Elsewhere Spark does both.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from chainlake.errors import Unavailable
from chainlake.lake import delta_rs
from chainlake.lake.delta_rs import Turn
from chainlake.lake.names import Namespace


def ledger_is_gone(path: object, witness: str) -> Unavailable:
    """A lake without its ledger is no new one: with an empty ledger, garbage collection would take all of its rows."""
    return Unavailable(f"{path} is gone, but {witness} has rows: see Repairing in docs/operations.md")


class ControlTables:
    """Append rows to them and read them back. `location` is the directory of local tables, for which no Spark is needed."""

    def __init__(self, spark: SparkSession | None, namespace: Namespace, location: Path | None) -> None:
        self._spark = spark
        self._namespace = namespace
        self._location = location / f"{namespace.prefix}control" if location else None
        self._schemas: dict[str, StructType] = {}

    def append(
        self,
        name: str,
        rows: Sequence[Mapping[str, Any]],
        mark: Mapping[str, Any] | None = None,
        turn: Turn | None = None,
        confirm: Callable[[], None] | None = None,
    ) -> None:
        """Add rows, with `mark` in Delta's log. Columns that a row does not give are NULL.

        With a turn, the rows are added only if no other writer took it. Whether they were, only the mark in Delta's log tells.
        `confirm` may still refuse: locally, nobody else writes to the table while it is asked.
        """
        written = json.dumps(mark) if mark else None
        if self._location is not None:
            delta_rs.append(self._location / name, rows, written, turn, confirm)
            return
        if confirm is not None:
            confirm()
        self._append_by_spark(name, rows, written, turn)

    def wait_for_writers(self, name: str) -> None:
        """Let those who are writing to a local table at this moment finish."""
        with self.alone(name):
            pass

    @contextmanager
    def alone(self, name: str, seconds: float = delta_rs.LOCK_SECONDS) -> Iterator[None]:
        """Inside, nobody else of a local lake who asks for the same name goes on; they wait so long. Elsewhere there is no such
        thing."""
        if self._location is None:
            yield
            return
        self._location.mkdir(parents=True, exist_ok=True)
        with delta_rs.alone(self._location / name, seconds):
            yield

    def _append_by_spark(self, name: str, rows: Sequence[Mapping[str, Any]], mark: str | None, turn: Turn | None) -> None:
        schema = self.schema(name)
        values = [tuple(row.get(field.name) for field in schema.fields) for row in rows]
        writer = self._session().createDataFrame(values, schema).coalesce(1).write.format("delta").mode("append")
        if mark:
            writer = writer.option("userMetadata", mark)
        if turn:
            writer = writer.option("txnAppId", turn.series).option("txnVersion", turn.number)
        try:
            writer.saveAsTable(self._namespace.control(name))
        except PySparkException as error:
            if turn is None or not is_conflict(error):
                raise

    def vacuum(self, name: str) -> None:
        """Delete the files of a table that no version within its retention needs."""
        if self._location is not None:
            delta_rs.vacuum(self._location / name)
        else:
            self._session().sql(f"VACUUM {self._namespace.control(name)}").collect()

    def read(self, name: str) -> list[dict[str, Any]]:
        """All rows as dictionaries; times are aware and in UTC. A filter would cost more than it saves on tables this small."""
        rows: list[dict[str, Any]] = self.arrow(name).to_pylist()
        for row in rows:
            for key, value in row.items():
                if hasattr(value, "astimezone"):
                    row[key] = value.astimezone(timezone.utc)
        return rows

    def arrow(self, name: str) -> pa.Table:
        """The whole table as it is now."""
        if self._location is None:
            return self._session().table(self._namespace.control(name)).toArrow()
        return delta_rs.read(self._location / name)

    def schema(self, name: str) -> StructType:
        if name not in self._schemas:
            self._schemas[name] = self._session().table(self._namespace.control(name)).schema
        return self._schemas[name]

    def _session(self) -> SparkSession:
        assert self._spark is not None, "only Spark knows where the tables are"
        return self._spark


def is_conflict(error: PySparkException) -> bool:
    """Delta refused the write because another one came first."""
    return "DELTA_CONCURRENT" in str(error) or "ConcurrentTransaction" in str(error)
