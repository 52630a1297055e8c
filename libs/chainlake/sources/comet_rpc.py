"""CometBFT blocks from a node, by JSON-RPC: `block` and `block_results` of each height. The position of a block is its height.

The block's payload is the `/block` result with the `/block_results` result beside it (member `block_results`), so that what the
chain reported of its transactions comes with them. A node that does not keep results, or not for as long as blocks, gives blocks
only. CometBFT's blocks are final, so all up to the node's latest are read. A wrong answer of a node is not the chain's fault: it
is asked again, and in the end `Unavailable`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chainlake.errors import BadInput, Unavailable
from chainlake.sources.base import BadBlock, Cursor, RawBlock, Split
from chainlake.sources.comet import parse_block
from chainlake.sources.node_splits import BlockNode, read_split, splits
from chainlake.sources.rpc_client import Call, RpcFailure


class CometNode(BlockNode):
    """A CometBFT node. `share` readers ask it side by side."""

    def __init__(self, url: str, options: Mapping[str, str], share: int = 1) -> None:
        super().__init__(url, options, share)
        self._has_results = True
        self._latest = 0

    def status(self) -> tuple[str, int, int]:
        """The chain id, and the first and last block that the node has; the last is 0 before the first block."""
        answer = self._client.call("status")
        try:
            sync, name = answer["sync_info"], str(answer["node_info"]["network"])
            return name, _number(sync["earliest_block_height"]), _number(sync["latest_block_height"])
        except (TypeError, KeyError, ValueError):
            said = answer.message if isinstance(answer, RpcFailure) else f"{answer!r:.60}"
            raise Unavailable(
                f"{self.shown} does not tell its status: {said}: is it the RPC address of a CometBFT node?"
            ) from None

    def _fetched(self, heights: Sequence[int]) -> list[RawBlock | str]:
        """Each block, or what is wrong with the answer."""
        calls = [Call("block", (str(height),)) for height in heights]
        if self._has_results:
            calls += [Call("block_results", (str(height),)) for height in heights]
        answers = self._client.call_all(calls)
        blocks, results = answers[: len(heights)], answers[len(heights) :]
        if any(isinstance(answer, RpcFailure) and answer.is_unsupported for answer in results):
            self._has_results = False
        reported = map(self._kept, heights, results) if self._has_results else [None] * len(heights)
        return [self._block(*one) for one in zip(heights, blocks, reported, strict=True)]

    def _kept(self, height: int, results: Any) -> Any:
        """What the node said of a block's results; None if it has pruned them. Those of its last block may be still to come: they
        are there before the next block is."""
        if isinstance(results, RpcFailure) and results.is_absent:
            self._latest = self._latest if height < self._latest else self.status()[2]
            return None if height < self._latest else results
        return results

    def _block(self, height: int, block: Any, results: Any) -> RawBlock | str:
        for answer in (block, results):
            if isinstance(answer, RpcFailure):
                return f"{answer.message} (error {answer.code})"
        if not isinstance(block, dict) or not isinstance(results, dict | None):
            return "the answer is not an object"
        if results is not None and results.get("height") != str(height):
            return f"its results are of block {str(results.get('height'))[:20]}"
        try:
            found = parse_block({**block, "block_results": results} if results is not None else block, self.shown, height)
        except BadInput as error:
            return str(error)
        return found if found.height == height else f"the node answered with block {found.height}"


def network(url: str, options: Mapping[str, str]) -> str:
    """The chain id that a node tells. Refuses one that is not the chain's."""
    with CometNode(url, options) as node:
        told, _, _ = node.status()
        known = options.get("chain_id")
        if known is not None and told != known:
            raise BadInput(
                f"{node.shown} has chain id {told[:60]}, this chain has {known}: give the URL of the right node, or another name"
            )
        return told


def plan(url: str, cursor: Cursor | None, max_blocks: int, max_bytes: int, options: Mapping[str, str]) -> list[Split]:
    """The next heights up to the node's last block, as splits that can be read side by side."""
    with CometNode(url, options) as node:
        _, earliest, latest = node.status()
        start = _start(node, cursor, earliest, latest, options)
        if start < earliest <= latest:
            raise Unavailable(
                f"{node.shown} has no block {start} any more, its first is {earliest}: ask a node that keeps all blocks, or "
                f"start with --option from_block={earliest} under another name"
            )
        return splits(url, node, start, latest, max_blocks, max_bytes)


def read(split: Split, options: Mapping[str, str]) -> Iterator[RawBlock | BadBlock]:
    """The blocks of a split, in order."""
    return read_split(split, lambda: CometNode(split.source, options, split.share))


def left(url: str, cursor: Cursor | None, options: Mapping[str, str]) -> int:
    """How many blocks a node has after the cursor. Asked once: nothing depends on it but what people see."""
    with CometNode(url, {**options, "retries": "0"}) as node:
        _, earliest, latest = node.status()
    first = int(options.get("from_block", max(1, earliest)))
    return max(0, latest - (cursor.height if cursor else first - 1))


def _start(node: CometNode, cursor: Cursor | None, earliest: int, latest: int, options: Mapping[str, str]) -> int:
    """The first height to read: after the lake's last block, or that block again if the node has another one there."""
    if cursor is None:
        return int(options.get("from_block", max(1, earliest)))
    if not earliest <= cursor.height <= latest or node.blocks([cursor.height])[0].hash == cursor.hash:
        return cursor.height + 1
    return cursor.height


def _number(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch("[0-9]{1,18}", value):
        raise ValueError(value)
    return int(value)
