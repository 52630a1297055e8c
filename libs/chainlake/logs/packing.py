"""Many rows as one value: on their way through Spark, a few large values cost less than millions of rows."""

import pyarrow as pa

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def packed(rows: pa.RecordBatch) -> bytes:
    """The rows as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
        writer.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """The rows of `packed`."""
    return pa.ipc.open_stream(data).read_next_batch()
