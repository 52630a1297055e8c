"""Entries of the index in bundles: nothing is lost on the way, and a part is sealed as if it had never been split."""

from collections import Counter
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainlake.logs import postings
from chainlake.logs.postings import (
    ROWS,
    SIGNATURES,
    STREAMS,
    TALLY,
    packed_rows,
    part_of,
    route_blocks,
    route_chunks,
    route_logs,
    route_rows,
    route_tails,
    seal_part,
    tallied,
)
from chainlake.logs.seal import Sealing, seal, seal_all
from chainlake.logs.streams import HASH_MASK, KIND_SHIFT, Kind, stream_of

FEW = partial(seal, sealing=Sealing(5))
IDS = st.integers(0, 1 << 40)
VALUES = st.one_of(
    st.just(0), st.builds(lambda kind, value: kind << KIND_SHIFT | value, st.sampled_from(list(Kind)), st.integers(0, 9))
)
MADE = st.lists(st.tuples(IDS, *[VALUES] * len(STREAMS)), max_size=60)


def frames(rows: list[tuple[int, ...]], size: int) -> list[pa.RecordBatch]:
    columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    whole = (
        pa.record_batch(columns, ["id", *STREAMS]) if rows else pa.record_batch([pa.array([], pa.int64())] * 6, ["id", *STREAMS])
    )
    return [whole.slice(at, size) for at in range(0, max(1, len(rows)), size)]


def sealed(bundles: list[pa.RecordBatch], parts: int, how: object = FEW) -> list[dict[str, object]]:
    table = (
        pa.Table.from_batches(bundles)
        if bundles
        else pa.table({"part": pa.array([], pa.int32()), "entries": pa.array([], pa.binary())})
    )
    rows = []
    for part in range(parts):
        of_part = table.filter(pc.equal(table["part"], part)).to_batches()
        for kind in ROWS:
            of_kind = [batch.filter(pc.equal(batch["kind"], kind)) for batch in seal_part(of_part, how)]  # type: ignore[arg-type]
            rows += [row | {"kind": kind} for batch in packed_rows(of_kind) for row in batch.to_pylist()]
    return rows


def directly(pairs: list[tuple[int, int]]) -> list[dict[str, object]]:
    both = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    found = FEW(both[:, 0], both[:, 1])
    return [row for rows in (found.chunks, found.manifests, found.tails) for row in rows.to_pylist()]


def without_gaps(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{key: value for key, value in row.items() if value is not None and key != "kind"} for row in rows]


