"""The text of SQL in pieces, so that what looks like code in a comment or a string is not taken for it."""

import re
from collections.abc import Iterable


def tokens(text: str) -> Iterable[tuple[str, str]]:
    """The text in pieces: comments, quoted parts and the rest."""
    pattern = r"(--[^\n]*|/\*.*?\*/)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([^-/'\"]+|.)"
    for match in re.finditer(pattern, text, re.DOTALL):
        kind = "comment" if match.group(1) else "quoted" if match.group(2) else "code"
        yield kind, match.group(0)


def strip_comments(text: str) -> str:
    """SQL without comments, strings untouched."""
    return "".join(part for kind, part in tokens(text) if kind != "comment")


def split_statements(text: str) -> list[str]:
    """The statements of a script, without comments and empty ones; a `;` in quotes does not end one."""
    parts = [""]
    for kind, piece in tokens(text):
        if kind == "code":
            first, *more = piece.split(";")
            parts[-1] += first
            parts += more
        else:
            parts[-1] += piece if kind == "quoted" else " "
    return [part.strip() for part in parts if part.strip()]
