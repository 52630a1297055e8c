"""A whole shard in one process: blocks in, results and app hashes out. Validators run it (`lake abci`), demo chains are made with
it, and tests compare with it. The lake reaches the same state in batches (`silver`)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from chainlake.merkle.smt import EMPTY, Proof, leaf_hash
from chainlake.merkle.smt_fold import Tree, Update
from chainlake.merkle.smt_nodes import DIGITS, Node, empty
from chainlake.merkle.smt_prove import prove_stored
from chainlake.shards.fold import FinalizedBlock, finalize_block
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.state import PLACEHOLDER, TREE, StreamState, placeholder_app_hash, value_of


class Finalized(NamedTuple):
    """What a block would leave, once it is committed."""

    transactions: tuple[bytes, ...]
    block: FinalizedBlock
    state_root: bytes
    app_hash: bytes


class Shard:
    """The committed state of a shard, and at most one block on top of it."""

    def __init__(
        self, registry: NodeRegistry, mode: str = TREE, height: int | None = None, streams: Iterable[StreamState] = ()
    ) -> None:
        self.registry = registry
        self.mode = mode
        self.height = height
        self.streams = {one.stream_id: one for one in streams}
        self.pending: Finalized | None = None
        self.state_root = EMPTY
        self.rows: dict[str, Node] = {}
        self._changed: dict[str, Node] = {}
        self._plant()

    @property
    def app_hash(self) -> bytes:
        """The app hash after the last committed block; empty before the first."""
        return b"" if self.height is None else self._app_hash(self.height, self.state_root)

    def finalize(self, height: int, transactions: Sequence[bytes]) -> Finalized:
        """FinalizeBlock: nothing of the block counts before `commit`. The same block may be finalized again, or another one in
        its place."""
        if self.pending is not None:
            if (self.pending.block.height, self.pending.transactions) == (height, tuple(transactions)):
                return self.pending
            self.pending = None
            self._plant()
        block = finalize_block(self.streams, self.height, height, transactions, self.registry)
        folded = self._tree.fold(self._update(one, height) for one in block.changed.values())
        self._changed = {node.prefix: node for node in folded.nodes}
        state_root = folded.tops[-1].hash if folded.tops else self.state_root
        self.pending = Finalized(tuple(transactions), block, state_root, self._app_hash(height, state_root))
        return self.pending

    def commit(self) -> None:
        """The block that was finalized becomes the state."""
        if self.pending is not None:
            self.streams.update(self.pending.block.changed)
            self.rows.update(self._changed)
            self.height, self.state_root = self.pending.block.height, self.pending.state_root
            self.pending = None

    def run(self, height: int, transactions: Sequence[bytes]) -> Finalized:
        """One block, finalized and committed."""
        done = self.finalize(height, transactions)
        self.commit()
        return done

    def prove(self, stream_id: bytes) -> Proof:
        """What the committed state says of a stream, with a proof that ends in `state_root`."""

        def load(prefixes: Sequence[str]) -> Iterable[Node]:
            return [self.rows[below] for prefix in prefixes for digit in DIGITS if (below := prefix + digit) in self.rows]

        top = self.rows.get("", empty(self.height or 0, ""))
        return prove_stored(top, load, stream_id, lambda key: value_of(self.streams[key], self.registry))

    def _plant(self) -> None:
        """The tree made anew from the committed streams."""
        self._tree = Tree()
        folded = self._tree.fold(self._update(one, self.height or 0) for one in self.streams.values())
        self.rows = {node.prefix: node for node in folded.nodes}
        self.state_root = folded.tops[-1].hash if folded.tops else EMPTY

    def _update(self, state: StreamState, height: int) -> Update:
        return Update(height, state.stream_id, leaf_hash(state.stream_id, value_of(state, self.registry)))

    def _app_hash(self, height: int, state_root: bytes) -> bytes:
        return placeholder_app_hash(height) if self.mode == PLACEHOLDER else state_root
