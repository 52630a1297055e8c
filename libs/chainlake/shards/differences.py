"""Our results beside the chain's, block by block: rows of silver.shard_differences.

Rows of three kinds come sorted by chain, height and kind: the block with what the chain reported and our app hash, our results,
our events. Blocks of which the chain reported nothing are passed over.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import orjson
import pyarrow as pa

from chainlake.errors import BadInput
from chainlake.shards.codes import Code
from chainlake.shards.compare import Difference, compare, parse_block_results
from chainlake.shards.fold import TxResult
from chainlake.shards.rules import Event

BLOCK, RESULT, EVENT = 0, 1, 2
INPUT = ("kind", "_chain", "_height", "tx_index", "event_index", "results", "app_hash", "code", "message", "type", "attributes")
SORTED_BY = ("_chain", "_height", "kind", "tx_index", "event_index")
OUTPUT = pa.schema(
    {
        "_chain": pa.string(),
        "difference": pa.int32(),
        "_height": pa.int64(),
        "tx_index": pa.int32(),
        "event_index": pa.int32(),
        "what": pa.string(),
        "ours": pa.string(),
        "theirs": pa.string(),
    }
)
DDL = "_chain string, difference int, _height bigint, tx_index int, event_index int, what string, ours string, theirs string"


def find_differences(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for everything that differs."""
    for (chain, height), rows in groupby(_rows(batches), key=itemgetter(1, 2)):
        found = list(_of_block(height, rows))
        if found:
            columns: list[Any] = [[chain] * len(found), range(len(found)), *zip(*found, strict=True)]
            arrays = [pa.array(column, one.type) for column, one in zip(columns, OUTPUT, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=OUTPUT)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in INPUT), strict=True)


def _of_block(height: int, rows: Iterator[tuple[Any, ...]]) -> Iterator[Difference]:
    reported: str | None = None
    app_hash: bytes | None = None
    results: dict[int, TxResult] = {}
    for kind, _, _, tx_index, _, text, digest, code, message, event_type, attributes in rows:
        if kind == BLOCK:
            reported, app_hash = text, digest
        elif kind == RESULT:
            results[tx_index] = TxResult(height, tx_index, Code(code), message, ())
        else:
            one = results[tx_index]
            event = Event(event_type, tuple((pair["key"], pair["value"]) for pair in attributes))
            results[tx_index] = one._replace(events=(*one.events, event))
    if reported is None:
        return
    try:
        theirs = parse_block_results(orjson.loads(reported))
    except (BadInput, orjson.JSONDecodeError) as error:
        yield Difference(height, None, None, "results", None, f"unreadable: {error}"[:200])
        return
    if theirs.height != height:
        yield Difference(height, None, None, "results", str(height), f"of block {theirs.height}")
        return
    yield from compare([results[index] for index in sorted(results)], theirs, app_hash)
