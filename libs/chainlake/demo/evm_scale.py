"""Logs by the million with the skew of mainnet, for benchmarks: JSON lines for the lake, Parquet for its peers.

Blocks link by Keccak-256 and their blooms are real; the same seed gives the same bytes. A longer chain begins with the blocks
of a shorter one, but for the shorter one's last block, which is cut to give exactly the logs that were asked for.
"""

import gzip
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from chainlake.demo import write_pieces
from chainlake.demo.evm import BLOCK_SECONDS, GENESIS_TIME
from chainlake.demo.evm_linked import Linked, linked
from chainlake.demo.evm_segments import ABSENT, Scale
from chainlake.demo.evm_world import Bytes, Ints

__all__ = ["COLUMNS", "Scale", "Written", "linked", "table_of", "tables", "write"]

ROW_GROUP = 100_000
COLUMNS = pa.schema(
    [
        ("log_id", pa.int64()),
        ("block_number", pa.int64()),
        ("block_hash", pa.binary()),
        ("block_timestamp", pa.timestamp("us", tz="UTC")),
        ("transaction_hash", pa.binary()),
        ("transaction_index", pa.int32()),
        ("log_index", pa.int32()),
        ("address", pa.binary()),
        ("topic0", pa.binary()),
        ("topic1", pa.binary()),
        ("topic2", pa.binary()),
        ("topic3", pa.binary()),
        ("topic_count", pa.int32()),
        ("data", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Written:
    """What was written, in order."""

    lines: list[Path]
    parquet: Path | None
    blocks: int
    logs: int


def write(
    directory: Path,
    scale: Scale,
    *,
    lines: bool = True,
    parquet: bool = True,
    compress: bool = False,
    row_group: int = ROW_GROUP,
) -> Written:
    """`blocks-00000.jsonl` and so on (`.gz` if compressed), and `logs.parquet`, sorted by log id.

    Lines of an earlier chain in the directory are removed: the lake would take them for more blocks.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("blocks-[0-9]*.jsonl*"):
        old.unlink()
    files, blocks, logs = [], 0, 0
    path = directory / "logs.parquet" if parquet else None
    with _parquet(path) as writer:
        for number, part in enumerate(linked(scale)):
            if lines:
                files.append(_write_lines(directory / f"blocks-{number:05d}.jsonl", part.lines(), compress))
            if writer is not None:
                writer.write_table(table_of(part), row_group_size=row_group)
            blocks, logs = blocks + len(part.hashes), logs + len(part.segment.contract)
    return Written(files, path, blocks, logs)


def tables(scale: Scale) -> Iterator[pa.Table]:
    """The logs of a chain, some ten thousand at a time."""
    return (table_of(part) for part in linked(scale))


def table_of(part: Linked) -> pa.Table:
    """The logs with the columns of bronze.evm_logs."""
    segment, world = part.segment, part.world
    hashes = np.frombuffer(bytes.fromhex("".join(one[2:] for one in part.hashes)), dtype=np.uint8).reshape(-1, 32)
    numbers = segment.first_block + segment.log_block
    topics = np.concatenate([world.topics, segment.fresh_topics])
    columns = {
        "log_id": segment.first_log + np.arange(len(numbers)),
        "block_number": numbers,
        "block_hash": binary(hashes[segment.log_block]),
        "block_timestamp": pa.array((GENESIS_TIME + numbers * BLOCK_SECONDS) * 1_000_000).cast(
            COLUMNS.field("block_timestamp").type
        ),
        "transaction_hash": binary(segment.transactions[segment.log_transaction]),
        "transaction_index": segment.transaction_index.astype(np.int32),
        "log_index": segment.log_index.astype(np.int32),
        "address": binary(world.contracts[segment.contract]),
        "topic_count": (segment.topic != ABSENT).sum(axis=1).astype(np.int32),
        "data": binary_of(segment.data, segment.data_ends),
    }
    for place in range(4):
        columns[f"topic{place}"] = binary(topics[segment.topic[:, place]], segment.topic[:, place] != ABSENT)
    return pa.table([pa.array(columns[name]) for name in COLUMNS.names], schema=COLUMNS)


def binary(values: Bytes, present: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Rows as BINARY; null where not present."""
    count, width = values.shape
    if present is None:
        return binary_of(values, np.arange(1, count + 1) * width)
    validity = pa.py_buffer(np.packbits(present, bitorder="little").tobytes())
    return binary_of(values[present], np.cumsum(present) * width, validity)


def binary_of(data: Bytes, ends: Ints, validity: pa.Buffer | None = None) -> pa.Array:
    """BINARY of consecutive bytes, cut at `ends`."""
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(ends), [validity, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())])


@contextmanager
def _parquet(path: Path | None) -> Iterator[pq.ParquetWriter | None]:
    """A writer whose file appears when it is complete."""
    if path is None:
        yield None
        return
    draft = path.with_name(f".{path.name}.draft")
    try:
        with pq.ParquetWriter(draft, COLUMNS, compression="zstd") as writer:
            yield writer
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _write_lines(path: Path, lines: Iterable[bytes], compress: bool) -> Path:
    if not compress:
        return write_pieces(path, lines)
    return write_pieces(path.with_name(path.name + ".gz"), [gzip.compress(b"".join(lines), compresslevel=1, mtime=0)])
