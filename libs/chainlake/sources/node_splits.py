"""Heights of a node as splits that are read side by side, and read in requests of several blocks. For nodes of any kind."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from chainlake.errors import LakeError
from chainlake.sources.base import BadBlock, RawBlock, Split
from chainlake.sources.endpoint import endpoint, shown
from chainlake.sources.files import PARALLEL
from chainlake.sources.http_post import Passing
from chainlake.sources.rpc_client import Limits, RpcClient

DEFAULTS = Limits()
_Node = TypeVar("_Node", bound="BlockNode")


class BlockNode(ABC):
    """A node that gives whole blocks by height. `share` readers ask it side by side."""

    def __init__(self, url: str, options: Mapping[str, str], share: int = 1) -> None:
        self.shown = shown(url)
        self._limits = limits(options, share)
        self._client = RpcClient(endpoint(url, options), self._limits)

    def __enter__(self: _Node) -> _Node:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @property
    def blocks_per_request(self) -> int:
        """How many blocks one request asks for: each takes two calls."""
        return max(1, self._limits.batch // 2)

    def blocks(self, heights: Sequence[int]) -> list[RawBlock]:
        """Whole blocks. Answers that do not fit together, and blocks that the node does not have, are asked for again."""
        found: dict[int, RawBlock] = {}
        tries = 0
        while missing := [height for height in heights if height not in found]:
            outcomes = dict(zip(missing, self._fetched(missing), strict=True))
            found |= {height: block for height, block in outcomes.items() if isinstance(block, RawBlock)}
            wrong = [(height, reason) for height, reason in outcomes.items() if isinstance(reason, str)]
            if wrong:
                tries += 1
                self._client.back_off(tries, Passing("gave no usable block {}: {}".format(*wrong[0])))
        return [found[height] for height in heights]

    @abstractmethod
    def _fetched(self, heights: Sequence[int]) -> list[RawBlock | str]:
        """Each block, or what is wrong with the answer."""


def limits(options: Mapping[str, str], share: int = 1) -> Limits:
    """How a node may be asked, by the options of its chain."""
    rate = int(options.get("rate", "0"))
    return Limits(
        batch=max(1, int(options.get("batch", DEFAULTS.batch))),
        rate=rate / share if rate else None,
        timeout=max(1.0, float(options.get("timeout", DEFAULTS.timeout))),
        max_response=int(options.get("max_response", DEFAULTS.max_response)),
        retries=int(options.get("retries", DEFAULTS.retries)),
    )


def splits(url: str, node: BlockNode, start: int, head: int, max_blocks: int, max_bytes: int) -> list[Split]:
    """The heights from `start` to `head`, as far as a batch goes."""
    count = fitting(node, start, min(max_blocks, head - start + 1), max_bytes)
    if count <= 0:
        return []
    size = max(-(-count // PARALLEL), node.blocks_per_request)
    ends = [*range(start + size, start + count, size), start + count]
    return [Split(url, low, high, high - low, share=len(ends)) for low, high in zip([start, *ends[:-1]], ends, strict=True)]


def read_split(split: Split, open_node: Callable[[], BlockNode]) -> Iterator[RawBlock | BadBlock]:
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
