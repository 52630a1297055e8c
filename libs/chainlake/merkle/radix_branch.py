"""A trie row in memory: what is known of a branch, of which its row may not have been read yet."""

from typing import Generic, TypeVar

from chainlake.merkle.radix_rows import Group, Leaf

Digest = TypeVar("Digest")

WAYS = 16


class Branch(Generic[Digest]):
    """A row in memory. `cells` is a heap: 16 to 31 are the children's digests, 4 to 7 those of groups, 1 is that of all of them.

    The children of a group in `closed` are not in `slots` yet, nor their digests in `cells`.
    """

    __slots__ = ("cells", "closed", "digest", "path", "slots", "stale")

    def __init__(self, path: bytes, digest: Digest) -> None:
        self.path = path
        self.digest = digest
        self.slots: list[Leaf | Branch[Digest] | None] = []
        self.cells: list[Digest] = []
        self.closed: list[Group | None] = []
        self.stale = 0

    def others(self, child: "Leaf | Branch[Digest] | None" = None) -> int:
        """How many children there are beside one."""
        opened = sum(other is not None and other is not child for other in self.slots)
        return opened + sum(group.present.bit_count() for group in self.closed if group is not None)

    def other(self, child: "Leaf | Branch[Digest] | None" = None) -> "Leaf | Branch[Digest]":
        """The one child beside another. A group is never closed over a single child, so it is in its slot."""
        return next(other for other in self.slots if other is not None and other is not child)
