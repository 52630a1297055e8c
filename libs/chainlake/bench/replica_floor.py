"""The floor under a follower on Spark: the rows that it has written, merely copied from Parquet into plain Delta tables, without
rules, checksums and ledger."""

from collections.abc import Sequence
from pathlib import Path

from chainlake.bench.plain_delta import append_seconds
from chainlake.lake import Lake


def copy_seconds(lake: Lake, chain: str, tables: Sequence[str], directory: Path) -> float:
    """Seconds to copy all rows of a chain in these tables, side by side as a commit writes them."""
    given = {table: str(directory / "given" / table) for table in tables}
    for table, path in given.items():
        lake.history(table, chain=chain).write.parquet(path)
    return append_seconds({directory / "copied" / table: lake.spark.read.parquet(path) for table, path in given.items()})
