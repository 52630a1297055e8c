"""The stages of a replica: deliveries to commands, commands to its state, and from that to its health."""

from pyspark.sql import Observation
from pyspark.sql import functions as F

from chainlake.lake.stage import Batch, Output, Stage
from chainlake.replica import checks, decode
from chainlake.replica.columns import spark_ddl
from chainlake.replica.invariants import replica_problems
from chainlake.replica.silver import silver

TEXTS = ("command", "row", "row_key", "primary_key")
PLAIN_TEXTS = {
    "parquet.size.statistics.enabled": "false",
    **{f"parquet.enable.dictionary#{name}": "false" for name in TEXTS},
    **{f"parquet.column.statistics.enabled#{name}": "false" for name in TEXTS},
}
"""No two commands or rows are alike: a dictionary of them is made to be thrown away. They lie in no order: what is smallest and
largest helps nobody to skip them, and telling takes two comparisons for every value."""
READ_IN_PARTS = {"spark.sql.files.maxPartitionBytes": str(8 << 20), "spark.sql.files.openCostInBytes": str(256 << 10)}
"""So that a file of many deliveries is decoded by all cores, and many small ones are by one. What each writes are deliveries that
follow each other, so that silver, when it asks for some of them, finds those in few files and pages."""
SMALL_ROW_GROUPS = {"parquet.block.size": str(2 << 20)}
"""So that of what waits only the part is read that Meta satisfies."""
SILVER = tuple(
    f"silver.{name}"
    for name in ("meta_objects", "meta_changes", "data_rows", "dropped_rows", "pending_commands", "applied", "command_results")
)


def replica_stages() -> tuple[Stage, ...]:
    """From entries to the state of a replica."""
    return (
        Stage(
            "bronze.replica",
            "raft",
            ("bronze.commands",),
            ("raw.replica",),
            bronze,
            max_blocks=100_000,
            write_settings=READ_IN_PARTS | PLAIN_TEXTS,
        ),
        Stage(
            "silver.replica",
            "raft",
            SILVER,
            ("bronze.replica",),
            silver,
            max_blocks=100_000,
            write_settings=SMALL_ROW_GROUPS | PLAIN_TEXTS,
            verify=replica_problems,
        ),
        Stage("gold.replica", "raft", ("gold.replica_health",), ("silver.replica",), gold, max_blocks=100_000),
    )


def bronze(batch: Batch) -> Output:
    """Every entry as a command. One that cannot be understood stops the replica: others may have understood it."""
    ((chain, _),) = batch.ranges.items()
    entries = batch.read("raw.transactions").select("_height", "tx_index", "payload")
    commands = entries.mapInArrow(decode.decode_entries, spark_ddl(decode.SCHEMA))
    seen = Observation()
    told = commands.observe(seen, F.count("error").alias("wrong")).filter("error IS NULL")

    def check() -> None:
        if seen.get["wrong"]:
            first = commands.filter("error IS NOT NULL").agg(F.min(F.struct("_height", "tx_index", "error")))
            height, tx_index, error = first.collect()[0][0]
            raise checks.stopped(chain, height, f"entry {tx_index} of delivery {height}: {error}")

    return Output({"bronze.commands": told.withColumn("_chain", F.lit(chain))}, check=check)


def gold(batch: Batch) -> Output:
    """The health of each log after each delivery that changed it."""
    pending = F.col("applied_index") - F.col("executed_index")
    rows = batch.read("silver.applied").withColumns(
        {
            "pending": pending,
            "status": F.when(pending > 0, "catching_up").otherwise("caught_up"),
            "fresh": pending == 0,
            "eligible_leader": pending == 0,
            "changed_height": F.col("_height"),
        }
    )
    return Output({"gold.replica_health": rows.coalesce(1)})
