"""The transactions of a metadata shard as types, named as in shards.proto.

They hold what a transaction says, right or wrong; `checks` tells whether a shard would take it. To make one, use `build`.
"""

from typing import NamedTuple


class StreamMetadata(NamedTuple):
    """A stream as people see it: its last miniblock and the addresses of its nodes, in order."""

    stream_id: bytes = b""
    last_miniblock_hash: bytes = b""
    last_miniblock_num: int = 0
    nodes: tuple[bytes, ...] = ()
    replication_factor: int = 0
    sealed: bool = False


class CreateStreamTx(NamedTuple):
    """A new stream."""

    stream: StreamMetadata | None = None


class MiniblockUpdate(NamedTuple):
    """The next miniblock of a stream, on top of the one that `prev_miniblock_hash` names; `sealed` makes it the last."""

    stream_id: bytes = b""
    prev_miniblock_hash: bytes = b""
    last_miniblock_num: int = 0
    last_miniblock_hash: bytes = b""
    sealed: bool = False


class SetStreamLastMiniblockBatchTx(NamedTuple):
    """Miniblocks of many streams, each of which succeeds or fails on its own."""

    miniblocks: tuple[MiniblockUpdate, ...] = ()


class UpdateStreamNodesAndReplicationTx(NamedTuple):
    """A new placement: no nodes, or a factor of 0, means as before."""

    stream_id: bytes = b""
    nodes: tuple[bytes, ...] = ()
    replication_factor: int = 0


Transaction = CreateStreamTx | SetStreamLastMiniblockBatchTx | UpdateStreamNodesAndReplicationTx
