"""What a batch of entries must keep: logs without gaps, the same entry whenever it comes again, one kind of Meta log at a time.

Each check gives the first entry that breaks it, with the delivery; the stage then stops before that delivery."""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BrokenPromise
from chainlake.replica.groups import META, OLD_META
from chainlake.replica.sequence import AGAIN, FRESH, GAP
from chainlake.replica.shard_fold import KINDS, OPERATION
from chainlake.replica.timeline import Progress

NO_WAY_BACK = "the three Meta logs are retired, there is no way back: they are for replicas that start with unified_meta=false"


class Fault(NamedTuple):
    """Where a promise is broken, and how."""

    height: int
    tx_index: int
    text: str


def stopped(chain: str, height: int, why: str) -> BrokenPromise:
    """A replica cannot take a delivery. Raw keeps it as it came, so a mended one is read only after raw has gone back."""
    return BrokenPromise(
        f"{chain}: {why}: mend the source, then lake rollback raw.replica {chain} {height - 1} --why TEXT", height=height
    )


class Arrived(NamedTuple):
    """What a batch brings, as far as the next steps depend on it."""

    entries: int
    """How many of shards. The ledger only knows whole commits, which may bring many more."""
    largest: int
    """Bytes of the largest command."""
    has_meta: bool
    has_old_meta: bool
    has_snapshot: bool
    deletes_namespaces: bool


class Found(NamedTuple):
    """What is unusual about the entries of a batch."""

    gap: Fault | None
    retired: Fault | None
    """The first entry of one of the three old Meta logs."""
    again: tuple[int, int] | None
    """The lowest and highest index of an entry that came again."""


IS_META = "group_name LIKE 'meta%'"


class Kinds(NamedTuple):
    """Which kinds of rows the shards gave back, whether an operation is for a table that was dropped, and which kinds of rows
    Meta gave."""

    kinds: frozenset[str]
    has_late: bool
    of_meta: frozenset[str]


def there_are(*kinds: str) -> list[Column]:
    """Of packed rows, whether there are any of each kind."""
    return [_any(F.col(kind).isNotNull()) for kind in kinds]


def look_at_shards(shards: DataFrame | None, of_meta: frozenset[str]) -> Kinds:
    """One look at what the shards gave back, if there was anything for them."""
    if shards is None:
        return Kinds(frozenset(), False, of_meta)
    is_late = _any(F.exists(OPERATION, lambda one: one["dropped_index"].isNotNull()))
    *present, has_late = shards.agg(*there_are(*KINDS), is_late).collect()[0]
    kinds = frozenset(kind for kind, is_there in zip(KINDS, present, strict=True) if is_there)
    return Kinds(kinds, has_late, of_meta)


def look_at_arrived(commands: DataFrame) -> Arrived:
    """The first look at a batch."""
    row = commands.agg(
        F.count(F.when(~F.expr(IS_META), 1)),
        F.coalesce(F.max(F.octet_length("command")), F.lit(0)),
        _any(F.expr(IS_META)),
        _any(F.col("group_name").isin(*OLD_META)),
        _any(F.col("type") == "Snapshot"),
        _any(F.col("type") == "DeleteNamespace"),
    ).collect()[0]
    return Arrived(*row)


def look(entries: DataFrame) -> Found:
    """One look at the sequenced entries of a batch."""
    of_old = F.col("group_name").isin(*OLD_META)
    again, index = F.col("status") == AGAIN, F.col("log_index")
    place = F.struct("_height", "tx_index", "group_name", "log_index", "expected")
    row = entries.agg(
        F.min(F.when(F.col("status") == GAP, place)),
        F.min(F.when((F.col("status") == FRESH) & of_old, place)),
        F.min(F.when(again, index)),
        F.max(F.when(again, index)),
    ).collect()[0]
    gap = row[0] and Fault(
        row[0][0], row[0][1], f"{row[0][2]} {row[0][3]} came where {row[0][4]} is expected: entries are missing"
    )
    retired = row[1] and Fault(row[1][0], row[1][1], f"{row[1][2]} {row[1][3]}: {NO_WAY_BACK}")
    return Found(gap, retired, None if row[2] is None else (row[2], row[3]))


def _any(what: Column) -> Column:
    return F.coalesce(F.bool_or(what), F.lit(False))


