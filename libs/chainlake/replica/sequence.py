"""The entries of a batch in the order of their logs: which are the next, which came again, where one is missing, and how high the
watermark of a shard stands at each of them. Whole columns at a time: it is done to every entry."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chainlake.replica.timeline import Progress

FRESH, AGAIN, GAP = 0, 1, 2
INPUT = pa.schema(
    [
        *[("_height", pa.int64()), ("tx_index", pa.int32()), ("group_name", pa.string()), ("log_index", pa.int64())],
        *[("log_term", pa.int64()), ("type", pa.string()), ("required_meta_index", pa.int64()), ("table_id", pa.string())],
        *[("user_id", pa.string()), ("command", pa.string())],
    ]
)
ADDED = pa.schema([("watermark", pa.int64()), ("expected", pa.int64()), ("status", pa.int8())])
SCHEMA = pa.unify_schemas([INPUT, ADDED])

Longs = npt.NDArray[np.int64]


def sequence(batches: Iterable[pa.RecordBatch], before: Mapping[str, Progress]) -> Iterator[pa.RecordBatch]:
    """Entries sorted by group and arrival, each with `watermark`, `expected` and `status`. A Meta log that is new may start
    with a snapshot, at any index."""
    reached: dict[str, tuple[int, int]] = {group: (now.applied_index, now.watermark) for group, now in before.items()}
    for batch in batches:
        watermarks, expected = np.zeros(batch.num_rows, np.int64), np.zeros(batch.num_rows, np.int64)
        indexes, required = _longs(batch, "log_index"), _longs(batch, "required_meta_index")
        for group, part in _runs(batch.column("group_name")):
            first = int(indexes[part][0])
            snapshot = group == "meta" and group not in reached and batch.column("type")[part.start].as_py() == "Snapshot"
            end, watermark = reached.get(group, (first - 1 if snapshot else 0, 0))
            ends = np.maximum.accumulate(np.concatenate(([end], indexes[part])))
            expected[part] = ends[:-1] + 1
            watermarks[part] = np.maximum(np.maximum.accumulate(required[part]), watermark)
            reached[group] = (int(ends[-1]), int(watermarks[part][-1]))
        status = np.where(indexes == expected, FRESH, np.where(indexes < expected, AGAIN, GAP)).astype(np.int8)
        held = [batch.column(name) for name in INPUT.names]
        yield pa.RecordBatch.from_arrays([*held, pa.array(watermarks), pa.array(expected), pa.array(status)], schema=SCHEMA)


def _runs(groups: pa.Array) -> Iterator[tuple[str, slice]]:
    """Stretches of rows of one group."""
    coded = groups.dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(codes)), strict=True):
        yield coded.dictionary[int(codes[start])].as_py(), slice(int(start), int(end))


def _longs(batch: pa.RecordBatch, name: str) -> Longs:
    values: Longs = batch.column(name).to_numpy(zero_copy_only=False)
    return values
