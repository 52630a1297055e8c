"""JSON of strangers: the depth is bounded whatever the interpreter would bear."""

import sys

import pytest

from chainlake.serve.json_text import MOST_DEPTH, is_deeper, parse


def test_deep_nesting_is_refused_even_where_a_library_has_raised_the_recursion_limit() -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(2**31 - 1)
    try:
        for body in (b"[" * 1_000_000, b'{"a":' * 200_000, b'["\\ud800",' * 100_000, b'["' + b"[" * 600 + b'"' + b"[" * 100_000):
            with pytest.raises(ValueError, match="nested too deeply"):
                parse(body)
    finally:
        sys.setrecursionlimit(before)


def test_only_what_is_nested_counts() -> None:
    assert parse(b"[" * MOST_DEPTH + b"]" * MOST_DEPTH)
    assert not is_deeper(b"[" + b"[]," * 5000 + b"[]]", 3)
    assert not is_deeper(b'{"a": "' + b"[{" * 5000 + b'\\""}', 2)
    assert is_deeper(b"[[[]]]", 2) and not is_deeper(b"[[[]]]", 3)
