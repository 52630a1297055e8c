"""Blocks of a batch: each checked against the logs that were found of it, and their logs numbered."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from chainlake.logs.bundles import ROW as BUNDLE_ROW
from chainlake.logs.bundles import TRANSACTIONS, bundle_logs
from chainlake.logs.decode import Piece, check_block
from chainlake.logs.headers import BLOCKS, KEPT, read_headers
from chainlake.sources.base import RawBlock

COLUMNS = (*KEPT, "miner", "gas_used", "base_fee_per_gas", "transaction_count", "first_log_id", "log_count", "bloom_checked")


@dataclass(frozen=True)
class Checked:
    """Rows of bronze.evm_blocks by height, and the first block that is wrong, if one is."""

    rows: pa.Table
    next_log_id: int
    wrong: tuple[int, str] | None


def check_blocks(headers: pa.Table, bundles: pa.Table, first: int) -> Checked:
    """`headers` are rows of HEADERS, `bundles` those of the decoded logs without the logs; numbers go on from `first`."""
    headers = headers.sort_by("_height")
    heights, blooms, wrong, transactions = (
        headers[name].to_pylist() for name in ("_height", "bloom", "error", "transaction_count")
    )
    pieces, errors = _pieces(bundles), _errors(bundles)
    counts, found = [], []
    for at, height in enumerate(heights):
        here = pieces.get(height, [])
        counts.append(sum(piece.logs for piece in here))
        error = wrong[at] or errors.get(height) or check_block(height, here, blooms[at])
        if error is not None:
            found.append((height, error))
        if transactions[at] is None:  # its source leaves the list out
            transactions[at] = max((piece.last_tx + 1 for piece in here), default=0)
    ends = first + np.cumsum(counts, dtype=np.int64)
    made = {
        "transaction_count": pa.array(transactions, pa.int32()),
        "first_log_id": pa.array(ends - np.array(counts, np.int64)),
        "log_count": pa.array(counts, pa.int32()),
        "bloom_checked": pa.array([bloom is not None for bloom in blooms], pa.bool_()),
    }
    rows = pa.table([made[name] if name in made else headers[name] for name in COLUMNS], names=list(COLUMNS))
    return Checked(rows, int(ends[-1]) if len(ends) else first, found[0] if found else None)


def wrong_with(block: RawBlock) -> str | None:
    """What is wrong with the logs of a block that is given by itself; None if nothing is."""
    rows = [
        {"_height": block.height, "block_hash": block.hash, "tx_index": t.index, "hash": t.hash, "payload": t.payload}
        for t in block.transactions
    ]
    bundles = pa.Table.from_batches(bundle_logs([pa.RecordBatch.from_pylist(rows, schema=TRANSACTIONS)]), BUNDLE_ROW)
    header = (block.height, block.hash, block.parent_hash, block.timestamp_us, block.payload)
    columns = [pa.array([value], field.type) for value, field in zip(header, BLOCKS, strict=True)]
    headers = pa.Table.from_batches(read_headers([pa.RecordBatch.from_arrays(columns, schema=BLOCKS)]))
    wrong = check_blocks(headers, bundles, 0).wrong
    return None if wrong is None else wrong[1]


def _pieces(bundles: pa.Table) -> dict[int, list[Piece]]:
    """The pieces of each block's logs."""
    found: dict[int, list[Piece]] = {}
    for chunk in bundles["pieces"].chunks:
        for height, *piece in zip(*(column.to_pylist() for column in chunk.flatten().flatten()), strict=True):
            found.setdefault(height, []).append(Piece(*piece))
    return found


def _errors(bundles: pa.Table) -> dict[int, str]:
    """What is wrong with a block's logs, by height."""
    found = zip(bundles["error_height"].to_pylist(), bundles["error"].to_pylist(), strict=True)
    return {height: error for height, error in found if error is not None}
