"""What Spark itself takes on this machine: the rows that a stage made, copied from Parquet files into plain Delta tables.

Nothing is decoded, checked or summed up, and there is no ledger. No stage can be faster than that.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from chainlake.bench.plain_delta import append_seconds
from chainlake.lake.names import physical
from chainlake.lake.session import settings
from chainlake.lake.stage import Stage


def copy_seconds(spark: SparkSession, stage: Stage, files: Mapping[str, Sequence[Path]], directory: Path) -> float:
    """Seconds to append the Parquet files of a stage's tables to Delta tables in a directory: all tables at once and with the
    settings of the stage, as a commit does."""
    frames = {directory / physical(table): spark.read.parquet(*map(str, paths)) for table, paths in files.items() if paths}
    with settings(spark, stage.write_settings):
        return append_seconds(frames)
