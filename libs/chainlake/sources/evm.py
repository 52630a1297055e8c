"""EVM blocks as JSON lines: `{"block": <eth_getBlockByNumber>, "receipts": […]}` or `{"block": …, "logs": […]}`.

The block's payload is its JSON without receipts or logs; those are the payloads of its transactions: the receipt, or
the array of the transaction's logs. Whether blooms and log indexes hold is for a later stage to check.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from chainlake.encoding import from_hex
from chainlake.errors import BadInput
from chainlake.sources import files
from chainlake.sources.base import BadBlock, Cursor, RawBlock, RawTransaction, Split
from chainlake.sources.json_text import Part, as_received, members, utf8

_QUANTITY = re.compile("0x[0-9a-fA-F]{1,16}")
_MAX_SECONDS = (1 << 63) // 1_000_000


class EvmFormat:
    """JSON lines, plain or gzip."""

    suffixes = files.LINE_SUFFIXES

    def expand(self, path: str) -> list[str]:
        """The files of `--from PATH`."""
        return files.expand(path, self.suffixes)

    def plan(
        self, paths: list[str], cursor: Cursor | None, max_blocks: int, max_bytes: int, options: Mapping[str, str]
    ) -> list[Split]:
        """Byte ranges of whole lines."""
        return files.plan(paths, cursor, max_blocks, max_bytes)

    def read(self, split: Split, options: Mapping[str, str]) -> Iterator[RawBlock | BadBlock]:
        """One block a line."""
        return files.read_lines(split, lambda line, position: parse_line(line, split.source, position))


def parse_line(line: bytes, source: str, position: int) -> RawBlock:
    """The block of one line; `BadInput` says what is wrong with it."""
    text = utf8(line)
    parts = dict(members(text, ("receipts", "logs")))
    block = parts["block"].value if "block" in parts else None
    if not isinstance(block, dict):
        raise BadInput('the line has no "block" object: expected {"block": …, "receipts": […]} or with "logs": […]')
    seconds = _number(block, "timestamp", "block")
    if seconds >= _MAX_SECONDS:
        raise BadInput(f"block timestamp {block['timestamp']} is out of range: unix seconds are expected")
    return RawBlock(
        height=_number(block, "number", "block"),
        hash=_hash(block, "hash", "block"),
        parent_hash=_hash(block, "parentHash", "block"),
        timestamp_us=seconds * 1_000_000,
        payload=as_received(text, parts["block"]),
        transactions=_transactions(text, block, parts),
        source=source,
        position=position,
    )


def _transactions(text: str, block: dict[str, Any], parts: Mapping[str, Part]) -> tuple[RawTransaction, ...]:
    listed = _listed(block)
    for key, read in (("receipts", _from_receipts), ("logs", _from_logs)):
        if key in parts and isinstance(parts[key].value, list):
            found = read(text, parts[key].value, listed)
            return tuple(sorted(found, key=lambda transaction: transaction.index))
    raise BadInput(f'block {block["number"]} has neither a "receipts" nor a "logs" array: fetch one of them too')


def _from_receipts(text: str, receipts: list[Part], listed: list[bytes] | None) -> list[RawTransaction]:
    found = []
    for part in receipts:
        transaction = _hash(part.value, "transactionHash", "receipt")
        index = _number(part.value, "transactionIndex", "receipt", bits=31)
        found.append(RawTransaction(index, transaction, as_received(text, part)))
    if listed is not None and len(found) != len(listed):
        raise BadInput(f"the block lists {len(listed)} transactions but has {len(found)} receipts: fetch all receipts")
    if len({transaction.index for transaction in found}) != len(found):
        raise BadInput("two receipts have the same transactionIndex: fetch the receipts again")
    return found


def _from_logs(text: str, parts: list[Part], listed: list[bytes] | None) -> list[RawTransaction]:
    logs: dict[bytes, list[bytes]] = {transaction: [] for transaction in listed or ()}
    indexes = {transaction: index for index, transaction in enumerate(listed or ())}
    for count, part in enumerate(parts):
        transaction = _hash(part.value, "transactionHash", "log")
        index = _number(part.value, "transactionIndex", "log", bits=31)
        if indexes.setdefault(transaction, index) != index:
            raise BadInput(f"log {count} has transaction index {index}, its transaction has {indexes[transaction]}")
        logs.setdefault(transaction, []).append(as_received(text, part))
    return [
        RawTransaction(indexes[transaction], transaction, b"[" + b",".join(found) + b"]") for transaction, found in logs.items()
    ]


def _listed(block: dict[str, Any]) -> list[bytes] | None:
    """The hashes of the block's transactions, which may be given as hashes or as objects; None when left out."""
    transactions = block.get("transactions")
    if transactions is None:
        return None
    if not isinstance(transactions, list):
        raise BadInput(f"block.transactions is {transactions!r:.60}: an array is expected")
    return [_hash(item if isinstance(item, dict) else {"hash": item}, "hash", "transaction") for item in transactions]


def _number(record: Any, name: str, what: str, bits: int = 63) -> int:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value) or (number := int(value, 16)) >> bits:
        raise BadInput(f"{what}.{name} is {value!r:.60}: a 0x… number of at most {bits} bits is expected")
    return number


def _hash(record: Any, name: str, what: str) -> bytes:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, str) or len(value) != 66 or len(found := from_hex(value, f"{what}.{name}")) != 32:
        raise BadInput(f"{what}.{name} is {value!r:.80}: a 0x… hash of 32 bytes is expected")
    return found
