"""Keys found in columns as files give them, and the newest rows of a state."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from chainlake.errors import BrokenPromise
from chainlake.lake.visibility import ADVANCE, Commit, History
from chainlake.serve.control import LakeControl
from chainlake.serve.embedded import EmbeddedLake, LedgerReader
from chainlake.serve.scan_rows import state_rows
from chainlake.serve.state_rows import FEW_FILES, KeyedRows, StateReader, _newest, _places
from chainlake.serve.visible import Limits
from tests.unit.control_tables import commit_row, made_lake
from tests.unit.damaged_files import cut, flipped, scribble
from tests.unit.shards_lake import AT

CHUNKS = ([], [[]], [[b"a", b"b"]], [[b"a"], [], [b"c", b"a"]])
IMAGES = st.dictionaries(st.tuples(st.sampled_from([b"a", b"b", b""]), st.integers(0, 2), st.integers(0, 9)), st.none())


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
def test_keys_are_found_in_any_chunks_also_in_none(chunks: list[list[bytes]]) -> None:
    keys = pa.chunked_array(chunks, pa.binary())
    assert list(_places(keys, [b"a"])) == [place for place, key in enumerate(keys.to_pylist()) if key == b"a"]


@pytest.mark.parametrize(("kind", "wanted"), [(pa.int32(), [7]), (pa.int64(), [7]), (pa.string(), ["ü"])], ids=str)
def test_keys_of_any_type_are_found(kind: pa.DataType, wanted: list[Any]) -> None:
    assert list(_places(pa.chunked_array([pa.array([*wanted, None, *wanted], kind)]), wanted)) == [0, 2]


@given(IMAGES, st.randoms(use_true_random=False))
def test_of_each_key_the_newest_row_is_kept(images: dict[tuple[bytes, int, int], None], shuffler: Any) -> None:
    rows = list(images)
    shuffler.shuffle(rows)
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(("tx_id", "tx_index", "_height"))})
    newest = {row[:2]: row for row in sorted(rows, key=lambda row: row[2])}
    assert [rows[place] for place in _newest(table, ("tx_id", "tx_index"))] == [row for row in rows if newest[row[:2]] == row]


def test_a_reader_forgets_files_that_the_table_has_no_longer(tmp_path: Path) -> None:
    """Files are packed all the time, and a server that never ends would keep something of each."""
    (tmp_path / "warehouse" / "control" / "ledger" / "_delta_log").mkdir(parents=True)
    rows = KeyedRows(EmbeddedLake(tmp_path), "silver.things", "key", ())
    for height in range(1, 60):
        columns = {"key": [b"a"], "_height": [height], "_commit": [1], "_chain": ["c"]}
        mode: Literal["append", "overwrite"] = "append" if height % 10 else "overwrite"
        write_deltalake(tmp_path / "warehouse" / "store" / "silver_things", pa.table(columns), mode=mode)
        found = [row["_height"] for part in rows.read("c", Limits({1: 100}), [b"a"]) for row in part.to_pylist()]
        assert sorted(found) == list(range(height - height % 10 or 1, height + 1))
        assert len(rows._files) <= 2 * 10 + FEW_FILES


def test_what_was_found_at_the_last_block_of_a_file_is_not_looked_for_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "warehouse" / "control" / "ledger" / "_delta_log").mkdir(parents=True)

    def write(commit: int, *rows: tuple[bytes, int, int]) -> None:
        columns = {
            **{name: pa.array([row[place] for row in rows]) for place, name in enumerate(("key", "_height", "value"))},
            **{"_commit": pa.array([commit] * len(rows)), "_chain": pa.array(["c"] * len(rows))},
            "_deleted": pa.array([False] * len(rows)),
        }
        write_deltalake(tmp_path / "warehouse" / "store" / "silver_things", pa.table(columns), mode="append")

    write(1, (b"a", 1, 10), (b"b", 2, 20), (b"c", 2, 30))
    write(2, (b"a", 3, 11), (b"c", 3, 31), (b"c", 4, 32))
    write(2, *((b"%c" % one, 4, one) for one in b"abdefgh"))
    history = History(
        Commit("silver.things", "things", "c", seq, seq, ADVANCE, base, base + 2, 1, AT) for seq, base in ((1, 0), (2, 2))
    )
    reader = StateReader(EmbeddedLake(tmp_path), "silver.things", "key", ("value",))
    opened: list[str] = []
    file = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda path, **given: opened.append(path) or file(path, **given))

    def asked(height: int, *keys: bytes) -> tuple[dict[bytes, int], int]:
        opened.clear()
        rows = reader.newest("c", history, height, keys)
        return {row["key"]: row["value"] for row in rows}, len(set(opened))

    assert asked(4, b"c") == ({b"c": 32}, 1), "the smaller file of the two that go up to block 4 has it"
    assert asked(4, b"a") == ({b"a": ord("a")}, 1), "only the larger one has it at block 4; what was read before is kept"
    assert asked(4, b"a", b"b", b"c") == ({b"a": ord("a"), b"b": ord("b"), b"c": 32}, 0)
    assert asked(3, b"a", b"c") == ({b"a": 11, b"c": 31}, 1), "the smaller one again, for other rows of it can be seen"
    assert asked(2, b"a", b"c") == ({b"a": 10, b"c": 30}, 1), "the first file had not been opened before"


@pytest.mark.parametrize("how", [cut, scribble, flipped])
def test_a_file_that_cannot_be_read_is_named_whoever_reads_it(tmp_path: Path, how: Callable[[bytes], bytes]) -> None:
    rows = {"key": [b"a"] * 99, "value": range(99), "_height": [1] * 99, "_commit": [1] * 99, "_chain": ["c"] * 99}
    columns = pa.table({**rows, "_deleted": [False] * 99})
    store = tmp_path / "warehouse" / "store" / "silver_things"
    write_deltalake(store, columns, mode="append")
    made_lake(tmp_path, [commit_row(1, 0, 1)])
    lake, reader = EmbeddedLake(tmp_path), StateReader(EmbeddedLake(tmp_path), "silver.things", "key", ("value",))
    history = History([Commit("silver.things", "things", "c", 1, 1, ADVANCE, 0, 1, 1, AT)])
    for path in (tmp_path / "warehouse").rglob("*.parquet"):
        path.write_bytes(how(path.read_bytes()))
    for read in (
        lambda: reader.newest("c", history, 1, [b"a"]),
        lambda: state_rows(lake, history, "silver.things", ["key"], ["value"]),
    ):
        with pytest.raises(
            BrokenPromise, match=r"^silver_things/\S+\.parquet is damaged \(.+\): run lake verify, then lake restore"
        ):
            read()
    for read in (LedgerReader(lake, "c", ["raw.logs"]).refresh, LakeControl(lake).ledger):
        with pytest.raises(BrokenPromise, match=r"^ledger/\S+\.parquet is damaged \(.+\): put warehouse/control back"):
            read()
