"""The parts of the UTxO tree through a batch, as Arrow: rows sorted by part, first its rows, then the changes by height."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from chainlake.cage.arrow_rows import Row, batched
from chainlake.cage.utxo_fold import BUCKET_DEPTH, fold_part, to_path, to_text, top_of
from chainlake.collector import without_collector
from chainlake.errors import BrokenPromise
from chainlake.merkle.csmt import Change, Node, txin_key

NODE, CHANGE = 0, 1
PARTS = "tree_part string, part int, _height bigint, path string, node binary, tx_id binary, tx_index int, txout binary"
FOLDED = (
    "what string, tree_part string, _height bigint, _deleted boolean, bucket string, path string, node binary, error string,"
    " created int, spent int"
)
SCHEMA = pa.schema(
    [
        ("what", pa.string()),
        ("tree_part", pa.string()),
        ("_height", pa.int64()),
        ("_deleted", pa.bool_()),
        ("bucket", pa.string()),
        ("path", pa.string()),
        ("node", pa.binary()),
        ("error", pa.string()),
        ("created", pa.int32()),
        ("spent", pa.int32()),
    ]
)


@without_collector
def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as PARTS says to rows as FOLDED says: the rows of the tree that changed, and the part's top before and after each
    block, with how many outputs came and went."""
    parts = groupby(_rows(batches), key=lambda row: row[0])
    yield from batched((row for part, group in parts for row in _of_part(part, group)), SCHEMA)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    names = ("tree_part", "part", "_height", "path", "node", "tx_id", "tx_index", "txout")
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _of_part(base: str, rows: Iterator[tuple[Any, ...]]) -> Iterator[Row]:
    nodes: dict[bytes, bytes] = {}
    changes: list[tuple[int, Change]] = []
    for _, part, height, path, node, tx_id, number, txout in rows:
        if part == NODE:
            nodes[to_path(path)] = node
        else:
            changes.append((height, Change(txin_key(tx_id, number), txout)))
    counts = Counter((height, change.value is None) for height, change in changes)
    try:
        yield {"what": "before", "tree_part": base, "node": packed(top_of(base, nodes.get(to_path(base))))}
        for block in fold_part(base, nodes, changes):
            own = {"tree_part": base, "_height": block.height}
            created, spent = counts[block.height, False], counts[block.height, True]
            yield {"what": "top", **own, "node": packed(block.top), "created": created, "spent": spent}
            for path, node in block.rows.items():
                text = to_text(path)
                kept = {"_deleted": node is None, "bucket": text[:BUCKET_DEPTH], "path": text, "node": node or b""}
                yield {"what": "node", **own, **kept}
    except BrokenPromise as broken:
        height = broken.height if broken.height is not None else min(height for height, _ in changes)
        yield {"what": "error", "tree_part": base, "_height": height, "error": str(broken)}


def packed(top: Node | None) -> bytes:
    """A top as bytes; none for an empty part."""
    return b"" if top is None else top.to_bytes()


def unpacked(data: bytes) -> Node | None:
    """The other way round."""
    return Node.from_bytes(data) if data else None
