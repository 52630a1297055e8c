"""Segments of the index on Spark: the entries of a batch of logs, or of smaller segments, sealed as one."""

from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from chainlake.lake.stage import Batch, Output
from chainlake.lake.visibility import History
from chainlake.logs.postings import BUNDLES, SEALED, STREAMS, WEIGHTS, route_chunks, route_rows, route_tails, seal_part
from chainlake.logs.rules import Segment
from chainlake.logs.seal import Sealed, Sealing, seal, seal_all
from chainlake.logs.streams import HASH_MASK, KIND_SHIFT, TOPIC_KINDS, Kind, Longs

INDEX = ("gold.log_chunks", "gold.log_manifests", "gold.log_tails")
MERGED = tuple(f"{name}_merged" for name in INDEX)
ENTRIES_PER_FILE, MOST_FILES = 1_500_000, 16


def index_logs(batch: Batch, signatures: DataFrame, chain: str, height: int) -> Mapping[str, DataFrame]:
    """The segment of a batch: which streams each log, and each block, belongs to. `signatures` are topic0s by block."""
    low, _ = batch.ranges[chain]
    consumed = [v.commit for v in batch.snapshot.ledger.of("bronze.logs", chain).visible(height) if v.limit > low]
    entries = round(sum(WEIGHTS) * sum(commit.rows.get("bronze_evm_logs", 0) for commit in consumed))
    values = [(Kind.ADDRESS, "address"), *((kind, f"topic{k}") for k, kind in enumerate(TOPIC_KINDS))]
    rows = _rows(batch.read("bronze.evm_logs"), "log_id", values)
    rows = rows.unionByName(_rows(signatures, "block_number", [(Kind.TOPIC0_BLOCK, "topic0")]))
    rows = rows.unionByName(_rows(batch.read("bronze.evm_blocks"), "block_number", [(Kind.BLOCK_HASH, "hash")]))
    parts = _parts(entries)
    return _segment(batch, rows.mapInArrow(partial(route_rows, parts=parts), BUNDLES), parts, seal, INDEX, chain, height)


def merge_segments(batch: Batch) -> Output:
    """All entries of the segments in the batch, sealed anew as one."""
    ((chain, (low, high)),) = batch.ranges.items()
    segments = segments_of(batch.snapshot.ledger.of("gold.logs", chain))
    parts = _parts(sum(segment.entries for segment in segments if low <= segment.base and segment.height <= high))
    tails = batch.read("gold.log_tails").select("stream", "shard", "locals")
    chunks = batch.read("gold.log_chunks").select("stream", "shard", "chunk")
    bundles = tails.mapInArrow(partial(route_tails, parts=parts), BUNDLES)
    bundles = bundles.unionByName(chunks.mapInArrow(partial(route_chunks, parts=parts), BUNDLES))
    return Output(_segment(batch, bundles, parts, seal_all, MERGED, chain, high), {chain: {"merged": b"\x01"}})


def nothing_merged(batch: Batch) -> Output:
    """A stretch that is left as it is."""
    return Output({name: batch.read(name.removesuffix("_merged")).filter(F.lit(False)) for name in MERGED})


def segments_of(history: History, only_merged: bool = False) -> list[Segment]:
    """The segments that the visible commits of a stage wrote."""
    return [
        Segment(v.commit.base_height, v.commit.height, _entries(v.commit.rows), v.commit.committed_at)
        for v in history.visible()
        if not only_merged or "merged" in v.commit.roots
    ]


def _entries(rows: Mapping[str, int]) -> int:
    """About how many entries a segment has, from its numbers of rows."""
    chunks = sum(count for name, count in rows.items() if "log_chunks" in name)
    return chunks * Sealing().entries + sum(count for name, count in rows.items() if "log_tails" in name)


def _parts(entries: int) -> int:
    return max(1, min(MOST_FILES, entries // ENTRIES_PER_FILE))


def _rows(frame: DataFrame, number: str, values: list[tuple[Kind, str]]) -> DataFrame:
    streams = [_stream(kind, value) for kind, value in values] + [F.lit(0).cast("long")] * (len(STREAMS) - len(values))
    return frame.select(F.col(number).alias("id"), *[one.alias(name) for one, name in zip(streams, STREAMS, strict=True)])


def _stream(kind: Kind, value: str) -> Column:
    """The stream of a value, 0 if there is none."""
    return F.expr(f"CASE WHEN {value} IS NULL THEN 0L ELSE {kind << KIND_SHIFT}L | (xxhash64({value}) & {HASH_MASK}L) END")


def _segment(
    batch: Batch,
    bundles: DataFrame,
    parts: int,
    how: Callable[[Longs, Longs], Sealed],
    tables: tuple[str, ...],
    chain: str,
    height: int,
) -> Mapping[str, DataFrame]:
    """Seal each part. The rows span blocks, so they carry the height of the batch."""
    sealed = bundles.repartitionById(parts, "part").mapInArrow(partial(seal_part, seal=how), SEALED)
    rows = batch.keep(sealed).withColumns({"_chain": F.lit(chain), "_height": F.lit(height).cast("long")})
    return {name: rows.filter(F.col("kind") == kind) for name, kind in zip(tables, ("chunk", "manifest", "tail"), strict=True)}
