"""A whole shard in one process: blocks in, results and app hashes out. Validators run it (`lake abci`), demo chains are made with
it, and tests compare with it. The lake reaches the same state in batches (`silver`)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from chainlake.merkle.smt import EMPTY, leaf_hash
from chainlake.merkle.smt_fold import Tree, Update
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
        tops = self._tree.fold(self._update(one) for one in block.changed.values()).tops
        state_root = tops[-1].hash if tops else self.state_root
        self.pending = Finalized(tuple(transactions), block, state_root, self._app_hash(height, state_root))
        return self.pending

    def commit(self) -> None:
        """The block that was finalized becomes the state."""
        if self.pending is not None:
            self.streams.update(self.pending.block.changed)
            self.height, self.state_root = self.pending.block.height, self.pending.state_root
            self.pending = None

    def run(self, height: int, transactions: Sequence[bytes]) -> Finalized:
        """One block, finalized and committed."""
        done = self.finalize(height, transactions)
        self.commit()
        return done

    def _plant(self) -> None:
        self._tree = Tree()
        tops = self._tree.fold(self._update(one, self.height or 0) for one in self.streams.values()).tops
        self.state_root = tops[-1].hash if tops else EMPTY

    def _update(self, state: StreamState, height: int | None = None) -> Update:
        value = value_of(state, self.registry)
        return Update(state.updated_height if height is None else height, state.stream_id, leaf_hash(state.stream_id, value))

    def _app_hash(self, height: int, state_root: bytes) -> bytes:
        return placeholder_app_hash(height) if self.mode == PLACEHOLDER else state_root
