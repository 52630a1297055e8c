"""What `lake verify` checks of a replica: nothing carried out too early, nothing lost, nothing left of dropped tables. A
replica that is small enough is computed again from its commands, by the plain rules."""

from bisect import bisect_right
from collections.abc import Set
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BrokenPromise
from chainlake.replica.entries import Entry, read_payload
from chainlake.replica.migrate import starts_unified
from chainlake.replica.replica import Replica
from chainlake.replica.rules import shown_key

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake
    from chainlake.lake.reader import Snapshot

MOST = 5
COMPUTED_AGAIN = 50_000
"""Entries up to which a replica is computed again, in one process."""


def replica_problems(lake: "Lake", chain: str) -> list[str]:
    """Everything that does not hold, all of one moment: writers go on."""
    now = lake.moment(["silver.applied", "bronze.commands", "raw.transactions"])
    head = now.ledger.of("silver.replica", chain).head()
    if head is None:
        return []
    found = _too_early(now, chain) + _lost(now, chain, head.height) + _not_pending(now, chain) + _homeless(now, chain)
    flag = lake.chain(chain).options.get("unified_meta", "true") == "true"
    return found + _computed_again(now, chain, head.height, flag)


def _too_early(now: "Snapshot", chain: str) -> list[str]:
    """Commands that were carried out before Meta had the index that they need."""
    meta = now.history("silver.applied", chain=chain).filter("group_name = 'meta'")
    reached = [(0, 0), *sorted(tuple(row) for row in meta.select("_height", "applied_index").collect())]
    heights = [height for height, _ in reached]
    needed = now.table("silver.command_results", chain=chain).filter("required_meta_index > 0")
    per_height = needed.groupBy("height").agg(F.max("required_meta_index")).orderBy("height").collect()
    had = [(height, index, reached[bisect_right(heights, height) - 1][1]) for height, index in per_height]
    return [
        f"delivery {height} of {chain} carried out a command that needs Meta {index}, Meta was at {at}"
        for height, index, at in had
        if at < index
    ][:MOST]


def _lost(now: "Snapshot", chain: str, head: int) -> list[str]:
    """Commands with neither a result nor a place among those that wait."""
    commands = now.table("bronze.commands", chain=chain, height=head).filter("type NOT IN ('Blank', 'Membership')")
    keys = ["group_name", "log_index"]
    commands = commands.join(_starts(commands), "group_name").filter("log_index >= start")
    results = now.table("silver.command_results", chain=chain).select(*keys)
    pending = now.table("silver.pending_commands", chain=chain).select(*keys)
    wrong = {
        "has no result and does not wait": commands.select(*keys).distinct().join(results.union(pending), keys, "left_anti"),
        "has two results": results.groupBy(*keys).count().filter("count > 1"),
        "has a result and waits": results.join(pending, keys, "left_semi"),
    }
    return [
        f"{group} {index} of {chain} {what}"
        for what, frame in wrong.items()
        for group, index in frame.select(*keys).limit(MOST).collect()
    ]


def _starts(commands: DataFrame) -> DataFrame:
    """Where each log starts: at 1, or at the Snapshot that came first, which holds what stands before it."""
    first = F.min_by(F.struct("type", "log_index"), F.struct("height", "tx_index")).alias("first")
    start = F.when(F.col("first.type") == "Snapshot", F.col("first.log_index")).otherwise(1).alias("start")
    return commands.groupBy("group_name").agg(first).select("group_name", start)


def _not_pending(now: "Snapshot", chain: str) -> list[str]:
    """Shards whose counters do not agree with what waits in them."""
    counted = now.table("silver.pending_commands", chain=chain).groupBy("group_name").count()
    applied = now.table("silver.applied", chain=chain).join(counted, "group_name", "left")
    wrong = applied.filter("applied_index - executed_index <> coalesce(count, 0)").select("group_name", "count")
    return [f"{group} of {chain}: {count or 0} entries wait, its counters say otherwise" for group, count in wrong.collect()]


def _homeless(now: "Snapshot", chain: str) -> list[str]:
    """Rows of tables that are not there."""
    tables = now.table("silver.meta_objects", chain=chain).filter("kind = 'table'").select(F.col("id").alias("table_id"))
    rows = now.table("silver.data_rows", chain=chain).join(tables, "table_id", "left_anti").groupBy("table_id").count()
    return [f"{chain} shows {count} rows of {table}, which is not there" for table, count in rows.limit(MOST).collect()]


def _computed_again(now: "Snapshot", chain: str, head: int, flag: bool) -> list[str]:
    """What the plain rules make of the same entries, if there are not too many."""
    entries = now.table("raw.transactions", chain=chain, height=head).select("height", "tx_index", "payload")
    if entries.count() > COMPUTED_AGAIN:
        return []
    deliveries: dict[int, list[Entry]] = {}
    for height, _, payload in sorted(entries.collect()):
        deliveries.setdefault(height, []).append(read_payload(bytes(payload)))
    replica = Replica(starts_unified(flag, (entry.group for given in deliveries.values() for entry in given)))
    try:
        for height in sorted(deliveries):
            replica.delivery = height - 1
            replica.deliver(deliveries[height])
    except BrokenPromise as error:
        return [f"{chain}: {error}, but it was taken"]
    return _differences(now, chain, replica)


def _differences(now: "Snapshot", chain: str, replica: Replica) -> list[str]:
    rows = {(group, table, *shown_key(key), row) for (group, table, key), row in replica.visible_rows().items()}
    results = {(one.delivery, one.group, one.log_index, *one.result) for one in replica.results}
    waiting = {(group, index) for group, indexes in replica.waiting().items() for index in indexes}
    columns: dict[str, tuple[Set[tuple[object, ...]], tuple[str, ...]]] = {
        "silver.data_rows": (rows, ("group_name", "table_id", "user_id", "primary_key", "row")),
        "silver.command_results": (results, ("height", "group_name", "log_index", "rows_changed", "error")),
        "silver.pending_commands": (waiting, ("group_name", "log_index")),
    }
    found = []
    for table, (expected, names) in columns.items():
        held = _rows(now.table(table, chain=chain).select(*names))
        found += [f"{table} of {chain} lacks {one}" for one in sorted(expected - held, key=str)[:MOST]]
        found += [f"{table} of {chain} has {one} against the rules" for one in sorted(held - expected, key=str)[:MOST]]
    return found


def _rows(frame: DataFrame) -> set[tuple[object, ...]]:
    return {tuple(row) for row in frame.collect()}
