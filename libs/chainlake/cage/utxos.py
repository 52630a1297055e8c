"""The UTxO set of a batch in Spark: what is made and spent, what each input resolves to, and the tree's rows and roots."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from chainlake.cage import utxo_rows
from chainlake.cage.bronze_rows import OUTPUT_FIELDS, output_columns
from chainlake.cage.settings import Settings, read_genesis
from chainlake.cage.utxo_fold import BUCKET_DEPTH, PART_DEPTH, PARTS, PREFIX, roots
from chainlake.encoding import short
from chainlake.errors import BrokenPromise
from chainlake.lake.stage import Batch
from chainlake.merkle.csmt import Node, combine

KEY = ["tx_id", "tx_index"]
KNOWN = ["address", "lovelace", "assets", "datum_hash", "datum", "reference_script", "txout"]
GENESIS = "genesis"
SPENDER = "struct(_height, tx_index AS spender_index, tx_id AS spender, role AS spender_role, position)"
TAKER = """array_min(filter(spends, s -> address IS NOT NULL AND (
    made_height IS NULL OR made_height < s._height OR (made_height = s._height AND maker_index < s.spender_index))))"""
"""The first that spends an output once it is there. Others spend what is not known, however large the batch."""
MADE = pa.schema(
    [
        ("made_height", pa.int64()),
        ("maker_index", pa.int32()),
        ("maker_role", pa.string()),
        ("tx_id", pa.binary()),
        ("tx_index", pa.int32()),
        *OUTPUT_FIELDS,
        ("created_height", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Utxos:
    """A batch's outputs and inputs, and the changes of the set."""

    made: DataFrame
    """Outputs, with the block and the transaction's place in it."""
    taken: DataFrame
    """Inputs with what they spend."""
    unknown: DataFrame
    """Inputs that spend what is not known."""
    changes: DataFrame
    """Rows for silver.utxos: one for each output that outlives its block, one for each that an earlier block left."""


class ChainRoot(NamedTuple):
    """A row of silver.chain_roots."""

    height: int
    utxo_root: bytes | None
    utxo_count: int
    created: int
    spent: int
    unresolved: int
    block_hash: bytes
    slot: int | None


@dataclass(frozen=True)
class Tree:
    """The rows of the tree that changed, and a row of silver.chain_roots for each block."""

    nodes: DataFrame
    blocks: list[ChainRoot]


def first_block(batch: Batch, chain: str, low: int) -> bool:
    """Whether the batch begins with the first block of the chain."""
    return batch.snapshot.ledger.of("bronze.cage", chain).first_height() == low


def utxos_of(batch: Batch, chain: str, settings: Settings) -> Utxos:
    """Resolve the inputs of a batch against the set before it and against its own outputs."""
    low, _ = batch.ranges[chain]
    made = batch.read("bronze.cardano_outputs").filter("is_created")
    made = made.select(
        F.col("_height").alias("made_height"),
        F.col("tx_index").alias("maker_index"),
        F.col("role").alias("maker_role"),
        "tx_id",
        F.col("output_index").alias("tx_index"),
        *KNOWN,
        F.col("_height").alias("created_height"),
    )
    if settings.genesis and first_block(batch, chain, low):
        made = made.unionByName(_genesis(batch, settings.genesis, low + 1))
    spends = batch.read("bronze.cardano_inputs").filter("is_spent")
    of_output = spends.groupBy(F.col("spent_tx_id").alias("tx_id"), F.col("spent_tx_index").alias("tx_index"))
    spenders = of_output.agg(F.expr(f"collect_list({SPENDER}) AS spends"))
    before = batch.state("silver.utxos", spenders.select(F.lit(chain).alias("_chain"), *KEY))
    nothing = ("NULL AS made_height", "NULL AS maker_index", "NULL AS maker_role")
    known = made.unionByName(before.selectExpr(*nothing, *KEY, *KNOWN, "created_height"))
    moves = batch.keep(known.join(spenders, KEY, "full").withColumn("taker", F.expr(TAKER)))
    taken = moves.filter("taker IS NOT NULL").select("taker.*", *KEY, *KNOWN, "made_height", "created_height")
    others = moves.filter("spends IS NOT NULL").select(
        *KEY, F.explode(F.expr("filter(spends, s -> taker IS NULL OR s <> taker)")).alias("spender")
    )
    unknown = others.select("spender.*", *KEY)
    return Utxos(moves.filter("made_height IS NOT NULL"), taken, unknown, _changes(moves, taken))


