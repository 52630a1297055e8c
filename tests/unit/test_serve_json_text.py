"""JSON of strangers: the depth is bounded whatever the interpreter would bear."""

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainlake.errors import BadInput
from chainlake.json_depth import MOST_DEPTH, is_deeper
from chainlake.serve.json_text import parse
from chainlake.sources import json_text as sources
from chainlake.sources.evm_line import parse_line


def test_deep_nesting_is_refused_even_where_a_library_has_raised_the_recursion_limit() -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(2**31 - 1)
    try:
        for body in (b"[" * 1_000_000, b'{"a":' * 200_000, b'["\\ud800",' * 100_000, b'["' + b"[" * 600 + b'"' + b"[" * 100_000):
            with pytest.raises(ValueError, match="nested too deeply"):
                parse(body)
    finally:
        sys.setrecursionlimit(before)


DEEP = (
    "[" * 1_000_000,
    '{"a":' * 200_000,
    '{"block": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}",
    '{"block":{"a":' + "[" * 800 + "]" * 800 + '},"logs":[]}',
    '{"block": {}, "receipts": [' + "[" * 100_000,
)


def test_deep_blocks_are_refused_by_every_way_into_a_source_too() -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(2**31 - 1)
    try:
        for text in DEEP:
            for read in (sources.parse, lambda t: list(sources.documents(t)), lambda t: parse_line(t.encode(), "file", 0)):
                with pytest.raises(BadInput, match="nested too deeply"):
                    read(text)
    finally:
        sys.setrecursionlimit(before)


def test_only_what_is_nested_counts() -> None:
    assert parse(b"[" * MOST_DEPTH + b"]" * MOST_DEPTH)
    assert not is_deeper(b"[" + b"[]," * 5000 + b"[]]", 3)
    assert not is_deeper(b'{"a": "' + b"[{" * 5000 + b'\\""}', 2)
    assert is_deeper(b"[[[]]]", 2) and not is_deeper(b"[[[]]]", 3)


@pytest.mark.parametrize("text", [b'\\"', b"\\", b'\\\\\\"', b"a"])
def test_a_text_without_an_end_takes_no_longer_than_it_is_long(text: bytes) -> None:
    body = b"[" * (MOST_DEPTH + 1) + b'"' + text * ((1 << 20) // len(text))
    started = time.process_time()
    with pytest.raises(ValueError, match="nested too deeply"):
        parse(body)
    assert time.process_time() - started < 1.5


@given(st.lists(st.sampled_from([b'"', b"\\", b"[", b"]", b"a"]), max_size=30))
def test_brackets_count_outside_of_texts_only(pieces: list[bytes]) -> None:
    depth, most, inside, escaped = 0, 0, False, False
    for piece in pieces:
        if inside:
            inside, escaped = escaped or piece != b'"', not escaped and piece == b"\\"
        else:
            inside, escaped = piece == b'"', False
            depth += (piece == b"[") - (piece == b"]")
            most = max(most, depth)
    assert all(is_deeper(b"".join(pieces), bound) == (most > bound) for bound in range(5))
