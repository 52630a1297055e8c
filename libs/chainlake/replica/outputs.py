"""The tables of a replica, from what its folds gave back: rows of several kinds in one frame each."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.replica import meta_fold, row_fold, shard_fold
from chainlake.replica.timeline import Progress


def of_kind(frame: DataFrame, out: str) -> DataFrame:
    """The rows of one kind."""
    return frame.filter(F.col("out") == out)


def tables(meta: DataFrame, shards: DataFrame, rows: DataFrame) -> dict[str, DataFrame]:
    """All tables of the stage."""
    applied = of_kind(shards, shard_fold.APPLIED).select("_height", "group_name", *Progress._fields)
    return {
        "silver.meta_objects": of_kind(meta, meta_fold.OBJECT),
        "silver.meta_changes": of_kind(meta, meta_fold.CHANGE),
        "silver.data_rows": of_kind(rows, row_fold.ROW),
        "silver.dropped_rows": of_kind(rows, row_fold.ASIDE),
        "silver.pending_commands": of_kind(shards, shard_fold.PENDING).withColumnRenamed("watermark", "effective_meta_index"),
        "silver.applied": applied.unionByName(_meta_applied(meta)).coalesce(1),
        "silver.command_results": _results(meta, shards, rows),
    }


def _meta_applied(meta: DataFrame) -> DataFrame:
    """Meta logs never wait: what was received is carried out."""
    index = F.col("log_index")
    return of_kind(meta, meta_fold.APPLIED).select(
        "_height",
        "group_name",
        index.alias("applied_index"),
        F.col("log_term").alias("applied_term"),
        index.alias("executed_index"),
        F.lit(0).cast("long").alias("watermark"),
        F.lit(None).cast("long").alias("waits_for"),
        F.lit(None).cast("long").alias("waiting_since"),
    )


def _results(meta: DataFrame, shards: DataFrame, rows: DataFrame) -> DataFrame:
    """One row per command, wherever it was decided."""
    columns = ("_height", "group_name", "log_index", "type", "error", "meta_index")
    none = F.lit(0).cast("long")
    of_meta = of_kind(meta, meta_fold.RESULT).select(
        *columns, none.alias("rows_changed"), F.col("_height").alias("received_height"), none.alias("required_meta_index")
    )
    more = ("received_height", "required_meta_index")
    of_shards = of_kind(shards, shard_fold.RESULT).select(*columns, none.alias("rows_changed"), *more)
    of_rows = of_kind(rows, row_fold.RESULT).select(*columns, "rows_changed", *more)
    return of_meta.unionByName(of_shards).unionByName(of_rows).withColumn("ok", F.col("error").isNull())
