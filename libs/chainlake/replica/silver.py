"""The state of a replica on Spark: Meta, rows, results and what waits, after each delivery of a batch.

One batch of deliveries is one commit of all tables. Meta comes first, in one group; then the shards go side by side, each in the
order of its log. Every delivery is a height, and every row says in which delivery it became so. Only the objects and rows that
the batch touches are read (all rows, where they are fewer than its entries), and of what waits only what Meta satisfies now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from chainlake.lake.names import physical
from chainlake.lake.session import settings
from chainlake.lake.stage import SMALL_ROWS, Batch, Output
from chainlake.replica import checks, meta_fold, row_fold, sequence, shard_fold
from chainlake.replica.checks import IS_META
from chainlake.replica.columns import packed, spark_ddl, spark_types, typed
from chainlake.replica.groups import DATA_GROUPS, META, OLD_META, SHARED, USER_SHARDS
from chainlake.replica.migrate import check_flag, starts_unified
from chainlake.replica.outputs import of_kind, tables
from chainlake.replica.parts import files, partitions
from chainlake.replica.row_fold import Drop
from chainlake.replica.timeline import Progress, Timeline

HELD = ("silver.data_rows", "silver.dropped_rows")
FEW_ROWS = 20_000
"""So many rows are all taken: to find out which of them are needed would take longer."""
SMALL_COMMAND = 6 << 10
"""Bytes of commands of which ten thousand, what Spark hands to Python at once, are no more than its limit of bytes."""


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
        arrived = checks.look_at_arrived(commands)
        self.check_meta_logs(commands, arrived)
        meta = self.meta(commands.filter(IS_META), arrived) if arrived.has_meta else None
        told = self.told(meta)
        if meta is not None and sequence.UNEXPECTED in told.kinds and self.faults(*_unexpected(meta)):
            self.refuse_any(commands)
        work = Work(arrived, self.drained(told.timeline))
        held, drops, of_meta = self.stored(*HELD), told.drops, told.kinds
        at_once = held <= max(work.rows, FEW_ROWS)  # as for few rows, to look for those of many entries would take longer
        shards = self.shards(commands.filter(f"NOT ({IS_META})"), meta, told, work, at_once)
        kinds = checks.look_at_shards(shards, of_meta)
        if shards is not None and sequence.UNEXPECTED in kinds.kinds:
            self.refuse(self.faults(*_unexpected(shards)))
        has_rows = not at_once and (drops or shard_fold.OPERATION in kinds.kinds)
        rows = self.rows(shards, drops, work) if has_rows else None
        made = tables(meta, shards, rows, kinds, bool(drops), files(work.rows))
        own = F.lit(self.chain)
        return Output({name: None if one is None else one.withColumn("_chain", own) for name, one in made.items()})

    def stored(self, *names: str) -> int:
        """How many rows tables had before the batch at most, by the ledger alone."""
        return sum(self.batch.snapshot.rows_at_most(name, {self.chain: (-1, self.low)}) for name in names)

    # Which entries are new, and whether they may be

    def check_meta_logs(self, commands: DataFrame, arrived: checks.Arrived) -> None:
        """Stop if entries stand in Meta logs that may not be used. The one log of a replica that was always unified needs no
        look."""
        flag = self.batch.options[self.chain].get("unified_meta", "true") == "true"
        check_flag(self.chain, was=META in self.before and not self.before.keys() & set(OLD_META), wanted=flag)
        is_unified = META in self.before or starts_unified(flag, self.before)
        if is_unified and not arrived.has_old_meta:
            return
        entries, found = self.sequenced(commands)
        faults = self.faults(entries, found)
        wrong = found.retired if is_unified else checks.wrong_meta_log(entries, self.before, self.meta_index())
        self.refuse(faults + ([wrong] if wrong else []))

    def refuse_any(self, commands: DataFrame) -> None:
        """Stop at the first fault of all logs: where Meta has one, a shard may have an earlier one."""
        self.refuse(self.faults(*self.sequenced(commands)))

    def sequenced(self, commands: DataFrame) -> tuple[DataFrame, checks.Found]:
        """Entries by log, each told whether it is the next one, and what is unusual about them."""
        ordered = commands.repartition("group_name").sortWithinPartitions("group_name", "_height", "tx_index")
        fold = partial(sequence.sequence, before=self.before)
        entries = self.batch.keep(ordered.mapInArrow(fold, spark_ddl(sequence.SCHEMA)))
        return entries, checks.look(entries)

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
            raise checks.stopped(self.chain, first.height, f"delivery {first.height}: {first.text}")

    # Meta

    def meta(self, commands: DataFrame, arrived: checks.Arrived) -> DataFrame:
        """Meta commands carried out, on the objects that they touch."""
        tagged = _shaped(commands.withColumn("tag", F.lit(1)), meta_fold.INPUT)
        for objects in self.objects(commands, arrived):
            tagged = tagged.unionByName(_shaped(objects.withColumn("tag", F.lit(0)), meta_fold.INPUT))
        ordered = tagged.repartition(1).sortWithinPartitions("tag", "_height", "tx_index")
        fold = partial(meta_fold.fold_meta, before=self.before, meta_index=self.meta_index())
        return self.batch.keep(ordered.mapInArrow(fold, _PACKED_META))

    def objects(self, commands: DataFrame, arrived: checks.Arrived) -> list[DataFrame]:
        """The objects that commands look at, as they were before the batch."""
        if "silver_meta_objects" not in self.filled:
            return []
        if self.stored("silver.meta_objects") <= FEW_ROWS:
            return [self.batch.versions("silver.meta_objects")]
        if arrived.has_snapshot:
            return [self.batch.state("silver.meta_objects")]
        keys = commands.mapInArrow(meta_fold.touched_keys, spark_ddl(meta_fold.KEYS)).withColumn("_chain", F.lit(self.chain))
        held = [self.batch.state("silver.meta_objects", keys)]
        if arrived.deletes_namespaces:
            held.append(self.batch.state("silver.meta_objects").filter("kind = 'table'"))
        return held

    def meta_index(self) -> int:
        """The Meta index before the batch. Before the logs are united, it counts the entries of the three."""
        if META in self.before:
            return self.before[META].applied_index
        return sum(now.applied_index for group, now in self.before.items() if group in OLD_META)

    def told(self, meta: DataFrame | None) -> "Told":
        """One look at what Meta's fold gave back."""
        if meta is None:
            return Told(Timeline(self.meta_index()))
        is_drop = F.filter(meta_fold.CHANGE, lambda one: (one["kind"] == "table") & one["definition"].isNull())
        indexes, gone, changes, *present = meta.agg(
            F.flatten(F.collect_list(meta_fold.INDEX)),
            F.flatten(F.collect_list(is_drop)),
            F.coalesce(F.sum(F.array_size(meta_fold.CHANGE)), F.lit(0)),
            *checks.there_are(*meta_fold.KINDS),
        ).collect()[0]
        kinds = (kind for kind, is_there in zip(meta_fold.KINDS, present, strict=True) if is_there)
        reached = sorted((row["_height"], row["meta_index"]) for row in indexes)
        drops = sorted(Drop(row["_height"], row["id"], row["created_index"]) for row in gone)
        timeline = Timeline(self.meta_index(), [height for height, _ in reached], [index for _, index in reached])
        return Told(timeline, tuple(drops), frozenset(kinds), changes)

    # Shards

    def drained(self, timeline: Timeline) -> dict[str, Progress]:
        """The shards of which entries waited for what Meta has now."""
        return {group: now for group, now in self.before.items() if now.waits_for is not None and now.waits_for <= timeline.end}

    def shards(self, commands: DataFrame, meta: DataFrame | None, told: "Told", work: "Work", at_once: bool) -> DataFrame | None:
        """Data entries placed in time, their commands checked against Meta as of their watermark; `at_once` also carried out, on
        all rows that there are. None if there is nothing to do."""
        timeline = told.timeline
        found = self.waiting(timeline, work.drained) if work.drained else []
        if work.arrived.entries:
            found.append(commands.withColumns({"received_height": F.col("_height"), "tag": F.lit(shard_fold.ARRIVED)}))
        known = self.versions(_tagged(found), meta, told, work) if found else []
        if at_once and (found or told.drops):
            known += self.all_rows()
        if not found and not known:
            return None
        tagged = _tagged([*found, *known])
        ordered = _dealt(tagged, work.rows).sortWithinPartitions(_place(_order_of_shard(self.low)), *shard_fold.ORDER)
        fold = partial(shard_fold.fold_shards, before=self.before, timeline=timeline, low=self.low)
        fold = partial(fold, drops=told.drops if at_once else None)
        is_small = not work.drained and work.arrived.largest <= SMALL_COMMAND and not (at_once and self.stored(*HELD))
        with settings(self.batch.spark, SMALL_ROWS if is_small else {}):
            return self.batch.keep(ordered.mapInArrow(fold, _PACKED_SHARDS))

    def waiting(self, timeline: Timeline, drained: Mapping[str, Progress]) -> list[DataFrame]:
        """Entries that waited and are satisfied by the end of the batch, and the next one of each of their shards that goes on
        waiting for more. Shards of which nothing is satisfied are not read, nor is one looked for where all are."""
        spans = " OR ".join(f"group_name = '{group}' AND log_index > {now.executed_index}" for group, now in drained.items())
        pending = self.batch.snapshot.between("silver.pending_commands", {self.chain: (-1, self.low)})
        pending = pending.filter("NOT _deleted").filter(spans).withColumnRenamed("effective_meta_index", "watermark")
        is_satisfied = F.col("watermark") <= timeline.end
        found = [pending.filter(is_satisfied).withColumn("tag", F.lit(shard_fold.DRAINED))]
        if any(now.watermark > timeline.end for now in drained.values()):
            first = F.min(F.struct("log_index", "log_term", "watermark", "received_height")).alias("first")
            behind = pending.filter(~is_satisfied).groupBy("group_name").agg(first)
            found.append(behind.select("group_name", "first.*").withColumn("tag", F.lit(shard_fold.WAITING)))
        return found

    def versions(self, entries: DataFrame, meta: DataFrame | None, told: "Told", work: "Work") -> list[DataFrame]:
        """Every version of the tables and users that the commands of a shard name, for that shard. Few versions go to all
        shards."""
        columns = tuple(shard_fold.VERSION_AS.values())
        changes = [] if meta is None else [of_kind(meta, meta_fold.CHANGE)]
        if "silver_meta_changes" in self.filled:
            changes.append(self.batch.snapshot.between("silver.meta_changes", {self.chain: (-1, self.low)}))
        found = [frame.select(*columns).filter("kind IN ('table', 'user')") for frame in changes]
        if (self.stored("silver.meta_changes") + told.changes) * len(DATA_GROUPS) <= max(work.rows // 10, FEW_ROWS):
            every = F.explode(F.array(*map(F.lit, DATA_GROUPS)))
            found = [frame.withColumn("group_name", every) for frame in found]
        else:
            is_ready = (F.col("tag") >= shard_fold.DRAINED) & (F.col("required_meta_index") <= told.timeline.end)
            wanted = self.named(entries.filter(is_ready))
            found = [frame.join(wanted, ["kind", "id"]) for frame in found]
        return [_as(frame, shard_fold.VERSION_AS, shard_fold.VERSION) for frame in found]

    def named(self, entries: DataFrame) -> DataFrame:
        """The tables and users that the entries of each shard name."""
        named = F.explode(
            F.array(
                F.struct(F.lit("table").alias("kind"), F.col("table_id").alias("id")),
                F.struct(F.lit("user").alias("kind"), F.col("user_id").alias("id")),
            )
        )
        each = entries.select("group_name", "table_id", "user_id").distinct().select("group_name", named.alias("n"))
        return each.select("group_name", "n.*").filter("id IS NOT NULL").distinct()

    def all_rows(self) -> list[DataFrame]:
        """All rows as they were before the batch: the versions of each, of which the newest counts."""
        tags = zip(HELD, (shard_fold.LIVE, shard_fold.DROPPED), strict=True)
        found = [(self.batch.versions(name), tag) for name, tag in tags if physical(name) in self.filled]
        return [_as(frame, shard_fold.ROW_AS, tag) for frame, tag in found]

    # Rows

    def rows(self, shards: DataFrame | None, drops: Sequence[Drop], work: "Work") -> DataFrame:
        """Operations carried out on the rows that they touch; tables that were dropped lose theirs."""
        folded = shards if shards is not None else self.batch.spark.createDataFrame([], _PACKED_SHARDS)
        operations = of_kind(folded, shard_fold.OPERATION).withColumn("tag", F.lit(row_fold.OPERATION))
        tagged = _shaped(operations, row_fold.INPUT)
        for held in self.held_rows(operations, drops):
            tagged = tagged.unionByName(_shaped(held.withColumn("log_index", F.lit(0)), row_fold.INPUT))
        order = (_place(F.col("log_index")), "group_name", "tag", "log_index")
        ordered = _dealt(tagged, work.rows).sortWithinPartitions(*order)
        return self.batch.keep(ordered.mapInArrow(partial(row_fold.fold_rows, drops=drops), _PACKED_ROWS))

    def held_rows(self, operations: DataFrame, drops: Sequence[Drop]) -> list[DataFrame]:
        """Rows as they were before the batch."""
        columns = ("group_name", "table_id", "table_index", "dropped_index", F.explode("keys").alias("row_key"))
        keys = operations.select(F.lit(self.chain).alias("_chain"), *columns)
        gone = F.col("table_id").isin(*{drop.table_id for drop in drops}) if drops else F.lit(False)
        found = []
        if "silver_data_rows" in self.filled:
            live = [self.batch.state("silver.data_rows", keys.filter("dropped_index IS NULL"))]
            if drops:
                live.append(self.batch.state("silver.data_rows").filter(gone))
            found += [frame.withColumn("tag", F.lit(row_fold.LIVE)) for frame in live]
        if "silver_dropped_rows" in self.filled:
            late = [self.batch.state("silver.dropped_rows", keys.filter("dropped_index IS NOT NULL"))]
            if drops and self.before.keys() & set(OLD_META):  # an earlier life of theirs may have the same index
                late.append(self.batch.state("silver.dropped_rows").filter(gone))
            found += [frame.withColumn("tag", F.lit(row_fold.DROPPED)) for frame in late]
        return found


class Told(NamedTuple):
    """What Meta's fold gave back: when Meta advanced, which tables it dropped, which kinds of rows there are, how many changes
    of objects."""

    timeline: Timeline
    drops: tuple[Drop, ...] = ()
    kinds: frozenset[str] = frozenset()
    changes: int = 0


@dataclass(frozen=True)
class Work:
    """What a batch brings to the shards, and the shards of which entries waited and may go on."""

    arrived: checks.Arrived
    drained: Mapping[str, Progress]

    @property
    def rows(self) -> int:
        """How many entries the shards may look at."""
        return self.arrived.entries + sum(now.pending for now in self.drained.values())


def _unexpected(folded: DataFrame) -> tuple[DataFrame, checks.Found]:
    """The entries that a fold gave back, and what is unusual about them."""
    entries = of_kind(folded, sequence.UNEXPECTED)
    return entries, checks.look(entries)


def _as(frame: DataFrame, columns: Mapping[str, str], tag: int) -> DataFrame:
    """Rows in columns of entries, as far as they have them."""
    named = [F.col(own).alias(name) for name, own in columns.items() if own in frame.columns]
    return frame.select("group_name", F.lit(tag).alias("tag"), *named)


def _tagged(frames: Sequence[DataFrame]) -> DataFrame:
    """Frames of different origin as one input of the shards."""
    return reduce(DataFrame.unionByName, [_shaped(frame, shard_fold.INPUT) for frame in frames])


def _shaped(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The frame with exactly these columns, NULL where it has none, so that frames of different origin go into one stream."""
    held = set(frame.columns)
    types = spark_types(typed(*columns))
    return frame.select(*[(F.col(n) if n in held else F.lit(None)).cast(kind).alias(n) for n, kind in types.items()])


def _dealt(frame: DataFrame, rows: int) -> DataFrame:
    """Shards dealt out to partitions one by one, as many to each. A hash gives seven to one of eight, and one to another."""
    count = partitions(rows)
    return frame.repartitionById(count, (_number_of_group() % count).cast("int"))


def _number_of_group() -> Column:
    number = F.substring("group_name", -2, 2).cast("long")
    return F.when(F.col("group_name") == SHARED, F.lit(USER_SHARDS).cast("long")).otherwise(number)


def _place(order: Column) -> Column:
    """Group by group, each of them tag by tag, and within by a number, all in one, which Spark compares much faster than it does
    texts. What is too large for its 55 bits comes last, in the order of the columns to sort by that follow."""
    within = F.least(order, F.lit((1 << 55) - 1))
    return F.shiftleft(_number_of_group(), 58).bitwiseOR(F.shiftleft("tag", 55)).bitwiseOR(within)


def _order_of_shard(low: int) -> Column:
    """`shard_fold.ORDER` within a tag, as a number: entries that have just come by delivery and place in it, rows by height,
    versions and what waited by index."""
    since, tag = F.col("received_height") - low, F.col("tag")
    arrived = F.when(since < 1 << 24, since * (1 << 31) + F.col("tx_index"))
    of_rows = tag.isin(shard_fold.LIVE, shard_fold.DROPPED)
    return F.when(tag == shard_fold.ARRIVED, arrived).when(of_rows, F.col("received_height")).otherwise(F.col("log_index"))


_PACKED_META, _PACKED_SHARDS, _PACKED_ROWS = (spark_ddl(packed(fold.KINDS)) for fold in (meta_fold, shard_fold, row_fold))
