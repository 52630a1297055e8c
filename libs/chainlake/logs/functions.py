"""Logs in Spark: `SELECT * FROM get_logs(chain, filter)` through the index, and filters as conditions for scans and joins."""

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BadInput
from chainlake.logs.filter import LogFilter

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

COLUMNS = (
    "log_id bigint, block_number bigint, block_hash binary, block_timestamp timestamp, transaction_hash binary,"
    " transaction_index int, log_index int, address binary, topic0 binary, topic1 binary, topic2 binary, topic3 binary,"
    " topic_count int, data binary"
)
FILTER = '{"address": "0x…", "fromBlock": "0x0"}'


def get_logs(lake: "Lake", chain: str, filter: Mapping[str, Any], max_results: int | None = None) -> DataFrame:
    """The logs that a filter of eth_getLogs asks for, found by the index, as a DataFrame."""
    answer = _find(_home(lake), lake.namespace.prefix, chain, filter, max_results)
    return lake.spark.createDataFrame(answer)


def where(filter: LogFilter) -> Column:
    """The same filter as a condition on bronze.evm_logs, for queries that read a large part of it, or join it with more. A bound
    that the filter leaves open is no bound here: the condition does not know the head."""
    found: list[Column] = [F.col("topic_count") >= len(filter.topics)]
    if filter.addresses:
        found.append(F.col("address").isin([bytearray(one) for one in filter.addresses]))
    for position, values in enumerate(filter.topics):
        if values:
            found.append(F.col(f"topic{position}").isin([bytearray(one) for one in values]))
    if filter.block_hash is not None:
        found.append(F.col("block_hash") == F.lit(bytearray(filter.block_hash)))
    if filter.from_block is not None:
        found.append(F.col("block_number") >= filter.from_block)
    if filter.to_block is not None:
        found.append(F.col("block_number") <= filter.to_block)
    return reduce(and_, found)


def register(lake: "Lake") -> None:
    """Make `get_logs(chain, filter)` known to this session's SQL."""
    from pyspark.sql.functions import udtf

    home, prefix = _home(lake), lake.namespace.prefix

    class GetLogs:
        """Rows of bronze.evm_logs for a filter as eth_getLogs takes it, in JSON."""

        def eval(self, chain: str, filter: str) -> Iterator[tuple[Any, ...]]:
            from chainlake.logs.python_rows import python_rows

            yield from python_rows(_find(home, prefix, chain, read_filter(filter), None))

    made: Any = udtf(GetLogs, returnType=COLUMNS)
    lake.spark.udtf.register("get_logs", made)


def read_filter(text: str | None) -> Any:
    """The filter that SQL gives as text."""
    import orjson

    try:
        return orjson.loads(text or "")
    except ValueError as error:
        raise BadInput(f"the filter {text!r:.80} is no JSON ({error}): get_logs takes one like {FILTER}") from None


def _home(lake: "Lake") -> Path:
    if lake.catalog.location is None:
        instead = "filter bronze.evm_logs with chainlake.logs.functions.where"
        raise BadInput(f"the index is read from files of a local lake: here, {instead}")
    return lake.catalog.location.parent


def _find(home: Path, prefix: str, chain: str, filter: Mapping[str, Any], max_results: int | None) -> pa.Table:
    from chainlake.logs.finalized import query_clipped
    from chainlake.logs.query import LogIndex

    return query_clipped(LogIndex(home, chain, prefix=prefix), filter, max_results).logs
