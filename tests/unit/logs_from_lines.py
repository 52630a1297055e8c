"""A lake directory of given blocks, made by the functions that the stages hand to Spark, and without Spark."""

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from chainlake.lake.visibility import ADVANCE
from chainlake.logs.block_rows import check_blocks
from chainlake.logs.bundles import TRANSACTIONS, bundle_logs, number_logs
from chainlake.logs.headers import BLOCKS as RAW_BLOCKS
from chainlake.logs.headers import read_headers
from chainlake.logs.postings import STREAMS, packed_rows, route_rows, seal_part
from chainlake.logs.seal import CHUNKS, MANIFESTS, TAILS, seal
from chainlake.logs.snapshot import BRONZE, GOLD, RAW
from chainlake.logs.streams import TOPIC_KINDS, Kind, stream_of
from chainlake.sources.base import RawBlock
from chainlake.sources.evm_line import parse_line
from tests.unit.logs_lake import BLOCKS, KERNEL, LOGS, PAYLOADS, Block, Log, LogsLake

PARTS = 3


class LinesLake(LogsLake):
    """A `LogsLake` that takes blocks as a node gives them."""

    def take(self, lines: Sequence[bytes]) -> None:
        """Blocks through raw, bronze and gold: one commit and one segment."""
        given = [parse_line(line, "given", 0) for line in lines]
        if not self.blocks:
            self.first = given[0].height - 1
        base, height = given[0].height - 1, given[-1].height
        payloads = [{"_height": one.height, "hash": one.hash, "payload": one.payload} for one in given]
        self._commit(RAW, ADVANCE, base, height, self._write("raw_blocks", PAYLOADS, payloads))
        logs, blocks = self._numbered(given, base)
        self._commit(BRONZE, ADVANCE, base, height, self._write("bronze_evm_logs", LOGS, logs.to_pylist()))
        rows = blocks.rename_columns({"_height": "block_number"}).select(BLOCKS.names).to_pylist()
        commit = self._write("gold_block_meta", BLOCKS, rows)
        for kind, schema in (("chunk", CHUNKS), ("manifest", MANIFESTS), ("tail", TAILS)):
            self._write_part(f"gold_log_{kind}s", kind, schema, logs, blocks, height, commit)
        self._commit(GOLD, ADVANCE, base, height, commit)
        self.blocks += _blocks(rows, logs)

    def _numbered(self, given: Sequence[RawBlock], base: int) -> tuple[pa.Table, pa.Table]:
        """Rows of bronze.evm_logs and bronze.evm_blocks."""
        names = {
            "_height": "height",
            "hash": "hash",
            "parent_hash": "parent_hash",
            "timestamp": "timestamp_us",
            "payload": "payload",
        }
        raw = [{name: getattr(one, field) for name, field in names.items()} for one in given]
        headers = pa.Table.from_batches(read_headers([pa.RecordBatch.from_pylist(raw, schema=RAW_BLOCKS)]))
        bundles = list(bundle_logs(_transactions(given, size=50)))
        first = self.blocks[-1].first_log_id + len(self.blocks[-1].logs) if self.blocks else 0
        checked = check_blocks(headers, pa.Table.from_batches(bundles), first)
        assert checked.wrong is None, checked.wrong
        ids, times = checked.rows["first_log_id"].to_numpy(), checked.rows["timestamp"].cast(pa.int64()).to_numpy()
        logs = pa.Table.from_batches(number_logs(bundles, base, ids, times)).sort_by("log_id")
        return logs.append_column("block_number", logs["_height"]), checked.rows

    def _write_part(
        self, table: str, kind: str, schema: pa.Schema, logs: pa.Table, blocks: pa.Table, height: int, commit: int
    ) -> None:
        bundles = [row for batch in route_rows(_rows(logs, blocks), PARTS) for row in batch.to_pylist()]
        for part in range(PARTS):
            mine = pa.RecordBatch.from_pylist([one for one in bundles if one["part"] == part] or [{"part": 0, "entries": b""}])
            sealed = list(seal_part([mine], partial(seal, sealing=self.sealing)))
            rows = pa.Table.from_batches(packed_rows([one for one in sealed if one["kind"][0].as_py() == kind]), schema)
            if rows.num_rows:
                ids = zip((self.chain, height, commit), KERNEL, strict=True)
                kernel = [pa.array([value] * rows.num_rows, field.type) for value, field in ids]
                self.write(table, pa.table([*kernel, *rows.columns], schema=pa.schema([*KERNEL, *schema])))


def _transactions(given: Sequence[RawBlock], size: int) -> Iterator[pa.RecordBatch]:
    rows = [(one.height, one.hash, t.index, t.hash, t.payload) for one in given for t in one.transactions]
    for at in range(0, len(rows), size):
        named = [dict(zip(TRANSACTIONS.names, row, strict=True)) for row in rows[at : at + size]]
        yield pa.RecordBatch.from_pylist(named, schema=TRANSACTIONS)


def _rows(logs: pa.Table, blocks: pa.Table) -> Iterator[pa.RecordBatch]:
    """What gold.logs computes in SQL: an id, and the streams that it belongs to."""
    kinds = [(Kind.ADDRESS, "address"), *((kind, f"topic{k}") for k, kind in enumerate(TOPIC_KINDS))]
    for row in logs.to_pylist():
        yield _row(row["log_id"], [stream_of(kind, row[name]) for kind, name in kinds if row[name] is not None])
        if row["topic0"] is not None:
            yield _row(row["block_number"], [stream_of(Kind.TOPIC0_BLOCK, row["topic0"])])
    for row in blocks.to_pylist():
        yield _row(row["_height"], [stream_of(Kind.BLOCK_HASH, row["hash"])])


def _row(number: int, streams: Sequence[int]) -> pa.RecordBatch:
    values = [number, *streams, *[0] * (len(STREAMS) - len(streams))]
    return pa.RecordBatch.from_arrays([pa.array([value], pa.int64()) for value in values], names=["id", *STREAMS])


def _blocks(rows: Sequence[dict[str, object]], logs: pa.Table) -> list[Block]:
    """The same as plain objects, from which merges are made."""
    by_number: dict[object, list[Log]] = {}
    for row in logs.to_pylist():
        topics = tuple(row[f"topic{k}"] for k in range(row["topic_count"]))
        log = Log(row["log_id"], row["block_number"], row["block_hash"], row["log_index"], row["address"], topics)
        by_number.setdefault(log.block_number, []).append(log)
    names = ("block_number", "hash", "parent_hash", "first_log_id")
    return [Block(*(row[name] for name in names), tuple(by_number.get(row["block_number"], ()))) for row in rows]  # type: ignore[arg-type]
