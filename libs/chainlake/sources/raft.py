"""Raft deliveries as JSON lines: `{"delivery": 1, "entries": [{"group": …, "log_index": …, "log_term": …, "command":
…}]}`.

A delivery's hash is SHA-256 over its parent's hash and the canonical JSON of its line, so one file is read by one
split, and the parent hash of a following file is computed when the batch is planned.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from chainlake.errors import BadInput
from chainlake.sources import files
from chainlake.sources.base import ZERO_HASH, BadBlock, Cursor, RawBlock, RawTransaction, Split
from chainlake.sources.chained import check_parent, parent_at_start
from chainlake.sources.json_text import canonical, parse, utf8


class RaftFormat:
    """JSON lines, plain or gzip."""

    suffixes = files.LINE_SUFFIXES

    def expand(self, path: str) -> list[str]:
        """The files of `--from PATH`. A replica is followed from before its first delivery."""
        return files.expand(path, self.suffixes, may_be_empty=True)

    def plan(
        self, paths: list[str], cursor: Cursor | None, max_blocks: int, max_bytes: int, options: Mapping[str, str]
    ) -> list[Split]:
        """One split per file, each with the hash of the delivery before it."""
        cursor = files.still_there(paths, cursor, lambda split: self.read(split, options), is_hashed=False)
        splits = files.plan(paths, cursor, max_blocks, max_bytes, divisible=lambda path: False)
        planned: list[Split] = []
        for split in splits:
            parent = self._last_hash(planned[-1]) if planned else self._first_parent(split, cursor)
            if parent is None:
                break
            planned.append(replace(split, parent_hash=parent))
        return planned

    def read(self, split: Split, options: Mapping[str, str]) -> Iterator[RawBlock | BadBlock]:
        """One delivery a line, each linked to the one before."""
        parent = split.parent_hash

        def chained(line: bytes, position: int) -> RawBlock:
            nonlocal parent
            block = parse_line(line, split.source, position, parent)
            parent = block.hash
            return block

        return files.read_lines(split, chained)

    def _last_hash(self, split: Split) -> bytes | None:
        last = None
        for block in self.read(split, {}):
            last = block.hash if isinstance(block, RawBlock) else None
        return last

    def _first_parent(self, split: Split, cursor: Cursor | None) -> bytes:
        if cursor is not None and split.source == cursor.source and cursor.position != files.ANEW:
            return cursor.hash
        first = next(self.read(replace(split, parent_hash=ZERO_HASH, max_blocks=1), {}), None)
        return parent_at_start(first.height, cursor) if isinstance(first, RawBlock) else ZERO_HASH


def parse_line(line: bytes, source: str, position: int, parent: bytes) -> RawBlock:
    """The delivery of one line; `BadInput` says what is wrong with it."""
    delivery = parse(utf8(line))
    height = delivery.get("delivery") if isinstance(delivery, dict) else None
    if type(height) is not int or not 0 <= height < 1 << 63:
        raise BadInput(f'"delivery" is {height!r:.60}: a number that counts deliveries from 1 is expected')
    check_parent(parent, height)
    entries = [_entry(index, entry) for index, entry in enumerate(_entries(delivery))]
    payload = _canonical(delivery, entries)
    return RawBlock(
        height=height,
        hash=hashlib.sha256(parent + payload).digest(),
        parent_hash=parent,
        timestamp_us=None,
        payload=payload,
        transactions=tuple(entries),
        source=source,
        position=position,
    )


def _canonical(delivery: dict[str, Any], entries: list[RawTransaction]) -> bytes:
    """The canonical JSON of a delivery, made of that of its entries: they are nearly all of it."""
    texts = {name: canonical(value) for name, value in delivery.items() if name != "entries"}
    texts["entries"] = b"[" + b",".join(entry.payload for entry in entries) + b"]"
    return b"{" + b",".join(canonical(name) + b":" + texts[name] for name in sorted(texts)) + b"}"


def _entries(delivery: dict[str, Any]) -> list[Any]:
    entries = delivery.get("entries")
    if not isinstance(entries, list):
        raise BadInput(f'delivery {delivery["delivery"]} has "entries" {entries!r:.60}: an array is expected')
    return entries


def _entry(index: int, entry: Any) -> RawTransaction:
    if not isinstance(entry, dict):
        raise BadInput(f"entry {index} is {entry!r:.60}: an object with group, log_index and log_term is expected")
    payload = canonical(entry)
    return RawTransaction(index, hashlib.sha256(payload).digest(), payload)
