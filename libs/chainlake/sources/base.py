"""What every source of blocks has in common.

A *format* knows the files of one kind of chain: where a block starts and ends in them, and how to read its height, hash,
parent and transactions. It never checks how blocks link: that is the raw stage's promise (`chainlake.raw.rules`).
A file that cannot be read yields a `BadBlock` in place of a block and nothing after it, so that what came before is kept.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

ZERO_HASH = bytes(32)
END_OF_SECONDS = 253_402_300_800
"""When the year 10000 begins. A time after that can be written to a table, but not read from one in Python."""


@dataclass(slots=True)
class RawTransaction:
    """One transaction (or entry, or miniblock) as received. Not frozen: there are so many that it would be felt."""

    index: int
    hash: bytes
    payload: bytes


@dataclass(frozen=True)
class RawBlock:
    """One block as received. `position` and `source` say where it was read."""

    height: int
    hash: bytes
    parent_hash: bytes
    timestamp_us: int | None
    payload: bytes
    transactions: tuple[RawTransaction, ...]
    source: str
    position: int


@dataclass(frozen=True)
class BadBlock:
    """A block that cannot be read, and why. `position` is where it starts. `unavailable` blames the source, not the chain:
    reading again later may help."""

    source: str
    position: int
    reason: str
    unavailable: bool = False


@dataclass(frozen=True)
class Cursor:
    """The last block that the lake holds: where it was read, and what it was."""

    source: str
    position: int
    height: int
    hash: bytes


@dataclass(frozen=True)
class Split:
    """A part of a source that one task reads: blocks that start in [start, end), at most `max_blocks` of them. As many splits as
    `share` says may ask the source at once."""

    source: str
    start: int
    end: int
    max_blocks: int
    parent_hash: bytes = ZERO_HASH
    share: int = 1


def is_url(path: str) -> bool:
    """Whether `--from` names a service rather than files."""
    return "://" in path


class BlockFormat(Protocol):
    """The files of one kind of chain."""

    def plan(
        self, paths: list[str], cursor: Cursor | None, max_blocks: int, max_bytes: int, options: Mapping[str, str]
    ) -> list[Split]:
        """The next splits after `cursor`, in order, together about `max_bytes` (at least one block) and at most
        about `max_blocks`. Empty when there is nothing new. A cursor whose file is not among `paths` starts at the
        beginning: the raw stage skips what it holds."""
        ...

    def read(self, split: Split, options: Mapping[str, str]) -> Iterator[RawBlock | BadBlock]:
        """The blocks of a split, in order."""
        ...
