"""Hex to bytes for whole columns at once."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chainlake.errors import BadInput

Bytes = npt.NDArray[np.uint8]
NIBBLES = np.full(256, 255, np.uint8)
for _digits in ("0123456789abcdef", "0123456789ABCDEF"):
    NIBBLES[np.frombuffer(_digits.encode(), np.uint8)] = np.arange(16)
NOT_BYTES = "the data of a log is not 0x and whole bytes of hex"


def letters_of(texts: pa.StringArray, width: int) -> Bytes | None:
    """Texts of the same length as rows of letters; None if one has another length or is missing."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if texts.null_count or (np.diff(offsets) != width).any():
        return None
    letters = texts.buffers()[2]
    if letters is None or not len(texts):
        return np.empty((0, width), np.uint8)
    return np.frombuffer(letters, np.uint8)[offsets[0] : offsets[-1]].reshape(len(texts), width)


def unhex_letters(letters: Bytes) -> Bytes | None:
    """Rows of `0x…` letters as rows of bytes; None if one is not hex."""
    nibbles = NIBBLES[letters[:, 2:]]
    if (nibbles > 15).any() or (letters[:, 0] != ord("0")).any() or ((letters[:, 1] | 32) != ord("x")).any():
        return None
    return np.asarray(nibbles[:, 0::2] << 4 | nibbles[:, 1::2], np.uint8)


def unhex(texts: Sequence[str], width: int, what: str) -> Bytes:
    """`0x…` texts of `width` bytes each, as rows of bytes."""
    for text in texts:
        if len(text) != 2 + 2 * width or not text.isascii():
            raise BadInput(f"{what} {text!r:.80} is not 0x and {width} bytes of hex")
    letters = np.frombuffer("".join(texts).encode("ascii"), np.uint8).reshape(len(texts), 2 + 2 * width)
    found = unhex_letters(letters)
    if found is None:
        bad = next(text for text, row in zip(texts, letters, strict=True) if unhex_letters(row[None, :]) is None)
        raise BadInput(f"{what} {bad!r:.80} is not 0x and {width} bytes of hex")
    return found


def unhex_any(texts: pa.StringArray) -> pa.Array | None:
    """`0x…` texts of any length as binary; None if one is not hex or not of whole bytes."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    lengths = np.diff(offsets) - 2
    if texts.null_count or (lengths < 0).any() or (lengths & 1).any():
        return None
    letters = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts = offsets[:-1] - offsets[0]
    if (letters[starts] != ord("0")).any() or ((letters[starts + 1] | 32) != ord("x")).any():
        return None
    is_digit = np.ones(len(letters), np.bool_)
    is_digit[starts] = is_digit[starts + 1] = False
    nibbles = NIBBLES[letters[is_digit]]
    if (nibbles > 15).any():
        return None
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(lengths // 2, out=ends[1:])
    data = np.ascontiguousarray(nibbles[0::2] << 4 | nibbles[1::2])
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def fixed(rows: Bytes) -> pa.Array:
    """Rows of bytes as an Arrow array of that width."""
    buffer = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, buffer])
