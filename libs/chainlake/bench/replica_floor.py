"""The floor under a follower on Spark: the rows that it has written, merely copied from Parquet into plain Delta tables, without
rules, checksums and ledger."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chainlake.lake import Lake


def copy_seconds(lake: Lake, chain: str, tables: Sequence[str], directory: Path) -> float:
    """Seconds to copy all rows of a chain in these tables, side by side as a commit writes them."""
    given = {table: str(directory / "given" / table) for table in tables}
    for table, path in given.items():
        lake.history(table, chain=chain).write.parquet(path)

    def copy(table: str) -> None:
        lake.spark.read.parquet(given[table]).write.format("delta").save(str(directory / "copied" / table))

    began = time.monotonic()
    with ThreadPoolExecutor(len(tables)) as pool:
        list(pool.map(copy, tables))
    return time.monotonic() - began
