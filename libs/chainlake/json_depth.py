"""How deeply JSON is nested, told before it is parsed.

Python's parser relies on the interpreter's recursion limit. Some libraries raise that to where the stack ends first, and the
process with it; so whatever comes from outside is measured beforehand.
"""

import re

import numpy as np

MOST_DEPTH = 500
_OPENING = np.isin(np.arange(256), list(b"[{"))
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)
"""A text, or what begins as one and does not end: then all the rest is taken, so that no place of it is tried again."""
_PLAIN_TEXT = re.compile(rb'"[^"]*(?:"|\Z)')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NO_MARKS = bytes(set(range(256)) - set(b'[]{}"'))


def is_deeper(body: bytes, depth: int) -> bool:
    """Whether arrays and objects are nested more deeply."""
    if body.count(b"[") + body.count(b"{") <= depth:
        return False
    outside = _TEXT.sub(b"", body) if b"\\" in body else _PLAIN_TEXT.sub(b"", body.translate(None, _NO_MARKS))
    brackets = np.frombuffer(outside.translate(None, _NO_BRACKETS), np.uint8)
    levels = np.cumsum(np.where(_OPENING[brackets], 1, -1))
    return bool(len(levels)) and int(levels.max()) > depth
