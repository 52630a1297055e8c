"""The stages of logs: raw transactions to numbered logs, logs to segments of the index, small segments to larger ones."""

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.lake.guardrail import number_from_environment
from chainlake.lake.stage import SMALL_ROW_GROUPS, Batch, OrphanLimit, Output, Stage
from chainlake.logs.checks import index_problems, merge_problems, numbering_problems
from chainlake.logs.merging import MergeRun
from chainlake.logs.numbering import bronze
from chainlake.logs.packed import WIDTHS
from chainlake.logs.segments import INDEX, MERGED, index_logs
from chainlake.logs.topic0 import topic0_rows

LOG_FILES = {
    **SMALL_ROW_GROUPS,
    "spark.sql.parquet.compression.codec": "snappy",
    "parquet.size.statistics.enabled": "false",
    **{f"parquet.column.statistics.enabled#{name}": "false" for name in (*WIDTHS, "data")},
    **{f"parquet.enable.dictionary#{name}": "false" for name in ("log_id", "data")},
}
"""Write settings of logs: hashes, addresses and data lie in no order, so what is smallest and largest helps nobody to skip them,
and telling takes a comparison for every value. No two logs have the same id and few the same data: a dictionary of them is
made to be thrown away. Row groups are small and have many pages: with zstd they take half as much again to read, for a sixth
of the bytes, since hashes cannot be compressed."""


def log_stages() -> tuple[Stage, ...]:
    """From raw transactions to the index."""
    return (
        Stage(
            "bronze.logs",
            "evm",
            ("bronze.evm_logs", "bronze.evm_blocks"),
            ("raw.logs",),
            bronze,
            max_blocks=200_000,
            max_rows=1_500_000,
            write_settings=LOG_FILES,
            verify=numbering_problems,
        ),
        Stage(
            "gold.logs",
            "evm",
            (*INDEX, "gold.block_meta", "gold.topic0_stats"),
            ("bronze.logs",),
            gold,
            max_blocks=500_000,
            max_rows=3_000_000,
            write_settings=SMALL_ROW_GROUPS,
            verify=index_problems,
            orphan_limits=orphan_limits(),
        ),
        Stage(
            "gold.log_merges",
            "evm",
            MERGED,
            ("gold.logs",),
            write_settings=SMALL_ROW_GROUPS,
            runner=MergeRun,
            verify=merge_problems,
            orphan_limits=orphan_limits(),
            as_needed=True,
        ),
    )


def orphan_limits() -> tuple[OrphanLimit, ...]:
    """Manifests and tails that attempts left which never committed: a killed bulk load leaves many. LAKE_ORPHAN_HARD_MANIFESTS
    and LAKE_ORPHAN_HARD_TAILS set other limits."""
    parts = {"manifests": 500_000, "tails": 1_000_000}
    return tuple(
        OrphanLimit(
            f"{part} of the log index",
            (f"gold.log_{part}", f"gold.log_{part}_merged"),
            int(number_from_environment(f"LAKE_ORPHAN_HARD_{part.upper()}", most)),
        )
        for part, most in parts.items()
    )


def gold(batch: Batch) -> Output:
    """One segment of the index for the batch, and the statistics of signatures."""
    ((chain, (_, high)),) = batch.ranges.items()
    index, signatures = index_logs(batch, chain, high)
    return Output(
        {
            **index,
            "gold.block_meta": batch.read("bronze.evm_blocks"),
            "gold.topic0_stats": _topic0_stats(batch, signatures, chain, high),
        }
    )


def _topic0_stats(batch: Batch, signatures: pa.Table, chain: str, high: int) -> DataFrame | None:
    """What changed of the statistics of signatures; None if nothing did."""
    first = batch.snapshot.ledger.of("bronze.logs", chain).first_height() or 0
    rows = topic0_rows(batch.versions("gold.topic0_stats").toArrow(), signatures, first, high)
    kernel = {"_chain": F.lit(chain), "_height": F.lit(high).cast("long")}
    return batch.spark.createDataFrame(rows).coalesce(1).withColumns(kernel) if rows.num_rows else None
