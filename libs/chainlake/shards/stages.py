"""Metadata shards on Spark: transactions decoded, streams folded, placement turned round.

All shards are in one lane: a batch holds blocks of many chains, and every step is one Spark job over all of them. `silver` has
the middle step.
"""

from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from chainlake.lake.stage import SMALL_ROW_GROUPS, Batch, Output, Stage
from chainlake.shards import decode
from chainlake.shards.nodes import SNAPSHOT, given_for
from chainlake.shards.results_file import read_results
from chainlake.shards.silver import SILVER, silver
from chainlake.shards.verify import placement_problems, shard_problems

LANE = "shards"
BRONZE = ("bronze.shard_blocks", "bronze.shard_txs")
GOLD = ("gold.streams_by_node",)
PAYLOAD = (
    "block struct<header: struct<chain_id: string, app_hash: string, proposer_address: string>,"
    " data: struct<txs: array<string>>>, block_results string"
)


def shard_stages() -> tuple[Stage, ...]:
    """From raw transactions to streams by node."""
    common: dict[str, Any] = {"lane_of": _one_lane, "write_settings": SMALL_ROW_GROUPS}
    few_of_many: dict[str, Any] = {"max_blocks": 10_000, "max_rows": 100_000_000}  # it reads placements, not the tree
    return (
        Stage("bronze.shards", "comet", BRONZE, ("raw.shards",), bronze, max_blocks=10_000, **common),
        Stage("silver.shards", "comet", SILVER, ("bronze.shards",), silver, verify=shard_problems, **common),
        Stage("gold.shards", "comet", GOLD, ("silver.shards",), gold, verify=placement_problems, **few_of_many, **common),
    )


def _one_lane(chain: str) -> str:
    return LANE


def bronze(batch: Batch) -> Output:
    """Decode and check every transaction, and read the headers."""
    txs = batch.read("raw.transactions").select("_chain", "_height", "tx_index", "hash", "payload")
    blocks = batch.read("raw.blocks").withColumn("p", F.from_json(F.col("payload").cast("string"), PAYLOAD))
    headers = blocks.select(
        *("_chain", "_height", "hash", "timestamp", "p.block.header.chain_id"),
        _hex("app_hash").alias("app_hash"),
        _hex("proposer_address").alias("proposer"),
        F.coalesce(F.array_size("p.block.data.txs"), F.lit(0)).alias("tx_count"),
        F.col("p.block_results").alias("results"),
    )
    return Output(
        {
            "bronze.shard_blocks": _with_results(batch, headers),
            "bronze.shard_txs": txs.mapInArrow(decode.decode, decode.DDL),
        }
    )


def _hex(member: str) -> Column:
    """Bytes of a member of the header; NULL if it is empty."""
    return F.expr(f"nullif(try_to_binary(p.block.header.{member}, 'hex'), X'')")


def _with_results(batch: Batch, headers: DataFrame) -> DataFrame:
    """What the chain reported, from the file that the option names. A node's answers are in the blocks already."""
    rows = []
    for chain, (low, high) in batch.ranges.items():
        if path := batch.options[chain].get("results"):
            with given_for([chain]):
                rows += [(chain, height, text) for height, text in read_results(path, low, high).items()]
    if not rows:
        return headers
    given = batch.spark.createDataFrame(rows, "_chain string, _height bigint, given string")
    joined = headers.join(given, ["_chain", "_height"], "left")
    return joined.withColumn("results", F.coalesce("given", "results")).drop("given")


def _placements(batch: Batch, images: DataFrame) -> DataFrame:
    """Streams that somebody wanted to create or to move, and those that a chain began with. Miniblocks, which are most of what
    happens, place nothing."""
    txs = batch.read("bronze.shard_txs").filter(F.col("op").isin(decode.CREATE, decode.PLACEMENT))
    found = txs.select("_chain", "_height", F.get("operations", F.lit(0))["stream_id"].alias("stream_id"))
    for chain, (low, high) in batch.ranges.items():
        if low < int(batch.options[chain].get(SNAPSHOT, low)) <= high:
            own = images.filter((F.col("_chain") == chain) & (F.col("_height") == int(batch.options[chain][SNAPSHOT])))
            found = found.unionByName(own.select(*found.columns))
    return found


def gold(batch: Batch) -> Output:
    """Which node holds which stream: rows for nodes that a stream is placed on, and the end of those it left."""
    placed = ("nodes", "replication_factor")
    images = batch.read("silver.streams").select("_chain", "_height", "stream_id", *placed)
    images = batch.keep(images.join(_placements(batch, images), ["_chain", "_height", "stream_id"], "left_semi"))
    held = batch.state("silver.streams", images.select("_chain", "stream_id")).select("_chain", "_height", "stream_id", *placed)
    rows = images.withColumn("new", F.lit(True)).unionByName(held.withColumn("new", F.lit(False)))
    before = Window.partitionBy("_chain", "stream_id").orderBy("_height")
    rows = rows.withColumns({f"old_{name}": F.lag(name).over(before) for name in placed}).filter("new")
    moved = rows.filter(" OR ".join(f"old_{name} IS DISTINCT FROM {name}" for name in placed))
    now = moved.select("*", F.posexplode("nodes").alias("position", "permanent_index"), F.lit(False).alias("_deleted"))
    left = moved.withColumn("gone", F.array_except("old_nodes", "nodes")).select(
        "*", F.lit(0).alias("position"), F.explode("gone").alias("permanent_index"), F.lit(True).alias("_deleted")
    )
    known = batch.snapshot.state("silver.shard_nodes", {chain: high for chain, (_, high) in batch.ranges.items()})
    known = F.broadcast(known.select("_chain", "permanent_index", "address"))
    both = now.unionByName(left.drop("gone")).join(known, ["_chain", "permanent_index"])
    return Output({"gold.streams_by_node": both.withColumns({"node_count": F.size("nodes"), "placed_height": F.col("_height")})})
