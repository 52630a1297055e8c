"""What `lake verify` checks of the shards: the tree and its root made again from the streams, headers, results, placement."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from chainlake.encoding import short
from chainlake.merkle.smt import EMPTY, leaf_hash
from chainlake.merkle.smt_fold import PART_DIGITS, Update, combine, fold_part
from chainlake.merkle.smt_nodes import Node
from chainlake.shards.registry import NodeRecord, NodeRegistry
from chainlake.shards.state import StreamState, value_of

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake
    from chainlake.lake.reader import Snapshot

MOST = 5
STREAM = (
    *("stream_id", "last_miniblock_hash", "last_miniblock_num", "nodes", "replication_factor", "sealed"),
    *("created_height", "updated_height"),
)
NODES = pa.schema({"prefix": pa.string(), "leaves": pa.int64(), "hash": pa.binary(), "key": pa.binary()})
NODES_DDL = "prefix string, leaves bigint, hash binary, key binary"


def shard_problems(lake: "Lake", chain: str) -> list[str]:
    """Everything about the streams of a chain that does not hold, all of one moment: writers go on."""
    now = lake.moment(["silver.streams", "bronze.shard_blocks"])
    return [*_tree_problems(lake.spark, now, chain), *_block_problems(now, chain), *_reported(now, chain)]


def registry_of(now: "Snapshot", chain: str) -> NodeRegistry:
    """The nodes that the lake knows of a chain."""
    rows = now.table("silver.shard_nodes", chain=chain).select("address", "permanent_index", "from_height").collect()
    return NodeRegistry(NodeRecord(bytes(address), index, height) for address, index, height in rows)


def _tree_problems(spark: SparkSession, now: "Snapshot", chain: str) -> list[str]:
    """The tree, made again from the streams alone, beside the stored one; and its root beside the last block's."""
    streams = now.table("silver.streams", chain=chain).withColumn("part", F.substring(F.sha2("stream_id", 256), 1, PART_DIGITS))
    ordered = streams.select("part", *STREAM).repartition("part").sortWithinPartitions("part")
    made = ordered.mapInArrow(partial(plant_parts, registry=registry_of(now, chain)), NODES_DDL).localCheckpoint()
    tops = [Node(1, *_plain(row)) for row in made.filter(F.length("prefix") == PART_DIGITS).collect()]
    crown = combine((), tops)
    above = spark.createDataFrame([tuple(node[1:]) for node in crown.nodes], NODES_DDL)
    held = now.table("silver.shard_tree", chain=chain).select(*NODES.names)
    expected = made.unionByName(above)
    found = []
    for one, other, what in ((expected, held, "lacks or has wrong"), (held, expected, "has, and should not,")):
        rows = one.exceptAll(other).select("prefix").limit(MOST).collect()
        found += [f"silver.shard_tree of {chain} {what} the subtree '{row[0]}'" for row in rows]
    root, count = (crown.tops[0].hash, crown.tops[0].leaves) if crown.tops else (EMPTY, 0)
    roots = now.table("silver.shard_roots", chain=chain)
    last = roots.orderBy(F.col("height").desc()).select("height", "state_root", "stream_count").limit(1).collect()
    for height, state_root, streams_then in last:
        if (bytes(state_root), streams_then) != (root, count):
            found.append(
                f"the {count} streams of {chain} have root {short(root)}, silver.shard_roots says {short(bytes(state_root))} "
                f"over {streams_then} at block {height}"
            )
        head = now.ledger.of("silver.shards", chain).head()
        if head is not None and head.height == height and head.roots.get("state", root) != root:
            found.append(f"the ledger says that {chain} has root {short(head.roots['state'])} at block {height}")
    return found


