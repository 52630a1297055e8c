"""Keys found in columns as files give them, and the newest rows of a state."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainlake.serve.state_rows import _newest, _places

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
