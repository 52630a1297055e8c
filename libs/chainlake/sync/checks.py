"""What `lake verify` checks of notifications: numbered without gaps, no event twice, and a state that agrees with them."""

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from chainlake.encoding import to_hex

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake
    from chainlake.lake.reader import Snapshot

MOST = 5


def delivery_problems(lake: "Lake", chain: str) -> list[str]:
    """Offsets with gaps, events twice, and states that are not where the last delivery left them, all of one moment."""
    now = lake.moment(["gold.notifications", "gold.stream_sync_state", "gold.sync_miniblocks"])
    notes = now.table("gold.notifications", chain=chain)
    lowest, highest, count, different = notes.agg(
        F.min("offset"), F.max("offset"), F.count(F.lit(1)), F.count_distinct("offset")
    ).collect()[0]
    found = []
    if count and (lowest != 1 or highest != count or different != count):
        found.append(f"notifications of {chain} are numbered {lowest} to {highest}, but there are {count}")
    twice = notes.filter("NOT duplicate").groupBy("stream_id", "event_hash").count().filter("count > 1").limit(MOST)
    found += [f"event {to_hex(bytes(row[1]))} of {chain} was delivered {row[2]} times" for row in twice.collect()]
    return found + _wrong_states(now, chain)


def _wrong_states(now: "Snapshot", chain: str) -> list[str]:
    state = now.table("gold.stream_sync_state", chain=chain).filter("prev_miniblock_hash IS NOT NULL")
    newest = Window.partitionBy("stream_id").orderBy(F.col("height").desc(), F.col("tx_index").desc())
    held = now.table("gold.sync_miniblocks", chain=chain).filter("delivered").withColumn("nth", F.row_number().over(newest))
    last = held.filter("nth = 1").select("stream_id", "miniblock_num", "miniblock_hash")
    follows = (F.col("miniblock_num") + 1 == F.col("minipool_gen")) & (F.col("miniblock_hash") == F.col("prev_miniblock_hash"))
    returned = F.coalesce(F.col("reset_reason") == "rewound", F.lit(False))  # to a branch that was delivered before
    wrong = state.join(last, "stream_id", "left").filter(~F.coalesce(follows, F.lit(False)) & ~returned)
    rows = wrong.select("stream_id", "minipool_gen", "miniblock_num").limit(MOST).collect()
    return [f"stream {to_hex(bytes(row[0]))} of {chain} stands at {row[1]}, but {row[2]} was delivered last" for row in rows]
