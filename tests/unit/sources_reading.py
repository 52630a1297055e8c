"""Reading sources the way the raw stage does: plan, read, remember the last block, again."""

from collections.abc import Mapping

from chainlake.sources.base import BadBlock, Cursor, RawBlock, Split
from chainlake.sources.formats import format_of

ALL = 1 << 40


def read_splits(kind: str, splits: list[Split], options: Mapping[str, str] | None = None) -> list[RawBlock | BadBlock]:
    return [block for split in splits for block in format_of(kind).read(split, options or {})]


def read_batch(
    kind: str, paths: list[str], cursor: Cursor | None = None, max_blocks: int = ALL, max_bytes: int = ALL
) -> list[RawBlock | BadBlock]:
    return read_splits(kind, format_of(kind).plan(paths, cursor, max_blocks, max_bytes, {}))


def read_all(kind: str, paths: list[str], max_blocks: int = ALL, max_bytes: int = ALL) -> list[RawBlock | BadBlock]:
    """Every batch after the other, until nothing is new or something cannot be read."""
    found: list[RawBlock | BadBlock] = []
    cursor = None
    while batch := read_batch(kind, paths, cursor, max_blocks, max_bytes):
        assert len(batch) <= max(max_blocks, 1) + 1
        found += batch
        last = batch[-1]
        if isinstance(last, BadBlock):
            break
        cursor = cursor_of(last)
    return found


def cursor_of(block: RawBlock | BadBlock) -> Cursor:
    assert isinstance(block, RawBlock)
    return Cursor(block.source, block.position, block.height, block.hash)


def good(found: list[RawBlock | BadBlock]) -> list[RawBlock]:
    """The blocks, when nothing is bad."""
    assert not [block for block in found if isinstance(block, BadBlock)]
    return [block for block in found if isinstance(block, RawBlock)]


def reason(found: list[RawBlock | BadBlock]) -> str:
    """Why the last block cannot be read."""
    last = found[-1]
    assert isinstance(last, BadBlock)
    return last.reason
