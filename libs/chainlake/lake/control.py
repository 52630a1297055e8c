"""Small append-only tables of the control schema: ledger, leases, health, runs, chains, maintenance, orphans.

They are written by Spark alone. Local ones are read without it (delta-rs): a run reads them often, and milliseconds instead of
half a second each are most of what a small run costs.
"""

from collections.abc import Mapping, Sequence
from datetime import timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from chainlake.lake.delta_rs import open_table
from chainlake.lake.names import Namespace


class ControlTables:
    """Append rows to them and read them back. `location` is the directory of local tables."""

    def __init__(self, spark: SparkSession, namespace: Namespace, location: Path | None) -> None:
        self._spark = spark
        self._namespace = namespace
        self._location = location / f"{namespace.prefix}control" if location else None
        self._schemas: dict[str, StructType] = {}

    def append(self, name: str, rows: Sequence[Mapping[str, Any]], **options: object) -> None:
        """Add rows. Columns that a row does not give are NULL. `options` go to the Delta writer."""
        table = self._namespace.control(name)
        schema = self.schema(name)
        values = [tuple(row.get(field.name) for field in schema.fields) for row in rows]
        writer = self._spark.createDataFrame(values, schema).coalesce(1).write.format("delta").mode("append")
        for key, value in options.items():
            writer = writer.option(key, str(value))
        writer.saveAsTable(table)

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
            return self._spark.table(self._namespace.control(name)).toArrow()
        return open_table(self._location / name).to_pyarrow_table()

    def schema(self, name: str) -> StructType:
        if name not in self._schemas:
            self._schemas[name] = self._spark.table(self._namespace.control(name)).schema
        return self._schemas[name]
