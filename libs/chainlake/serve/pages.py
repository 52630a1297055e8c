"""lake_getLogsPage: logs in pages of any range, with a cursor that outlives the server.

A cursor holds the range as it was resolved for the first page, the place of the last log, the highest block that was told of, and
a digest of the filter and direction. So all pages of one scan are of the same blocks while the head moves on; a cursor given with
another filter is refused, and so is one after a rollback of blocks that were told of.
"""

import base64
import binascii
import hashlib
import struct
import zlib
from dataclasses import dataclass, replace
from typing import Any

from chainlake.errors import BadInput
from chainlake.logs.filter import INVALID_PARAMS, SERVER_ERROR, Criteria, LogFilter
from chainlake.logs.rpc_values import ArgumentError, RpcError, read_quantity
from chainlake.serve.arguments import OptionalArgument, Reader
from chainlake.serve.engine import Block, Found, Position, Snapshot
from chainlake.serve.json_text import dump
from chainlake.serve.log_json import logs_to_json
from chainlake.serve.methods import Method, Note, Raw
from chainlake.serve.queries import Queries

OPTIONS = ("limit", "cursor", "order")
ORDERS = {"asc": False, "ascending": False, "desc": True, "descending": True}
DEFAULT_LIMIT = 1_000

Given = dict[str, Any]
"""Options that a caller gave, by name, read."""

_LAYOUT = struct.Struct(">B8sQQQI8s")
_VERSION = 1


@dataclass(frozen=True)
class Cursor:
    """Where the next page starts."""

    digest: bytes
    from_block: int
    to_block: int
    position: Position
    block_hash: bytes
    """The first bytes of the hash of the highest block that pages so far told of: in descending order the last of the range, else
    the one that the position is in."""

    def encode(self) -> str:
        block, index = self.position
        packed = _LAYOUT.pack(_VERSION, self.digest, self.from_block, self.to_block, block, index, self.block_hash)
        return base64.urlsafe_b64encode(packed + struct.pack(">I", zlib.crc32(packed))).decode().rstrip("=")

    @staticmethod
    def decode(text: str) -> "Cursor":
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        packed, checksum = data[:-4], data[-4:]
        if len(packed) != _LAYOUT.size or packed[0] != _VERSION or struct.pack(">I", zlib.crc32(packed)) != checksum:
            raise BadInput("the cursor is not one of lake_getLogsPage: give nextCursor as it was answered")
        _, digest, first, last, block, index, block_hash = _LAYOUT.unpack(packed)
        return Cursor(digest, first, last, (block, index), block_hash)


@dataclass(frozen=True)
class PageOptions:
    """What a page is asked for besides its filter."""

    limit: int
    descending: bool
    cursor: Cursor | None


