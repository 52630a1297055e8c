"""The state of a replica on Spark: Meta, rows, results and what waits, after each delivery of a batch.

One batch of deliveries is one commit of all tables. Meta comes first, in one group; then the shards go side by side, each in the
order of its log. Every delivery is a height, and every row says in which delivery it became so. Only the objects and rows that
the batch touches are read, and of what waits only what Meta satisfies now.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BrokenPromise
from chainlake.lake.stage import Batch, Output
from chainlake.replica import checks, meta_fold, row_fold, sequence, shard_fold
from chainlake.replica.columns import spark_ddl
from chainlake.replica.groups import META, OLD_META
from chainlake.replica.migrate import check_flag
from chainlake.replica.outputs import of_kind, tables
from chainlake.replica.parts import parts
from chainlake.replica.row_fold import Drop
from chainlake.replica.timeline import Progress, Timeline

IS_META = "group_name LIKE 'meta%'"


def silver(batch: Batch) -> Output:
    """The state after each delivery of the batch."""
    return SilverBatch.of(batch).output()


@dataclass(frozen=True)
class SilverBatch:
    """A batch of one replica, and how far each of its logs was before."""

    batch: Batch
    chain: str
    low: int
    high: int
    before: dict[str, Progress]
    filled: frozenset[str]
    """Stored tables that have rows; the others need not be read."""

    @classmethod
    def of(cls, batch: Batch) -> "SilverBatch":
        ((chain, (low, high)),) = batch.ranges.items()
        commits = batch.snapshot.ledger.of("silver.replica", chain).commits
        filled = frozenset(table for commit in commits for table, rows in commit.rows.items() if rows)
        held = batch.state("silver.applied").select("group_name", *Progress._fields) if "silver_applied" in filled else None
        rows = held.collect() if held is not None else []
        return cls(batch, chain, low, high, {row[0]: Progress(*row[1:]) for row in rows}, filled)

    def output(self) -> Output:
        commands = self.batch.read("bronze.commands").select(*sequence.INPUT.names)
        entries = self.sequenced(commands.filter(IS_META).repartition(1))
        found = checks.look(entries)
        self.refuse_meta(commands, entries, found)
        meta = self.meta(entries, found)
        timeline, drops = self.timeline(meta)
        has_rows = bool({"silver_data_rows", "silver_dropped_rows"} & self.filled)
        shards = self.shards(commands.filter(f"NOT ({IS_META})"), meta, timeline, None if has_rows else drops)
        wrong, kinds = checks.look_at_shards(shards)
        self.refuse(self.faults(of_kind(shards, shard_fold.UNEXPECTED), wrong))
        rows = self.rows(shards, drops) if has_rows and (drops or shard_fold.OPERATION in kinds.kinds) else None
        made = tables(meta if found.has_meta else None, shards, rows, kinds, bool(drops))
        own = F.lit(self.chain)
        return Output({name: None if one is None else one.withColumn("_chain", own) for name, one in made.items()})

    # Which entries are new, and whether they may be

    def sequenced(self, by_group: DataFrame) -> DataFrame:
        """Entries by log, each told whether it is the next one."""
        ordered = by_group.sortWithinPartitions("group_name", "_height", "tx_index")
        fold = partial(sequence.sequence, before=self.before)
        return self.batch.keep(ordered.mapInArrow(fold, spark_ddl(sequence.SCHEMA)))

    def by_group(self, frame: DataFrame) -> DataFrame:
        pending = sum(now.pending for now in self.before.values())
        return frame.repartition(parts(self.batch, "bronze.replica", "bronze.commands", pending), "group_name")

    def refuse_meta(self, commands: DataFrame, entries: DataFrame, found: checks.Found) -> None:
        """Stop if Meta may not go on like this. Shards are looked at too then: one of them may be wrong in an earlier
        delivery."""
        flag = self.batch.options[self.chain].get("unified_meta", "true") == "true"
        check_flag(was=META in self.before and not self.before.keys() & set(OLD_META), wanted=flag)
        is_unified = flag or META in self.before
        faults = self.faults(entries, found) + ([found.retired] if is_unified and found.retired else [])
        if faults or not is_unified:
            entries = self.sequenced(self.by_group(commands))
            faults += self.faults(entries, checks.look(entries))
        if not is_unified:
            wrong = checks.wrong_meta_log(entries, self.before, self.meta_index())
            faults += [wrong] if wrong else []
        self.refuse(faults)

    def faults(self, entries: DataFrame, found: checks.Found) -> list[checks.Fault]:
        """Gaps, and entries that came again as others."""
        faults = [found.gap]
        if found.again is not None:
            earlier = self.batch.snapshot.between("bronze.commands", {self.chain: (-1, self.high)})
            faults.append(checks.changed_again(entries, earlier, found.again))
        return [fault for fault in faults if fault is not None]

    def refuse(self, faults: list[checks.Fault]) -> None:
        """Stop at the first delivery that breaks a promise."""
        if faults:
            first = min(faults)
            raise BrokenPromise(f"{self.chain}: delivery {first.height}: {first.text}", height=first.height)

    # Meta

    def meta(self, entries: DataFrame, found: checks.Found) -> DataFrame:
        """Meta commands carried out, on the objects that they touch."""
        if not found.has_meta:
            return self.batch.spark.createDataFrame([], spark_ddl(meta_fold.SCHEMA))
        fresh = entries.filter(F.col("status") == sequence.FRESH)
        tagged = _shaped(fresh.withColumn("tag", F.lit(1)), (*meta_fold.INPUT, "tx_index"))
        for objects in self.objects(fresh, found):
            tagged = tagged.unionByName(_shaped(objects.withColumn("tag", F.lit(0)), (*meta_fold.INPUT, "tx_index")))
        ordered = tagged.repartition(1).sortWithinPartitions("tag", "_height", "tx_index")
        fold = partial(meta_fold.fold_meta, meta_index=self.meta_index())
        return self.batch.keep(ordered.mapInArrow(fold, spark_ddl(meta_fold.SCHEMA)))

    def objects(self, fresh: DataFrame, found: checks.Found) -> list[DataFrame]:
        """The objects that commands look at, as they were before the batch."""
        if "silver_meta_objects" not in self.filled:
            return []
        if found.has_snapshot:
            return [self.batch.state("silver.meta_objects")]
        keys = fresh.mapInArrow(meta_fold.touched_keys, spark_ddl(meta_fold.KEYS)).withColumn("_chain", F.lit(self.chain))
        held = [self.batch.state("silver.meta_objects", keys)]
        if found.deletes_namespaces:
            held.append(self.batch.state("silver.meta_objects").filter("kind = 'table'"))
        return held

    def meta_index(self) -> int:
        """The Meta index before the batch. Before the logs are united, it counts the entries of the three."""
        if META in self.before:
            return self.before[META].applied_index
        return sum(now.applied_index for group, now in self.before.items() if group in OLD_META)

    def timeline(self, meta: DataFrame) -> tuple[Timeline, list[Drop]]:
        """When Meta advanced, and which tables it dropped."""
        is_drop = "out = 'change' AND kind = 'table' AND definition IS NULL"
        rows = meta.filter(f"out = 'index' OR {is_drop}").select("out", "_height", "meta_index", "id", "created_index").collect()
        reached = sorted((row[1], row[2]) for row in rows if row[0] == meta_fold.INDEX)
        drops = sorted(Drop(row[1], row[3], row[4]) for row in rows if row[0] == meta_fold.CHANGE)
        return Timeline(self.meta_index(), [height for height, _ in reached], [index for _, index in reached]), drops

    # Shards

    def shards(self, commands: DataFrame, meta: DataFrame, timeline: Timeline, drops: list[Drop] | None) -> DataFrame:
        """Data entries placed in time, their commands checked against Meta as of their watermark; with `drops`, carried out."""
        arrived = commands.withColumns({"received_height": F.col("_height"), "tag": F.lit(shard_fold.ARRIVED)})
        tagged = _shaped(arrived, shard_fold.INPUT)
        for waiting in self.waiting(timeline):
            tagged = tagged.unionByName(_shaped(waiting, shard_fold.INPUT))
        ready = tagged.filter((F.col("tag") >= shard_fold.DRAINED) & (F.col("required_meta_index") <= timeline.end))
        tagged = tagged.unionByName(_shaped(self.versions(ready, meta), shard_fold.INPUT))
        ordered = self.by_group(tagged).sortWithinPartitions(*shard_fold.ORDER)
        fold = partial(shard_fold.fold_shards, before=self.before, timeline=timeline, low=self.low, drops=drops)
        return self.batch.keep(ordered.mapInArrow(fold, spark_ddl(shard_fold.SCHEMA)))

    def waiting(self, timeline: Timeline) -> list[DataFrame]:
        """Entries that waited and are satisfied by the end of the batch, and the next one of each of their shards. Shards of
        which nothing is satisfied are not read."""
        drained = {
            group: now for group, now in self.before.items() if now.waits_for is not None and now.waits_for <= timeline.end
        }
        if not drained:
            return []
        spans = " OR ".join(f"group_name = '{group}' AND log_index > {now.executed_index}" for group, now in drained.items())
        pending = self.batch.snapshot.between("silver.pending_commands", {self.chain: (-1, self.low)})
        pending = pending.filter("NOT _deleted").filter(spans).withColumnRenamed("effective_meta_index", "watermark")
        satisfied = pending.filter(F.col("watermark") <= timeline.end).withColumn("tag", F.lit(shard_fold.DRAINED))
        first = F.min(F.struct("log_index", "log_term", "watermark", "received_height")).alias("first")
        behind = pending.filter(F.col("watermark") > timeline.end).groupBy("group_name").agg(first)
        return [satisfied, behind.select("group_name", "first.*").withColumn("tag", F.lit(shard_fold.WAITING))]

    def versions(self, ready: DataFrame, meta: DataFrame) -> DataFrame:
        """Every version of the tables and users that the commands of a shard name, for that shard."""
        named = F.explode(
            F.array(
                F.struct(F.lit("table").alias("kind"), F.col("table_id").alias("id")),
                F.struct(F.lit("user").alias("kind"), F.col("user_id").alias("id")),
            )
        )
        wanted = ready.select("group_name", "table_id", "user_id").distinct().select("group_name", named.alias("n"))
        wanted = wanted.select("group_name", "n.*").filter("id IS NOT NULL").distinct()
        columns = ("meta_index", "kind", "id", "created_index", "definition")
        changes = of_kind(meta, meta_fold.CHANGE).select(*columns)
        if "silver_meta_changes" in self.filled:
            changes = changes.unionByName(
                self.batch.snapshot.between("silver.meta_changes", {self.chain: (-1, self.low)}).select(*columns)
            )
        found = changes.filter("kind IN ('table', 'user')").join(wanted, ["kind", "id"])
        return found.withColumns({"tag": F.lit(shard_fold.VERSION), "log_index": F.col("meta_index")})

    # Rows

    def rows(self, shards: DataFrame, drops: list[Drop]) -> DataFrame:
        """Operations carried out on the rows that they touch; tables that were dropped lose theirs."""
        operations = of_kind(shards, shard_fold.OPERATION).withColumn("tag", F.lit(row_fold.OPERATION))
        tagged = _shaped(operations, row_fold.INPUT)
        for held in self.held_rows(operations, drops):
            tagged = tagged.unionByName(_shaped(held.withColumn("log_index", F.lit(0)), row_fold.INPUT))
        ordered = self.by_group(tagged).sortWithinPartitions("group_name", "tag", "log_index")
        return self.batch.keep(ordered.mapInArrow(partial(row_fold.fold_rows, drops=drops), spark_ddl(row_fold.SCHEMA)))

    def held_rows(self, operations: DataFrame, drops: list[Drop]) -> list[DataFrame]:
        """Rows as they were before the batch."""
        columns = ("group_name", "table_id", "table_index", "dropped_index", F.explode("keys").alias("row_key"))
        keys = operations.select(F.lit(self.chain).alias("_chain"), *columns)
        found = []
        if "silver_data_rows" in self.filled:
            live = [self.batch.state("silver.data_rows", keys.filter("dropped_index IS NULL"))]
            if drops:
                gone = F.col("table_id").isin(*{drop.table_id for drop in drops})
                live.append(self.batch.state("silver.data_rows").filter(gone))
            found += [frame.withColumn("tag", F.lit(row_fold.LIVE)) for frame in live]
        if "silver_dropped_rows" in self.filled:
            late = self.batch.state("silver.dropped_rows", keys.filter("dropped_index IS NOT NULL"))
            found.append(late.withColumn("tag", F.lit(row_fold.DROPPED)))
        return found


def _shaped(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The frame with exactly these columns, NULL where it has none, so that frames of different origin go into one stream."""
    held = set(frame.columns)
    return frame.select(*[(F.col(n) if n in held else F.lit(None)).cast(_TYPES.get(n, "long")).alias(n) for n in columns])


_TEXTS = ("group_name", "type", "table_id", "user_id", "command", "kind", "id", "definition", "row_key", "row")
_TYPES = {**dict.fromkeys(_TEXTS, "string"), "tx_index": "int", "keys": "array<string>", "values": "array<string>"}
