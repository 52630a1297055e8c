"""EVM blocks from a node, by JSON-RPC: headers with `eth_getBlockByNumber`, logs with `eth_getBlockReceipts`, or with
`eth_getLogs` where a node has no receipts. The position of a block is its height.

Only blocks that are final are read, as the option `finality` has it. A wrong answer of a node is not the chain's fault: it is
asked again, and in the end `Unavailable`, never a broken promise. Whether blocks link is for the raw stage to judge.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from chainlake.errors import BadInput, Unavailable
from chainlake.sources.base import BadBlock, Cursor, RawBlock, Split
from chainlake.sources.evm_line import number_of, parse_line
from chainlake.sources.json_text import compact
from chainlake.sources.node_splits import BlockNode, read_split, splits
from chainlake.sources.rpc_client import Call, RpcFailure


class Node(BlockNode):
    """A node of an EVM chain. `share` readers ask it side by side."""

    def __init__(self, url: str, options: Mapping[str, str], share: int = 1) -> None:
        super().__init__(url, options, share)
        self._finality, _, self._depth = options.get("finality", "finalized").partition(":")
        self._has_receipts = True

    def chain_id(self) -> int:
        """The number of the network that the node belongs to."""
        return self._quantity(self._client.call("eth_chainId"), "eth_chainId")

    def head(self) -> int:
        """The last block that counts as final; -1 if there is none yet."""
        if self._finality == "latest":
            return max(-1, self._quantity(self._client.call("eth_blockNumber"), "eth_blockNumber") - int(self._depth))
        block = self._client.call("eth_getBlockByNumber", self._finality, False)
        if not isinstance(block, dict):
            said = f" ({block.message})" if isinstance(block, RpcFailure) else ""
            raise BadInput(
                f"{self.shown} has no {self._finality} block{said}: development nodes have none; say how many blocks deep is"
                " final with --option finality=latest:N"
            )
        return self._quantity(block.get("number"), f"the number of the {self._finality} block")

    def hash_at(self, height: int) -> bytes:
        """The hash of the block that the node has at a height."""
        return self.blocks([height])[0].hash

    def _fetched(self, heights: Sequence[int]) -> list[RawBlock | str]:
        """Each block, or what is wrong with the answer."""
        calls = [Call("eth_getBlockByNumber", (hex(height), False)) for height in heights]
        if self._has_receipts:
            calls += [Call("eth_getBlockReceipts", (hex(height),)) for height in heights]
        answers = self._client.call_all(calls)
        blocks, receipts = answers[: len(heights)], answers[len(heights) :]
        if any(isinstance(answer, RpcFailure) and answer.is_unsupported for answer in receipts):
            self._has_receipts = False
        if self._has_receipts:
            return [self._block(*one, "receipts") for one in zip(heights, blocks, receipts, strict=True)]
        return [self._block(*one, "logs") for one in zip(heights, blocks, self._logs(blocks), strict=True)]

    def _logs(self, blocks: Sequence[Any]) -> list[Any]:
        """The logs of each block, asked for by its hash. A block without transactions has none."""
        wanted = [block.get("hash") if isinstance(block, dict) and block.get("transactions") != [] else None for block in blocks]
        answers = iter(self._client.call_all([Call("eth_getLogs", ({"blockHash": name},)) for name in wanted if name]))
        return [next(answers) if name else [] for name in wanted]

    def _block(self, height: int, block: Any, records: Any, kind: str) -> RawBlock | str:
        for what, answer in (("the block", block), (f"its {kind}", records)):
            if isinstance(answer, RpcFailure):
                return f"{answer.message} (error {answer.code})"
            if answer is None:
                return f"the node does not have {what}: it is behind, or has pruned it"
        if not isinstance(records, list):
            return f"its {kind} are not an array"
        if kind == "logs" and not records and isinstance(block, dict) and _has_bloom(block):
            return "the node has no logs of the block, whose bloom says that there are some"
        try:
            told = number_of(block.get("number") if isinstance(block, dict) else None, "block.number")
            if told != height:
                return f"the node answered with block {told}"
            return parse_line(b'{"block":%b,"%b":%b}' % (_text(block), kind.encode(), _text(records)), self.shown, height)
        except BadInput as error:
            return str(error)

    def _quantity(self, answer: Any, what: str) -> int:
        try:
            return number_of(answer, what)
        except BadInput as error:
            said = answer.message if isinstance(answer, RpcFailure) else error
            raise Unavailable(f"{self.shown} does not tell {what}: {said}: is it a node of an EVM chain?") from None


def window(options: Mapping[str, str]) -> int:
    """How many blocks may still be replaced; 0 for a chain whose blocks are final."""
    return int(options.get("window", "64")) if options.get("finalized") == "false" else 0


def network(url: str, options: Mapping[str, str]) -> str:
    """The chain id that a node tells. Refuses one that is not the chain's, and a node that cannot say what is final."""
    with Node(url, options) as node:
        told, known = str(node.chain_id()), options.get("chain_id")
        if known is not None and told != known:
            raise BadInput(
                f"{node.shown} has chain id {told}, this chain has {known}: give the URL of the right node, or another chain name"
            )
        node.head()
        return told


def plan(url: str, cursor: Cursor | None, max_blocks: int, max_bytes: int, options: Mapping[str, str]) -> list[Split]:
    """The next heights up to the last final block, as splits that can be read side by side."""
    with Node(url, options) as node:
        head = node.head()
        return splits(url, node, _start(node, cursor, head, options), head, max_blocks, max_bytes)


def read(split: Split, options: Mapping[str, str]) -> Iterator[RawBlock | BadBlock]:
    """The blocks of a split, in order."""
    return read_split(split, lambda: Node(split.source, options, split.share))


def left(url: str, cursor: Cursor | None, options: Mapping[str, str]) -> int:
    """How many final blocks a node has after the cursor. Asked once: nothing depends on it but what people see."""
    with Node(url, {**options, "retries": "0"}) as node:
        head = node.head()
    return max(0, head - (cursor.height if cursor else first_block(options, head) - 1))


def first_block(options: Mapping[str, str], head: int) -> int:
    """Where a chain begins: a height, or so many blocks before the last final one."""
    base, _, back = options.get("from_block", "0").partition("-")
    return max(0, head - int(back)) if back else int(base)


def _start(node: Node, cursor: Cursor | None, head: int, options: Mapping[str, str]) -> int:
    """The first height to read. Where the node has another block than the lake's last, as far back as blocks may be replaced."""
    if cursor is None:
        return first_block(options, head)
    if cursor.height > head or node.hash_at(cursor.height) == cursor.hash:
        return cursor.height + 1
    return max(first_block(options, head), cursor.height - window(options))


def _has_bloom(block: Mapping[str, Any]) -> bool:
    """Whether a header says that there are logs."""
    bloom = block.get("logsBloom")
    return isinstance(bloom, str) and bool(bloom.removeprefix("0x").strip("0"))


def _text(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a number of more than 64 bits
        return compact(value)
