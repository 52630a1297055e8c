"""Streams, roots and proofs of one shard, from the files of a lake: no Spark, no JVM. Any committed block can be asked for."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from chainlake.encoding import short, to_hex
from chainlake.errors import BadInput, BrokenPromise
from chainlake.lake.visibility import History
from chainlake.merkle.smt import Proof
from chainlake.merkle.smt_nodes import DIGITS, Node, empty
from chainlake.merkle.smt_prove import prove_stored
from chainlake.serve.cache import ByteCache
from chainlake.serve.embedded import EmbeddedLake, LedgerReader
from chainlake.serve.state_rows import KeyedRows, StateReader, event_rows
from chainlake.shards.codec import decode_stream
from chainlake.shards.query import stream_json
from chainlake.shards.registry import NodeRecord, NodeRegistry
from chainlake.shards.state import StreamState, value_of

STAGE = "silver.shards"
TOP = "top"
KEPT_LISTS, KEPT_STREAMS = 4, 1_000_000
"""Lists of all streams that are kept: the last one, and others while there are no more than so many streams in them."""
KEPT_DIGITS, KEPT_BYTES, PAGE_BYTES = 3, 32 << 20, 6 << 10
"""Tree rows near the root are in the way of every proof: pages below prefixes of so many digits are kept, about 6 kB each."""

STREAM = (
    *("last_miniblock_hash", "last_miniblock_num", "nodes", "replication_factor", "sealed"),
    *("created_height", "updated_height"),
)


class Root(NamedTuple):
    """What a block committed to."""

    height: int
    app_hash: bytes
    state_root: bytes
    stream_count: int


class Proven(NamedTuple):
    """A proof of what a block says of a stream. `value` is None if there is no such stream."""

    root: Root
    stream_id: bytes
    value: bytes | None
    proof: Proof

    def to_json(self, chain: str) -> dict[str, Any]:
        """Everything that one needs to check the proof."""
        return {
            "chain": chain,
            "height": self.root.height,
            "appHash": to_hex(self.root.app_hash),
            "stateRoot": to_hex(self.root.state_root),
            "streamId": to_hex(self.stream_id),
            "exists": self.value is not None,
            "value": None if self.value is None else to_hex(self.value),
            "stream": None if self.value is None else stream_json(decode_stream(self.value)),
            "proof": self.proof.to_json(),
        }


class ShardView:
    """The streams of a shard after one block, for `query`."""

    def __init__(self, reader: "ShardReader", height: int | None = None) -> None:
        self._reader = reader
        self.root = reader.root(height)

    @property
    def registry(self) -> NodeRegistry:
        return self._reader.registry(self.root.height)

    def stream(self, stream_id: bytes) -> StreamState | None:
        return self._reader.stream(stream_id, self.root.height)

    def streams(self) -> Sequence[StreamState]:
        return self._reader.streams(self.root.height)

    def count(self) -> int:
        return self.root.stream_count


class ShardReader:
    """One chain of a lake. For many threads."""

    def __init__(self, home: Path, chain: str, *, prefix: str = "") -> None:
        lake = EmbeddedLake(home, prefix)
        self.chain = chain
        self._ledger = LedgerReader(lake, chain, (STAGE,))
        self._streams = StateReader(lake, "silver.streams", "stream_id", STREAM)
        self._tree = StateReader(lake, "silver.shard_tree", "prefix", ("leaves", "hash", "key"))
        self._nodes = StateReader(lake, "silver.shard_nodes", "permanent_index", ("address", "from_height"))
        self._lists: OrderedDict[tuple[int, int], list[StreamState]] = OrderedDict()
        self._lock = Lock()
        self._pages: ByteCache[list[Node]] = ByteCache(KEPT_BYTES)
        self._blocks: ByteCache[tuple[Root, NodeRegistry]] = ByteCache(KEPT_BYTES)
        self._roots = KeyedRows(lake, "silver.shard_roots", "_height", ("app_hash", "state_root", "stream_count"))

    def history(self) -> History:
        """What the ledger says of the chain now."""
        if self._ledger.has_news():
            self._ledger.refresh()
        return self._ledger.view.of(STAGE, self.chain)

    def head(self) -> int | None:
        """The last block that was processed; None if there is none."""
        history = self.history()
        head = history.head()
        return None if head is None or head.height == history.first_height() else head.height

    def root(self, height: int | None = None) -> Root:
        """The root of a block, by default of the last one."""
        history = self.history()
        return self._root(history, self._at(history, height))

    def registry(self, height: int | None = None) -> NodeRegistry:
        """The nodes that are registered at a block."""
        history = self.history()
        return self._registry(history, self._at(history, height))

    def stream(self, stream_id: bytes, height: int | None = None) -> StreamState | None:
        """A stream after a block; None if there is none."""
        history = self.history()
        rows = self._streams.newest(self.chain, history, self._at(history, height), [stream_id])
        return next(map(_state, rows), None)

    def streams(self, height: int | None = None) -> list[StreamState]:
        """All streams after a block, by id. The last lists are kept, so that paging through one is cheap."""
        history = self.history()
        at, seq = self._at(history, height), history.seq()
        found = self._lists.get((seq, at))
        if found is None:
            rows = self._streams.newest(self.chain, history, at)
            found = sorted(map(_state, rows), key=lambda one: one.stream_id)
            with self._lock:
                self._lists[seq, at] = found
                while len(self._lists) > 1 and (len(self._lists) > KEPT_LISTS or self._listed() > KEPT_STREAMS):
                    self._lists.popitem(last=False)
        return found

    def prove(self, stream_id: bytes, height: int | None = None) -> Proven:
        """What a block says of a stream, with a proof that ends in its state root."""
        history = self.history()
        at = self._at(history, height)
        root, registry = self._block(history, at)
        values: dict[bytes, bytes] = {}

        def load(prefixes: Sequence[str]) -> Iterable[Node]:
            return [node for page in self._rows_below(history, at, prefixes) for node in page]

        def value(key: bytes) -> bytes:
            rows = self._streams.newest(self.chain, history, at, [key])
            if not rows:
                raise BrokenPromise(f"stream {short(key)} is in the tree of {self.chain} but not in its streams: run lake verify")
            values[key] = value_of(_state(rows[0]), registry)
            return values[key]

        top = next(iter(self._rows_below(history, at, [TOP])[0]), empty(at, ""))
        if (top.hash, top.leaves) != (root.state_root, root.stream_count):
            raise BrokenPromise(f"the tree of {self.chain} at block {at} does not have the root of that block: run lake verify")
        proof = prove_stored(top, load, stream_id, value)
        return Proven(root, stream_id, values.get(stream_id), proof)

    def _listed(self) -> int:
        return sum(map(len, self._lists.values()))

    def _at(self, history: History, height: int | None) -> int:
        head, first = history.head(), history.first_height()
        if head is None or first is None or head.height == first:  # nothing yet, or all taken back
            raise BadInput(f"no block of shard {self.chain!r} is processed yet: see lake status, then lake run shards")
        if height is not None and not first < height <= head.height:
            raise BadInput(f"height {height} of {self.chain} is not there: there are {first + 1} to {head.height}")
        return head.height if height is None else height

    def _block(self, history: History, at: int) -> tuple[Root, NodeRegistry]:
        """Root and nodes of a block. A ledger with the same last seq is the same ledger."""
        found = self._blocks.get((history.seq(), at))
        if found is None:
            found = self._root(history, at), self._registry(history, at)
            self._blocks.put((history.seq(), at), found, PAGE_BYTES)
        return found

    def _rows_below(self, history: History, at: int, prefixes: Sequence[str]) -> list[list[Node]]:
        """The tree rows one digit below each prefix, and for `TOP` the root; those near the root are kept."""
        pages = {prefix: self._pages.get((history.seq(), at, prefix)) for prefix in prefixes}
        missing = [prefix for prefix, page in pages.items() if page is None]
        wanted = [below for prefix in missing for below in ([""] if prefix == TOP else [prefix + digit for digit in DIGITS])]
        read: dict[str, list[Node]] = {prefix: [] for prefix in missing}
        for node in map(_node, self._tree.newest(self.chain, history, at, wanted)) if wanted else ():
            read[node.prefix[:-1] if node.prefix else TOP].append(node)
        for prefix, nodes in read.items():
            if len(prefix) <= KEPT_DIGITS:
                self._pages.put((history.seq(), at, prefix), nodes, PAGE_BYTES)
        return [read[prefix] if (page := pages[prefix]) is None else page for prefix in prefixes]

    def _root(self, history: History, height: int) -> Root:
        for row in event_rows(self._roots, self.chain, history, height):
            return Root(height, row["app_hash"], row["state_root"], row["stream_count"])
        raise BrokenPromise(f"silver.shard_roots of {self.chain} has no block {height}: run lake verify")

    def _registry(self, history: History, height: int) -> NodeRegistry:
        rows = self._nodes.newest(self.chain, history, height)
        return NodeRegistry(NodeRecord(row["address"], row["permanent_index"], row["from_height"]) for row in rows)


def _state(row: dict[str, Any]) -> StreamState:
    return StreamState(row["stream_id"], row["last_miniblock_hash"], row["last_miniblock_num"], tuple(row["nodes"]), *_rest(row))


def _rest(row: dict[str, Any]) -> tuple[int, bool, int, int]:
    return row["replication_factor"], row["sealed"], row["created_height"], row["updated_height"]


def _node(row: dict[str, Any]) -> Node:
    return Node(row["_height"], row["prefix"], row["leaves"], row["hash"], row["key"])
