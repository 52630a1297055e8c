"""The Spark data source `chainlake`: blocks of any kind of chain, read in parallel from where the lake stopped.

One row per block, transactions inside it. A block that cannot be read is a row with `error`, so that the raw stage can keep
what came before and name what is wrong.

Files are planned where Spark runs. A node is asked for its heights by the process that wants them, so that what it answers is an
error of ours and not one of Spark; then the secrets of that process travel to the readers, whose environment is the server's.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from chainlake.sources.base import BadBlock, Cursor, RawBlock, RawTransaction, Split, is_url
from chainlake.sources.endpoint import environment
from chainlake.sources.formats import format_of

SCHEMA = (
    "place BIGINT, height BIGINT, hash BINARY, parent_hash BINARY, timestamp TIMESTAMP, payload BINARY,"
    " transactions ARRAY<STRUCT<tx_index: INT, hash: BINARY, payload: BINARY>>, source STRING, position BIGINT, error STRING,"
    " unavailable BOOLEAN"
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
        "unavailable": pa.bool_(),
    }
)
BATCH_BYTES = 8 << 20
BATCH_BLOCKS = 1000
PLACE_BITS, SPLIT_BITS = 32, 16


MOST_TASKS = 32
"""So many tasks read at most: each has its price, which with a thousand chains is more than that of a few blocks."""


@dataclass(frozen=True)
class FeedSplit:
    """A split of a feed, and its place in the order of the batch."""

    index: int
    split: Split
    feed: int


class SplitsPartition(InputPartition):
    """Splits that one task reads, one after the other; they lie beside each other, as their blocks do then in files."""

    def __init__(self, number: int, splits: list[FeedSplit]) -> None:
        super().__init__(number)
        self.splits = splits


@dataclass(frozen=True)
class Feed:
    """What is to be read of one chain: files or a node, from where on, and about how much."""

    paths: list[str]
    cursor: Cursor | None
    max_blocks: int
    max_bytes: int
    options: dict[str, str]

    def described(self, kind: str) -> dict[str, str]:
        """As options of the data source. Asks a node at once: `Unavailable`."""
        place = {**asdict(self.cursor), "hash": self.cursor.hash.hex()} if self.cursor else None
        found = {
            "paths": json.dumps(self.paths),
            "cursor": json.dumps(place),
            "max_blocks": str(self.max_blocks),
            "max_bytes": str(self.max_bytes),
            "chain_options": json.dumps(self.options),
        }
        if is_url(self.paths[0]):
            splits = format_of(kind).plan(self.paths, self.cursor, self.max_blocks, self.max_bytes, self.options)
            found["splits"] = json.dumps([_split_json(split) for split in splits])
            found["secrets"] = json.dumps(environment(self.paths[0], self.options))
        return found


class FeedReader:
    """Reads the next blocks of one feed."""

    def __init__(self, kind: str, options: Mapping[str, str]) -> None:
        self._format = format_of(kind)
        self._paths: list[str] = json.loads(options["paths"])
        cursor = json.loads(options["cursor"])
        self._cursor = Cursor(**{**cursor, "hash": bytes.fromhex(cursor["hash"])}) if cursor else None
        self._max_blocks = int(options["max_blocks"])
        self._max_bytes = int(options["max_bytes"])
        self._options: dict[str, str] = json.loads(options["chain_options"]) | json.loads(options.get("secrets", "{}"))
        self._splits = [Split(**split) for split in json.loads(options["splits"])] if "splits" in options else None

    def splits(self) -> list[Split]:
        if self._splits is not None:
            return self._splits
        return self._format.plan(self._paths, self._cursor, self._max_blocks, self._max_bytes, self._options)

    def read(self, split: Split) -> Iterator[RawBlock | BadBlock]:
        return self._format.read(split, self._options)


class BlockReader(DataSourceReader):
    """Reads the next blocks after a cursor, of one chain or of many (`feeds`)."""

    def __init__(self, options: dict[str, str]) -> None:
        feeds = json.loads(options["feeds"]) if "feeds" in options else [options]
        self._feeds = [FeedReader(options["kind"], feed) for feed in feeds]

    def partitions(self) -> list[InputPartition]:
        splits = [
            FeedSplit((number << SPLIT_BITS) + index, split, number)
            for number, feed in enumerate(self._feeds)
            for index, split in enumerate(feed.splits())
        ]
        tasks = min(MOST_TASKS, len(splits))
        bounds = [task * len(splits) // tasks for task in range(tasks + 1)] if tasks else []
        return [SplitsPartition(task, splits[low:high]) for task, (low, high) in enumerate(pairwise(bounds))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SplitsPartition):  # Spark reads nothing in particular when there are no splits
            for one in partition.splits:
                yield from self._read(one)

    def _read(self, one: FeedSplit) -> Iterator[pa.RecordBatch]:
        place = one.index << PLACE_BITS
        blocks: list[RawBlock | BadBlock] = []
        size = 0
        for block in self._feeds[one.feed].read(one.split):
            blocks.append(block)
            size += _size(block)
            if size > BATCH_BYTES or len(blocks) >= BATCH_BLOCKS:
                yield record_batch(place, blocks)
                place, blocks, size = place + len(blocks), [], 0
        if blocks:
            yield record_batch(place, blocks)


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
    """The next blocks of a chain as a DataFrame. Needs `register` once per session. Asks a node at once: `Unavailable`."""
    feed = Feed(paths, cursor, max_blocks, max_bytes, options).described(kind)
    return spark.read.format("chainlake").options(kind=kind, **feed).load()


def read_feeds(spark: SparkSession, kind: str, feeds: Sequence[Mapping[str, str]]) -> DataFrame:
    """The next blocks of many chains, each feed as it was `described`, in one DataFrame; `feed_of` tells them apart."""
    return spark.read.format("chainlake").options(kind=kind, feeds=json.dumps(feeds)).load()


def feed_of(place: int) -> int:
    """The feed that the block at a place is of."""
    return place >> PLACE_BITS + SPLIT_BITS


def register(spark: SparkSession) -> None:
    """Make the data source known to a session."""
    spark.dataSource.register(BlockSource)


def record_batch(place: int, blocks: Sequence[RawBlock | BadBlock]) -> pa.RecordBatch:
    """Blocks as rows, the first at `place`. Made column by column: a dictionary for each row would take as long as parsing."""
    good = [block if isinstance(block, RawBlock) else None for block in blocks]
    bad = [block if isinstance(block, BadBlock) else None for block in blocks]
    columns: dict[str, Any] = {
        "place": range(place, place + len(blocks)),
        "height": [block and block.height for block in good],
        "hash": [block and block.hash for block in good],
        "parent_hash": [block and block.parent_hash for block in good],
        "timestamp": [block and block.timestamp_us for block in good],
        "payload": [block and block.payload for block in good],
        "source": [block.source for block in blocks],
        "position": [block.position for block in blocks],
        "error": [block and block.reason for block in bad],
        "unavailable": [block and block.unavailable for block in bad],
    }
    nested = _nested([block.transactions if block else () for block in good])
    arrays = [nested if one.name == "transactions" else pa.array(columns[one.name], one.type) for one in ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def _nested(transactions: Sequence[Sequence[RawTransaction]]) -> pa.ListArray:
    """The transactions of each block."""
    flat = list(chain.from_iterable(transactions))
    values = pa.StructArray.from_arrays(
        [
            pa.array([one.index for one in flat], pa.int32()),
            pa.array([one.hash for one in flat], pa.binary()),
            pa.array([one.payload for one in flat], pa.binary()),
        ],
        fields=list(ARROW.field("transactions").type.value_type),
    )
    offsets = pa.array(accumulate(map(len, transactions), initial=0), pa.int32())
    return pa.ListArray.from_arrays(offsets, values)


def _size(block: RawBlock | BadBlock) -> int:
    return len(block.payload) + sum(len(one.payload) for one in block.transactions) if isinstance(block, RawBlock) else 0


def _split_json(split: Split) -> dict[str, Any]:
    """A split of a node: heights need no parent hash."""
    return {name: value for name, value in asdict(split).items() if name != "parent_hash"}
