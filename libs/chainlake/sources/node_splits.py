"""Heights of a node as splits that are read side by side, and read in requests of several blocks. For nodes of any kind."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from chainlake.errors import LakeError
from chainlake.sources.base import BadBlock, RawBlock, Split
from chainlake.sources.endpoint import shown
from chainlake.sources.files import PARALLEL


class BlockNode(Protocol):
    """A node that gives whole blocks by height."""

    @property
    def blocks_per_request(self) -> int:
        """How many blocks one request asks for."""
        ...

    def blocks(self, heights: Sequence[int]) -> list[RawBlock]:
        """Whole blocks."""
        ...


def splits(url: str, node: BlockNode, start: int, head: int, max_blocks: int, max_bytes: int) -> list[Split]:
    """The heights from `start` to `head`, as far as a batch goes."""
    count = fitting(node, start, min(max_blocks, head - start + 1), max_bytes)
    if count <= 0:
        return []
    size = max(-(-count // PARALLEL), node.blocks_per_request)
    ends = [*range(start + size, start + count, size), start + count]
    return [Split(url, low, high, high - low, share=len(ends)) for low, high in zip([start, *ends[:-1]], ends, strict=True)]


def read_split(split: Split, open_node: Callable[[], AbstractContextManager[BlockNode]]) -> Iterator[RawBlock | BadBlock]:
    """The blocks of a split, in order. What the node fails to give is unavailable, not bad."""
    position = split.start
    try:
        with open_node() as node:
            for block in read_heights(node, split.start, split.end):
                yield block
                position = block.height + 1
    except LakeError as error:
        yield BadBlock(shown(split.source), position, str(error), unavailable=True)


def read_heights(node: BlockNode, start: int, end: int) -> Iterator[RawBlock]:
    """The blocks in [start, end), in order."""
    for low in range(start, end, node.blocks_per_request):
        yield from node.blocks(range(low, min(low + node.blocks_per_request, end)))


def fitting(node: BlockNode, start: int, count: int, max_bytes: int) -> int:
    """How many blocks make a batch of about `max_bytes`, judged by a few of them."""
    if count <= node.blocks_per_request:
        return count
    sample = node.blocks(sorted({start, start + count // 2, start + count - 1}))
    size = sum(len(block.payload) + sum(len(one.payload) for one in block.transactions) for block in sample) // len(sample)
    return max(1, min(count, max_bytes // max(1, size)))
