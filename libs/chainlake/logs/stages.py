"""Logs on Spark: transactions to numbered logs, logs to segments of the index, small segments to larger ones."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BrokenPromise
from chainlake.lake.clock import now
from chainlake.lake.runner import LaneRun, Timings
from chainlake.lake.stage import Batch, Output, Stage
from chainlake.lake.visibility import History
from chainlake.logs import decode
from chainlake.logs.checks import index_problems, merge_problems, numbering_problems
from chainlake.logs.codec import decode_chunk, values_of
from chainlake.logs.rules import STEP_BLOCKS, WINDOW_STEPS, Merge, MergePolicy, Segment, mode_sql, next_merge
from chainlake.logs.seal import CHUNKS, MANIFESTS, TAILS, RunSealer, Sealed, Sealing
from chainlake.logs.streams import HASH_MASK, KIND_SHIFT, LOCAL_BITS, TOPIC_KINDS, Kind, Longs

Seal = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
SMALL_ROW_GROUPS = {"parquet.block.size": str(512 << 10), "parquet.page.size": str(64 << 10)}
INDEX = ("gold.log_chunks", "gold.log_manifests", "gold.log_tails")
MERGED = tuple(f"{name}_merged" for name in INDEX)
SEALED = (
    "kind string, stream long, shard long, chunk_seq long, min_local int, max_local int, count int, chunk binary,"
    " refs array<struct<chunk_seq: long, min_local: int, max_local: int, count: int>>, locals array<int>"
)
LOGS_PER_FILE, ENTRIES_PER_FILE, MOST_FILES = 200_000, 1_500_000, 16
WEIGHTS = (0.0, 1.0, 1.0, 0.9, 0.65, 0.15, 0.15, 0.01)  # entries a log has, by kind of stream; rounded from mainnet
NEXT_LOG_ID = "next_log_id"
SEALED_ARROW = pa.unify_schemas([pa.schema([("kind", pa.string())]), CHUNKS, MANIFESTS, TAILS])
HEADER = "logsBloom string, miner string, gasUsed string, baseFeePerGas string, transactions array<string>"
BLOCKS = (
    "_height long, hash binary, parent_hash binary, timestamp timestamp, miner binary, gas_used long,"
    " base_fee_per_gas decimal(38, 0), transaction_count int, first_log_id long, log_count int, bloom_checked boolean,"
    " error string"
)


def log_stages() -> tuple[Stage, ...]:
    """From raw transactions to the index."""
    return (
        Stage(
            "bronze.logs",
            "evm",
            ("bronze.evm_logs", "bronze.evm_blocks"),
            ("raw.logs",),
            bronze,
            max_blocks=200_000,
            max_rows=1_500_000,
            write_settings=SMALL_ROW_GROUPS,
            verify=numbering_problems,
        ),
        Stage(
            "gold.logs",
            "evm",
            (*INDEX, "gold.block_meta", "gold.topic0_stats"),
            ("bronze.logs",),
            gold,
            max_blocks=500_000,
            max_rows=3_000_000,
            write_settings=SMALL_ROW_GROUPS,
            verify=index_problems,
        ),
        Stage(
            "gold.log_merges",
            "evm",
            MERGED,
            ("gold.logs",),
            write_settings=SMALL_ROW_GROUPS,
            runner=MergeRun,
            verify=merge_problems,
        ),
    )


# Bronze: numbered logs


def bronze(batch: Batch) -> Output:
    """Decode the logs of a batch, check each block, and number the logs on from where the chain stands."""
    ((chain, (low, _)),) = batch.ranges.items()
    first = _next_log_id(batch, chain, low)
    transactions = batch.read("raw.transactions").select("_height", "block_hash", "tx_index", "hash", "payload")
    logs = batch.keep(transactions.mapInArrow(decode.decode, decode.DDL))
    joined = _joined(batch.read("raw.blocks"), logs).repartition(1).sortWithinPartitions("_height")
    blocks = batch.keep(joined.mapInArrow(partial(_check_blocks, first=first), BLOCKS))
    bad, height, end = blocks.agg(F.min_by("error", F.when(F.col("error").isNotNull(), F.col("_height"))), *_ends()).collect()[0]
    if bad is not None:
        raise BrokenPromise(f"{chain}: {bad}; see what the source sends, then resume", height=height)
    blocks = blocks.withColumns({"_chain": F.lit(chain), "block_number": F.col("_height")}).drop("error")
    roots = {chain: {NEXT_LOG_ID: int(end).to_bytes(8, "big")}}
    numbered = _in_order(_numbered(logs, blocks, chain), first, int(end))
    return Output({"bronze.evm_logs": numbered, "bronze.evm_blocks": blocks}, roots)


def _ends() -> tuple[Column, Column]:
    """The first block that is wrong, and the number of the next log."""
    return F.min(F.when(F.col("error").isNotNull(), F.col("_height"))), F.max(F.col("first_log_id") + F.col("log_count"))


def _joined(blocks: DataFrame, logs: DataFrame) -> DataFrame:
    """Each block with what its header says and the pieces of its logs."""
    header = F.from_json(F.col("payload").cast("string"), HEADER)
    piece = F.struct("log_index", "piece_logs", "transaction_index", "piece_last_tx", "piece_bloom")
    found = logs.filter("piece_logs IS NOT NULL OR error IS NOT NULL").groupBy("_height")
    pieces = found.agg(F.collect_list(F.when(F.col("error").isNull(), piece)).alias("pieces"), F.min("error").alias("error"))
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
            pieces = [decode.Piece(*piece.values()) for piece in found[at] or ()]
            counts.append(sum(piece.logs for piece in pieces))
            errors[at] = errors[at] or decode.check_block(height, pieces, blooms[at])
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


def _numbered(logs: DataFrame, blocks: DataFrame, chain: str) -> DataFrame:
    of_block = blocks.select(
        "_height", "first_log_id", F.col("hash").alias("block_hash"), F.col("timestamp").alias("block_timestamp")
    )
    joined = logs.filter("log_index IS NOT NULL").join(F.broadcast(of_block), "_height")
    return joined.withColumns(
        {
            "_chain": F.lit(chain),
            "block_number": F.col("_height"),
            "log_id": F.col("first_log_id") + F.col("log_index"),
        }
    )


def _in_order(logs: DataFrame, first: int, end: int) -> DataFrame:
    """Sorted by number, in files of consecutive numbers: readers then fetch neighbours together. The numbers are known, so the
    files' bounds are too, and Spark need not look for them."""
    files = max(1, min(MOST_FILES, (end - first) // LOGS_PER_FILE))
    place = F.expr(f"cast((log_id - {first}L) * {files}L div {max(1, end - first)}L AS int)")
    return logs.repartitionById(files, place).sortWithinPartitions("log_id")


# Gold: the index


def gold(batch: Batch) -> Output:
    """One segment of the index for the batch, and the statistics of signatures."""
    ((chain, (low, high)),) = batch.ranges.items()
    logs, blocks = batch.read("bronze.evm_logs"), batch.read("bronze.evm_blocks")
    consumed = [v.commit for v in batch.snapshot.ledger.of("bronze.logs", chain).visible(high) if v.limit > low]
    entries = round(sum(WEIGHTS) * sum(commit.rows.get("bronze_evm_logs", 0) for commit in consumed))
    signatures = batch.keep(logs.filter("topic0 IS NOT NULL").groupBy("topic0", "block_number").count())
    return Output(
        {
            **_segment(batch, _postings(logs, signatures, blocks), entries, seal_run, INDEX, chain, high),
            "gold.block_meta": blocks,
            "gold.topic0_stats": _topic0_stats(batch, signatures, chain, high),
        }
    )


def stream(kind: Kind, value: str) -> Column:
    """The stream of a value, NULL if there is none."""
    return F.expr(f"CASE WHEN {value} IS NOT NULL THEN {kind << KIND_SHIFT}L | (xxhash64({value}) & {HASH_MASK}L) END")


def _postings(logs: DataFrame, signatures: DataFrame, blocks: DataFrame) -> DataFrame:
    """Which stream each log (or block) belongs to: one row for each of its values."""
    values = [(Kind.ADDRESS, "address"), *((kind, f"topic{k}") for k, kind in enumerate(TOPIC_KINDS))]
    named = logs.select("log_id", *[stream(kind, value).alias(f"s{int(kind)}") for kind, value in values])
    pairs = ", ".join(f"s{int(kind)}, log_id" for kind, _ in values)
    of_logs = named.selectExpr(f"stack({len(values)}, {pairs}) AS (stream, id)").filter("stream IS NOT NULL")
    for kind, frame, value in ((Kind.TOPIC0_BLOCK, signatures, "topic0"), (Kind.BLOCK_HASH, blocks, "hash")):
        of_logs = of_logs.unionByName(frame.select(stream(kind, value).alias("stream"), F.col("block_number").alias("id")))
    return of_logs


def _part(parts: int) -> Column:
    """Ranges of streams of about the same weight. Hashes are spread evenly and the weights of the kinds are known well enough, so
    Spark need not read everything once more to find the bounds."""
    before = ", ".join(str(sum(WEIGHTS[:kind])) for kind in range(len(WEIGHTS)))
    weights = ", ".join(map(str, WEIGHTS))
    kind, place = f"cast(shiftright(stream, {KIND_SHIFT}) AS int)", f"(stream & {HASH_MASK}L) / {HASH_MASK + 1}.0D"
    at = f"element_at(array({before}), {kind} + 1) + element_at(array({weights}), {kind} + 1) * {place}"
    return F.expr(f"cast(least({parts - 1}, floor({parts} * ({at}) / {sum(WEIGHTS)})) AS int)")


def _segment(
    batch: Batch, postings: DataFrame, entries: int, seal: Seal, tables: tuple[str, ...], chain: str, height: int
) -> Mapping[str, DataFrame]:
    """Sort the (about so many) postings by stream and seal them. The rows span blocks, so they carry the height of the batch."""
    parts = max(1, min(MOST_FILES, entries // ENTRIES_PER_FILE))
    ordered = postings.repartitionById(parts, _part(parts)).sortWithinPartitions("stream")
    rows = batch.keep(ordered.mapInArrow(seal, SEALED))
    rows = rows.withColumns({"_chain": F.lit(chain), "_height": F.lit(height).cast("long")})
    return {name: rows.filter(F.col("kind") == kind) for name, kind in zip(tables, ("chunk", "manifest", "tail"), strict=True)}


def seal_run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Chunks of the default size, and tails of what is left."""
    return _seal(batches, RunSealer())


def seal_merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Everything into chunks, but for the smallest streams."""
    return _seal(batches, RunSealer(everything=True))


def _seal(batches: Iterable[pa.RecordBatch], sealer: RunSealer) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from _rows(sealer.feed(_ints(batch, "stream"), _ints(batch, "id")))
    yield from _rows(sealer.finish())


def _ints(batch: pa.RecordBatch, name: str) -> Longs:
    values: Longs = batch.column(name).to_numpy(zero_copy_only=False)
    return values


def _rows(sealed: Sealed) -> Iterator[pa.RecordBatch]:
    """Rows of the three tables in one schema, each with its kind."""
    for kind, rows in (("chunk", sealed.chunks), ("manifest", sealed.manifests), ("tail", sealed.tails)):
        if rows.num_rows:
            columns = [
                rows.column(f.name) if f.name in rows.schema.names else pa.nulls(rows.num_rows, f.type) for f in SEALED_ARROW
            ]
            columns[0] = pa.array([kind]).take(pa.array(np.zeros(rows.num_rows, np.int8)))
            yield pa.RecordBatch.from_arrays(columns, schema=SEALED_ARROW)


def _topic0_stats(batch: Batch, signatures: DataFrame, chain: str, high: int) -> DataFrame:
    """Counts by step of the window, old and new together; only rows of which the counts or the mode changed are written."""
    before = batch.state("gold.topic0_stats").drop("_chain", "_height")
    step = F.expr(f"block_number div {STEP_BLOCKS}").alias("step")
    fresh = signatures.groupBy("topic0", step).agg(
        F.count(F.lit(1)).alias("blocks"), F.sum("count").alias("logs"), F.max("block_number").alias("last_block")
    )
    old = before.select("topic0", F.explode("steps").alias("step", "c"), "last_block").selectExpr(
        "topic0", "step", "c.blocks", "c.logs", "last_block"
    )
    steps = fresh.unionByName(old).groupBy("topic0", "step")
    counted = steps.agg(F.sum("blocks").alias("blocks"), F.sum("logs").alias("logs"), F.max("last_block").alias("last_block"))
    first_step = high // STEP_BLOCKS - WINDOW_STEPS + 1
    inside = F.col("step") >= first_step
    entries = F.collect_list(F.when(inside, F.struct("step", F.struct("blocks", "logs"))))
    first_block = batch.snapshot.ledger.of("bronze.logs", chain).first_height()
    window = high - max(first_block or 0, first_step * STEP_BLOCKS - 1)
    now_ = counted.groupBy("topic0").agg(
        F.coalesce(F.sum(F.when(inside, F.col("logs"))), F.lit(0)).alias("logs"),
        F.coalesce(F.sum(F.when(inside, F.col("blocks"))), F.lit(0)).alias("blocks_with"),
        F.map_from_entries(entries).alias("steps"),
        F.max("last_block").alias("last_block"),
    )
    was = before.select("topic0", *[F.col(name).alias(f"was_{name}") for name in ("logs", "blocks_with", "mode")])
    joined = now_.join(was, "topic0", "left").withColumns(
        {
            "window_blocks": F.lit(window).cast("long"),
            "share": F.col("blocks_with") / F.lit(window),
            "_deleted": F.expr("logs = 0"),
        }
    )
    changed = "was_logs IS NULL OR logs <> was_logs OR blocks_with <> was_blocks_with OR mode <> was_mode"
    rows = joined.withColumn("mode", F.expr(mode_sql("share", "was_mode"))).filter(changed)
    return rows.withColumns({"_chain": F.lit(chain), "_height": F.lit(high).cast("long")}).coalesce(1)


# Merging


class MergeRun(LaneRun):
    """Merges small segments of the index into larger ones. Readers take either: the answer is the same."""

    policy = MergePolicy()

    def available(self) -> dict[str, tuple[int, int]]:
        """The next range to merge, if a merge is due."""
        self.merges = {chain: merge for chain in self.active() if (merge := self._next(chain)) is not None}
        return {chain: (merge.base, merge.height) for chain, merge in self.merges.items()}

    def plan(self) -> dict[str, tuple[int, int]]:
        return self.available()

    def advance(self, ranges: Mapping[str, tuple[int, int]], timings: Timings) -> None:
        """Take back what is merged again, pass over what is large, merge the rest."""
        for chain, merge in self.merges.items():
            if merge.back_to is not None:
                self.roll_back({chain: (merge.back_to, "to be merged again, with what came after it")})
            head = self.head(chain)
            at = head.height if head else self._first(chain)
            batch = Batch(self.lake.spark, self.snapshot(), {chain: (merge.base, merge.height)}, self.options)
            if at < merge.base:
                self.write({chain: (at, merge.base)}, _nothing(batch), {chain: self.hash_at(chain, merge.base)}, Timings())
            with timings.phase("transform"):
                output = merge_segments(batch)
            self.write({chain: (merge.base, merge.height)}, output, {chain: self.hash_at(chain, merge.height)}, timings)

    def _next(self, chain: str) -> Merge | None:
        head = self.head(chain)
        index, merged = self.view.of("gold.logs", chain), self.view.of(self.stage.name, chain)
        return next_merge(
            _segments(index), _segments(merged, only_merged=True), head.height if head else None, now(), self.policy
        )

    def _first(self, chain: str) -> int:
        first = self.view.of("gold.logs", chain).first_height()
        assert first is not None
        return first


def _segments(history: History, only_merged: bool = False) -> list[Segment]:
    return [
        Segment(v.commit.base_height, v.commit.height, _entries(v.commit.rows), v.commit.committed_at)
        for v in history.visible()
        if not only_merged or "merged" in v.commit.roots
    ]


def _entries(rows: Mapping[str, int]) -> int:
    """About how many entries a segment has, from its numbers of rows."""
    chunks = sum(count for name, count in rows.items() if "log_chunks" in name)
    return chunks * Sealing().entries + sum(count for name, count in rows.items() if "log_tails" in name)


def merge_segments(batch: Batch) -> Output:
    """All entries of the segments in the batch, sealed anew as one."""
    ((chain, (low, high)),) = batch.ranges.items()
    segments = _segments(batch.snapshot.ledger.of("gold.logs", chain))
    entries = sum(segment.entries for segment in segments if low <= segment.base and segment.height <= high)
    tails = _tail_entries(batch)
    chunks = batch.read("gold.log_chunks").select("stream", "shard", "chunk").mapInArrow(_chunk_entries, "stream long, id long")
    return Output(
        _segment(batch, tails.unionByName(chunks), entries, seal_merged, MERGED, chain, high), {chain: {"merged": b"\x01"}}
    )


def _tail_entries(batch: Batch) -> DataFrame:
    rows = batch.read("gold.log_tails").select("stream", "shard", F.explode("locals").alias("local"))
    return rows.select("stream", F.expr(f"shiftleft(shard, {LOCAL_BITS}) + local").alias("id"))


def _chunk_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for stream_, shard, chunk in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            ids = values_of(decode_chunk(chunk).bitmap).astype(np.int64) + (shard << LOCAL_BITS)
            yield pa.RecordBatch.from_arrays([pa.array(np.full(len(ids), stream_)), pa.array(ids)], ["stream", "id"])


def _nothing(batch: Batch) -> Output:
    return Output({name: batch.read(name.removesuffix("_merged")).filter(F.lit(False)) for name in MERGED})
