"""What `lake verify` checks of the logs: no gap in the numbers, chunks whole, manifests that agree with them, no entry lost."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from chainlake.encoding import to_hex
from chainlake.logs.codec import BadChunk, decode_chunk
from chainlake.logs.streams import KIND_SHIFT, TOPIC_KINDS, Kind

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake
    from chainlake.lake.reader import Snapshot

MOST = 5


def numbering_problems(lake: "Lake", chain: str) -> list[str]:
    """Blocks of which the logs are not numbered on from the block before, or not all there, both of one moment."""
    now = lake.moment(["bronze.evm_blocks", "bronze.evm_logs"])
    blocks = now.table("bronze.evm_blocks", chain=chain).select("block_number", "first_log_id", "log_count")
    before = Window.partitionBy(F.lit(0)).orderBy("block_number")
    expected = F.lag(F.col("first_log_id") + F.col("log_count")).over(before)
    jumps = blocks.withColumn("expected", expected).filter("expected <> first_log_id").limit(MOST).collect()
    logs = now.table("bronze.evm_logs", chain=chain).groupBy("block_number")
    found = logs.agg(F.count(F.lit(1)).alias("n"), F.min("log_id").alias("low"), F.max("log_id").alias("high"))
    wrong = "coalesce(n, 0) <> log_count OR low <> first_log_id OR high <> first_log_id + log_count - 1"
    lost = blocks.join(found, "block_number", "left").filter(wrong).limit(MOST).collect()
    return [f"block {row[0]} of {chain}: its logs are not numbered on from the block before" for row in jumps] + [
        f"block {row[0]} of {chain}: it should have {row[2]} logs from number {row[1]} on" for row in lost
    ]


def index_problems(lake: "Lake", chain: str) -> list[str]:
    """Chunks that are broken, manifests that do not list them, and streams that lack entries, all of one moment."""
    now = lake.moment(["gold.log_chunks", "gold.log_manifests", "gold.log_tails", "bronze.evm_logs", "bronze.evm_blocks"])
    return _segment_problems(now, chain, "") + _missing_entries(now, chain)


def merge_problems(lake: "Lake", chain: str) -> list[str]:
    """The same of merged segments, but for completeness: they hold a part of the chain only."""
    return _segment_problems(lake.moment(["gold.log_chunks_merged", "gold.log_manifests_merged"]), chain, "_merged")


def _segment_problems(now: "Snapshot", chain: str, suffix: str) -> list[str]:
    chunks = now.table(f"gold.log_chunks{suffix}", chain=chain)
    columns = ("height", "stream", "shard", "chunk_seq", "min_local", "max_local", "count")
    bad = chunks.select(*columns, "chunk").mapInArrow(_broken, "stream long, chunk_seq long, reason string").limit(MOST).collect()
    found = [f"gold.log_chunks{suffix} of {chain}: chunk {seq} of stream {_name(s)}: {reason}" for s, seq, reason in bad]
    refs = now.table(f"gold.log_manifests{suffix}", chain=chain).select("height", "stream", "shard", F.explode("refs").alias("r"))
    listed = refs.select("height", "stream", "shard", "r.chunk_seq", "r.min_local", "r.max_local", "r.count")
    held = chunks.select(*columns)
    for frame, other, what in ((listed, held, "listed but not there"), (held, listed, "there but not listed")):
        rows = frame.join(other, list(columns), "left_anti").select("stream", "chunk_seq").limit(MOST).collect()
        found += [f"gold.log_manifests{suffix} of {chain}: chunk {seq} of stream {_name(s)} is {what}" for s, seq in rows]
    return found


def _broken(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            try:
                chunk = decode_chunk(row["chunk"])
                same = (chunk.min, chunk.max, chunk.count) == (row["min_local"], row["max_local"], row["count"])
                reason = None if same else "its columns and its header differ"
            except BadChunk as error:
                reason = str(error)
            if reason:
                rows.append({"stream": row["stream"], "chunk_seq": row["chunk_seq"], "reason": reason})
        schema = pa.schema([("stream", pa.int64()), ("chunk_seq", pa.int64()), ("reason", pa.string())])
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _missing_entries(now: "Snapshot", chain: str) -> list[str]:
    """Every log has one entry by address and one by each topic, every block one by hash and one by each signature in it."""
    head = now.ledger.of("gold.logs", chain).head()
    if head is None or now.ledger.is_overtaken("gold.logs", chain, "bronze.logs"):  # by a fork, which it follows when it runs
        return []
    logs = now.table("bronze.evm_logs", chain=chain, height=head.height)
    topics = [F.count(f"topic{k}").alias(str(int(kind))) for k, kind in enumerate(TOPIC_KINDS)]
    signatures = F.countDistinct("block_number", "topic0").alias(str(int(Kind.TOPIC0_BLOCK)))
    expected = logs.agg(F.count(F.lit(1)).alias(str(int(Kind.ADDRESS))), *topics, signatures).collect()[0].asDict()
    expected[str(int(Kind.BLOCK_HASH))] = now.table("bronze.evm_blocks", chain=chain, height=head.height).count()
    held = _entries(now.table("gold.log_chunks", chain=chain)).unionByName(_entries(now.table("gold.log_tails", chain=chain)))
    counts = {str(kind): count for kind, count in held.groupBy("kind").agg(F.sum("count")).collect()}
    return [
        f"gold.logs of {chain}: streams of {Kind(int(kind)).name.lower()} hold {counts.get(kind, 0)} entries, expected {wanted}"
        for kind, wanted in expected.items()
        if counts.get(kind, 0) != wanted
    ]


def _entries(rows: DataFrame) -> DataFrame:
    return rows.select(F.expr(f"shiftright(stream, {KIND_SHIFT})").alias("kind"), "count")


def _name(stream: int) -> str:
    return to_hex(stream.to_bytes(8, "big"))
