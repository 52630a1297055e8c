"""Keys found in columns as files give them."""

import pyarrow as pa
import pytest

from chainlake.serve.state_rows import _places

CHUNKS = ([], [[]], [[b"a", b"b"]], [[b"a"], [], [b"c", b"a"]])


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
def test_keys_are_found_in_any_chunks_also_in_none(chunks: list[list[bytes]]) -> None:
    keys = pa.chunked_array(chunks, pa.binary())
    assert list(_places(keys, [b"a"])) == [place for place, key in enumerate(keys.to_pylist()) if key == b"a"]