def _changes(moves: DataFrame, taken: DataFrame) -> DataFrame:
    """An output that is made and spent in one block leaves no trace: going back can never bring it back."""
    born = moves.filter("made_height IS NOT NULL AND (taker IS NULL OR taker._height > made_height)")
    born = born.selectExpr("made_height AS _height", "false AS _deleted", *KEY, *KNOWN, "created_height")
    dead = taken.filter("made_height IS NULL OR made_height < _height")
    return born.unionByName(dead.selectExpr("_height", "true AS _deleted", *KEY, *KNOWN, "created_height"))


def _genesis(batch: Batch, path: str, height: int) -> DataFrame:
    """Outputs from before the first block. They appear with it."""
    rows = [(height, -1, GENESIS, *place, *output_columns(output), None) for place, output in read_genesis(path)]
    columns = zip(*rows, strict=True) if rows else [()] * len(MADE)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, MADE, strict=True)]
    return batch.spark.createDataFrame(pa.Table.from_arrays(arrays, schema=MADE))


def tree_of(batch: Batch, chain: str, utxos: Utxos, settings: Settings) -> Tree:
    """Fold the parts of the tree beside each other, then combine their tops block by block."""
    low, high = batch.ranges[chain]
    changes = utxos.changes.withColumn("bucket", _bucket())
    parts = batch.state("silver.utxo_nodes", _wanted(batch, chain, changes)).selectExpr(
        f"substring(path, 1, {PART_DEPTH}) AS tree_part",
        f"{utxo_rows.NODE} AS part",
        "NULL AS _height",
        "path",
        "node",
        "NULL AS tx_id",
        "NULL AS tx_index",
        "NULL AS txout",
    )
    changed = changes.selectExpr(
        f"substring(bucket, 1, {PART_DEPTH}) AS tree_part",
        f"{utxo_rows.CHANGE} AS part",
        "_height",
        "NULL AS path",
        "NULL AS node",
        "tx_id",
        "tx_index",
        "CASE WHEN NOT _deleted THEN txout END AS txout",
    )
    ordered = parts.unionByName(changed).repartition("tree_part")
    ordered = ordered.sortWithinPartitions("tree_part", "part", "_height", "tx_id", "tx_index")
    folded = batch.keep(ordered.mapInArrow(utxo_rows.fold, utxo_rows.FOLDED))
    told = _told(batch, chain, folded, utxos)
    _refuse(chain, told, settings)
    tops: dict[str, Node | None] = dict.fromkeys(PARTS)
    tops |= {row["tree_part"]: utxo_rows.unpacked(bytes(row["node"])) for row in told["before"]}
    count = _count_before(chain, low, told["root"], combine(tops.values()))
    steps = [(row["_height"], row["tree_part"], utxo_rows.unpacked(bytes(row["node"]))) for row in told["top"]]
    found = dict(roots(tops, steps, range(low + 1, high + 1)))
    return Tree(folded.filter("what = 'node'"), list(_blocks(found, told, count)))


