"""Deliveries that carry no hash of their own (raft, river): each is hashed over its parent's hash.

So a reader must know the hash of what came before its first delivery. Mid-file that is the cursor's. When a file is
read again from its beginning, it is known only if the file starts the chain or continues what the lake holds.
"""

from chainlake.errors import BadInput
from chainlake.sources.base import ZERO_HASH, Cursor

UNKNOWN_PARENT = b""


def parent_at_start(first: int, cursor: Cursor | None) -> bytes:
    """The parent hash of the first delivery of a file; `UNKNOWN_PARENT` when nothing tells it."""
    if cursor is None or first == 1:
        return ZERO_HASH
    return cursor.hash if first == cursor.height + 1 else UNKNOWN_PARENT


def check_parent(parent: bytes, height: int) -> None:
    """Refuses a delivery whose hash cannot be computed."""
    if parent == UNKNOWN_PARENT:
        raise BadInput(
            f"delivery {height} is neither 1 nor the one after the last that the lake holds, so its parent hash is "
            "unknown: give the files from delivery 1 on, or those that continue the chain"
        )
