"""The cage on Spark: blocks to transactions, transactions to the UTxO set, the cage and its tries in one commit."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.cage import bronze_rows
from chainlake.cage.checks import by_address_problems, state_problems
from chainlake.cage.gold import by_address, inverse_operations
from chainlake.cage.settings import Settings
from chainlake.cage.tokens import TABLES, cage_of
from chainlake.cage.utxos import roots_frame, tree_of, utxos_of
from chainlake.errors import BrokenPromise
from chainlake.lake.stage import SMALL_ROW_GROUPS, Batch, Output, Stage

LISTS = {
    "bronze.cardano_inputs": "inputs",
    "bronze.cardano_outputs": "outputs",
    "bronze.cardano_mints": "mints",
    "bronze.cardano_redeemers": "redeemers",
    "bronze.cardano_datums": "datums",
}
UTXO_ROOT = "utxo"
SEARCHED = {
    "bronze.cardano_datums": ("datum_hash",),
    "silver.utxos": ("tx_id", "tx_index"),
    "silver.utxo_nodes": ("bucket", "path"),
    "silver.trie_facts": ("token_id", "key"),
    "silver.trie_nodes": ("token_id", "bucket", "path"),
}


def cage_stages() -> tuple[Stage, ...]:
    """From raw blocks to what one asks."""
    return (
        Stage(
            "bronze.cage",
            "cardano",
            ("bronze.cardano_blocks", *LISTS),
            ("raw.cage",),
            bronze,
            max_blocks=20_000,
            max_rows=100_000,
            write_settings=SMALL_ROW_GROUPS,
        ),
        Stage(
            "silver.cage",
            "cardano",
            ("silver.utxos", "silver.utxo_nodes", "silver.unresolved_inputs", "silver.chain_roots", *TABLES),
            ("bronze.cage",),
            silver,
            max_blocks=5_000,
            max_rows=300_000,
            write_settings=SMALL_ROW_GROUPS,
            verify=state_problems,
        ),
        Stage(
            "gold.cage",
            "cardano",
            ("gold.utxos_by_address", "gold.cage_inverse_ops"),
            ("silver.cage",),
            gold,
            max_blocks=20_000,
            write_settings=SMALL_ROW_GROUPS,
            verify=by_address_problems,
        ),
    )


def bronze(batch: Batch) -> Output:
    """Decode whole blocks: bodies, witnesses, and which transactions failed."""
    ((chain, _),) = batch.ranges.items()
    blocks = batch.read("raw.blocks").select("_height", "hash", "timestamp", "payload")
    decoded = batch.keep(blocks.mapInArrow(bronze_rows.decode, bronze_rows.DECODED)).withColumn("_chain", F.lit(chain))
    first = F.min(F.when(F.col("error").isNotNull(), F.struct("_height", "error")))
    told = decoded.agg(first.alias("bad"), *(F.sum(F.size(column)).alias(column) for column in LISTS.values())).collect()[0]
    if told["bad"] is not None:
        height, error = told["bad"]
        raise BrokenPromise(f"{chain}: block {height} cannot be read: {error}; see what the source sends, then resume", height)
    tables: dict[str, DataFrame | None] = {"bronze.cardano_blocks": decoded}
    for name, column in LISTS.items():
        rows = decoded.select("_chain", "_height", F.explode(column).alias("row")).select("_chain", "_height", "row.*")
        tables[name] = _findable(name, rows) if told[column] else None
    return Output(tables)


def silver(batch: Batch) -> Output:
    """Carry out a batch: the UTxO set, the cage and the tries move together."""
    ((chain, _),) = batch.ranges.items()
    settings = Settings.of(batch.options[chain])
    utxos = utxos_of(batch, chain, settings)
    with ThreadPoolExecutor(2) as pool:
        folding = pool.submit(tree_of, batch, chain, utxos, settings)
        events = pool.submit(cage_of, batch, chain, settings.cage, utxos)
        _refuse_lowest(folding, events)
        tree, cage = folding.result(), events.result()
    unknown = utxos.unknown.selectExpr(
        "_height", "spender_index AS tx_index", "spender AS tx_id", "tx_id AS spent_tx_id", "tx_index AS spent_tx_index"
    )
    has_changed, has_unknown = any(one.created or one.spent for one in tree.blocks), any(one.unresolved for one in tree.blocks)
    frames = {
        "silver.utxos": utxos.changes if has_changed else None,
        "silver.utxo_nodes": tree.nodes if has_changed else None,
        "silver.unresolved_inputs": unknown if has_unknown else None,
        **cage,
    }
    here = {
        name: _findable(name, frame).withColumn("_chain", F.lit(chain)) for name, frame in frames.items() if frame is not None
    }
    root = tree.blocks[-1].utxo_root
    roots = {chain: {UTXO_ROOT: root}} if root is not None else {}
    return Output({**dict.fromkeys(frames), **here, "silver.chain_roots": roots_frame(batch, chain, tree)}, roots)


def _refuse_lowest(*work: "Future[Any]") -> None:
    """Of several broken promises the one of the lowest block: those before it can then be committed."""
    broken = [error for error in (one.exception() for one in work) if isinstance(error, BrokenPromise)]
    if broken:
        raise min(broken, key=lambda error: -1 if error.height is None else error.height)


def _findable(name: str, frame: DataFrame) -> DataFrame:
    """In the order of what readers search by: they then read a few row groups only."""
    return frame.sortWithinPartitions(*SEARCHED[name]) if name in SEARCHED else frame


def gold(batch: Batch) -> Output:
    """The UTxO set by address, and how to undo each block of the cage."""
    return Output({"gold.utxos_by_address": by_address(batch), "gold.cage_inverse_ops": inverse_operations(batch)})
