"""Streams of the index: one for each address, topic by position, signature by block, and block hash that occurs.

A stream's number is its kind in the upper four bits and a hash of the value in the rest. Two values may share a number; that only
adds candidates, since every candidate is compared with the filter before it is an answer. Entries of a stream are log ids or
block numbers, split into a shard (upper bits) and a local part of 24 bits.
"""

from collections.abc import Iterable
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

SEED = 42
KIND_SHIFT = 60
HASH_MASK = (1 << KIND_SHIFT) - 1
LOCAL_BITS = 24
LOCAL_MASK = (1 << LOCAL_BITS) - 1

Longs = npt.NDArray[np.int64]


class Kind(IntEnum):
    """What a stream is about. The first five hold log ids, the others block numbers."""

    ADDRESS = 1
    TOPIC0 = 2
    TOPIC1 = 3
    TOPIC2 = 4
    TOPIC3 = 5
    TOPIC0_BLOCK = 6
    BLOCK_HASH = 7


TOPIC_KINDS = (Kind.TOPIC0, Kind.TOPIC1, Kind.TOPIC2, Kind.TOPIC3)


def stream_of(kind: Kind, value: bytes) -> int:
    """The stream of a value. Spark's xxhash64 of a binary gives the same hash."""
    return kind << KIND_SHIFT | xxh64_intdigest(value, SEED) & HASH_MASK


def streams_of(kind: Kind, values: Iterable[bytes]) -> Longs:
    """The streams of several values, ascending, each once."""
    return np.unique(np.fromiter((stream_of(kind, value) for value in values), np.int64))
