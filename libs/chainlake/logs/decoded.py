"""The stage that decodes logs by the declarations in control.events."""

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa

from chainlake.lake.runner import LaneRun
from chainlake.lake.stage import Batch, Output, Stage
from chainlake.logs import registry
from chainlake.logs.abi import Registry
from chainlake.logs.abi_columns import DECODED, decode_columns

KEPT = ("_chain", "_height", "log_id", "block_number", "block_timestamp", "transaction_hash", "log_index", "address")
READ = (*KEPT, "topic0", "topic1", "topic2", "topic3", "topic_count", "data")
DDL = (
    "_chain string, _height long, log_id long, block_number long, block_timestamp timestamp, transaction_hash binary,"
    " log_index int, address binary, event string, signature string, args map<string, string>, from_address binary,"
    " to_address binary, value decimal(38, 0), reason string"
)


class DecodeRun(LaneRun):
    """A run that sees the same declarations from its first batch to its last."""

    def prepare(self) -> None:
        registry.ensure(self.lake.control)


def decoded_stage() -> Stage:
    """Logs as columns that analysts read."""
    return Stage(
        "gold.decoded",
        "evm",
        ("gold.decoded_events",),
        ("bronze.logs",),
        decoded,
        max_blocks=200_000,
        max_rows=2_000_000,
        runner=DecodeRun,
    )


def decoded(batch: Batch) -> Output:
    """Decode the logs of a batch; those that nothing fits keep the reason."""
    text = registry.text(Registry(registry.declared(batch.snapshot.control)))
    rows = batch.read("bronze.evm_logs").select(*READ).mapInArrow(partial(_decode, text=text), DDL)
    return Output({"gold.decoded_events": rows})


def _decode(batches: Iterable[pa.RecordBatch], text: str) -> Iterator[pa.RecordBatch]:
    known = Registry.parse(text)
    for batch in batches:
        found = decode_columns(batch, known)
        columns = [batch.column(name) for name in KEPT] + [found.column(name).combine_chunks() for name in DECODED.names]
        yield pa.RecordBatch.from_arrays(columns, [*KEPT, *DECODED.names])
