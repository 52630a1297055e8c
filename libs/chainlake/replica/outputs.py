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
    meta: DataFrame | None, shards: DataFrame | None, rows: DataFrame | None, kinds: Kinds, has_drops: bool, files: int
) -> dict[str, DataFrame | None]:
    """All tables of the stage, in at most so many files each; None for those that get no rows. `meta` and `shards` are None if
    the batch has nothing for them, `rows` if the shards have carried out their operations themselves, or there are none."""
    of_rows = [rows] if rows is not None else _having(shards, row_fold.ROW in kinds.kinds)
    has_late = rows is not None and (has_drops or kinds.has_late)
    aside = _having(rows, has_late) or _having(shards, row_fold.ASIDE in kinds.kinds)
    results = [*_having(shards, row_fold.RESULT in kinds.kinds), *_having(rows, True)]
    made = {
        "silver.meta_objects": _meta_rows(meta, kinds, meta_fold.OBJECT),
        "silver.meta_changes": _meta_rows(meta, kinds, meta_fold.CHANGE),
        "silver.data_rows": _together([of_kind(frame, row_fold.ROW) for frame in of_rows]),
        "silver.dropped_rows": _together([of_kind(frame, row_fold.ASIDE) for frame in aside]),
        "silver.pending_commands": _together([_pending(one) for one in _having(shards, shard_fold.PENDING in kinds.kinds)]),
        "silver.applied": _applied(
            _meta_rows(meta, kinds, meta_fold.APPLIED), _having(shards, shard_fold.APPLIED in kinds.kinds)
        ),
        "silver.command_results": _results(_meta_rows(meta, kinds, meta_fold.RESULT), results),
    }
    return {name: None if frame is None else frame.coalesce(files) for name, frame in made.items()}


def _having(frame: DataFrame | None, has_some: bool) -> list[DataFrame]:
    return [frame] if frame is not None and has_some else []


def _together(frames: list[DataFrame]) -> DataFrame | None:
    return reduce(DataFrame.unionByName, frames) if frames else None


def _meta_rows(meta: DataFrame | None, kinds: Kinds, kind: str) -> DataFrame | None:
    return of_kind(meta, kind) if meta is not None and kind in kinds.of_meta else None


def _pending(shards: DataFrame) -> DataFrame:
    return of_kind(shards, shard_fold.PENDING).withColumnRenamed("watermark", "effective_meta_index")


def _applied(meta: DataFrame | None, shards: list[DataFrame]) -> DataFrame | None:
    """How far the logs are. Meta logs never wait: what was received is carried out."""
    columns = ("_height", "group_name", *Progress._fields)
    found = [of_kind(frame, shard_fold.APPLIED).select(*columns) for frame in shards]
    found += [] if meta is None else [_applied_of(meta)]
    made = _together(found)
    return None if made is None else made.coalesce(1)


def _applied_of(meta: DataFrame) -> DataFrame:
    index = F.col("log_index")
    return meta.select(
        "_height",
        "group_name",
        index.alias("applied_index"),
        F.col("log_term").alias("applied_term"),
        index.alias("executed_index"),
        F.lit(0).cast("long").alias("watermark"),
        F.lit(None).cast("long").alias("waits_for"),
        F.lit(None).cast("long").alias("waiting_since"),
    )


def _results(meta: DataFrame | None, folded: list[DataFrame]) -> DataFrame | None:
    """One row per command, wherever it was decided."""
    columns = ("_height", "group_name", "log_index", "type", "error", "meta_index")
    more = ("rows_changed", "received_height", "required_meta_index")
    none = F.lit(0).cast("long")
    made = [of_kind(frame, row_fold.RESULT).select(*columns, *more) for frame in folded]
    if meta is not None:
        own = (none.alias("rows_changed"), F.col("_height").alias("received_height"), none.alias("required_meta_index"))
        made.append(meta.select(*columns, *own))
    found = _together(made)
    return None if found is None else found.withColumn("ok", F.col("error").isNull())
