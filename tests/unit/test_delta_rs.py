"""Control tables appended to by processes that keep them open: whatever others wrote, moved or made anew is seen."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import Field, write_deltalake

from chainlake.lake import delta_rs
from chainlake.lake.delta_rs import PACK_AFTER, Turn, append, open_table, read, vacuum
from chainlake.lake.deltalog import HARMLESS, DeltaLog


def made(path: Path) -> Path:
    write_deltalake(str(path), pa.schema([("n", pa.int64())]).empty_table())
    return path


def numbers(path: Path) -> list[int]:
    found: list[int] = sorted(read(path)["n"].to_pylist())
    return found


def test_a_table_is_opened_once_and_kept_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = made(tmp_path / "t"), []
    monkeypatch.setattr(delta_rs, "open_table", lambda place: opened.append(place) or open_table(place))
    for n in range(4):
        append(path, [{"n": n}])
        write_deltalake(str(path), pa.table({"n": [10 + n]}), mode="append")
    assert opened == [path]
    assert numbers(path) == [0, 1, 2, 3, 10, 11, 12, 13]


def test_a_turn_that_another_writer_took_is_seen_by_one_who_keeps_the_table_open(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    append(path, [{"n": 1}], turn=Turn("lane", 1))
    mine = delta_rs._opened.pop(path)
    append(path, [{"n": 2}], turn=Turn("lane", 2))
    delta_rs._opened[path] = mine
    append(path, [{"n": 22}], turn=Turn("lane", 2))
    assert numbers(path) == [1, 2], "the late one wrote nothing"
    append(path, [{"n": 3}], turn=Turn("lane", 3))
    assert numbers(path) == [1, 2, 3]


def test_a_column_that_came_meanwhile_is_written(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    append(path, [{"n": 1}])
    open_table(path).alter.add_columns([Field("later", "long")])
    append(path, [{"n": 2, "later": 7}])
    assert read(path).sort_by("n").to_pylist() == [{"n": 1, "later": None}, {"n": 2, "later": 7}]


def test_a_table_made_anew_at_the_same_place_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    for n in range(3):
        append(path, [{"n": n}])
    shutil.rmtree(path)
    made(path)
    for n in range(5):
        append(path, [{"n": 100 + n}])
    assert numbers(path) == [100, 101, 102, 103, 104]


def test_without_its_first_version_a_table_is_opened_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = made(tmp_path / "t"), []
    append(path, [{"n": 0}])
    open_table(path).create_checkpoint()
    os.unlink(path / "_delta_log" / f"{0:020d}.json")
    monkeypatch.setattr(delta_rs, "open_table", lambda place: opened.append(place) or open_table(place))
    for n in (1, 2):
        append(path, [{"n": n}])
    assert opened == [path, path] and numbers(path) == [0, 1, 2]


def test_small_files_are_packed_and_large_ones_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    write_deltalake(str(path), pa.schema([("n", pa.int64()), ("text", pa.binary())]).empty_table())
    monkeypatch.setattr(delta_rs, "PACKED_BYTES", 10_000)
    for n in range(8 * PACK_AFTER):
        before = _sizes(path)
        append(path, [{"n": n, "text": os.urandom(2_000)}])
        after = _sizes(path)
        assert len(after) <= PACK_AFTER + 2 * sum(after.values()) / 10_000
        assert sum(size for name, size in before.items() if name not in after) <= 10_000 + PACK_AFTER * 3_000
    assert numbers(path) == list(range(8 * PACK_AFTER))


def _sizes(path: Path) -> dict[str, int]:
    files = pa.table(open_table(path).get_add_actions(flatten=True)).to_pylist()
    return {one["path"]: one["size_bytes"] for one in files}


def test_what_packing_replaced_goes_once_the_retention_is_over(tmp_path: Path) -> None:
    """Else a lake would keep a file for every row of its control tables for good."""
    kept, freed = made(tmp_path / "kept"), tmp_path / "freed"
    gone = {"delta.deletedFileRetentionDuration": "interval 0 days"}
    write_deltalake(str(freed), pa.schema([("n", pa.int64())]).empty_table(), configuration=gone)
    for path in (kept, freed):
        for n in range(2 * PACK_AFTER):
            append(path, [{"n": n}], turn=Turn("lane", n + 1))
        before = set(path.glob("*.parquet"))
        vacuum(path)
        live = {Path(one) for one in open_table(path).file_uris()}
        assert set(path.glob("*.parquet")) == (before if path == kept else live) and len(live) < PACK_AFTER < len(before)
        append(path, [{"n": 99}], turn=Turn("lane", 99))
        append(path, [{"n": 98}], turn=Turn("lane", 98))
        assert numbers(path) == [*range(2 * PACK_AFTER), 99], "and turns are remembered"
        operations = {one.operation for one in DeltaLog(None, "t", path).all()}
        assert operations - HARMLESS == {"WRITE"}, "nothing that verify would miss an explanation of"