def changed_again(entries: DataFrame, earlier: DataFrame, span: tuple[int, int]) -> Fault | None:
    """The first entry that came again and is not the same: another term, or another command. `earlier` are all entries up to the
    end of the batch."""
    keys = ("group_name", "log_index")
    again = entries.filter(F.col("status") == AGAIN).select(*keys, "_height", "tx_index", "log_term", "command")
    held = earlier.filter(F.col("log_index").between(*span)).select(
        *keys,
        F.struct("_height", "tx_index").alias("held_at"),
        F.col("log_term").alias("held_term"),
        F.col("command").alias("held_command"),
    )
    differs = (F.col("log_term") != F.col("held_term")) | (F.col("command") != F.col("held_command"))
    wrong = again.join(held, [*keys]).filter((F.col("held_at") < F.struct("_height", "tx_index")) & differs)
    first = wrong.agg(F.min(F.struct("_height", "tx_index", *keys, "log_term", "held_term"))).collect()[0][0]
    if first is None:
        return None
    height, tx_index, group, log_index, term, held_term = first
    how = f"with term {term} in place of {held_term}" if term != held_term else "with another command"
    return Fault(height, tx_index, f"{group} {log_index} came again {how}: the logs have diverged")


def wrong_meta_log(entries: DataFrame, before: Mapping[str, Progress], meta_index: int) -> Fault | None:
    """The first entry of a Meta log that may not be used, in a batch that begins with the three old ones at a Meta index. A
    stamp that is still to come may be that of the Snapshot which unites them: such a command waits."""
    fresh = entries.filter(F.col("status") == FRESH)
    first = F.min(F.when(F.col("group_name") == META, F.struct("_height", "tx_index", "type", "log_index")))
    united = fresh.agg(first).collect()[0][0]
    found = []
    if united is not None:
        height, tx_index, kind, log_index = united
        at = F.col("_height")
        after = (at > height) | ((at == height) & (F.col("tx_index") > tx_index))
        retired = _first(fresh, after & F.col("group_name").isin(*OLD_META), NO_WAY_BACK)
        found += [retired] if retired else []
        fresh = fresh.filter(~after)
        count = _old_entries(fresh, before)
        if kind != "Snapshot":
            found.append(Fault(height, tx_index, f"meta {log_index}: the three Meta logs are united by a Snapshot first"))
        elif count and log_index != count + 1:
            found.append(Fault(height, tx_index, f"meta {log_index} came where {count + 1} is expected"))
    stamped = _stamped_too_low(fresh, meta_index)
    return min([*found, *([stamped] if stamped else [])], default=None)


def _old_entries(fresh: DataFrame, before: Mapping[str, Progress]) -> int:
    """How many entries the three old logs have, those of before the batch included."""
    ends = fresh.agg(*[F.max(F.when(F.col("group_name") == group, F.col("log_index"))) for group in OLD_META]).collect()[0]
    held = (before[group].applied_index if group in before else 0 for group in OLD_META)
    return sum(now if end is None else end for end, now in zip(ends, held, strict=True))


def _stamped_too_low(fresh: DataFrame, meta_index: int) -> Fault | None:
    """The first command whose stamp counts entries of the three old logs, which every replica counts in its own order."""
    is_old, is_stamped = F.col("group_name").isin(*OLD_META), F.col("required_meta_index") > 0
    needed = F.min(F.when(~is_old & (F.col("group_name") != META) & is_stamped, F.col("required_meta_index")))
    told = fresh.groupBy("_height").agg(F.count(F.when(is_old, 1)), needed).orderBy("_height").collect()
    for height, count, lowest in told:
        if lowest is not None and lowest <= meta_index:
            wrong = ~is_old & (F.col("_height") == height) & is_stamped & (F.col("required_meta_index") <= meta_index)
            return _first(fresh, wrong, "a watermark needs one Meta log: migrate first")
        meta_index += count
    return None


def _first(entries: DataFrame, wrong: Column, why: str) -> Fault | None:
    row = entries.filter(wrong).agg(F.min(F.struct("_height", "tx_index", "group_name", "log_index"))).collect()[0][0]
    return None if row is None else Fault(row[0], row[1], f"{row[2]} {row[3]}: {why}")
