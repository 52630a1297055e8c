"""The middle step of the shards: operations of a batch of blocks folded by stream, results in order, the root of every block."""

from collections.abc import Mapping, Sequence
from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BrokenPromise
from chainlake.lake.session import settings
from chainlake.lake.stage import SMALL_ROWS, Batch, Output
from chainlake.merkle.smt_fold import PART_DIGITS
from chainlake.merkle.smt_nodes import WAYS
from chainlake.shards import decode, differences, parts, roots
from chainlake.shards.codes import Code
from chainlake.shards.nodes import NODES_DDL, registries_of
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.state import TREE

SILVER = (
    *("silver.streams", "silver.shard_tx_results", "silver.shard_events", "silver.shard_roots", "silver.shard_tree"),
    *("silver.shard_nodes", "silver.shard_differences"),
)
TREE_ROW = ("_chain", "_height", "prefix", "leaves", "hash", "key")
FEW_OPERATIONS, MANY_TASKS = 2_000, 32


def silver(batch: Batch) -> Output:
    """Fold the operations of all streams, then the roots of all blocks.

    Only the streams that a batch touches are loaded. Where it has as many operations as there are versions of streams, all are:
    to find out which are touched would cost more. Then the operations are read once, and need not be kept.
    """
    known = registries_of(batch)
    before = _before(batch)
    txs = batch.read("bronze.shard_txs")
    operations, count = _operations(txs), _count(txs)
    is_whole = batch.versions_at_most("silver.streams") <= count
    if not is_whole:
        operations = batch.keep(operations)
    tasks = _tasks(batch) if count > FEW_OPERATIONS else 1
    states = batch.versions("silver.streams", None if is_whole else operations.select("_chain", "stream_id"))
    tree = _stored_tree(batch, operations, count, before)
    with settings(batch.spark, SMALL_ROWS):
        folded = batch.keep(_fold_parts(operations, states, tree, known.registries, tasks))
    made = batch.keep(_fold_roots(batch, folded, before, tasks))
    last = _checked_roots(made)
    results, events, root_rows = _results(txs, folded), folded.select(F.inline("events")), _of(made, roots.ROOT_KIND)
    return Output(
        {
            "silver.streams": folded.select(F.inline("images")).sortWithinPartitions("_chain", "stream_id", "_height"),
            "silver.shard_tx_results": results,
            "silver.shard_events": events,
            "silver.shard_roots": root_rows,
            "silver.shard_tree": _tree_rows(folded, made),
            "silver.shard_nodes": batch.spark.createDataFrame(known.rows, NODES_DDL) if known.rows else None,
            "silver.shard_differences": _differences(batch, results, events, root_rows, tasks),
        },
        last,
    )


def _tasks(batch: Batch) -> int:
    """How many tasks work side by side; where the platform chooses by itself, a few more than it needs."""
    text = batch.spark.conf.get("spark.sql.shuffle.partitions") or ""
    return int(text) if text.isdigit() else MANY_TASKS


def _before(batch: Batch) -> dict[str, roots.Before]:
    """Each chain as the block before the batch left it."""
    last = {chain: (low - 1, low) for chain, (low, _) in batch.ranges.items()}
    columns = ("_chain", "app_hash", "state_root", "stream_count", "tree_depth")
    found = {chain: roots.Before(batch.options[chain].get("app_hash", TREE)) for chain in batch.ranges}
    rows = batch.snapshot.between("silver.shard_roots", last).select(*columns).collect()
    for chain, app_hash, state_root, count, depth in rows:
        found[chain] = roots.Before(found[chain].mode, bytes(app_hash), bytes(state_root), count, depth)
    return found


def _operations(txs: DataFrame) -> DataFrame:
    """One row per operation, with the path of its stream in the tree."""
    exploded = txs.select("_chain", "_height", "tx_index", "op", F.posexplode("operations").alias("item", "o"))
    flat = exploded.select("_chain", "_height", "tx_index", "item", "op", "o.*").withColumnRenamed("nodes", "addresses")
    return flat.withColumn("path", F.sha2("stream_id", 256))


def _count(txs: DataFrame) -> int:
    """How many operations there are. Of each only the smallest field is asked for, so Spark reads no other."""
    return int(txs.select(F.sum(F.size("operations.sealed"))).collect()[0][0] or 0)


def _stored_tree(batch: Batch, operations: DataFrame, count: int, before: Mapping[str, roots.Before]) -> DataFrame:
    """The tree rows that the touched paths need, in all their versions: those one digit below each of their prefixes. Where these
    would be as many as the tree has, the whole tree."""
    tree = batch.versions("silver.shard_tree")
    depth = max(one.tree_depth for one in before.values())
    if count * depth * WAYS > sum(one.stream_count for one in before.values()):
        return tree
    prefixes = F.expr(f"transform(sequence(0, {depth - 1}), d -> substring(path, 1, d))")
    parents = operations.select("_chain", F.explode(prefixes).alias("parent")).distinct()
    parent = F.expr("substring(prefix, 1, length(prefix) - 1)")  # the root is its own: nothing is above it
    return tree.withColumn("parent", parent).join(F.broadcast(parents), ["_chain", "parent"], "left_semi")


