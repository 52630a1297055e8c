"""How often each signature occurs, by steps of a window that moves with the chain, and whether it is hot.

There are thousands of signatures at most, so this is done in one place with columns, and not by jobs of Spark.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chainlake.logs.packing import unpacked
from chainlake.logs.rules import STEP_BLOCKS, WINDOW_STEPS, mode_of
from chainlake.serve.arrays import Longs

SIGNATURES = pa.schema([("topic0", pa.binary()), ("block_number", pa.int64()), ("count", pa.int32())])
_BEFORE = ("topic0", "logs", "blocks_with", "mode", "steps", "last_block")
_STEPS = pa.schema([("topic0", pa.binary()), *((name, pa.int64()) for name in ("step", "blocks", "logs", "last_block"))])
_COUNTS = pa.schema([("blocks", pa.int64()), ("logs", pa.int64())])


def signatures_of(bundles: pa.ChunkedArray) -> pa.Table:
    """How many logs have a topic0 in a block, out of packed rows of SIGNATURES. A block may be in several of them."""
    parts = [unpacked(one.as_buffer()).cast(SIGNATURES) for one in bundles]
    rows = pa.Table.from_batches(parts, SIGNATURES).group_by(["topic0", "block_number"]).aggregate([("count", "sum")])
    return rows.rename_columns(["topic0", "block_number", "count"])


def topic0_rows(versions: pa.Table, signatures: pa.Table, first: int, high: int) -> pa.Table:
    """The statistics after the block `high` of a chain whose first block follows `first`: only rows with new logs, or of which
    the counts or the mode changed. `versions` are rows of the state before, of which the newest of each signature counts."""
    before = _newest(versions)
    counted = _together(_fresh(signatures), _old(before)).sort_by([("topic0", "ascending"), ("step", "ascending")])
    first_step = high // STEP_BLOCKS - WINDOW_STEPS + 1
    inside = pc.greater_equal(counted["step"], first_step).to_numpy()
    encoded = counted["topic0"].combine_chunks().dictionary_encode()
    codes, names = encoded.indices.to_numpy(), encoded.dictionary
    blocks, logs = (np.bincount(codes, counted[name].to_numpy() * inside, len(names)).astype(np.int64) for name in _COUNTS.names)
    last_blocks = np.zeros(len(names), np.int64)
    np.maximum.at(last_blocks, codes, counted["last_block"].to_numpy())
    window = high - max(first, first_step * STEP_BLOCKS - 1)
    was = dict(zip(before["topic0"].to_pylist(), zip(*(before[n].to_pylist() for n in _BEFORE[1:4]), strict=True), strict=True))
    earlier = [was.get(name, (None, None, None)) for name in names.to_pylist()]
    modes = [mode_of(count / window, mode) for count, (_, _, mode) in zip(blocks.tolist(), earlier, strict=True)]
    now = list(zip(logs.tolist(), blocks.tolist(), modes, strict=True))
    columns = {
        "topic0": names,
        "logs": pa.array(logs),
        "blocks_with": pa.array(blocks),
        "window_blocks": pa.array(np.full(len(names), window)),
        "share": pa.array(blocks / window),
        "mode": pa.array(modes, pa.string()),
        "steps": _maps(counted.filter(pa.array(inside)), np.bincount(codes[inside], minlength=len(names))),
        "last_block": pa.array(last_blocks),
        "_deleted": pa.array(logs == 0),
    }
    again = pc.is_in(names, signatures["topic0"].combine_chunks()).to_pylist()
    wanted = [
        (one[0] > 0 or other[0] is not None) and (fresh or one != other)
        for one, other, fresh in zip(now, earlier, again, strict=True)
    ]
    return pa.table(columns).filter(pa.array(wanted, pa.bool_()))


def _newest(versions: pa.Table) -> pa.Table:
    """The state: of each signature its newest row, unless that is deleted."""
    ordered = versions.sort_by([("_height", "descending")])
    _, first = np.unique(ordered["topic0"].combine_chunks().dictionary_encode().indices.to_numpy(), return_index=True)
    newest = ordered.take(pa.array(first))
    return newest.filter(pc.invert(newest["_deleted"])).select(list(_BEFORE))


def _fresh(signatures: pa.Table) -> pa.Table:
    """Counts by step of the batch."""
    steps = pa.array(signatures["block_number"].to_numpy() // STEP_BLOCKS)
    wanted = [("block_number", "count"), ("count", "sum"), ("block_number", "max")]
    found = signatures.append_column("step", steps).group_by(["topic0", "step"]).aggregate(wanted)
    return found.select(["topic0", "step", "block_number_count", "count_sum", "block_number_max"]).rename_columns(_STEPS.names)


def _old(before: pa.Table) -> pa.Table:
    """Counts by step of what was there."""
    maps = before["steps"].combine_chunks()
    counts = np.diff(maps.offsets.to_numpy())
    rows = before.select(["topic0", "last_block"]).take(pa.array(np.repeat(np.arange(len(maps)), counts)))
    columns = [rows["topic0"], maps.keys, *(maps.items.field(name) for name in _COUNTS.names), rows["last_block"]]
    return pa.table(columns, names=_STEPS.names)


def _together(*parts: pa.Table) -> pa.Table:
    """Steps of several tables, those of the same signature and number as one."""
    wanted = [("blocks", "sum"), ("logs", "sum"), ("last_block", "max")]
    rows = pa.concat_tables([part.cast(_STEPS) for part in parts]).group_by(["topic0", "step"]).aggregate(wanted)
    return rows.rename_columns(_STEPS.names)


def _maps(steps: pa.Table, counts: Longs) -> pa.Array:
    """The steps of each signature, given how many it has."""
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    keys, *values = (steps[name].combine_chunks() for name in ("step", *_COUNTS.names))
    return pa.MapArray.from_arrays(pa.array(offsets), keys, pa.StructArray.from_arrays(values, fields=list(_COUNTS)))
