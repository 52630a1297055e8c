"""Chunk bytes: `u8 version | u32 min | u32 max | u32 count | u32 crc | roaring bitmap (portable format)`, header big-endian.

The checksum is CRC-32 over version, min, max, count and bitmap: everything but itself.
"""

import struct
import zlib
from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

VERSION = 1
HEADER = struct.Struct(">BIIII")
CHECKED = struct.Struct(">BIII")


class BadChunk(ValueError):
    """Bytes that are not a whole chunk; the text says why."""


@dataclass(frozen=True)
class Chunk:
    """A decoded chunk."""

    min: int
    max: int
    count: int
    bitmap: BitMap


def bitmap_of(values: npt.NDArray[np.generic]) -> BitMap:
    """The set of some 32-bit values. Much faster than handing the array to BitMap, which would iterate over it."""
    plain = array("I")
    plain.frombytes(np.ascontiguousarray(values, np.uint32).tobytes())
    return BitMap(plain)


def values_of(bitmap: BitMap) -> npt.NDArray[np.uint32]:
    """The members, ascending."""
    return np.frombuffer(bitmap.to_array(), np.uint32)


def encode_chunk(values: npt.NDArray[np.generic]) -> bytes:
    """The chunk of some values, which are ascending, distinct and at least one."""
    bitmap = bitmap_of(values)
    bitmap.run_optimize()
    payload = bitmap.serialize()
    checked = CHECKED.pack(VERSION, int(values[0]), int(values[-1]), len(values))
    return checked + zlib.crc32(payload, zlib.crc32(checked)).to_bytes(4, "big") + payload


def decode_chunk(data: bytes | memoryview) -> Chunk:
    """The chunk that some bytes hold, or BadChunk. Nothing is trusted before the checksum is right."""
    if len(data) <= HEADER.size:
        raise BadChunk(f"{len(data)} bytes are too few")
    version, low, high, count, crc = HEADER.unpack_from(data)
    if version != VERSION:
        raise BadChunk(f"unknown version {version}")
    payload = bytes(data[HEADER.size :])
    found = zlib.crc32(payload, zlib.crc32(data[: CHECKED.size]))
    if found != crc:
        raise BadChunk(f"checksum is {found:#010x}, expected {crc:#010x}")
    try:
        bitmap = BitMap.deserialize(payload)
    except (ValueError, IndexError) as error:
        raise BadChunk(f"no roaring bitmap: {error}") from None
    if (len(bitmap), bitmap.min() if bitmap else None, bitmap.max() if bitmap else None) != (count, low, high):
        raise BadChunk(f"header says {count} entries from {low} to {high}, the bitmap holds others")
    return Chunk(low, high, count, bitmap)
