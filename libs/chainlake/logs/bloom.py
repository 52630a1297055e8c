"""The 2,048-bit bloom of a block's logs, for many blocks at once. Every distinct address and topic is hashed once."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sha3

from chainlake.logs.hex_columns import Bytes, fixed

BITS = 2048
MOST_KNOWN = 1 << 20
UNKNOWN = -1
Ints = npt.NDArray[np.int64]


class BloomBits:
    """The three bits of each value that was met."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def of(self, values: Bytes) -> Ints:
        """For each value (a row) its three bit numbers, of 11 bits each, in one."""
        if not len(values):
            return np.empty(0, np.int64)
        encoded = fixed(values).dictionary_encode()
        distinct: list[bytes] = encoded.dictionary.to_pylist()
        known = self._known
        if len(known) + len(distinct) > MOST_KNOWN:
            known.clear()
        bits = np.array([known.get(value, UNKNOWN) for value in distinct], np.int64)
        missing = np.flatnonzero(bits == UNKNOWN)
        if len(missing):
            fresh = [distinct[place] for place in missing.tolist()]
            keccak = sha3.keccak_256
            digests = b"".join([keccak(value).digest() for value in fresh])
            pairs = np.frombuffer(digests, ">u2").reshape(len(fresh), 16)[:, :3].astype(np.int64) & (BITS - 1)
            bits[missing] = pairs[:, 0] << 22 | pairs[:, 1] << 11 | pairs[:, 2]
            known.update(zip(fresh, bits[missing].tolist(), strict=True))
        return np.asarray(bits[np.asarray(encoded.indices)], np.int64)


def blooms(addresses: Bytes, topics: Bytes, topic_counts: Ints, starts: Ints, known: BloomBits) -> Bytes:
    """The bloom of each run of logs, as rows of 256 bytes; `starts` says where the runs begin."""
    run_of_log = np.searchsorted(starts, np.arange(len(topic_counts)), side="right") - 1
    run = np.r_[run_of_log, np.repeat(run_of_log, topic_counts)]
    bits = np.r_[known.of(addresses), known.of(topics)]
    flags = np.zeros((len(starts), BITS), np.uint8)
    for shift in (0, 11, 22):
        flags[run, BITS - 1 - (bits >> shift & (BITS - 1))] = 1
    return np.packbits(flags, axis=1)


def as_binary(rows: Bytes) -> pa.Array:
    """Blooms as an Arrow column."""
    return fixed(rows).cast(pa.binary())
