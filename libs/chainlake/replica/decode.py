"""Payloads of entries to typed commands, as Arrow."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from chainlake.errors import BadInput
from chainlake.replica.columns import rows_of, without_collector
from chainlake.replica.commands import command_text
from chainlake.replica.entries import read_payload

SCHEMA = pa.schema(
    [
        *[("_height", pa.int64()), ("tx_index", pa.int32()), ("group_name", pa.string()), ("log_index", pa.int64())],
        *[("log_term", pa.int64()), ("type", pa.string()), ("required_meta_index", pa.int64()), ("table_id", pa.string())],
        *[("user_id", pa.string()), ("command", pa.string()), ("error", pa.string())],
    ]
)
_NOTHING = (None,) * 8


@without_collector
def decode_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row per entry; `error` says why one cannot be understood."""
    for batch in batches:
        held = rows_of(batch, ("_height", "tx_index", "payload"))
        rows = [(height, tx_index, *_command(payload)) for height, tx_index, payload in held]
        columns = zip(*rows, strict=True) if rows else [() for _ in SCHEMA]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _command(payload: bytes) -> tuple[object, ...]:
    try:
        entry = read_payload(payload)
        text = command_text(entry.command)
    except BadInput as error:
        return (*_NOTHING, str(error))
    command = entry.command
    told = (command["type"], entry.required, command.get("table_id"), command.get("user_id"))
    return entry.group, entry.log_index, entry.log_term, *told, text, None
