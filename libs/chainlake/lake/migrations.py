"""Schema changes of an existing lake: numbered files in tables/migrations, applied once, in order, safe to repeat.

A file holds `ALTER TABLE store.<physical> …` statements separated by `;`. Adding a column or a constraint that is there already
is skipped, so that a crash between a change and its record does no harm, and a table that Delta's RESTORE took back to before a
migration can have it again.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from chainlake.errors import BadInput
from chainlake.lake.clock import now
from chainlake.lake.sql_text import split_statements

if TYPE_CHECKING:
    from chainlake.lake.catalog import Catalog


@dataclass(frozen=True)
class Migration:
    """One file."""

    number: int
    name: str
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def statements(self) -> list[str]:
        return split_statements(self.text)


def find(directories: Iterable[Path]) -> list[Migration]:
    """All migrations by number, whichever directory they are in."""
    found = []
    for path in (p for directory in directories for p in (directory / "migrations").glob("*.sql")):
        match = re.match(r"(\d{4})_\w+\.sql$", path.name)
        if not match:
            raise BadInput(f"{path}: a migration is named 0001_what_changes.sql")
        found.append(Migration(int(match.group(1)), path.name, path.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: (migration.number, migration.name))
    for first, second in pairwise(found):
        if first.number == second.number:
            raise BadInput(f"{first.name} and {second.name} have the same number: give the newer migration the next one")
    return found


def migrate(spark: SparkSession, catalog: "Catalog", directories: Iterable[Path], fresh: bool) -> list[str]:
    """Apply what this lake has not had. A new lake is made from the declarations and has had them all."""
    wanted = find(directories)
    if not wanted:
        return []
    table = catalog.namespace.control("migrations")
    applied = {row[0]: row[1] for row in spark.table(table).select("number", "digest").collect()}
    done = []
    for migration in wanted:
        if migration.number in applied:
            if applied[migration.number] != migration.digest:
                raise BadInput(f"migration {migration.name} was changed after it was applied: add a new one instead")
            continue
        if not fresh:
            for statement in migration.statements():
                _apply(spark, catalog, statement)
        record = [(migration.number, migration.name, migration.digest, now())]
        frame = spark.createDataFrame(record, spark.table(table).schema)
        frame.write.format("delta").mode("append").saveAsTable(table)
        done.append(migration.name)
    return done


def migrate_again(spark: SparkSession, catalog: "Catalog", stored: str) -> None:
    """What migrations change in one table, once more: RESTORE takes its columns and constraints back too."""
    for migration in find(catalog.directories):
        for statement in migration.statements():
            if re.match(rf"ALTER TABLE store\.{stored}\s", statement, re.IGNORECASE):
                _apply(spark, catalog, statement)


def _apply(spark: SparkSession, catalog: "Catalog", statement: str) -> None:
    match = re.match(r"ALTER TABLE (store|control)\.(\w+)\s+(.*)$", statement, re.DOTALL | re.IGNORECASE)
    if not match:
        raise BadInput(f"a migration may only ALTER TABLE store.<name> or control.<name>: {statement[:60]!r}")
    schema, name, change = match.groups()
    full = f"{catalog.namespace.schema(schema.lower())}.`{name}`"
    column = re.match(r"ADD COLUMNS?\s*\(?\s*`?(\w+)", change, re.IGNORECASE)
    if column and column.group(1) in spark.table(full).columns:
        return
    check = re.match(r"ADD CONSTRAINT\s+`?(\w+)", change, re.IGNORECASE)
    if check and catalog.has_constraint(schema.lower(), name, check.group(1)):
        return
    mark = json.dumps({"migration": name})
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", mark)
    try:
        spark.sql(f"ALTER TABLE {full} {change}")
    finally:
        spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
