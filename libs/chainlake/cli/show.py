"""Plain tables for the terminal, and JSON for scripts."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from chainlake.plain import to_plain


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns aligned, numbers to the right."""
    cells = [[_text(value) for value in row] for row in rows]
    widths = [max(len(h), *(len(row[i]) for row in cells)) if cells else len(h) for i, h in enumerate(headers)]
    numeric = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(headers))]

    def line(values: Sequence[str]) -> str:
        parts = [v.rjust(w) if n else v.ljust(w) for v, w, n in zip(values, widths, numeric, strict=True)]
        return "  ".join(parts).rstrip()

    return "\n".join([line(list(headers)), line(["─" * width for width in widths]), *(line(row) for row in cells)])


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
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("-", "").removesuffix(" s").isdigit() or text == "-"
