"""What Spark itself takes on this machine: the rows that a stage made, copied from Parquet files into plain Delta tables.

Nothing is decoded, checked or summed up, and there is no ledger. No stage can be faster than that.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from chainlake.lake.names import physical
from chainlake.lake.session import settings
from chainlake.lake.stage import Stage


def copy_seconds(spark: SparkSession, stage: Stage, files: Mapping[str, Sequence[Path]], directory: Path) -> float:
    """Seconds to append the Parquet files of a stage's tables to Delta tables in a directory: all tables at once and with the
    settings of the stage, as a commit does."""
    frames = {table: spark.read.parquet(*map(str, paths)) for table, paths in files.items() if paths}

    def append(item: tuple[str, DataFrame]) -> None:
        table, frame = item
        frame.write.format("delta").mode("append").save(str(directory / physical(table)))

    began = time.monotonic()
    with settings(spark, stage.write_settings), ThreadPoolExecutor(len(frames)) as pool:
        list(pool.map(append, frames.items()))
    return time.monotonic() - began
