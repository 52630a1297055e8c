"""The tables of a replica, from what its folds gave back: packed rows of several kinds in one frame each."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.replica import meta_fold, row_fold, shard_fold
from chainlake.replica.checks import Kinds
from chainlake.replica.timeline import Progress


def of_kind(frame: DataFrame, out: str) -> DataFrame:
    """The rows of one kind."""
    return frame.select(F.inline(out))


def tables(
    meta: DataFrame | None, shards: DataFrame, rows: DataFrame | None, kinds: Kinds, has_drops: bool, files: int
) -> dict[str, DataFrame | None]:
    """All tables of the stage, in at most so many files each; None for those that get no rows. `meta` is None if the batch has
    none, `rows` if the shards have carried out their operations themselves, or there are none."""
    held = shards if rows is None else rows
    has_rows = rows is not None or row_fold.ROW in kinds.kinds
    has_aside = row_fold.ASIDE in kinds.kinds or (rows is not None and (has_drops or kinds.has_late))
    pending = of_kind(shards, shard_fold.PENDING).withColumnRenamed("watermark", "effective_meta_index")
    made = {
        "silver.meta_objects": _meta_rows(meta, kinds, meta_fold.OBJECT),
        "silver.meta_changes": _meta_rows(meta, kinds, meta_fold.CHANGE),
        "silver.data_rows": of_kind(held, row_fold.ROW) if has_rows else None,
        "silver.dropped_rows": of_kind(held, row_fold.ASIDE) if has_aside else None,
        "silver.pending_commands": pending if shard_fold.PENDING in kinds.kinds else None,
        "silver.applied": _applied(meta, shards),
        "silver.command_results": _results(meta, [frame for frame in (shards, rows) if frame is not None]),
    }
    return {name: None if frame is None else frame.coalesce(files) for name, frame in made.items()}


def _meta_rows(meta: DataFrame | None, kinds: Kinds, kind: str) -> DataFrame | None:
    return of_kind(meta, kind) if meta is not None and kind in kinds.of_meta else None


def _applied(meta: DataFrame | None, shards: DataFrame) -> DataFrame:
    """How far the logs are. Meta logs never wait: what was received is carried out."""
    applied = of_kind(shards, shard_fold.APPLIED).select("_height", "group_name", *Progress._fields)
    if meta is None:
        return applied.coalesce(1)
    index = F.col("log_index")
    of_meta = of_kind(meta, meta_fold.APPLIED).select(
        "_height",
        "group_name",
        index.alias("applied_index"),
        F.col("log_term").alias("applied_term"),
        index.alias("executed_index"),
        F.lit(0).cast("long").alias("watermark"),
        F.lit(None).cast("long").alias("waits_for"),
        F.lit(None).cast("long").alias("waiting_since"),
    )
    return applied.unionByName(of_meta).coalesce(1)


def _results(meta: DataFrame | None, folded: list[DataFrame]) -> DataFrame:
    """One row per command, wherever it was decided."""
    columns = ("_height", "group_name", "log_index", "type", "error", "meta_index")
    more = ("rows_changed", "received_height", "required_meta_index")
    none = F.lit(0).cast("long")
    made = [of_kind(frame, row_fold.RESULT).select(*columns, *more) for frame in folded]
    if meta is not None:
        own = (none.alias("rows_changed"), F.col("_height").alias("received_height"), none.alias("required_meta_index"))
        made.append(of_kind(meta, meta_fold.RESULT).select(*columns, *own))
    return reduce(lambda one, other: one.unionByName(other), made).withColumn("ok", F.col("error").isNull())
