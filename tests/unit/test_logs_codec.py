"""Chunk bytes, stream numbers and sealing: formats that are stored for good."""

import random
import zlib
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from chainlake.errors import BadInput
from chainlake.logs.checks import _broken
from chainlake.logs.codec import BadChunk, bitmap_of, decode_chunk, encode_chunk, values_of
from chainlake.logs.seal import CHUNKS, MANIFESTS, TAILS, Sealed, Sealing, seal, seal_all
from chainlake.logs.streams import HASH_MASK, KIND_SHIFT, LOCAL_BITS, LOCAL_MASK, Kind, stream_of, streams_of

LOCALS = st.lists(st.integers(0, LOCAL_MASK), min_size=1, max_size=300, unique=True).map(sorted)
PAIRS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5 << LOCAL_BITS)), max_size=200)
CROWDED = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 60)), max_size=200)


def test_a_chunk_has_these_bytes() -> None:
    payload = BitMap([3, 5, 1000]).serialize()
    header = b"\x01" + (3).to_bytes(4, "big") + (1000).to_bytes(4, "big") + (3).to_bytes(4, "big")
    crc = zlib.crc32(header + payload).to_bytes(4, "big")
    assert encode_chunk(np.array([3, 5, 1000])) == header + crc + payload
    assert encode_chunk(np.array([7])).hex() == "010000000700000007000000019d6ae51b3a3000000100000000000000100000000700"
    assert encode_chunk(np.arange(5, 25)).hex() == "0100000005000000180000001431bfb6943b3000000100001300010005001300"


@given(LOCALS)
def test_what_is_encoded_is_decoded(values: list[int]) -> None:
    chunk = decode_chunk(encode_chunk(np.array(values)))
    assert values_of(chunk.bitmap).tolist() == values
    assert (chunk.min, chunk.max, chunk.count) == (values[0], values[-1], len(values))


