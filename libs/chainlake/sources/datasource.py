"""The Spark data source `chainlake`: blocks of any kind of chain, read in parallel from where the lake stopped.

One row per block, transactions inside it. A block that cannot be read is a row with `error`, so that the raw stage can keep
what came before and name what is wrong.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from chainlake.sources.base import BadBlock, Cursor, RawBlock, Split
from chainlake.sources.formats import format_of

SCHEMA = (
    "place BIGINT, height BIGINT, hash BINARY, parent_hash BINARY, timestamp TIMESTAMP, payload BINARY,"
    " transactions ARRAY<STRUCT<tx_index: INT, hash: BINARY, payload: BINARY>>, source STRING, position BIGINT, error STRING"
)
ARROW = pa.schema(
    {
        "place": pa.int64(),
        "height": pa.int64(),
        "hash": pa.binary(),
        "parent_hash": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "payload": pa.binary(),
        "transactions": pa.list_(pa.struct({"tx_index": pa.int32(), "hash": pa.binary(), "payload": pa.binary()})),
        "source": pa.string(),
        "position": pa.int64(),
        "error": pa.string(),
    }
)
BATCH_BYTES = 8 << 20
PLACE_BITS = 32


class SplitPartition(InputPartition):
    """A split and its place in the order of the batch."""

    def __init__(self, index: int, split: Split) -> None:
        super().__init__(index)
        self.index = index
        self.split = split


class BlockReader(DataSourceReader):
    """Reads the next blocks after a cursor."""

    def __init__(self, options: dict[str, str]) -> None:
        self._format = format_of(options["kind"])
        self._paths: list[str] = json.loads(options["paths"])
        cursor = json.loads(options["cursor"])
        self._cursor = Cursor(**{**cursor, "hash": bytes.fromhex(cursor["hash"])}) if cursor else None
        self._max_blocks = int(options["max_blocks"])
        self._max_bytes = int(options["max_bytes"])
        self._options: dict[str, str] = json.loads(options["chain_options"])

    def partitions(self) -> list[InputPartition]:
        splits = self._format.plan(self._paths, self._cursor, self._max_blocks, self._max_bytes, self._options)
        return [SplitPartition(index, split) for index, split in enumerate(splits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SplitPartition):  # Spark reads nothing in particular when there are no splits
            return
        rows: list[dict[str, Any]] = []
        size = 0
        for number, block in enumerate(self._format.read(partition.split, self._options)):
            rows.append(_row(partition.index << PLACE_BITS | number, block))
            size += len(block.payload) if isinstance(block, RawBlock) else 0
            if size > BATCH_BYTES or len(rows) >= 1000:
                yield pa.RecordBatch.from_pylist(rows, schema=ARROW)
                rows, size = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=ARROW)


class BlockSource(DataSource):
    """`spark.read.format("chainlake")`."""

    @classmethod
    def name(cls) -> str:
        return "chainlake"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return BlockReader(dict(self.options))


def read_blocks(
    spark: SparkSession,
    kind: str,
    paths: list[str],
    cursor: Cursor | None,
    max_blocks: int,
    max_bytes: int,
    options: dict[str, str],
) -> DataFrame:
    """The next blocks of a chain as a DataFrame. Needs `register` once per session."""
    place = {**asdict(cursor), "hash": cursor.hash.hex()} if cursor else None
    return (
        spark.read.format("chainlake")
        .option("kind", kind)
        .option("paths", json.dumps(paths))
        .option("cursor", json.dumps(place))
        .option("max_blocks", str(max_blocks))
        .option("max_bytes", str(max_bytes))
        .option("chain_options", json.dumps(options))
        .load()
    )


def register(spark: SparkSession) -> None:
    """Make the data source known to a session."""
    spark.dataSource.register(BlockSource)


def _row(place: int, block: RawBlock | BadBlock) -> dict[str, Any]:
    if isinstance(block, BadBlock):
        return {"place": place, "source": block.source, "position": block.position, "error": block.reason}
    transactions = [{"tx_index": t.index, "hash": t.hash, "payload": t.payload} for t in block.transactions]
    return {
        "place": place,
        "height": block.height,
        "hash": block.hash,
        "parent_hash": block.parent_hash,
        "timestamp": block.timestamp_us,
        "payload": block.payload,
        "transactions": transactions,
        "source": block.source,
        "position": block.position,
    }
