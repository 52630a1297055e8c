"""Streams on Spark: passes to checked events, events to notifications and the state that moves with them."""

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from chainlake.lake.stage import Batch, Output, Stage
from chainlake.sync import decode
from chainlake.sync.checks import delivery_problems
from chainlake.sync.fold import FOLDED, STATE, fold
from chainlake.sync.rules import CASES

STREAM = ["_chain", "stream_id"]
MARK = (
    "_height",
    "tx_index",
    "miniblock_num",
    "miniblock_hash",
    "prev_miniblock_hash",
    "timestamp",
    "has_snapshot",
    "problem",
)
ANSWER = ("_height", "pages", "snapshot_index", "is_whole", "catch_up", "live", "passed_at")
NONE = -1
ORDER = ("minipool", "tx_index", "event_index")


def sync_stages() -> tuple[Stage, ...]:
    """From passes to notifications."""
    return (
        Stage(
            "bronze.sync",
            "river",
            ("bronze.stream_answers", "bronze.stream_miniblocks", "bronze.stream_events"),
            ("raw.sync",),
            bronze,
            max_rows=1_000_000,
        ),
        Stage(
            "gold.sync",
            "river",
            (
                "gold.stream_sync_state",
                "gold.notifications",
                "gold.sync_gaps",
                "gold.sync_quarantine",
                "gold.sync_miniblocks",
                "gold.sync_passes",
            ),
            ("bronze.sync",),
            gold,
            max_rows=3_000_000,
            verify=delivery_problems,
        ),
    )


def bronze(batch: Batch) -> Output:
    """Whose each miniblock is, what it holds, and whether it is sound."""
    blocks = batch.read("raw.blocks").select("_chain", "_height", "payload", "timestamp")
    answers = batch.keep(blocks.mapInArrow(decode.answers, decode.ANSWERS))
    tx_index = F.explode(F.sequence("first_tx", F.col("first_tx") + F.col("miniblocks") - 1)).alias("tx_index")
    places = answers.filter("miniblocks > 0").select("_chain", "_height", "stream_id", tx_index)
    payloads = batch.read("raw.transactions").select("_chain", "_height", "tx_index", "payload")
    placed = payloads.join(places, ["_chain", "_height", "tx_index"]).select(*decode.PLACE, "payload")
    miniblocks = batch.keep(placed.mapInArrow(decode.miniblocks, decode.MINIBLOCKS))
    held = _events(miniblocks, F.col("tx_index"), F.col("miniblock_num"), F.lit(False))
    waiting = _events(answers, F.lit(NONE), F.col("minipool_gen"), F.lit(True))
    return Output(
        {
            "bronze.stream_answers": answers.drop("events"),
            "bronze.stream_miniblocks": miniblocks.drop("events"),
            "bronze.stream_events": held.unionByName(waiting),
        }
    )


def _events(frame: DataFrame, tx_index: Column, number: Column, minipool: Column) -> DataFrame:
    return frame.select(
        "_chain",
        "_height",
        "stream_id",
        tx_index.alias("tx_index"),
        number.alias("miniblock_num"),
        minipool.alias("minipool"),
        F.posexplode("events").alias("event_index", "event"),
    ).select("*", "event.*")


def gold(batch: Batch) -> Output:
    """Deliver what is new of each stream, in order and once; the state moves with it."""
    folded = batch.keep(streams_of(batch).mapInArrow(fold, FOLDED))
    delivered = _exploded(folded, "delivered")
    news = batch.keep(_unseen(batch, _due(batch, folded, delivered)))
    passes = _passes(batch, folded, news)
    return Output(
        {
            "gold.stream_sync_state": _exploded(folded, "states"),
            "gold.notifications": _numbered(news, passes),
            "gold.sync_gaps": _exploded(folded, "gaps"),
            "gold.sync_quarantine": _quarantined(batch, folded),
            "gold.sync_miniblocks": delivered,
            "gold.sync_passes": passes,
        }
    )


def streams_of(batch: Batch) -> DataFrame:
    """One row per stream of the batch: its state before, what came, and what it was delivered at the numbers that came."""
    answers = batch.read("bronze.stream_answers")
    came = batch.read("bronze.stream_miniblocks")
    state = batch.state("gold.stream_sync_state", answers.select(*STREAM))
    numbers = came.select(*STREAM, F.explode(F.array("miniblock_num", F.col("miniblock_num") - 1)).alias("miniblock_num"))
    before = batch.snapshot.between("gold.sync_miniblocks", _before(batch))
    ours = before.join(numbers.distinct(), [*STREAM, "miniblock_num"], "left_semi")
    parts = [
        answers.select(*STREAM, F.struct(*ANSWER).alias("answers")),
        came.select(*STREAM, F.struct(*MARK).alias("marks")),
        state.select(*STREAM, F.struct(*STATE).alias("state")),
        ours.select(*STREAM, F.struct("miniblock_num", "miniblock_hash").alias("ours")),
    ]
    every = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    lists = [F.collect_list(name).alias(name) for name in ("answers", "marks", "ours")]
    return every.groupBy(*STREAM).agg(*lists, F.first("state", ignorenulls=True).alias("state"))


