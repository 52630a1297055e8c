"""The transactions of a metadata shard as types, named as in shards.proto.

They hold what a transaction says, right or wrong; `checks` tells whether a shard would take it. To make one, use `build`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamMetadata:
    """A stream as people see it: its last miniblock and the addresses of its nodes, in order."""

    stream_id: bytes = b""
    last_miniblock_hash: bytes = b""
    last_miniblock_num: int = 0
    nodes: tuple[bytes, ...] = ()
    replication_factor: int = 0
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class CreateStreamTx:
    """A new stream."""

    stream: StreamMetadata | None = None


@dataclass(frozen=True, slots=True)
class MiniblockUpdate:
    """The next miniblock of a stream, on top of the one that `prev_miniblock_hash` names; `sealed` makes it the last."""

    stream_id: bytes = b""
    prev_miniblock_hash: bytes = b""
    last_miniblock_num: int = 0
    last_miniblock_hash: bytes = b""
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class SetStreamLastMiniblockBatchTx:
    """Miniblocks of many streams, each of which succeeds or fails on its own."""

    miniblocks: tuple[MiniblockUpdate, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateStreamNodesAndReplicationTx:
    """A new placement: no nodes, or a factor of 0, means as before."""

    stream_id: bytes = b""
    nodes: tuple[bytes, ...] = ()
    replication_factor: int = 0


Transaction = CreateStreamTx | SetStreamLastMiniblockBatchTx | UpdateStreamNodesAndReplicationTx
