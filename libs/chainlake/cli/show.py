"""Plain tables for the terminal, and JSON for scripts."""

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from chainlake.plain import to_plain


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns aligned, numbers to the right."""
    cells = [[_text(value) for value in row] for row in rows]
    widths = [max(map(_width, (head, *(row[i] for row in cells)))) for i, head in enumerate(headers)]
    numeric = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(headers))]

    def line(values: Sequence[str]) -> str:
        padded = [(value, " " * (width - _width(value))) for value, width in zip(values, widths, strict=True)]
        parts = [space + value if right else value + space for (value, space), right in zip(padded, numeric, strict=True)]
        return "  ".join(parts).rstrip()

    return "\n".join([line(list(headers)), line([_rule() * width for width in widths]), *(line(row) for row in cells)])


def printable(text: str) -> str:
    """In one line, with nothing that a terminal would obey: chains carry texts of strangers."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def emit(text: str) -> None:
    """To standard output."""
    sys.stdout.write(text + "\n")


def emit_json(value: Any) -> None:
    emit(json.dumps(to_plain(value), ensure_ascii=False, allow_nan=False))


def seconds(value: float) -> str:
    return f"{value:.1f} s"


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return str(value)
    plain = to_plain(value)
    return printable(plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False))


def _width(text: str) -> int:
    """Columns of a terminal: Chinese characters and emoji take two, accents of their own none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def _rule() -> str:
    try:
        "─".encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return "-"
    return "─"


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("-", "").removesuffix(" s").isdigit() or text == "-"
