"""Words of the contract ABI, many at once: whether they are clean, and what they say as text, address or number."""

import binascii

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chainlake.logs.abi import Parameter, word_bytes

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

DECIMAL = pa.decimal128(38, 0)
_TOO_LARGE = divmod(10**38, 1 << 64)


def clean(kind: str, words: Bytes) -> Flags:
    """Whether the bits that a type does not have are as they should be."""
    if kind == "bool":
        return _zero(words[:, :31]) & (words[:, 31] < 2)
    if kind == "address":
        return _zero(words[:, :12])
    if kind.startswith("uint"):
        return _zero(words[:, : 32 - int(kind[4:]) // 8])
    if kind.startswith("int"):
        sign = 32 - int(kind[3:]) // 8
        return _equal(words[:, :sign], words[:, sign] > 127)
    return _zero(words[:, word_bytes(kind) :])


def _zero(part: Bytes) -> Flags:
    return ~np.asarray(part.any(axis=1))


def _equal(part: Bytes, negative: Flags) -> Flags:
    """Whether all bytes are the extension of a sign."""
    return np.asarray((part == np.where(negative, 255, 0).astype(np.uint8)[:, None]).all(axis=1))


def texts_of(parameter: Parameter, words: Bytes) -> pa.Array:
    """Canonical texts of clean words."""
    kind = parameter.type.name
    if parameter.is_hashed:
        return _hex(words)
    if kind == "bool":
        return pc.if_else(pa.array(words[:, 31] == 1), "true", "false")
    if kind == "address":
        return _hex(words[:, 12:])
    if kind.startswith("uint"):
        return _numbers(words, signed=False)
    if kind.startswith("int"):
        return _numbers(words, signed=True)
    return _hex(words[:, : word_bytes(kind)])


def _hex(values: Bytes) -> pa.Array:
    count, width = len(values), 2 + 2 * values.shape[1]
    letters = np.empty((count, width), dtype=np.uint8)
    letters[:, :2] = np.frombuffer(b"0x", dtype=np.uint8)
    letters[:, 2:] = np.frombuffer(binascii.hexlify(values.tobytes()), dtype=np.uint8).reshape(count, -1)
    offsets = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))
    return pa.StringArray.from_buffers(count, offsets, pa.py_buffer(letters))


def _numbers(words: Bytes, signed: bool) -> pa.Array:
    """Decimal texts: of all that fit in 64 bits at once, of others one by one."""
    low = np.ascontiguousarray(words[:, 24:]).view(">i8" if signed else ">u8").ravel()
    small = _equal(words[:, :24], low < 0)
    texts = pa.array(low.astype(np.int64 if signed else np.uint64)).cast(pa.string())
    if small.all():
        return texts
    large = [str(int.from_bytes(word.tobytes(), "big", signed=signed)) for word in words[~small]]
    return pc.replace_with_mask(texts, pa.array(~small), pa.array(large, pa.string()))


def addresses_of(words: Bytes) -> pa.Array:
    """The addresses in words, as BINARY."""
    offsets = pa.py_buffer(np.arange(0, (len(words) + 1) * 20, 20, dtype=np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), len(words), [None, offsets, pa.py_buffer(words[:, 12:].tobytes())])


def decimals_of(words: Bytes) -> pa.Array:
    """Numbers below 10^38; null for larger ones."""
    high, low = (np.ascontiguousarray(words[:, at : at + 8]).view(">u8").ravel().astype(np.uint64) for at in (16, 24))
    top, rest = (np.uint64(part) for part in _TOO_LARGE)
    fits = _zero(words[:, :16]) & ((high < top) | ((high == top) & (low < rest)))
    validity = pa.py_buffer(np.packbits(fits, bitorder="little"))
    return pa.Array.from_buffers(DECIMAL, len(words), [validity, pa.py_buffer(np.stack([low, high], axis=1))])
