"""Bronze: the logs of a batch of blocks, checked and numbered on from where the chain stands."""

from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BrokenPromise
from chainlake.lake.stage import Batch, Output
from chainlake.logs.block_rows import Checked, check_blocks
from chainlake.logs.bundles import BUNDLES, NUMBERED, TRANSACTIONS, bundle_logs, file_bounds, number_logs
from chainlake.logs.headers import BLOCKS, HEADERS, read_headers

LOGS_PER_FILE, MOST_FILES = 200_000, 16
NEXT_LOG_ID = "next_log_id"
PLACES = ("first_height", "first_log", "last_height", "last_log", "logs")


def bronze(batch: Batch) -> Output:
    """Decode the logs of a batch, check each block, and number the logs on from where the chain stands."""
    ((chain, (low, _)),) = batch.ranges.items()
    first = _next_log_id(batch, chain, low)
    transactions = batch.read("raw.transactions").select(*TRANSACTIONS.names)
    bundles = batch.keep(transactions.mapInArrow(bundle_logs, BUNDLES))
    headers = batch.read("raw.blocks").select(*BLOCKS.names).mapInArrow(read_headers, HEADERS)
    found = bundles.drop("rows").toArrow()
    blocks = check_blocks(headers.toArrow(), found, first)
    if blocks.wrong is not None:
        height, error = blocks.wrong
        again = f"mend the source, roll raw.logs back to {height - 1}, ingest again, then resume bronze.logs"
        raise BrokenPromise(f"{chain}: {error}: {again}", height=height)
    roots = {chain: {NEXT_LOG_ID: blocks.next_log_id.to_bytes(8, "big")}}
    kernel = {"_chain": F.lit(chain), "block_number": F.col("_height")}
    tables = {
        "bronze.evm_logs": _numbered(bundles, found, blocks, low, first).withColumns(kernel),
        "bronze.evm_blocks": batch.spark.createDataFrame(blocks.rows).coalesce(1).withColumns(kernel),
    }
    return Output(tables, roots)


def _next_log_id(batch: Batch, chain: str, low: int) -> int:
    """The number of the next log: the ledger has it at the end of a commit, else the block before the batch tells."""
    head = batch.snapshot.ledger.of("bronze.logs", chain).head()
    if head is None:
        return 0
    if head.height == low and NEXT_LOG_ID in head.roots:
        return int.from_bytes(head.roots[NEXT_LOG_ID], "big")
    rows = batch.snapshot.between("bronze.evm_blocks", {chain: (low - 1, low)}).select("first_log_id", "log_count").collect()
    return sum(rows[0]) if rows else 0


def _numbered(bundles: DataFrame, found: pa.Table, blocks: Checked, base: int, first: int) -> DataFrame:
    """The logs with their numbers, sorted, in files of consecutive numbers: readers then fetch neighbours together."""
    ids, times = blocks.rows["first_log_id"].to_numpy(), blocks.rows["timestamp"].cast(pa.int64()).to_numpy()
    number = partial(number_logs, base=base, first_ids=ids, timestamps=times)
    logs = blocks.next_log_id - first
    files = max(1, min(MOST_FILES, logs // LOGS_PER_FILE))
    places = zip(*(found[name].to_pylist() for name in PLACES), strict=True)
    bounds = file_bounds([place for place in places if place[-1]], files)
    some = bundles.filter("logs > 0")
    if bounds is None:
        place = F.expr(f"cast((log_id - {first}L) * {files}L div {max(1, logs)}L AS int)")
        return some.mapInArrow(number, NUMBERED).repartitionById(files, place).sortWithinPartitions("log_id")
    steps = [f"CASE WHEN (first_height, first_log) >= ({height}L, {log}) THEN 1 ELSE 0 END" for height, log in bounds]
    ordered = some.repartitionById(len(bounds) + 1, F.expr(" + ".join(steps) or "0"))
    return ordered.sortWithinPartitions("first_height", "first_log").mapInArrow(number, NUMBERED)
