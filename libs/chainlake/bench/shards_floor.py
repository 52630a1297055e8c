"""What Spark alone takes for the rows that a chain leaves: they are merely copied, nothing computed, checked or committed."""

from collections.abc import Sequence
from pathlib import Path

from chainlake.bench.plain_delta import append_seconds
from chainlake.lake import Lake
from chainlake.lake.names import physical


def copy_seconds(lake: Lake, stages: Sequence[str], above: int, directory: Path) -> float:
    """How long plain Spark takes to copy the rows above a height of all tables of some stages from Parquet into plain Delta
    tables: stage by stage, the tables of a stage side by side, as a commit appends them. To write the Parquet is not timed."""
    seconds = 0.0
    for stage in stages:
        tables = lake.stages.get(stage).tables
        for table in tables:
            stored = lake.spark.table(lake.catalog.namespace.store(table))
            stored.filter(stored["_height"] > above).write.parquet(_parquet(directory, table))
        parquet = {table: lake.spark.read.parquet(_parquet(directory, table)) for table in tables}
        seconds += append_seconds({directory / f"delta_{physical(table)}": frame for table, frame in parquet.items()})
    return seconds


def _parquet(directory: Path, table: str) -> str:
    return str(directory / f"parquet_{physical(table)}")
