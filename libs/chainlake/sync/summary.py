"""What each pass of a batch did, and which offsets its notifications have: counted by Spark in one job, numbered here."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.lake.stage import Batch
from chainlake.sync.rules import CASES

COLUMNS = {
    "_chain": "string",
    "_height": "bigint",
    "first_offset": "bigint",
    "notifications": "bigint",
    "miniblocks": "bigint",
    "historical": "bigint",
    "streams": "bigint",
    "state_writes": "bigint",
    "cases": "map<string, bigint>",
    "passed_at": "timestamp",
}
PASSES = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


def exploded(folded: DataFrame, name: str) -> DataFrame:
    """A list of what was made of each stream, row by row."""
    return folded.select("_chain", "stream_id", F.explode(name).alias("one")).select("_chain", "stream_id", "one.*")


def count_passes(batch: Batch, folded: DataFrame, news: DataFrame, bad: DataFrame) -> list[dict[str, Any]]:
    """Rows by pass: what was made of its streams, and of how many; of the pass before the batch, only where offsets go on."""
    at = ["_chain", "_height"]
    before = batch.snapshot.between("gold.sync_passes", {chain: (low - 1, low) for chain, (low, _) in batch.ranges.items()})
    parts = [
        batch.read("raw.blocks").select(*at, F.col("timestamp").alias("passed_at")),
        exploded(folded, "passes").select(*at, "case"),
        exploded(folded, "delivered").select(*at, "delivered", "historical"),
        exploded(folded, "states").select(*at, F.lit(True).alias("state")),
        exploded(folded, "gaps").select(*at, F.lit(True).alias("gap")),
        bad.select(*at, F.lit(True).alias("bad")),
        news.select(*at, F.size("places").alias("news")),
        before.select(*at, (F.col("first_offset") + F.col("notifications")).alias("next_offset")),
    ]
    every = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    counted = every.groupBy(*at).agg(
        F.max("passed_at").alias("passed_at"),
        F.max("next_offset").alias("next_offset"),
        F.coalesce(F.sum("news"), F.lit(0)).alias("notifications"),
        F.count("delivered").alias("held"),
        F.count_if("delivered").alias("miniblocks"),
        F.count_if(F.col("delivered") & F.col("historical")).alias("historical"),
        F.count("case").alias("streams"),
        F.count("state").alias("state_writes"),
        F.count("gap").alias("gaps"),
        F.count("bad").alias("quarantined"),
        *(F.count_if(F.col("case") == case).alias(f"case_{case}") for case in CASES),
    )
    return [row.asDict() for row in counted.collect()]


def number_passes(counts: Sequence[Mapping[str, Any]], ranges: Mapping[str, tuple[int, int]]) -> list[tuple[Any, ...]]:
    """Rows of gold.sync_passes: the notifications of a pass are numbered on from those of the pass before."""
    following = {chain: 1 for chain in ranges}
    rows = []
    for row in sorted(counts, key=lambda one: (one["_chain"], one["_height"])):
        chain = row["_chain"]
        if row["_height"] <= ranges[chain][0]:
            following[chain] = row["next_offset"]
            continue
        cases = {case: row[f"case_{case}"] for case in CASES if row[f"case_{case}"]}
        made = {**row, "first_offset": following[chain], "cases": cases}
        rows.append(tuple(made[name] for name in COLUMNS))
        following[chain] += row["notifications"]
    return rows
