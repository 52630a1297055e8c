"""Small append-only tables of the control schema: health, runs, chains, maintenance, orphans, leases."""

from collections.abc import Mapping, Sequence
from datetime import timezone
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from chainlake.lake.names import Namespace


class ControlTables:
    """Append rows to them and read them back as dictionaries."""

    def __init__(self, spark: SparkSession, namespace: Namespace) -> None:
        self._spark = spark
        self._namespace = namespace
        self._schemas: dict[str, StructType] = {}

    def append(self, name: str, rows: Sequence[Mapping[str, Any]], **options: object) -> None:
        """Add rows. Columns that a row does not give are NULL. `options` go to the Delta writer."""
        table = self._namespace.control(name)
        if name not in self._schemas:
            self._schemas[name] = self._spark.table(table).schema
        schema = self._schemas[name]
        values = [tuple(row.get(field.name) for field in schema.fields) for row in rows]
        writer = self._spark.createDataFrame(values, schema).coalesce(1).write.format("delta").mode("append")
        for key, value in options.items():
            writer = writer.option(key, str(value))
        writer.saveAsTable(table)

    def read(self, name: str) -> list[dict[str, Any]]:
        """All rows as dictionaries; times are aware and in UTC. A filter would cost more than it saves on tables this small."""
        rows: list[dict[str, Any]] = self._spark.table(self._namespace.control(name)).toArrow().to_pylist()
        for row in rows:
            for key, value in row.items():
                if hasattr(value, "astimezone"):
                    row[key] = value.astimezone(timezone.utc)
        return rows
