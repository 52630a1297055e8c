"""Ways in which a Parquet file is no longer what was written, for tests of what readers do about it."""

import pyarrow as pa
import pyarrow.parquet as pq


def cut(data: bytes) -> bytes:
    """A file that was not written to its end."""
    return data[: len(data) // 2]


def scribble(data: bytes) -> bytes:
    """A file with a footer that is right, and rows that are not."""
    footer = int.from_bytes(data[-8:-4], "little") + 8
    return data[:4] + b"\xff" * (len(data) - footer - 4) + data[-footer:]


def flipped(data: bytes) -> bytes:
    """A file with checksums of its pages, as Spark writes them, in which the last bit of each column is another."""
    rows, made = pq.read_table(pa.BufferReader(data)), pa.BufferOutputStream()
    pq.write_table(rows, made, write_page_checksum=True, compression="none", use_dictionary=False)
    changed = bytearray(made.getvalue().to_pybytes())
    group = pq.read_metadata(made.getvalue()).row_group(0)
    for column in map(group.column, range(group.num_columns)):
        changed[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    return bytes(changed)
