"""Streams by the million for the planning of sync: each has a state and a last miniblock, and its node has answered.

Most stand still, one in ten has grown. The lake holds all of it in its own tables, the peer in tables of PostgreSQL.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from chainlake.lake import Lake, Output
from chainlake.lake.chains import Chain
from chainlake.lake.runner import LaneRun, Timings
from chainlake.lake.stage import Batch
from chainlake.sync.fold import FOLDED, fold
from chainlake.sync.stages import streams_of

GEN, AHEAD = 100, 3


def persist(lake: Lake, chain: str, streams: int) -> None:
    """States as of pass 1, answers as of pass 2."""
    lake.chains.add(Chain(chain, "river", "made up", {}))
    ids = lake.spark.range(streams).withColumn("stream_id", F.unhex(F.lpad(F.hex("id"), 64, "0")))
    held = {"_chain": F.lit(chain), "_height": F.lit(1).cast("long")}
    states = ids.withColumns(held).withColumns(
        {
            "snapshot_miniblock": F.lit(GEN - 10),
            "minipool_gen": F.lit(GEN),
            "prev_miniblock_hash": F.col("stream_id"),
            "first_miniblock": F.lit(0),
            "genesis_hash": F.col("stream_id"),
            "reset_reason": F.lit(None).cast("string"),
            "stopped": F.lit(None).cast("string"),
            "updated_at": F.current_timestamp(),
        }
    )
    last = {"tx_index": F.col("id").cast("int"), "miniblock_num": F.lit(GEN - 1), "miniblock_hash": F.col("stream_id")}
    flags = {"timestamp": F.current_timestamp(), "passed_at": F.current_timestamp(), "delivered": F.lit(True)}
    held_blocks = ids.withColumns({**held, **last, **flags, "historical": F.lit(False), "duplicate": F.lit(False)})
    _commit(lake, "gold.sync", chain, 1, {"gold.stream_sync_state": states, "gold.sync_miniblocks": held_blocks})
    came = ids.withColumns({**held, "_height": F.lit(2).cast("long")})
    _commit(lake, "bronze.sync", chain, 2, {"bronze.stream_answers": _answers(came), "bronze.stream_miniblocks": _marks(came)})


def plan(lake: Lake, chain: str) -> int:
    """What the gold stage does first: every stream with its state, history and answer, and the rules for each. How many."""
    tables = ("gold.stream_sync_state", "gold.sync_miniblocks", "bronze.stream_answers", "bronze.stream_miniblocks")
    batch = Batch(lake.spark, lake.snapshot(tables), {chain: (1, 2)}, {})
    planned = streams_of(batch).mapInArrow(fold, FOLDED).select(F.explode("passes").alias("one"))
    return sum(row["count"] for row in planned.groupBy("one.case").count().collect())


def _answers(came: DataFrame) -> DataFrame:
    return came.withColumns(
        {
            "first_tx": (F.col("id") * (AHEAD + 1)).cast("int"),
            "miniblocks": _grown() + 1,
            "pages": F.lit(0),
            "snapshot_index": F.lit(0),
            "minipool_gen": (F.lit(GEN) + _grown()).cast("long"),
            "prev_miniblock_hash": _hash(_grown()),
            "is_whole": F.lit(True),
            "catch_up": F.lit(False),
            "live": F.lit(True),
            "passed_at": F.current_timestamp(),
        }
    )


def _marks(came: DataFrame) -> DataFrame:
    blocks = came.withColumn("ahead", F.explode(F.sequence(F.lit(0), _grown())))
    return blocks.withColumns(
        {
            "tx_index": (F.col("id") * (AHEAD + 1) + F.col("ahead")).cast("int"),
            "miniblock_num": (F.lit(GEN - 1) + F.col("ahead")).cast("long"),
            "miniblock_hash": _hash(F.col("ahead")),
            "prev_miniblock_hash": F.when(F.col("ahead") == 0, F.lit(bytes(32))).otherwise(_hash(F.col("ahead") - 1)),
            "timestamp": F.current_timestamp(),
            "has_snapshot": F.lit(False),
            "event_count": F.lit(1),
            "problem": F.lit(None).cast("string"),
        }
    )


def _grown() -> Column:
    return F.when(F.col("id") % 10 == 0, AHEAD).otherwise(0)


def _hash(ahead: Column) -> Column:
    """The hash of the miniblock so many ahead of the one that we hold: that one's is the stream's id."""
    marked = F.concat(F.unhex(F.lpad(F.hex(ahead.cast("long")), 2, "0")), F.substring("stream_id", 2, 31))
    return F.when(ahead == 0, F.col("stream_id")).otherwise(marked)


def _commit(lake: Lake, stage_name: str, chain: str, height: int, frames: Mapping[str, DataFrame]) -> None:
    stage = lake.stages.get(stage_name)
    with lake.lease(stage.name, chain) as lease:
        writing = LaneRun(lake, stage, [chain], lease, 1, 1)
        writing.refresh()
        tables = {name: lake.spark.table(lake.namespace.store(name)).filter("false") for name in stage.tables}
        writing.write({chain: (0, height)}, Output({**tables, **frames}), {}, Timings())
