"""Segments of the index on Spark: the entries of a batch of logs, or of smaller segments, sealed as one."""

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BrokenPromise
from chainlake.lake.session import settings
from chainlake.lake.stage import SMALL_ROWS, Batch, Output
from chainlake.lake.visibility import History
from chainlake.logs.postings import (
    BUNDLES,
    ROWS,
    SEALED,
    SIGNATURES,
    STREAMS,
    TALLY,
    WEIGHTS,
    packed_rows,
    route_blocks,
    route_chunks,
    route_logs,
    route_tails,
    seal_part,
    tallied,
)
from chainlake.logs.rules import Segment
from chainlake.logs.seal import Sealed, Sealing, seal, seal_all
from chainlake.logs.streams import HASH_MASK, KIND_SHIFT, TOPIC_KINDS, Kind, Longs
from chainlake.logs.topic0 import signatures_of

INDEX = ("gold.log_chunks", "gold.log_manifests", "gold.log_tails")
MERGED = tuple(f"{name}_merged" for name in INDEX)
ENTRIES_PER_FILE, MOST_FILES = 1_000_000, 16


def index_logs(batch: Batch, chain: str, height: int) -> tuple[Mapping[str, DataFrame], pa.Table]:
    """The segment of a batch: which streams each log, and each block, belongs to. And the signatures: how many logs have a topic0
    in a block. Both come out of one pass over the logs."""
    low, _ = batch.ranges[chain]
    consumed = [v.commit for v in batch.snapshot.ledger.of("bronze.logs", chain).visible(height) if v.limit > low]
    parts = _parts(round(sum(WEIGHTS) * sum(commit.rows.get("bronze_evm_logs", 0) for commit in consumed)))
    values = [(Kind.ADDRESS, "address"), *((kind, f"topic{k}") for k, kind in enumerate(TOPIC_KINDS))]
    logs = _rows(batch.read("bronze.evm_logs"), "log_id", values, "block_number", "topic0")
    blocks = _rows(batch.read("bronze.evm_blocks"), "block_number", [(Kind.BLOCK_HASH, "hash")], "log_count")
    routed = logs.mapInArrow(partial(route_logs, parts=parts), BUNDLES)
    routed = routed.unionByName(blocks.mapInArrow(partial(route_blocks, parts=parts), BUNDLES))
    with settings(batch.spark, SMALL_ROWS):
        routed = batch.keep(routed)
    beside = _beside(routed)
    _check_logs(chain, low, height, tallied(beside[TALLY].to_pylist())[0])
    index = _segment(batch, routed.filter(F.col("part") >= 0), parts, seal, INDEX, chain, height)
    return index, signatures_of(beside[SIGNATURES])


def _check_logs(chain: str, low: int, high: int, counts: Mapping[str, int]) -> None:
    """A segment has all blocks of its range and all of their logs, or is not made."""
    blocks, logs, expected = (counts.get(name, 0) for name in ("blocks", "logs", "expected_logs"))
    if (blocks, logs) != (high - low, expected):
        raise BrokenPromise(
            f"{chain}: of blocks {low + 1} to {high} there are {blocks}, which should have {expected} logs and have {logs}:"
            " run lake verify bronze.logs, lake restore it or roll it back, then resume"
        )


def merge_segments(batch: Batch) -> Output:
    """All entries of the segments in the batch, sealed anew as one."""
    ((chain, (low, high)),) = batch.ranges.items()
    segments = segments_of(batch.snapshot.ledger.of("gold.logs", chain))
    parts = _parts(sum(segment.entries for segment in segments if low <= segment.base and segment.height <= high))
    tails = batch.read("gold.log_tails").select("stream", "shard", "locals")
    chunks = batch.read("gold.log_chunks").select("stream", "shard", "chunk_seq", "chunk")
    bundles = tails.mapInArrow(partial(route_tails, parts=parts), BUNDLES)
    bundles = batch.keep(bundles.unionByName(chunks.mapInArrow(partial(route_chunks, parts=parts), BUNDLES)))
    _check_segments(batch, chain, *tallied(_beside(bundles)[TALLY].to_pylist()))
    entries = bundles.filter(F.col("part") >= 0)
    return Output(_segment(batch, entries, parts, seal_all, MERGED, chain, high), {chain: {"merged": b"\x01"}})


def _check_segments(batch: Batch, chain: str, counts: Mapping[str, int], damage: str | None) -> None:
    """Segments that are merged are whole: they have the rows that the ledger tells of them, and no chunk is damaged."""
    found = [damage] if damage else []
    for part in ("tails", "chunks"):
        rows, expected = counts.get(part, 0), batch.snapshot.rows_at_most(f"gold.log_{part}", batch.ranges)
        if rows != expected:
            found.append(f"gold.log_{part} should have {expected} rows of the segments to merge and has {rows}")
    if found:
        raise BrokenPromise(f"{chain}: {found[0]}: run lake verify gold.logs, lake restore it or roll it back, then resume")


def _beside(routed: DataFrame) -> Mapping[int, pa.ChunkedArray]:
    """What tasks told beside the entries, by kind."""
    rows = routed.filter(F.col("part") < 0).toArrow()
    return {kind: rows.filter(pc.equal(rows["part"], kind))["entries"] for kind in (SIGNATURES, TALLY)}


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


def _rows(frame: DataFrame, number: str, values: list[tuple[Kind, str]], *more: str) -> DataFrame:
    streams = [_stream(kind, value) for kind, value in values] + [F.lit(0).cast("long")] * (len(STREAMS) - len(values))
    return frame.select(F.col(number).alias("id"), *[one.alias(name) for one, name in zip(streams, STREAMS, strict=True)], *more)


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
    sealed = batch.keep(bundles.repartitionById(parts, "part").mapInArrow(partial(seal_part, seal=how), SEALED))
    kernel = {"_chain": F.lit(chain), "_height": F.lit(height).cast("long")}
    return {
        name: sealed.filter(F.col("kind") == kind).mapInArrow(packed_rows, rows).withColumns(kernel)
        for name, (kind, rows) in zip(tables, ROWS.items(), strict=True)
    }
