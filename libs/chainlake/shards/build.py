"""Transactions ready to submit: checked as CheckTx checks them, then encoded. Nobody builds their bytes by hand."""

from collections.abc import Iterable

from chainlake.shards.checks import check
from chainlake.shards.codec import encode
from chainlake.shards.transactions import (
    CreateStreamTx,
    MiniblockUpdate,
    SetStreamLastMiniblockBatchTx,
    StreamMetadata,
    Transaction,
    UpdateStreamNodesAndReplicationTx,
)


def create_stream(
    stream_id: bytes,
    last_miniblock_hash: bytes,
    nodes: Iterable[bytes],
    replication_factor: int,
    last_miniblock_num: int = 0,
    sealed: bool = False,
) -> bytes:
    """A new stream on these nodes, in this order."""
    stream = StreamMetadata(stream_id, last_miniblock_hash, last_miniblock_num, tuple(nodes), replication_factor, sealed)
    return submittable(CreateStreamTx(stream))


def set_last_miniblocks(updates: Iterable[MiniblockUpdate]) -> bytes:
    """The next miniblocks of many streams, at most one of each: a second one in the same block fails."""
    return submittable(SetStreamLastMiniblockBatchTx(tuple(updates)))


def set_last_miniblock(
    stream_id: bytes, prev_miniblock_hash: bytes, last_miniblock_num: int, last_miniblock_hash: bytes, sealed: bool = False
) -> bytes:
    """The next miniblock of one stream."""
    return set_last_miniblocks([MiniblockUpdate(stream_id, prev_miniblock_hash, last_miniblock_num, last_miniblock_hash, sealed)])


def update_placement(stream_id: bytes, nodes: Iterable[bytes] = (), replication_factor: int = 0) -> bytes:
    """Other nodes for a stream, another factor, or both; what is not given stays."""
    return submittable(UpdateStreamNodesAndReplicationTx(stream_id, tuple(nodes), replication_factor))


def submittable(transaction: Transaction) -> bytes:
    """The bytes of a transaction that CheckTx takes; `Refused` says why it would not."""
    check(transaction)
    return encode(transaction)
