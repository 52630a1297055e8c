"""Streams on Spark: passes to checked events, events to notifications and the state that moves with them.

Events are many and their payloads large, so what is delivered is decided by hashes and places alone, and kept miniblock by
miniblock. Payloads are read once, when everything is known, and moved only to be written.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from chainlake.lake.stage import Batch, Output, Stage
from chainlake.sync import decode
from chainlake.sync.checks import delivery_problems
from chainlake.sync.fold import FOLDED, STATE, fold
from chainlake.sync.summary import PASSES, count_passes, exploded, number_passes

STREAM = ["_chain", "stream_id"]
KEY = [*STREAM, "event_hash"]
MINIBLOCK = ["_chain", "_height", "stream_id", "minipool", "tx_index"]
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
FEW = 200_000
"""So many rows fit into the memory of every task, so that what they are joined with need not be moved."""


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
    few = batch.rows("raw.transactions") <= FEW
    placed = payloads.join(_near(places, few), ["_chain", "_height", "tx_index"]).select(*decode.PLACE, "payload")
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
    delivered, bad = exploded(folded, "delivered"), _quarantined(batch, folded)
    news = batch.keep(_unseen(batch, _due(batch, folded, delivered)))
    counts = count_passes(batch, folded, news, bad)
    passes = batch.spark.createDataFrame(number_passes(counts, batch.ranges), PASSES)
    frames = {
        "gold.stream_sync_state": (exploded(folded, "states"), "state_writes"),
        "gold.notifications": (_numbered(batch, news, passes), "notifications"),
        "gold.sync_gaps": (exploded(folded, "gaps"), "gaps"),
        "gold.sync_quarantine": (bad, "quarantined"),
        "gold.sync_miniblocks": (delivered, "held"),
    }
    made = {table: frame if any(row[count] for row in counts) else None for table, (frame, count) in frames.items()}
    return Output({**made, "gold.sync_passes": passes})


def streams_of(batch: Batch) -> DataFrame:
    """One row per stream of the batch: its state before, what came, and what it was delivered at the numbers that came."""
    answers = batch.read("bronze.stream_answers")
    came = batch.read("bronze.stream_miniblocks")
    state = batch.state("gold.stream_sync_state", answers.select(*STREAM))
    numbers = came.select(*STREAM, F.explode(F.array("miniblock_num", F.col("miniblock_num") - 1)).alias("miniblock_num"))
    before = batch.snapshot.between("gold.sync_miniblocks", _before(batch))
    few = batch.rows("bronze.stream_miniblocks") <= FEW
    ours = before.join(F.broadcast(numbers) if few else numbers.distinct(), [*STREAM, "miniblock_num"], "left_semi")
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


def _near(frame: DataFrame, few: bool) -> DataFrame:
    """A frame to join with: if it has few rows, every task gets all of them."""
    return F.broadcast(frame) if few else frame


def _due(batch: Batch, folded: DataFrame, delivered: DataFrame) -> DataFrame:
    """Places and hashes of the events of what is delivered: of miniblocks, then of minipools."""
    events = batch.read("bronze.stream_events").filter("problem IS NULL").select(*MINIBLOCK, "event_index", "event_hash")
    flags = delivered.filter("delivered").select("_chain", "_height", "tx_index", "historical", "duplicate")
    few = batch.rows("bronze.stream_miniblocks") <= FEW
    held = events.filter("NOT minipool").join(_near(flags, few), ["_chain", "_height", "tx_index"])
    pools = exploded(folded, "passes").filter("minipool").select(*STREAM, "_height")
    few = batch.rows("bronze.stream_answers") <= FEW
    waiting = events.filter("minipool").join(_near(pools, few), [*STREAM, "_height"], "left_semi")
    waiting = waiting.withColumns({"historical": F.lit(False), "duplicate": F.lit(False)})
    return held.select(waiting.columns).unionByName(waiting)


def _unseen(batch: Batch, due: DataFrame) -> DataFrame:
    """Miniblocks and minipools with the places of their events that were not delivered before, flagged or not: neither in this
    batch nor ever. What is flagged comes again all the same."""
    every = due.unionByName(_ever(batch).select(*KEY, F.lit(True).alias("seen")), allowMissingColumns=True)
    first = Window.partitionBy(*KEY).orderBy(F.col("seen").isNull(), *MINIBLOCK[1:], "event_index")
    every = every.repartition(*STREAM).withColumn("nth", F.row_number().over(first))  # all that follows is within a stream
    new = every.filter("seen IS NULL AND (nth = 1 OR duplicate)")
    places = F.sort_array(F.collect_list("event_index")).alias("places")
    return new.groupBy(*MINIBLOCK, "historical", "duplicate").agg(places)


def _ever(batch: Batch) -> DataFrame:
    """Notifications of before that may be among those of the batch. Of a small batch a digest is shown to the whole history, so
    that only what it may have in common has to be moved."""
    before = batch.snapshot.between("gold.notifications", _before(batch))
    if batch.rows("bronze.stream_events") > FEW:
        return before
    digest = F.xxhash64(*KEY).alias("digest")
    wanted = batch.read("bronze.stream_events").select(digest)
    return before.withColumn("digest", digest).join(F.broadcast(wanted), "digest", "left_semi")


def _numbered(batch: Batch, news: DataFrame, passes: DataFrame) -> DataFrame:
    """Offsets by pass, stream, and order within the stream; then what the events say. Rows are written in order of offset, for
    those who read on from one."""
    earlier = Window.partitionBy("_chain", "_height").orderBy(*MINIBLOCK[2:]).rowsBetween(Window.unboundedPreceding, -1)
    start = F.col("first_offset") + F.coalesce(F.sum(F.size("places")).over(earlier), F.lit(0))
    chosen = F.when(F.element_at("places", -1) >= F.size("places"), F.col("places"))  # else it is the first so many
    starts = news.join(F.broadcast(passes.select("_chain", "_height", "first_offset")), ["_chain", "_height"]).select(
        *MINIBLOCK, "historical", "duplicate", start.alias("start"), F.size("places").alias("many"), chosen.alias("chosen")
    )
    few = batch.rows("bronze.stream_miniblocks") + batch.rows("bronze.stream_answers") <= FEW
    events = batch.read("bronze.stream_events").filter("problem IS NULL").join(_near(starts, few), MINIBLOCK)
    place = F.coalesce(F.array_position("chosen", F.col("event_index")), F.col("event_index") + 1)
    events = events.withColumn("place", place).filter("place BETWEEN 1 AND many")
    return events.withColumn("offset", F.col("start") + F.col("place") - 1).sortWithinPartitions("offset")


def _quarantined(batch: Batch, folded: DataFrame) -> DataFrame:
    """Unsound miniblocks that stopped their stream, and unsound events of minipools."""
    blocks = exploded(folded, "quarantined").withColumn("event_index", F.lit(NONE))
    events = batch.read("bronze.stream_events").filter("problem IS NOT NULL")
    events = events.withColumns({"hash": F.col("event_hash"), "reason": F.col("problem")})
    return blocks.unionByName(events.select(*blocks.columns))