def _told(batch: Batch, chain: str, folded: DataFrame, utxos: Utxos) -> dict[str, list[Row]]:
    """All that the driver has to know, in one look: tops, errors, inputs that are not known, the root before, the blocks."""
    low, _ = batch.ranges[chain]
    rows = folded.filter("what <> 'node'").select("what", "tree_part", "_height", "node", "error", "created", "spent")
    number = F.count(F.lit(1)).cast("int").alias("spent")
    root = batch.snapshot.between("silver.chain_roots", {chain: (low - 1, low)})
    blocks = batch.read("bronze.cardano_blocks")
    others = {
        "unresolved": utxos.unknown.groupBy("_height").agg(number),
        "root": root.select("_height", F.col("utxo_root").alias("node"), F.col("utxo_count").cast("string").alias("error")),
        "block": blocks.select("_height", F.col("hash").alias("node"), F.col("slot").cast("string").alias("error")),
    }
    for what, frame in others.items():
        rows = rows.unionByName(frame.withColumn("what", F.lit(what)), allowMissingColumns=True)
    found: dict[str, list[Row]] = {what: [] for what in ("before", "top", "error", *others)}
    for row in rows.collect():
        found[row["what"]].append(row)
    return found


def _refuse(chain: str, told: dict[str, list[Row]], settings: Settings) -> None:
    """An output that is made twice, or not known although all should be."""
    errors = [(row["_height"], row["error"]) for row in told["error"]]
    if settings.genesis_complete:
        why = "outputs that are not known or spent already, and the genesis file should have all"
        errors += [(row["_height"], f"block {row['_height']} spends {row['spent']} {why}") for row in told["unresolved"]]
    refuse_first(chain, errors)


def _bucket() -> Column:
    """The first digits of an output's key: those that all have, then of the transaction's id."""
    digits = F.substring(F.lower(F.hex("tx_id")), 1, BUCKET_DEPTH - len(PREFIX))
    return F.concat(F.lit(PREFIX), digits)


def _wanted(batch: Batch, chain: str, changes: DataFrame) -> DataFrame:
    """The buckets of all rows on the way to a change, and the first row of every part."""
    lengths = F.sequence(F.lit(PART_DEPTH), F.lit(BUCKET_DEPTH))
    prefixes = F.transform(lengths, lambda length: F.col("bucket").substr(F.lit(1), length))
    tops = batch.spark.createDataFrame([(part,) for part in PARTS], "bucket string")
    buckets = changes.select(F.explode(prefixes).alias("bucket")).unionByName(tops)
    return buckets.select(F.lit(chain).alias("_chain"), "bucket")


def _count_before(chain: str, low: int, said: list[Row], root: bytes | None) -> int:
    """How many outputs there were before the batch. The rows that were read have to be those of the root then."""
    expected = bytes(said[0]["node"]) if said and said[0]["node"] is not None else None
    if root != expected:
        raise BrokenPromise(
            f"{chain}: the UTxO tree at block {low} has root {short(root or b'')}, its block says {short(expected or b'')}:"
            " run lake verify, then lake restore"
        )
    return int(said[0]["error"]) if said else 0


def _blocks(found: dict[int, bytes | None], told: dict[str, list[Row]], count: int) -> Iterator[ChainRoot]:
    created, spent, unknown = Counter[int](), Counter[int](), Counter[int]()
    for row in told["top"]:
        created[row["_height"]] += row["created"]
        spent[row["_height"]] += row["spent"]
    for row in told["unresolved"]:
        unknown[row["_height"]] += row["spent"]
    blocks = {row["_height"]: (bytes(row["node"]), None if row["error"] is None else int(row["error"])) for row in told["block"]}
    for height, root in found.items():
        count += created[height] - spent[height]
        yield ChainRoot(height, root, count, created[height], spent[height], unknown[height], *blocks[height])


def roots_frame(batch: Batch, chain: str, tree: Tree) -> DataFrame:
    """Rows of silver.chain_roots."""
    names = ("_height", *ChainRoot._fields[1:])
    long, small, octets = pa.int64(), pa.int32(), pa.binary()
    types = (long, octets, long, small, small, small, octets, long)
    columns = zip(*tree.blocks, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return batch.spark.createDataFrame(pa.Table.from_arrays(arrays, list(names))).withColumn("_chain", F.lit(chain))


def refuse_first(chain: str, errors: list[tuple[int, str]]) -> None:
    """Raise the error of the lowest block, if there is any."""
    if errors:
        height, text = min(errors)
        raise BrokenPromise(f"{chain}: {text}", height=height)
