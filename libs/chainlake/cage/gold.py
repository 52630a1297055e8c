"""What is derived from the cage's state: the UTxO set by address, and the operations that undo each block."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from chainlake.lake.stage import Batch

TOKEN = (
    "struct<owner: binary, root: binary, max_fee: bigint, process_time: bigint, retract_time: bigint, created_height: bigint,"
    " updated_height: bigint, tracked: boolean>"
)
REQUEST = (
    "struct<owner: binary, operation: string, old_value: binary, new_value: binary, fee: bigint, submitted_at: bigint,"
    " created_height: bigint>"
)
TYPES = {"token": TOKEN, "request": REQUEST, "value": "binary"}
KEY = {"token_id": "binary", "key": "binary", "tx_id": "binary", "tx_index": "int"}
IMAGES = {
    "silver.cage_tokens": (
        ("token_id",),
        ("token_id",),
        "token",
        "struct(owner, root, max_fee, process_time, retract_time, created_height, updated_height, tracked)",
    ),
    "silver.trie_facts": (("token_id", "key"), ("token_id", "key"), "value", "value"),
    "silver.cage_requests": (
        ("tx_id", "tx_index"),
        tuple(KEY),
        "request",
        "struct(owner, operation, old_value, new_value, fee, submitted_at, created_height)",
    ),
}
"""Of each table: its key, which of the columns of KEY it has, which kind of image it is of, and how that is made."""
ORDER = ("insert_token", "set_root", "trie_delete", "trie_insert", "delete_token", "insert_request", "delete_request")


def by_address(batch: Batch) -> DataFrame | None:
    """The rows of silver.utxos, the ends too, in the order of addresses."""
    if not batch.rows("silver.utxos"):
        return None
    return batch.read("silver.utxos").sortWithinPartitions("address", "tx_id", "tx_index")


def inverse_operations(batch: Batch) -> DataFrame | None:
    """For each block the operations that lead back, in an order in which each finds what it needs."""
    images = [_images(batch, table, *of) for table, of in IMAGES.items() if batch.rows(table)]
    if not images:
        return None
    steps = _steps(reduce(DataFrame.unionByName, images))
    rows = steps.select("_chain", "_height", *KEY, F.explode(_operations()).alias("done")).select("*", "done.*").drop("done")
    back = F.col("op") == "insert_request"
    rows = rows.withColumn("key", F.when(F.col("tx_id").isNull() | back, F.col("key")))
    rank = F.array_position(F.array(*map(F.lit, ORDER)), F.col("op"))
    place = Window.partitionBy("_chain", "_height").orderBy(rank, *KEY)
    return rows.withColumn("op_index", F.row_number().over(place) - 1)


def _steps(images: DataFrame) -> DataFrame:
    """What each block made of a token, a fact or a request (`now`, `_deleted`) and what that had been (`was`, NULL if it was not
    there), all in one shape."""
    own = Window.partitionBy("_chain", *KEY).orderBy("_height")
    previous = F.lag(F.when(~F.col("_deleted"), F.col("now"))).over(own)
    return images.withColumn("was", previous).filter("is_new")


def _images(batch: Batch, table: str, key: Sequence[str], known: Sequence[str], name: str, value: str) -> DataFrame:
    """The after-images of a batch, and those before it of the same keys."""
    rows = batch.read(table)
    before = batch.state(table, rows.select("_chain", *key))
    own = [one if one in known else f"CAST(NULL AS {kind}) AS {one}" for one, kind in KEY.items()]
    values = [f"{value if field == name else f'CAST(NULL AS {kind})'} AS {field}" for field, kind in TYPES.items()]
    shape = ("_chain", "_height", *own, f"struct({', '.join(values)}) AS now")
    return rows.selectExpr(*shape, "_deleted", "true AS is_new").unionByName(
        before.selectExpr(*shape, "false AS _deleted", "false AS is_new")
    )


def _operations() -> Column:
    """A token or a request goes, comes back, or is set to what it was. A value that changed is taken away, then the old one put
    back."""
    was, now, made, gone = F.col("was"), F.col("now"), F.col("was").isNull(), F.col("_deleted")
    of_token = F.when(made, _one("delete_token")).when(gone, _one("insert_token", was)).otherwise(_one("set_root", was))
    of_request = F.when(made, _one("delete_request")).otherwise(_one("insert_request", was))
    of_fact = F.array_compact(F.array(F.when(~gone, _one("trie_delete", now)), F.when(~made, _one("trie_insert", was))))
    of_others = F.when(F.col("key").isNull(), F.array(of_token)).otherwise(of_fact)
    return F.when(F.col("tx_id").isNotNull(), F.array(of_request)).otherwise(of_others)


def _one(op: str, image: Column | None = None) -> Column:
    fields = [(F.lit(None).cast(kind) if image is None else image[name]).alias(name) for name, kind in TYPES.items()]
    return F.struct(F.lit(op).alias("op"), *fields)
