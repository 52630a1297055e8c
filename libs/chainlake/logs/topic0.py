"""How often each signature occurs, by steps of a window that moves with the chain, and whether it is hot."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.lake.stage import Batch
from chainlake.logs.rules import STEP_BLOCKS, WINDOW_STEPS, mode_sql


def topic0_stats(batch: Batch, signatures: DataFrame, chain: str, high: int) -> DataFrame:
    """Counts by step of the window, old and new together; only rows of which the counts or the mode changed are written."""
    before = batch.state("gold.topic0_stats").drop("_chain", "_height")
    step = F.expr(f"block_number div {STEP_BLOCKS}").alias("step")
    fresh = signatures.groupBy("topic0", step).agg(
        F.count(F.lit(1)).alias("blocks"), F.sum("count").alias("logs"), F.max("block_number").alias("last_block")
    )
    old = before.select("topic0", F.explode("steps").alias("step", "c"), "last_block").selectExpr(
        "topic0", "step", "c.blocks", "c.logs", "last_block"
    )
    steps = fresh.unionByName(old).groupBy("topic0", "step")
    counted = steps.agg(F.sum("blocks").alias("blocks"), F.sum("logs").alias("logs"), F.max("last_block").alias("last_block"))
    first_step = high // STEP_BLOCKS - WINDOW_STEPS + 1
    inside = F.col("step") >= first_step
    entries = F.collect_list(F.when(inside, F.struct("step", F.struct("blocks", "logs"))))
    first_block = batch.snapshot.ledger.of("bronze.logs", chain).first_height()
    window = high - max(first_block or 0, first_step * STEP_BLOCKS - 1)
    now_ = counted.groupBy("topic0").agg(
        F.coalesce(F.sum(F.when(inside, F.col("logs"))), F.lit(0)).alias("logs"),
        F.coalesce(F.sum(F.when(inside, F.col("blocks"))), F.lit(0)).alias("blocks_with"),
        F.map_from_entries(entries).alias("steps"),
        F.max("last_block").alias("last_block"),
    )
    was = before.select("topic0", *[F.col(name).alias(f"was_{name}") for name in ("logs", "blocks_with", "mode")])
    joined = now_.join(was, "topic0", "left").withColumns(
        {
            "window_blocks": F.lit(window).cast("long"),
            "share": F.col("blocks_with") / F.lit(window),
            "_deleted": F.expr("logs = 0"),
        }
    )
    changed = "was_logs IS NULL OR logs <> was_logs OR blocks_with <> was_blocks_with OR mode <> was_mode"
    rows = joined.withColumn("mode", F.expr(mode_sql("share", "was_mode"))).filter(changed)
    return rows.withColumns({"_chain": F.lit(chain), "_height": F.lit(high).cast("long")}).coalesce(1)