def _before(batch: Batch) -> dict[str, tuple[int, int]]:
    return {chain: (-1, low) for chain, (low, _) in batch.ranges.items()}


def _exploded(folded: DataFrame, name: str) -> DataFrame:
    return folded.select(*STREAM, F.explode(name).alias("one")).select(*STREAM, "one.*")


def _due(batch: Batch, folded: DataFrame, delivered: DataFrame) -> DataFrame:
    """The events of what is delivered: of miniblocks, then of minipools."""
    events = batch.read("bronze.stream_events").filter("problem IS NULL")
    flags = delivered.filter("delivered").select("_chain", "_height", "tx_index", "historical", "duplicate")
    held = events.filter("NOT minipool").join(flags, ["_chain", "_height", "tx_index"])
    pools = _exploded(folded, "passes").filter("minipool").select(*STREAM, "_height")
    waiting = events.filter("minipool").join(pools, [*STREAM, "_height"], "left_semi")
    waiting = waiting.withColumns({"historical": F.lit(False), "duplicate": F.lit(False)})
    return held.select(waiting.columns).unionByName(waiting)


def _unseen(batch: Batch, due: DataFrame) -> DataFrame:
    """Events that were not delivered before: neither in this batch nor ever. What is flagged comes again all the same."""
    first = Window.partitionBy(*STREAM, "event_hash").orderBy("duplicate", "_height", *ORDER)
    due = due.withColumn("nth", F.row_number().over(first)).filter("nth = 1 OR duplicate").drop("nth")
    before = batch.snapshot.between("gold.notifications", _before(batch)).select(
        F.col("_chain").alias("b_chain"), F.col("stream_id").alias("b_stream"), F.col("event_hash").alias("b_hash")
    )
    same = [F.col("_chain") == F.col("b_chain"), F.col("stream_id") == F.col("b_stream"), F.col("event_hash") == F.col("b_hash")]
    return due.join(before, reduce(and_, [*same, ~F.col("duplicate")]), "left_anti")


def _passes(batch: Batch, folded: DataFrame, news: DataFrame) -> DataFrame:
    """What each pass of the batch did, and where its notifications begin."""
    at = ["_chain", "_height"]
    parts = [
        batch.read("raw.blocks").select(*at, F.col("timestamp").alias("passed_at")),
        _exploded(folded, "passes").select(*at, "case"),
        _exploded(folded, "delivered").filter("delivered").select(*at, "historical"),
        _exploded(folded, "states").select(*at, F.lit(True).alias("state")),
        news.select(*at, F.lit(True).alias("news")),
    ]
    every = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    passes = every.groupBy(*at).agg(
        F.max("passed_at").alias("passed_at"),
        F.count("news").alias("notifications"),
        F.count("historical").alias("miniblocks"),
        F.count_if("historical").alias("historical"),
        F.count("case").alias("streams"),
        F.count("state").alias("state_writes"),
        F.map_from_arrays(F.array(*map(F.lit, CASES)), F.array(*[F.count_if(F.col("case") == case) for case in CASES])).alias(
            "cases"
        ),
    )
    last = batch.snapshot.between("gold.sync_passes", {chain: (low - 1, low) for chain, (low, _) in batch.ranges.items()})
    last = last.select("_chain", (F.col("first_offset") + F.col("notifications")).alias("next_offset"))
    earlier = Window.partitionBy("_chain").orderBy("_height").rowsBetween(Window.unboundedPreceding, -1)
    begun = F.coalesce("next_offset", F.lit(1)) + F.coalesce(F.sum("notifications").over(earlier), F.lit(0))
    passes = passes.withColumn("cases", F.map_filter("cases", lambda _, streams: streams > 0))
    return passes.join(F.broadcast(last), "_chain", "left").withColumn("first_offset", begun).drop("next_offset")


def _numbered(news: DataFrame, passes: DataFrame) -> DataFrame:
    """Offsets by pass, stream, and order within the stream."""
    at = ["_chain", "_height"]
    place = F.row_number().over(Window.partitionBy(*at).orderBy("stream_id", *ORDER))
    starts = F.broadcast(passes.select(*at, "first_offset"))
    return news.withColumn("place", place).join(starts, at).withColumn("offset", F.col("first_offset") + F.col("place") - 1)


def _quarantined(batch: Batch, folded: DataFrame) -> DataFrame:
    """Unsound miniblocks that stopped their stream, and unsound events of minipools."""
    blocks = _exploded(folded, "quarantined").withColumn("event_index", F.lit(NONE))
    events = batch.read("bronze.stream_events").filter("problem IS NOT NULL")
    events = events.withColumns({"hash": F.col("event_hash"), "reason": F.col("problem")})
    return blocks.unionByName(events.select(*blocks.columns))
