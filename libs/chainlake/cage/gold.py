"""What is derived from the cage's state: the UTxO set by address, and the operations that undo each block."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from chainlake.lake.stage import Batch

TOKEN = ("owner", "root", "max_fee", "process_time", "retract_time", "created_height", "updated_height", "tracked")
REQUEST = ("owner", "operation", "old_value", "new_value", "fee", "submitted_at", "created_height")
ORDER = ("insert_token", "set_root", "trie_delete", "trie_insert", "delete_token", "insert_request", "delete_request")
COLUMNS = ("_chain", "_height", "op", "token_id", "tx_id", "tx_index", "key", "value", "token", "request")


def by_address(batch: Batch) -> DataFrame:
    """The rows of silver.utxos, the ends too, in the order of addresses."""
    return batch.read("silver.utxos").sortWithinPartitions("address", "tx_id", "tx_index")


def inverse_operations(batch: Batch) -> DataFrame:
    """For each block the operations that lead back, in an order in which each finds what it needs."""
    rows = _of_tokens(batch).unionByName(_of_facts(batch)).unionByName(_of_requests(batch))
    rank = F.array_position(F.array(*map(F.lit, ORDER)), F.col("op"))
    place = Window.partitionBy("_chain", "_height").orderBy(rank, "token_id", "key", "tx_id", "tx_index")
    return rows.withColumn("op_index", F.row_number().over(place) - 1)


def _of_tokens(batch: Batch) -> DataFrame:
    steps = _steps(batch, "silver.cage_tokens", ["token_id"], TOKEN)
    op = _chosen("insert_token", "set_root", "delete_token")
    return _shaped(steps.withColumns({"op": op, "token": F.when(op != "delete_token", F.col("was"))}))


def _of_requests(batch: Batch) -> DataFrame:
    steps = _steps(batch, "silver.cage_requests", ["tx_id", "tx_index"], REQUEST, ("token_id", "key"))
    op = _chosen("insert_request", "insert_request", "delete_request")
    back = op == "insert_request"
    return _shaped(steps.withColumns({"op": op, "request": F.when(back, F.col("was")), "key": F.when(back, F.col("key"))}))


def _of_facts(batch: Batch) -> DataFrame:
    """A value that changed is taken away, then the old one put back."""
    steps = _steps(batch, "silver.trie_facts", ["token_id", "key"], ("value",))
    gone = steps.filter("NOT _deleted").select("*", F.lit("trie_delete").alias("op"), F.col("now.value").alias("value"))
    back = steps.filter("was IS NOT NULL").select("*", F.lit("trie_insert").alias("op"), F.col("was.value").alias("value"))
    return _shaped(gone).unionByName(_shaped(back))


def _steps(batch: Batch, table: str, key: list[str], fields: Sequence[str], also: Sequence[str] = ()) -> DataFrame:
    """What each block made of a key (`now`, `_deleted`) and what it had been (`was`, NULL if it was not there)."""
    rows = batch.read(table)
    before = batch.state(table, rows.select("_chain", *key)).withColumns({"_deleted": F.lit(False), "is_new": F.lit(False)})
    both = rows.withColumn("is_new", F.lit(True)).unionByName(before.select(*rows.columns, "is_new"))
    own = Window.partitionBy("_chain", *key).orderBy("_height")
    both = both.withColumn("now", F.struct(*fields))
    previous = F.lag(F.when(~F.col("_deleted"), F.col("now"))).over(own)
    wanted = ["_chain", "_height", "_deleted", *key, *also, "now", "was"]
    return both.withColumn("was", previous).filter("is_new").select(*wanted)


def _chosen(gone: str, changed: str, made: str) -> Column:
    return F.when(F.col("was").isNull(), made).when(F.col("_deleted"), gone).otherwise(changed)


def _shaped(frame: DataFrame) -> DataFrame:
    types = {"token": TOKEN_TYPE, "request": REQUEST_TYPE, "tx_index": "int"}
    columns = [
        F.col(name) if name in frame.columns else F.lit(None).cast(types.get(name, "binary")).alias(name) for name in COLUMNS
    ]
    return frame.select(*columns)


TOKEN_TYPE = (
    "struct<owner: binary, root: binary, max_fee: bigint, process_time: bigint, retract_time: bigint, created_height: bigint,"
    " updated_height: bigint, tracked: boolean>"
)
REQUEST_TYPE = (
    "struct<owner: binary, operation: string, old_value: binary, new_value: binary, fee: bigint, submitted_at: bigint,"
    " created_height: bigint>"
)
