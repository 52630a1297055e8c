"""Stream ids, and which shard and chain a stream belongs to."""

import re

import xxhash

from chainlake.errors import BadInput

STREAM_ID, SHARD_MASK = 32, 0x3FF
CHAIN_ID = re.compile("metadata-shard-([0-9a-f]{16})")

CONTENT_LENGTHS = {
    0x10: 21,  # space
    0x20: 32,  # channel
    0x77: 32,  # group direct messages
    0x88: 32,  # direct messages
    0xA1: 21,  # user inbox
    0xA5: 21,  # user settings
    0xA8: 21,  # user
    0xAD: 21,  # user metadata
    0xDD: 9,  # metadata
    0xFF: 32,  # media
}
"""The type of a stream is the first byte of its id; what comes after so many bytes must be zero."""


def is_well_formed(stream_id: bytes) -> bool:
    """Whether an id is of a known type and ends in the zeros that the type asks for."""
    length = CONTENT_LENGTHS.get(stream_id[0]) if len(stream_id) == STREAM_ID else None
    return length is not None and not any(stream_id[length:])


def shard_of(stream_id: bytes, mask: int = SHARD_MASK) -> int:
    """The shard that keeps a stream: one of 1,024 by default."""
    return xxhash.xxh64_intdigest(stream_id) & mask


def chain_id_of(shard: int) -> str:
    """The chain id of a shard."""
    if not 0 <= shard < 1 << 64:
        raise BadInput(f"{shard} is not a shard: a number of 64 bits is expected")
    return f"metadata-shard-{shard:016x}"


def shard_of_chain(chain_id: str) -> int | None:
    """The shard that a chain id names; None for chains that are named otherwise."""
    match = CHAIN_ID.fullmatch(chain_id)
    return int(match[1], 16) if match else None