@given(LOCALS, st.data())
def test_any_changed_byte_is_noticed(values: list[int], data: st.DataObject) -> None:
    chunk = bytearray(encode_chunk(np.array(values)))
    chunk[data.draw(st.integers(0, len(chunk) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadChunk):
        decode_chunk(bytes(chunk))


@given(LOCALS, st.integers(0, 40))
def test_a_chunk_that_was_cut_or_extended_is_noticed(values: list[int], cut: int) -> None:
    chunk = encode_chunk(np.array(values))
    for wrong in (chunk[: len(chunk) - 1 - cut % len(chunk)], chunk + b"\0", b""):
        with pytest.raises(BadChunk):
            decode_chunk(wrong)


def test_a_header_that_contradicts_its_bitmap_is_noticed_even_with_a_right_checksum() -> None:
    payload = BitMap([3, 5]).serialize()
    checked = b"\x01" + (3).to_bytes(4, "big") + (5).to_bytes(4, "big") + (3).to_bytes(4, "big")
    with pytest.raises(BadChunk, match="3 entries"):
        decode_chunk(checked + zlib.crc32(checked + payload).to_bytes(4, "big") + payload)
    with pytest.raises(BadChunk, match="no roaring bitmap"):
        decode_chunk(checked + zlib.crc32(checked + b"rubbish").to_bytes(4, "big") + b"rubbish")


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_bitmaps_and_arrays_are_the_same_sets(values: list[int]) -> None:
    assert values_of(bitmap_of(np.array(values, np.uint32))).tolist() == sorted(set(values))


def test_streams_have_the_numbers_that_spark_gives() -> None:
    """xxhash64(X'…') of Spark 4.1, which is seeded with 42."""
    assert stream_of(Kind.ADDRESS, b"") == 1 << 60 | -7444071767201028348 & HASH_MASK
    assert stream_of(Kind.TOPIC0, b"Spark") == 2 << 60 | stream_of(Kind.BLOCK_HASH, b"Spark") & HASH_MASK
    assert all(stream_of(kind, b"x" * 32) >> KIND_SHIFT == kind < 8 for kind in Kind), "positive in 64 bits"
    assert streams_of(Kind.ADDRESS, [b"b", b"a", b"b"]).tolist() == sorted({stream_of(Kind.ADDRESS, v) for v in (b"a", b"b")})


def entry(shard: int, local: int) -> int:
    return shard << LOCAL_BITS | local


def entries_of(sealed: Sealed) -> dict[int, list[int]]:
    """All entries by stream, in the order in which they are stored; fails if manifests and chunks disagree."""
    found: dict[int, list[int]] = defaultdict(list)
    listed = [(row["stream"], row["shard"], *ref.values()) for row in sealed.manifests.to_pylist() for ref in row["refs"]]
    columns = ("stream", "shard", "chunk_seq", "min_local", "max_local", "count")
    assert listed == [tuple(row[name] for name in columns) for row in sealed.chunks.to_pylist()]
    for row in sealed.chunks.to_pylist():
        values = values_of(decode_chunk(row["chunk"]).bitmap).tolist()
        assert row["chunk_seq"] == entry(row["shard"], row["min_local"]) and values[0] == row["min_local"]
        found[row["stream"]] += [entry(row["shard"], value) for value in values]
    for row in sealed.manifests.to_pylist():
        assert row["count"] == sum(ref["count"] for ref in row["refs"])
    for row in sealed.tails.to_pylist():
        values = row["locals"]
        assert (row["min_local"], row["max_local"], row["count"]) == (values[0], values[-1], len(values))
        found[row["stream"]] += [entry(row["shard"], value) for value in values]
    return found


def expected(pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    return {stream: sorted({i for s, i in pairs if s == stream}) for stream, _ in pairs}


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Sorted by stream, ids as they come."""
    both = np.array(sorted(pairs, key=lambda pair: pair[0]), np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


@given(st.one_of(PAIRS, CROWDED), st.sampled_from([1, 2, 7, 1950]), st.booleans())
def test_sealing_keeps_every_entry_once(pairs: list[tuple[int, int]], entries: int, everything: bool) -> None:
    sealed = (seal_all if everything else seal)(*arrays(pairs), Sealing(entries))
    assert {stream: sorted(ids) for stream, ids in entries_of(sealed).items()} == expected(pairs)
    assert all(row["count"] == entries or everything for row in sealed.chunks.to_pylist())
    tails = [row["count"] for row in sealed.tails.to_pylist()]
    assert all(count < (min(8, entries) if everything else entries) for count in tails)
    for rows, schema in ((sealed.chunks, CHUNKS), (sealed.manifests, MANIFESTS), (sealed.tails, TAILS)):
        places = list(zip(rows["stream"].to_pylist(), rows["shard"].to_pylist(), strict=True))
        assert rows.schema.equals(schema) and places == sorted(places)


def test_no_chunk_is_larger_than_its_bound() -> None:
    rng = random.Random(1)
    spread = np.array(sorted(rng.sample(range(1 << 24), 30_000)))
    for sealing in (Sealing(10**6, 4096), Sealing(10**6, 200), Sealing(), Sealing(10**6)):
        sealed = seal(np.full(len(spread), 5), spread, sealing)
        assert 0 < max(len(row["chunk"]) for row in sealed.chunks.to_pylist()) <= sealing.max_bytes
    with pytest.raises(BadInput, match="hold nothing"):
        seal(spread[:0], spread[:0], Sealing(max_bytes=30))


def test_ids_too_large_for_the_fast_sort_are_sorted_as_well() -> None:
    pairs = [(stream, (1 << 62) - step * 7 % 5) for stream in range(5) for step in range(9)]
    assert {s: sorted(ids) for s, ids in entries_of(seal(*arrays(pairs), Sealing(2))).items()} == expected(pairs)


def test_verify_names_chunks_that_are_damaged_or_not_what_their_columns_say() -> None:
    sealed = seal_all(np.repeat([1, 2, 3], 20), np.tile(np.arange(20), 3)).chunks.to_pylist()
    assert [row["stream"] for row in sealed] == [1, 2, 3]
    sealed[0]["chunk"] = sealed[0]["chunk"][:-1] + b"?"
    sealed[1]["count"] += 1
    (found,) = _broken([pa.RecordBatch.from_pylist(sealed, schema=CHUNKS)])
    (one, crc), (two, columns) = zip(found["stream"].to_pylist(), found["reason"].to_pylist(), strict=True)
    assert (one, two, columns) == (1, 2, "its columns and its header differ") and crc.startswith("checksum is 0x")
