"""A trie row in memory: what is known of a branch, of which its row may not have been read yet."""

from typing import Generic, TypeVar

from chainlake.merkle.radix_rows import Leaf

Digest = TypeVar("Digest")

WAYS = 16


class Branch(Generic[Digest]):
    """A row in memory. `cells` is a heap: 16 to 31 are the children's digests, 4 to 7 those of groups, 1 is that of all of them.

    `present` and `branches` are masks of the places that have a child, and of those where it is a branch. `entries` are the
    children as the row has them, `slots` those of them that were looked at or put there. `stale` is a mask of the places where
    entry and cells have yet to follow the slot. What is in a group in `closed` is in none of these, but counts in the masks.
    """

    __slots__ = ("branches", "cells", "closed", "digest", "entries", "is_read", "path", "present", "slots", "stale")

    def __init__(self, path: bytes, digest: Digest) -> None:
        self.path = path
        self.digest = digest
        self.stale = 0
        self.is_read = False

    def begin(self, present: int, branches: int, closed: list[bytes], cells: list[Digest]) -> None:
        """What the row says, before any of its groups is opened."""
        self.present, self.branches, self.closed, self.cells = present, branches, closed, cells
        self.slots: list[Leaf | Branch[Digest] | None] = [None] * WAYS
        self.entries = [b""] * WAYS

    def put(self, slot: int, child: "Leaf | Branch[Digest] | None") -> None:
        """Put a child at a place, or nothing."""
        self.slots[slot] = child
        bit = 1 << slot
        self.stale |= bit
        self.present = self.present & ~bit if child is None else self.present | bit
        self.branches = self.branches | bit if isinstance(child, Branch) else self.branches & ~bit

    def others(self, slot: int) -> int:
        """The mask of the children beside the one at a place."""
        return self.present & ~(1 << slot)
