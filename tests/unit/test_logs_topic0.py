"""Statistics of signatures, kept up commit by commit, against counting all blocks of the window anew."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from chainlake.logs import topic0
from chainlake.logs.packing import packed
from chainlake.logs.rules import mode_of
from chainlake.logs.topic0 import SIGNATURES, signatures_of, topic0_rows

STATE = pa.schema(
    [
        *(("topic0", pa.binary()), ("logs", pa.int64()), ("blocks_with", pa.int64()), ("window_blocks", pa.int64())),
        *(("share", pa.float64()), ("mode", pa.string())),
        ("steps", pa.map_(pa.int64(), pa.struct([("blocks", pa.int64()), ("logs", pa.int64())]))),
        *(("last_block", pa.int64()), ("_deleted", pa.bool_()), ("_height", pa.int64())),
    ]
)


def with_height(rows: pa.Table, height: int) -> pa.Table:
    columns = {**{name: rows[name] for name in rows.column_names}, "_height": pa.array([height] * rows.num_rows, pa.int64())}
    return pa.table([columns[name] for name in STATE.names], schema=STATE)


def bundles(found: Counter[tuple[bytes, int]], cuts: int) -> pa.ChunkedArray:
    """Packed as the passes over logs leave them: a block may be cut, so that some of its logs are in another bundle."""
    rows: list[list[tuple[bytes, int, int]]] = [[] for _ in range(cuts)]
    for (name, block), count in found.items():
        for at, part in enumerate(sorted({0, count // 2, count})[1:]):
            rows[(block + at) % cuts].append((name, block, part - (count // 2 if at else 0)))
    named = [[dict(zip(SIGNATURES.names, row, strict=True)) for row in one] for one in rows]
    return pa.chunked_array([pa.array([packed(pa.RecordBatch.from_pylist(one, SIGNATURES)) for one in named], pa.binary())])


def test_counts_and_modes_are_those_of_the_window_and_other_rows_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic0, "STEP_BLOCKS", 10)
    monkeypatch.setattr(topic0, "WINDOW_STEPS", 5)
    rng = random.Random(3)
    names = [b"%032d" % number for number in range(40)]
    versions, state = STATE.empty_table(), dict[bytes, dict[str, object]]()
    every: Counter[tuple[bytes, int]] = Counter()
    first = high = 7
    written = deleted = 0
    for _ in range(30):
        low, high = high, high + rng.choice((1, 3, 9, 25))
        active = rng.sample(names, 12)
        fresh: Counter[tuple[bytes, int]] = Counter()
        for block in range(low + 1, high + 1):
            fresh.update((rng.choice(active), block) for _ in range(rng.choice((0, 1, 4))))
        every += fresh
        rows = with_height(topic0_rows(versions, signatures_of(bundles(fresh, 3)), first, high), high)
        versions = pa.concat_tables([versions, rows])

        start = (high // 10 - 5 + 1) * 10
        window = high - max(first, start - 1)
        inside = {key: count for key, count in every.items() if key[1] >= start}
        changed = set()
        for name in names:
            counts = [count for (one, _), count in inside.items() if one == name]
            blocks, logs = len(counts), sum(counts)
            before = state.get(name)
            if not logs and before is None:
                continue
            mode = mode_of(blocks / window, str(before["mode"]) if before else None)
            again = any(one == name for one, _ in fresh)
            if again or before is None or (logs, blocks, mode) != (before["logs"], before["blocks_with"], before["mode"]):
                changed.add(name)
                last = max(block for n, block in every if n == name)
                state[name] = {"logs": logs, "blocks_with": blocks, "mode": mode, "last_block": last, "window_blocks": window}
            if not logs:
                del state[name]
                deleted += 1
        found = {row["topic0"]: row for row in rows.to_pylist()}
        assert found.keys() == changed
        for name, row in found.items():
            assert row["_deleted"] == (name not in state)
            if name in state:
                assert {key: row[key] for key in state[name]} == state[name]
                assert row["share"] == row["blocks_with"] / window
                assert sum(one["logs"] for _, one in row["steps"]) == row["logs"]
        written += len(found)
    assert deleted > 5 and written > 100


def test_a_chain_without_logs_has_no_rows() -> None:
    nothing = signatures_of(pa.chunked_array([], pa.binary()))
    assert topic0_rows(STATE.empty_table(), nothing, 0, 5).num_rows == 0
