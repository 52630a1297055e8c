"""What a shard keeps of a stream, and the bytes of it that the state root commits to."""

import hashlib
from typing import NamedTuple

from chainlake.shards.codec import stream_bytes
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.transactions import StreamMetadata

TREE, PLACEHOLDER = "tree", "placeholder"
"""What a chain has for app hash: the state root, or a hash that does not depend on the state."""


class StreamState(NamedTuple):
    """A row of silver.streams: nodes are permanent indexes, in order."""

    stream_id: bytes
    last_miniblock_hash: bytes
    last_miniblock_num: int
    nodes: tuple[int, ...]
    replication_factor: int
    sealed: bool
    created_height: int
    updated_height: int


def metadata_of(state: StreamState, registry: NodeRegistry) -> StreamMetadata:
    """The stream as queries answer it: addresses in place of indexes, no heights."""
    return StreamMetadata(
        state.stream_id,
        state.last_miniblock_hash,
        state.last_miniblock_num,
        registry.addresses_of(state.nodes),
        state.replication_factor,
        state.sealed,
    )


def value_of(state: StreamState, registry: NodeRegistry) -> bytes:
    """The value under the state root: canonical StreamMetadata. It holds node set, factor and seal, but no heights."""
    last = (state.stream_id, state.last_miniblock_hash, state.last_miniblock_num)
    return stream_bytes(*last, registry.addresses_of(state.nodes), state.replication_factor, state.sealed)


def placeholder_app_hash(height: int) -> bytes:
    """The app hash of chains that do not commit to their state yet: SHA-256 of the height as a big-endian u64."""
    return hashlib.sha256(height.to_bytes(8, "big")).digest()
