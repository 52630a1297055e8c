"""Bronze: the logs of a batch of blocks, checked and numbered on from where the chain stands."""

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BrokenPromise
from chainlake.lake.stage import Batch, Output
from chainlake.logs.bundles import BUNDLES, NUMBERED, bundle_logs, file_bounds, number_logs
from chainlake.logs.decode import Piece, check_block

LOGS_PER_FILE, MOST_FILES = 200_000, 16
NEXT_LOG_ID = "next_log_id"
HEADER = "logsBloom string, miner string, gasUsed string, baseFeePerGas string, transactions array<string>"
BLOCKS = (
    "_height long, hash binary, parent_hash binary, timestamp timestamp, miner binary, gas_used long,"
    " base_fee_per_gas decimal(38, 0), transaction_count int, first_log_id long, log_count int, bloom_checked boolean,"
    " error string"
)


def bronze(batch: Batch) -> Output:
    """Decode the logs of a batch, check each block, and number the logs on from where the chain stands."""
    ((chain, (low, _)),) = batch.ranges.items()
    first = _next_log_id(batch, chain, low)
    transactions = batch.read("raw.transactions").select("_height", "block_hash", "tx_index", "hash", "payload")
    bundles = batch.keep(transactions.mapInArrow(bundle_logs, BUNDLES))
    joined = _joined(batch.read("raw.blocks"), bundles).repartition(1).sortWithinPartitions("_height")
    blocks = batch.keep(joined.mapInArrow(partial(_check_blocks, first=first), BLOCKS))
    bad, height, end = blocks.agg(F.min_by("error", F.when(F.col("error").isNotNull(), F.col("_height"))), *_ends()).collect()[0]
    if bad is not None:
        raise BrokenPromise(f"{chain}: {bad}; see what the source sends, then resume", height=height)
    roots = {chain: {NEXT_LOG_ID: int(end).to_bytes(8, "big")}}
    logs = _numbered(bundles, blocks, low, first, int(end))
    kernel = {"_chain": F.lit(chain), "block_number": F.col("_height")}
    tables = {"bronze.evm_logs": logs.withColumns(kernel), "bronze.evm_blocks": blocks.withColumns(kernel).drop("error")}
    return Output(tables, roots)


def _ends() -> tuple[Column, Column]:
    """The first block that is wrong, and the number of the next log."""
    return F.min(F.when(F.col("error").isNotNull(), F.col("_height"))), F.max(F.col("first_log_id") + F.col("log_count"))


def _joined(blocks: DataFrame, bundles: DataFrame) -> DataFrame:
    """Each block with what its header says, the pieces of its logs, and what is wrong with them."""
    header = F.from_json(F.col("payload").cast("string"), HEADER)
    found = bundles.select(F.explode("pieces").alias("piece")).select(F.col("piece.height").alias("_height"), "piece")
    pieces = found.groupBy("_height").agg(F.collect_list("piece").alias("pieces"))
    errors = (
        bundles.filter("error IS NOT NULL").groupBy(F.col("error_height").alias("_height")).agg(F.min("error").alias("error"))
    )
    return (
        blocks.select("_height", "hash", "parent_hash", "timestamp", header.alias("h"))
        .select(
            "_height",
            "hash",
            "parent_hash",
            "timestamp",
            _bytes("h.logsBloom").alias("bloom"),
            _bytes("h.miner").alias("miner"),
            _number("h.gasUsed").cast("long").alias("gas_used"),
            _number("h.baseFeePerGas").cast("decimal(38, 0)").alias("base_fee_per_gas"),
            F.expr("CASE WHEN h.transactions IS NOT NULL THEN size(h.transactions) END").alias("transaction_count"),
        )
        .join(pieces, "_height", "left")
        .join(F.broadcast(errors), "_height", "left")
    )


def _bytes(name: str) -> Column:
    return F.expr(f"try_to_binary(substring({name}, 3), 'hex')")


def _number(name: str) -> Column:
    return F.expr(f"conv(substring({name}, 3), 16, 10)")


def _check_blocks(batches: Iterable[pa.RecordBatch], first: int) -> Iterator[pa.RecordBatch]:
    """Check blocks that come in order, and number their logs on from `first`."""
    for batch in batches:
        columns = {name: batch.column(name) for name in batch.schema.names}
        blooms, found, errors = (columns.pop(name).to_pylist() for name in ("bloom", "pieces", "error"))
        counts = []
        for at, height in enumerate(columns["_height"].to_pylist()):
            pieces = [Piece(*list(piece.values())[1:]) for piece in found[at] or ()]
            counts.append(sum(piece.logs for piece in pieces))
            errors[at] = errors[at] or check_block(height, pieces, blooms[at])
        ends = first + np.cumsum(counts, dtype=np.int64)
        columns["first_log_id"] = pa.array(ends - counts)
        columns["log_count"] = pa.array(counts, pa.int32())
        columns["bloom_checked"] = pa.array([bloom is not None for bloom in blooms])
        columns["error"] = pa.array(errors, pa.string())
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        first = int(ends[-1]) if len(ends) else first


def _next_log_id(batch: Batch, chain: str, low: int) -> int:
    """The number of the next log: the ledger has it at the end of a commit, else the block before the batch tells."""
    head = batch.snapshot.ledger.of("bronze.logs", chain).head()
    if head is None:
        return 0
    if head.height == low and NEXT_LOG_ID in head.roots:
        return int.from_bytes(head.roots[NEXT_LOG_ID], "big")
    rows = batch.snapshot.between("bronze.evm_blocks", {chain: (low - 1, low)}).select("first_log_id", "log_count").collect()
    return sum(rows[0]) if rows else 0


def _numbered(bundles: DataFrame, blocks: DataFrame, base: int, first: int, end: int) -> DataFrame:
    """The logs with their numbers, sorted, in files of consecutive numbers: readers then fetch neighbours together."""
    of_blocks = blocks.select("_height", "first_log_id", F.unix_micros("timestamp").alias("at")).toArrow().sort_by("_height")
    ids, times = (of_blocks[name].to_numpy() for name in ("first_log_id", "at"))
    number = partial(number_logs, base=base, first_ids=ids, timestamps=times)
    files = max(1, min(MOST_FILES, (end - first) // LOGS_PER_FILE))
    some = bundles.filter("logs > 0")
    places = some.select("first_height", "first_log", "last_height", "last_log", "logs").collect()
    bounds = file_bounds([tuple(place) for place in places], files)
    if bounds is None:
        logs = some.mapInArrow(number, NUMBERED)
        place = F.expr(f"cast((log_id - {first}L) * {files}L div {max(1, end - first)}L AS int)")
        return logs.repartitionById(files, place).sortWithinPartitions("log_id")
    steps = [f"CASE WHEN (first_height, first_log) >= ({height}L, {log}) THEN 1 ELSE 0 END" for height, log in bounds]
    ordered = some.repartitionById(len(bounds) + 1, F.expr(" + ".join(steps) or "0"))
    return ordered.sortWithinPartitions("first_height", "first_log").mapInArrow(number, NUMBERED)
