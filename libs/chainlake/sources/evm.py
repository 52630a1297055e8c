"""EVM blocks: from a node's JSON-RPC (see `evm_rpc`), or from JSON lines `{"block": <eth_getBlockByNumber>, "receipts": […]}`
or `{"block": …, "logs": […]}`.

The block's payload is its JSON without receipts or logs; those are the payloads of its transactions: the receipt, or
the array of the transaction's logs. Whether blooms and log indexes hold is for a later stage to check.
"""

from collections.abc import Iterator, Mapping

from chainlake.sources import evm_rpc, files
from chainlake.sources.base import BadBlock, Cursor, RawBlock, Split, is_url
from chainlake.sources.endpoint import check_url
from chainlake.sources.evm_line import parse_line


class EvmFormat:
    """A node, or JSON lines, plain or gzip."""

    suffixes = files.LINE_SUFFIXES

    def expand(self, path: str) -> list[str]:
        """The files of `--from PATH`, or the URL itself."""
        if is_url(path):
            check_url(path)
            return [path]
        return files.expand(path, self.suffixes)

    def plan(
        self, paths: list[str], cursor: Cursor | None, max_blocks: int, max_bytes: int, options: Mapping[str, str]
    ) -> list[Split]:
        """Heights of a node, or byte ranges of whole lines."""
        if is_url(paths[0]):
            return evm_rpc.plan(paths[0], cursor, max_blocks, max_bytes, options)
        there = files.still_there(paths, cursor, lambda split: self.read(split, options))
        return files.plan(paths, there, max_blocks, max_bytes)

    def read(self, split: Split, options: Mapping[str, str]) -> Iterator[RawBlock | BadBlock]:
        """One block a height, or a line."""
        if is_url(split.source):
            return evm_rpc.read(split, options)
        return files.read_lines(split, lambda line, position: parse_line(line, split.source, position))
