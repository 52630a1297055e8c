"""Deterministic generators of realistic chains: the same seed gives the same bytes, everywhere.

A longer chain begins with the blocks of a shorter one of the same seed (raft: in steps of ten deliveries), so a demo
can grow.
"""

import os
from collections.abc import Iterable
from pathlib import Path


def write_pieces(path: Path, pieces: Iterable[bytes]) -> Path:
    """Writes a file whole or not at all: a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with open(draft, "wb") as stream:
            stream.writelines(pieces)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return path