def in_order(rows: list[dict[str, object]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@given(MADE, st.integers(1, 5), st.integers(1, 40), st.sampled_from([1, 50, 1 << 20]))
def test_rows_are_sealed_by_parts_as_they_would_be_at_once(
    rows: list[tuple[int, ...]], parts: int, size: int, bundle: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "_BUNDLE", bundle)
        bundles = list(route_rows(frames(rows, size), parts))
    pairs = [(stream, row[0]) for row in rows for stream in row[1:] if stream]
    assert in_order(without_gaps(sealed(bundles, parts))) == in_order(directly(pairs))


@given(MADE, st.integers(1, 4))
def test_what_was_sealed_is_routed_again_whole(rows: list[tuple[int, ...]], parts: int) -> None:
    pairs = sorted({(stream, row[0]) for row in rows for stream in row[1:] if stream})
    both = np.array(pairs, np.int64).reshape(-1, 2)
    first = FEW(both[:, 0], both[:, 1])
    bundles = [*route_tails([first.tails], parts), *route_chunks([first.chunks], parts)]
    assert in_order(sealed(bundles, parts, seal_all)) == in_order(
        sealed(list(route_rows(frames([(i, s, 0, 0, 0, 0) for s, i in pairs], 50), parts)), parts, seal_all)
    )


TOPIC0S = st.none() | st.sampled_from([b"a" * 32, b"b" * 32, b"c" * 32])
LOGS = st.lists(st.tuples(IDS, TOPIC0S, st.integers(100, 105)), min_size=1, max_size=60)


@given(LOGS, st.integers(1, 4), st.integers(1, 40))
def test_logs_also_tell_which_signatures_each_block_has(logs: list[tuple[int, bytes | None, int]], parts: int, size: int) -> None:
    streams = [0 if topic0 is None else stream_of(Kind.TOPIC0, topic0) for _, topic0, _ in logs]
    plain = frames([(number, 0, stream, 0, 0, 0) for (number, _, _), stream in zip(logs, streams, strict=True)], size)
    whole = pa.Table.from_batches(plain).append_column("block_number", pa.array([block for _, _, block in logs], pa.int64()))
    whole = whole.append_column("topic0", pa.array([topic0 for _, topic0, _ in logs], pa.binary()))
    batches = whole.combine_chunks().to_batches(max_chunksize=size)
    found = pa.Table.from_batches(route_logs(batches, parts))
    counted: Counter[tuple[bytes, int]] = Counter()
    for row in (r for b in packed_rows(found.filter(pc.equal(found["part"], SIGNATURES)).to_batches()) for r in b.to_pylist()):
        counted[row["topic0"], row["block_number"]] += row["count"]
    assert counted == Counter((topic0, block) for _, topic0, block in logs if topic0 is not None)
    blocks = [(block, 0, 0, stream_of(Kind.TOPIC0_BLOCK, topic0), 0, 0) for topic0, block in counted]
    expected = [*route_rows(plain, parts), *route_rows(frames(blocks, 50), parts)]
    assert in_order(sealed(found.filter(pc.greater_equal(found["part"], 0)).to_batches(), parts)) == in_order(
        sealed(expected, parts)
    )


def told(bundles: list[pa.RecordBatch]) -> tuple[Counter[str], str | None]:
    """What tasks counted, of which several work side by side."""
    return tallied(row["entries"] for batch in bundles for row in batch.to_pylist() if row["part"] == TALLY)


def test_all_that_is_routed_is_counted() -> None:
    rows = frames([(number, 0, stream_of(Kind.TOPIC0, b"a" * 32), 0, 0, 0) for number in range(70)], 20)
    blocks = [batch.append_column("log_count", pa.array([3] * batch.num_rows, pa.int32())) for batch in rows]
    topic0s = [pa.array([b"a" * 32] * batch.num_rows) for batch in rows]
    logs = [
        batch.append_column("block_number", batch.column("id")).append_column("topic0", topic0)
        for batch, topic0 in zip(rows, topic0s, strict=True)
    ]
    assert told([*route_logs(logs[:2], 3), *route_logs(logs[2:], 3), *route_blocks(blocks, 3)]) == (
        {"logs": 70, "blocks": 70, "expected_logs": 210},
        None,
    )
    assert told([*route_logs([], 3), *route_blocks([], 3)]) == ({}, None)
    made = FEW(np.full(12, 7, np.int64), np.arange(12))
    assert told([*route_tails([made.tails], 2), *route_chunks([made.chunks], 2)]) == ({"tails": 1, "chunks": 2}, None)


def test_a_damaged_chunk_is_told_by_name_and_the_others_are_routed() -> None:
    made = FEW(np.full(15, 7, np.int64), np.arange(15)).chunks
    good = made.column("chunk").to_pylist()
    bad = [good[0], good[1][:-1] + b"?", good[2]]
    bundles = list(route_chunks([made.set_column(made.schema.get_field_index("chunk"), "chunk", pa.array(bad, pa.binary()))], 1))
    counts, damage = told(bundles)
    assert counts == {"chunks": 3} and damage is not None
    assert damage.startswith("chunk 5 of stream 0x0000000000000007 is damaged: checksum is 0x")
    entries = np.frombuffer(next(row["entries"] for batch in bundles for row in batch.to_pylist() if row["part"] == 0), np.int64)
    assert entries[len(entries) // 2 :].tolist() == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


def test_parts_are_ranges_of_streams_of_about_the_same_weight() -> None:
    rng = np.random.default_rng(3)
    weights = np.array(postings.WEIGHTS) / sum(postings.WEIGHTS)
    kinds = rng.choice(len(weights), 50_000, p=weights).astype(np.int64)
    streams = np.sort(kinds << KIND_SHIFT | rng.integers(0, HASH_MASK, 50_000))
    places = part_of(streams, 7)
    assert (np.diff(places) >= 0).all() and set(places) == set(range(7))
    counts = np.bincount(places)
    assert counts.max() < 1.1 * counts.min()
    assert part_of(np.array([int(Kind.BLOCK_HASH) << KIND_SHIFT | HASH_MASK]), 7).tolist() == [6]