def plant_parts(batches: Iterable[pa.RecordBatch], registry: NodeRegistry) -> Iterator[pa.RecordBatch]:
    """Tree rows of whole parts, from their streams alone."""
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    for part, group in groupby(rows, key=itemgetter(0)):
        updates = [Update(1, row[1], leaf_hash(row[1], value_of(_state(row), registry))) for row in group]
        nodes = fold_part(part, (), updates).nodes
        columns = zip(*(node[1:] for node in nodes), strict=True)
        arrays = [pa.array(column, one.type) for column, one in zip(columns, NODES, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=NODES)


def _state(row: tuple[object, ...]) -> StreamState:
    stream_id, last_hash, number, nodes, *rest = row[1:]
    return StreamState(stream_id, last_hash, number, tuple(nodes), *rest)  # type: ignore[arg-type]


def _plain(row: Iterable[object]) -> tuple[str, int, bytes, bytes | None]:
    prefix, leaves, digest, key = row
    return prefix, leaves, bytes(digest), None if key is None else bytes(key)  # type: ignore[return-value, call-overload]


def _block_problems(now: "Snapshot", chain: str) -> list[str]:
    """Every block has a root, which the next header carries, and as many results as transactions."""
    roots = now.table("silver.shard_roots", chain=chain).select("height", F.col("app_hash").alias("ours"))
    head = roots.agg(F.max("height")).collect()[0][0]
    blocks = now.table("bronze.shard_blocks", chain=chain, height=head).select("height", "app_hash", "tx_count")
    results = now.table("silver.shard_tx_results", chain=chain).groupBy("height").agg(F.count(F.lit(1)).alias("results"))
    joined = blocks.join(roots, "height", "full").join(results, "height", "left")
    before = F.lag("ours").over(Window.partitionBy(F.lit(0)).orderBy("height"))
    rows = joined.withColumn("before", before).select(
        "height",
        F.expr("ours IS NULL OR tx_count IS NULL").alias("lost"),
        F.expr("before IS NOT NULL AND app_hash IS DISTINCT FROM before").alias("other"),
        F.expr("tx_count <> coalesce(results, 0)").alias("uncounted"),
    )
    texts = {
        "lost": "has no root, or no header",
        "other": "carries no app hash, or another than the block before it left",
        "uncounted": "has more or fewer results than transactions",
    }
    wrong = rows.filter("lost OR other OR uncounted").orderBy("height").limit(MOST).collect()
    return [f"block {row[0]} of {chain} {texts[name]}" for row in wrong for name in texts if row[name]]


def _reported(now: "Snapshot", chain: str) -> list[str]:
    """Results that the chain reported otherwise."""
    rows = now.table("silver.shard_differences", chain=chain)
    counts: Mapping[str, int] = {what: count for what, count in rows.groupBy("what").count().collect()}
    return [
        f"{count} times the chain {chain} reported another {what} than ours: see silver.shard_differences"
        for what, count in sorted(counts.items())
    ]


def placement_problems(lake: "Lake", chain: str) -> list[str]:
    """gold.streams_by_node is silver.streams turned round, both of one moment."""
    now = lake.moment(["gold.streams_by_node", "silver.streams"])
    head = now.ledger.of("gold.shards", chain).head()
    if head is None:
        return []
    columns = ("stream_id", "permanent_index", "position", "node_count", "replication_factor")
    streams = now.table("silver.streams", chain=chain, height=head.height)
    expected = streams.select(
        "stream_id",
        F.posexplode("nodes").alias("position", "permanent_index"),
        F.size("nodes").alias("node_count"),
        "replication_factor",
    )
    held = now.table("gold.streams_by_node", chain=chain)
    return [*_missing(expected, held, columns, chain, "lacks"), *_missing(held, expected, columns, chain, "has, and should not,")]


def _missing(one: DataFrame, other: DataFrame, columns: tuple[str, ...], chain: str, what: str) -> list[str]:
    rows = one.select(*columns).exceptAll(other.select(*columns)).limit(MOST).collect()
    return [f"gold.streams_by_node of {chain} {what} stream {short(bytes(row[0]))} on node {row[1]}" for row in rows]
