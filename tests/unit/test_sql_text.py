"""`lake sql`: the text of a query in pieces, and values as JSON has them."""

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from chainlake.errors import BadInput
from chainlake.lake.sql import check_functions, check_readonly
from chainlake.lake.sql_text import split_statements, strip_comments, tokens
from chainlake.plain import to_plain


@given(st.text(alphabet="ab -/*'\"\\\n`;", max_size=40))
def test_the_pieces_together_are_the_text(text: str) -> None:
    assert "".join(part for _, part in tokens(text)) == text


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("SELECT 1", [("code", "SELECT 1")]),
        ("a -- b\nc", [("code", "a "), ("comment", "-- b"), ("code", "\nc")]),
        ("a /* b\nc */ d", [("code", "a "), ("comment", "/* b\nc */"), ("code", " d")]),
        ("'a -- b'", [("quoted", "'a -- b'")]),
        ('"a /* b"', [("quoted", '"a /* b"')]),
        (r"'it\'s' -- x", [("quoted", r"'it\'s'"), ("code", " "), ("comment", "-- x")]),
        ("'it''s'", [("quoted", "'it'"), ("quoted", "'s'")]),
        ("/* 'a */ 'b'", [("comment", "/* 'a */"), ("code", " "), ("quoted", "'b'")]),
        ("-- it's\nraw.blocks", [("comment", "-- it's"), ("code", "\nraw.blocks")]),
    ],
)
def test_comments_and_quoted_parts_are_told_from_code(text: str, pieces: list[tuple[str, str]]) -> None:
    assert list(tokens(text)) == pieces


def test_minus_and_division_are_code() -> None:
    assert {kind for kind, _ in tokens("a - b / c * d -e")} == {"code"}


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("-- hidden\nSELECT 1", "\nSELECT 1"),
        ("/* DROP TABLE x */SELECT '-- kept' -- gone", "SELECT '-- kept' "),
        ("SELECT 1 /* a */ + /* b */ 2", "SELECT 1  +  2"),
        ("SELECT '/*' || '*/'", "SELECT '/*' || '*/'"),
        ("", ""),
    ],
)
def test_comments_go_and_strings_stay(text: str, stripped: str) -> None:
    assert strip_comments(text) == stripped


class Like:
    """Something with `asDict`, as Spark's Row has it."""

    def asDict(self) -> dict[str, Any]:
        return {"a": b"\x01"}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (1.5, 1.5),
        ("0x", "0x"),
        (b"\x00\xff", "0x00ff"),
        (bytearray(b"\x01"), "0x01"),
        (b"", "0x"),
        (Decimal("3.00"), 3),
        (Decimal("1" * 38), int("1" * 38)),
        (Decimal("-0.5"), -0.5),
        (datetime(2026, 1, 31, 12, tzinfo=timezone.utc), "2026-01-31T12:00:00+00:00"),
        (date(2026, 1, 31), "2026-01-31"),
        ([b"\x01", [b"\x02"]], ["0x01", ["0x02"]]),
        ((1, b"\x01"), [1, "0x01"]),
        ({"a": b"\x01", "b": {"c": Decimal(2)}}, {"a": "0x01", "b": {"c": 2}}),
        ({1: "a", b"\x02": "b"}, {"1": "a", "0x02": "b"}),
        (Row(a=b"\x01", b=[Row(c=Decimal("1.5"))]), {"a": "0x01", "b": [{"c": 1.5}]}),
        (Like(), {"a": "0x01"}),
        ([Like()], [{"a": "0x01"}]),
        (timedelta(days=1, milliseconds=500), 86400.5),
        (float("nan"), None),
        ([float("inf"), -float("inf")], [None, None]),
        (Decimal("Infinity"), None),
        (np.int64(7), 7),
        (np.float64(1.5), 1.5),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_values_become_what_json_has(value: Any, plain: Any) -> None:
    found = to_plain(value)
    assert found == plain and type(found) is type(plain)
    assert json.loads(json.dumps(found)) == plain


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(timedelta(days=1), id="interval"),
        pytest.param(float("nan"), id="nan"),
        pytest.param([float("inf")], id="infinity"),
        pytest.param(Decimal("NaN"), id="decimal"),
        pytest.param({"a": object()}, id="unknown"),
    ],
)
def test_every_value_that_a_query_can_give_is_json(value: Any) -> None:
    json.dumps(to_plain(value), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT 1", "query"),
        ("  -- why\n/* DROP */ with a AS (SELECT 1) SELECT * FROM a;", "query"),
        ("(SELECT 1)", "query"),
        ("VALUES (1)", "query"),
        ("DESCRIBE raw.blocks", "look"),
        ("explain SELECT 1", "look"),
    ],
)
def test_reading_is_told_by_the_first_word(text: str, kind: str) -> None:
    assert check_readonly(text) == kind


@pytest.mark.parametrize(
    ("text", "named"),
    [("DROP TABLE a", "DROP"), ("-- SELECT\ninsert INTO a", "INSERT"), ("", "an empty text"), ("; -- x", "an empty text")],
)
def test_anything_but_reading_is_refused(text: str, named: str) -> None:
    with pytest.raises(BadInput, match=f"lake sql only reads: {named} is refused; start with SELECT"):
        check_readonly(text)


def test_a_table_function_is_not_asked_for_the_past_in_vain() -> None:
    with pytest.raises(
        BadInput, match="get_logs says by its own arguments which blocks it is about: leave out --height and --at"
    ):
        check_functions("SELECT * FROM Get_Logs ('c', '{}')", as_of=True)
    check_functions("SELECT * FROM get_logs('c', '{}')", as_of=False)
    check_functions("SELECT get_logs, 'get_logs(x)' FROM raw.blocks -- get_logs(x)", as_of=True)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("a; b ;", ["a", "b"]),
        (" ;; -- x; y\n /* z; */", []),
        ("a 'x; y' \"z;\"; b", ["a 'x; y' \"z;\"", "b"]),
        (r"a 'it\'s; x'; b", [r"a 'it\'s; x'", "b"]),
        ("a -- it's; one\nb", ["a  \nb"]),
        ("a/* ; */b", ["a b"]),
        ("a '-- x'; b", ["a '-- x'", "b"]),
    ],
)
def test_statements_end_at_a_semicolon_outside_quotes_and_comments(text: str, statements: list[str]) -> None:
    assert split_statements(text) == statements
