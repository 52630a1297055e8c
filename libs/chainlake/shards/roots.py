"""The root of each block, chain by chain: tops of the parts joined, and each header compared with the root before it.

Rows of three kinds come sorted by chain, kind and height: the stored tree down to the parts, tops of parts that changed, and
blocks. A block's header says what the state was before the block, so block H confirms the root after H - 1. Only the first block
of a chain may say nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from chainlake.encoding import short
from chainlake.merkle.smt import EMPTY
from chainlake.merkle.smt_fold import PART_DIGITS, combine
from chainlake.merkle.smt_nodes import Node
from chainlake.shards.parts import to_batch
from chainlake.shards.state import PLACEHOLDER, TREE, placeholder_app_hash

STORED, TOP, BLOCK = 0, 1, 2
INPUT = ("kind", "_chain", "_height", "prefix", "leaves", "hash", "key", "deepest", "app_hash")
SORTED_BY = ("_chain", "kind", "_height", "prefix")

ROOT_KIND, NODE_KIND, PROBLEM_KIND = "root", "node", "problem"
OUTPUT = pa.schema(
    {
        "kind": pa.string(),
        "_chain": pa.string(),
        "_height": pa.int64(),
        "app_hash": pa.binary(),
        "state_root": pa.binary(),
        "stream_count": pa.int64(),
        "tree_depth": pa.int32(),
        "prefix": pa.string(),
        "leaves": pa.int64(),
        "hash": pa.binary(),
        "key": pa.binary(),
        "problem": pa.string(),
    }
)
DDL = (
    "kind string, _chain string, _height bigint, app_hash binary, state_root binary, stream_count bigint, tree_depth int,"
    " prefix string, leaves bigint, hash binary, key binary, problem string"
)


class Before(NamedTuple):
    """A chain before the batch. `app_hash` is None when its first block is still to come: there is nothing to compare with."""

    mode: str
    app_hash: bytes | None = None
    state_root: bytes = EMPTY
    stream_count: int = 0
    tree_depth: int = PART_DIGITS


def fold_roots(batches: Iterable[pa.RecordBatch], before: Mapping[str, Before]) -> Iterator[pa.RecordBatch]:
    """Root rows of all blocks, the tree rows above the parts, and headers that contradict a root."""
    for chain, rows in groupby(_rows(batches), key=itemgetter(1)):
        yield from _chain_roots(chain, rows, before[chain])


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in INPUT), strict=True)


def _chain_roots(chain: str, rows: Iterator[tuple[Any, ...]], last: Before) -> Iterator[pa.RecordBatch]:
    stored: list[Node] = []
    tops: list[Node] = []
    depths: dict[int, int] = {}
    headers: list[tuple[int, bytes | None]] = []
    for kind, _, height, prefix, leaves, digest, key, deepest, app_hash in rows:
        if kind == STORED:
            stored.append(Node(height, prefix, leaves, digest, key))
        elif kind == TOP:
            tops.append(Node(height, prefix, leaves, digest, key))
            depths[height] = max(depths.get(height, 0), deepest)
        else:
            headers.append((height, app_hash))
    joined = combine(stored, tops)
    roots = {top.block: top for top in joined.tops}
    found: dict[str, list[Any]] = {name: [] for name in ("_height", "app_hash", "state_root", "stream_count", "tree_depth")}
    problems: list[tuple[int, str]] = []
    for height, claimed in headers:
        if last.app_hash is not None and claimed != last.app_hash:
            problems.append((height, _contradiction(chain, height, claimed, last)))
        last = after_block(last, height, roots.get(height), depths.get(height, 0))
        for name, value in zip(found, (height, *last[1:]), strict=True):
            found[name].append(value)
    yield _batch(chain, ROOT_KIND, found)
    above = joined.nodes
    yield _batch(
        chain,
        NODE_KIND,
        {
            "_height": [node.block for node in above],
            "prefix": [node.prefix for node in above],
            "leaves": [node.leaves for node in above],
            "hash": [node.hash for node in above],
            "key": [node.key for node in above],
        },
    )
    yield _batch(chain, PROBLEM_KIND, {"_height": [one[0] for one in problems], "problem": [one[1] for one in problems]})


def after_block(last: Before, height: int, root: Node | None, deepest: int) -> Before:
    """What a block leaves; `root` is the top row of the tree if the block changed it."""
    state_root, count = (root.hash, root.leaves) if root is not None else (last.state_root, last.stream_count)
    app_hash = placeholder_app_hash(height) if last.mode == PLACEHOLDER else state_root
    return Before(last.mode, app_hash, state_root, count, max(last.tree_depth, deepest))


def _contradiction(chain: str, height: int, claimed: bytes | None, last: Before) -> str:
    if claimed is None:
        return (
            f"{chain}: the header of block {height} has no app hash, so nothing says that block {height - 1} left "
            f"{short(last.app_hash or b'')}: only the first block of a chain may be without, fetch the block again"
        )
    other = PLACEHOLDER if last.mode == TREE else TREE
    remedy = "see which results differ, or start the chain at its first block"
    if last.mode == TREE and claimed == placeholder_app_hash(height - 1):
        remedy = f"the chain does not commit to its state yet: ingest it again with --option app_hash={other}"
    elif last.mode == PLACEHOLDER and claimed == last.state_root:
        remedy = f"it is the state root: ingest it again with --option app_hash={other}"
    return (
        f"{chain}: the header of block {height} says that block {height - 1} left the app hash {short(claimed)}, ours is "
        f"{short(last.app_hash or b'')} ({last.mode}): {remedy}"
    )


def _batch(chain: str, kind: str, columns: dict[str, list[Any]]) -> pa.RecordBatch:
    count = len(columns["_height"])
    return to_batch(OUTPUT, {**columns, "kind": [kind] * count, "_chain": [chain] * count}, count)