def _fold_parts(
    operations: DataFrame, states: DataFrame, tree: DataFrame, registries: Mapping[str, NodeRegistry], tasks: int
) -> DataFrame:
    frames = {
        parts.NODE: tree.withColumn("part", _part("prefix")),
        parts.STATE: states.withColumn("part", _part(F.sha2("stream_id", 256))),
        parts.OPERATION: operations.withColumn("part", _part("path")),
    }
    rows = _union(parts.INPUT, *((kind, frame.withColumnsRenamed(parts.SHARED[kind])) for kind, frame in frames.items()))
    ordered = rows.repartition(tasks, *parts.PART).sortWithinPartitions(_place())
    return ordered.mapInArrow(partial(parts.fold_parts, registries=registries), parts.DDL)


def _place() -> Column:
    """Chain by chain, each of them part by part, as one number, which Spark sorts much faster than texts. (`conv` would make
    one of the digits too, but took a tenth of all the time of this step.)"""
    digits = [F.ascii(F.substring("part", at, 1)) for at in range(1, PART_DIGITS + 1)]
    part = reduce(lambda number, digit: number * (1 << 7) + digit, digits).cast("bigint")
    return F.xxhash64("_chain").bitwiseAND(F.lit(-(1 << 7 * PART_DIGITS))).bitwiseOR(part)


def _fold_roots(batch: Batch, folded: DataFrame, before: Mapping[str, roots.Before], tasks: int) -> DataFrame:
    kind = F.when(F.col("deepest").isNull(), roots.STORED).otherwise(roots.TOP)
    rows = _union(
        roots.INPUT,
        (kind, folded.select(F.inline("tops"))),
        (roots.BLOCK, batch.read("bronze.shard_blocks").select("_chain", "_height", "app_hash")),
    )
    ordered = rows.repartition(tasks, "_chain").sortWithinPartitions(*roots.SORTED_BY)
    return ordered.mapInArrow(partial(roots.fold_roots, before=before), roots.DDL)


def _checked_roots(made: DataFrame) -> dict[str, dict[str, bytes]]:
    """The root of each chain after the batch. A header that contradicts a root is a broken promise: either we are wrong or the
    chain is not what it says."""
    first = F.min_by("problem", F.when(F.col("problem").isNotNull(), F.col("_height")))
    height = F.min(F.when(F.col("problem").isNotNull(), F.col("_height")))
    root = F.max_by("state_root", F.when(F.col("state_root").isNotNull(), F.col("_height")))
    rows = made.groupBy("_chain").agg(root, first, height).orderBy("_chain").collect()
    broken = [row for row in rows if row[2] is not None]
    if broken:
        more = f" (and {len(broken) - 1} more chains)" if len(broken) > 1 else ""
        error = BrokenPromise(broken[0][2] + more, height=broken[0][3] - 1 if len(broken) == 1 else None)
        error.chains = [row[0] for row in broken]
        raise error
    return {chain: {"state": bytes(state_root)} for chain, state_root, _, _ in rows}


def _results(txs: DataFrame, folded: DataFrame) -> DataFrame:
    """A result for each transaction: what the checks said, else that of its one operation, else OK for a batch."""
    place = ("_chain", "_height", "tx_index", "code", "message")
    decided = txs.filter((F.col("code") != int(Code.OK)) | (F.col("op") == decode.MINIBLOCKS)).select(*place)
    single = folded.select(F.inline("results")).select(*place)
    names = F.create_map(*[F.lit(value) for code in Code for value in (int(code), code.name)])
    return decided.unionByName(single).withColumn("log", F.element_at(names, F.col("code")))


def _differences(batch: Batch, results: DataFrame, events: DataFrame, root_rows: DataFrame, tasks: int) -> DataFrame | None:
    reported = batch.read("bronze.shard_blocks").filter("results IS NOT NULL").select("_chain", "_height", "results")
    if reported.isEmpty():
        return None
    blocks = reported.join(root_rows.select("_chain", "_height", "app_hash"), ["_chain", "_height"])
    rows = _union(differences.INPUT, (differences.BLOCK, blocks), (differences.RESULT, results), (differences.EVENT, events))
    ordered = rows.repartition(tasks, "_chain", "_height").sortWithinPartitions(*differences.SORTED_BY)
    return ordered.mapInArrow(differences.find_differences, differences.DDL)


def _tree_rows(folded: DataFrame, made: DataFrame) -> DataFrame:
    """All tree rows that changed. Siblings are beside each other, so that what a proof reads is in few places: those below the
    parts come so, of those above there are few."""
    tops = folded.select(F.inline("tops")).filter("deepest IS NOT NULL").select(*TREE_ROW)
    above = tops.unionByName(_of(made, roots.NODE_KIND).select(*TREE_ROW)).coalesce(1)
    ordered = above.sortWithinPartitions("_chain", F.length("prefix"), "prefix", "_height")
    nodes = folded.select(F.inline("tree")).select(*TREE_ROW).unionByName(ordered)
    return nodes.withColumn("_deleted", F.col("leaves") == 0)


def _union(columns: Sequence[str], *frames: tuple[int | Column, DataFrame]) -> DataFrame:
    """Rows of several kinds in one frame: what a kind does not have is NULL."""
    first, *others = [frame.withColumn("kind", F.lit(kind)) for kind, frame in frames]
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return first.select(*columns)


def _part(path: str | Column) -> Column:
    return F.substring(path, 1, PART_DIGITS)


def _of(frame: DataFrame, kind: str) -> DataFrame:
    return frame.filter(F.col("kind") == kind)