class PageMethods:
    """lake_getLogsPage."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def methods(self) -> list[Method]:
        return [Method("lake_getLogsPage", self._page, (self._read_filter, OptionalArgument(self._read_options)))]

    def _read_filter(self, value: Any) -> tuple[Criteria, Given]:
        """The filter object, which may hold the options too."""
        criteria = self._queries.read_criteria(value)
        return criteria, self._read_options({name: value[name] for name in OPTIONS if name in (value or ())})

    def _read_options(self, value: Any) -> Given:
        return read_options(value, self._queries.settings.max_page)

    def _page(self, note: Note, filter_and_options: tuple[Criteria, Given], beside: Given | None) -> Raw:
        criteria, within = filter_and_options
        options = self._options({**within, **(beside or {})})
        digest = filter_digest(criteria, options.descending)
        snapshot = self._queries.snapshot()
        wanted, after = self._start(snapshot, criteria, options, digest)
        if wanted.empty_range:
            return _answer(b"[]", None, None, None, None)
        found = self._queries.find(note, snapshot, wanted, options.limit, options.descending, after)
        found = self._cut(found)
        first, last = self._range(snapshot, wanted)
        ended = first if options.descending else last
        stopped = self._stop(snapshot, found) if found.more else None
        cursor = None
        if stopped:
            block, index = stopped
            told = last if options.descending else block
            cursor = Cursor(digest, first.number, last.number, (block.number, index), told.hash[:8]).encode()
        return _answer(logs_to_json(found.logs), cursor, first, last, stopped[0] if stopped else ended)

    def _options(self, given: Given) -> PageOptions:
        limit = min(DEFAULT_LIMIT, self._queries.settings.max_page)
        return PageOptions(given.get("limit", limit), given.get("order", False), given.get("cursor"))

    def _start(
        self, snapshot: Snapshot, criteria: Criteria, options: PageOptions, digest: bytes
    ) -> tuple[LogFilter, Position | None]:
        """The range of the scan, and the place after which this page begins."""
        cursor = options.cursor
        if cursor is None:
            return self._queries.resolve(snapshot, criteria), None
        if cursor.digest != digest:
            raise RpcError(INVALID_PARAMS, "the cursor belongs to another filter or order: start again without it")
        is_short = cursor.to_block > snapshot.head.number
        told = cursor.to_block if options.descending or is_short else cursor.position[0]
        block = self._queries.engine.block_by_number(snapshot, told)
        if block is None or block.hash[:8] != cursor.block_hash:
            raise RpcError(SERVER_ERROR, f"block {told} of the cursor was rolled back: start again without it")
        if criteria.block_hash is not None:
            return LogFilter(criteria.addresses, criteria.topics, block_hash=criteria.block_hash), cursor.position
        return LogFilter(criteria.addresses, criteria.topics, cursor.from_block, cursor.to_block), cursor.position

    def _cut(self, found: Found) -> Found:
        """Only as many logs as fit into one response, but at least one."""
        fit = max(1, self._queries.fitting(found.logs))
        return found if fit >= found.logs.num_rows else replace(found, logs=found.logs.slice(0, fit), more=True)

    def _range(self, snapshot: Snapshot, wanted: LogFilter) -> tuple[Block, Block]:
        """First and last block of the scan."""
        engine = self._queries.engine
        if wanted.block_hash is not None:
            block = _known(engine.block_by_hash(snapshot, wanted.block_hash))
            return block, block
        numbers = (snapshot.head.number if number is None else number for number in (wanted.from_block, wanted.to_block))
        first, last = (_known(engine.block_by_number(snapshot, number)) for number in numbers)
        return first, last

    def _stop(self, snapshot: Snapshot, found: Found) -> tuple[Block, int]:
        """Block and index of the last log of a page that is not the last."""
        number, index = (found.logs[name][-1].as_py() for name in ("block_number", "log_index"))
        return _known(self._queries.engine.block_by_number(snapshot, number)), index


def read_options(value: Any, most: int) -> Given:
    """Limit, cursor and order, those that are given: null is not."""
    if not isinstance(value, dict):
        raise ArgumentError("page options must be an object with limit, cursor and order")
    unknown = sorted(set(value) - set(OPTIONS))
    if unknown:
        raise ArgumentError(f"page options have no member {unknown[0][:80]!r}: there are limit, cursor and order")
    readers: dict[str, Reader] = {"limit": lambda limit: _read_limit(limit, most), "order": _read_order, "cursor": _read_cursor}
    return {name: read(value[name]) for name, read in readers.items() if value.get(name) is not None}


def filter_digest(criteria: Criteria, descending: bool) -> bytes:
    """Eight bytes that only the same filter in the same direction has."""
    text = repr((criteria.addresses, criteria.topics, criteria.from_block, criteria.to_block, criteria.block_hash, descending))
    return hashlib.sha256(text.encode()).digest()[:8]


def _known(block: Block | None) -> Block:
    if block is None:
        raise RpcError(SERVER_ERROR, "Block not found.")
    return block


def _read_order(value: Any) -> bool:
    if not isinstance(value, str) or value not in ORDERS:
        raise ArgumentError("order must be asc or desc")
    return ORDERS[value]


def _read_limit(value: Any, most: int) -> int:
    limit = read_quantity(value) if isinstance(value, str) else value
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= most:
        raise ArgumentError(f"limit must be a number from 1 to {most}")
    return limit


def _read_cursor(value: Any) -> Cursor:
    if not isinstance(value, str):
        raise ArgumentError("the cursor must be the nextCursor of an earlier page")
    try:
        return Cursor.decode(value)
    except BadInput as error:
        raise ArgumentError(str(error)) from None


def _answer(logs: bytes, cursor: str | None, first: Block | None, last: Block | None, at: Block | None) -> Raw:
    blocks = {"fromBlock": first, "toBlock": last, "cursorBlock": at}
    members = {"nextCursor": cursor, **{name: block and block.to_json() for name, block in blocks.items()}}
    return Raw(b'{"logs":' + logs + b"," + dump(members)[1:])
