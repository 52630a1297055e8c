"""lake_getLogsPage: logs in pages of any range, with a cursor that outlives the server.

A cursor holds the range as it was resolved for the first page, the place of the last log, and a digest of the filter and
direction. So all pages of one scan are of the same blocks while the head moves on; a cursor given with another filter is refused,
and so is one whose block was rolled back.
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
from chainlake.serve.arguments import OptionalArgument
from chainlake.serve.engine import Block, Found, Position, Snapshot
from chainlake.serve.json_text import dump
from chainlake.serve.log_json import logs_to_json
from chainlake.serve.methods import Method, Note, Raw
from chainlake.serve.queries import Queries

OPTIONS = ("limit", "cursor", "order")
ORDERS = {"asc": False, "ascending": False, "desc": True, "descending": True}
DEFAULT_LIMIT = 1_000

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
    """The first bytes of the hash of the block that the position is in."""

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

    limit: int = DEFAULT_LIMIT
    descending: bool = False
    cursor: Cursor | None = None


class PageMethods:
    """lake_getLogsPage."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def methods(self) -> list[Method]:
        return [Method("lake_getLogsPage", self._page, (self._read_filter, OptionalArgument(self._read_options)))]

    def _read_filter(self, value: Any) -> tuple[Criteria, PageOptions]:
        """The filter object, which may hold the options too."""
        criteria = self._queries.read_criteria(value)
        return criteria, self._read_options({name: value[name] for name in OPTIONS if name in (value or ())})

    def _read_options(self, value: Any) -> PageOptions:
        return read_options(value, self._queries.settings.max_page)

    def _page(self, note: Note, filter_and_options: tuple[Criteria, PageOptions], more: PageOptions | None) -> Raw:
        criteria, options = filter_and_options
        options = more or options
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
            cursor = Cursor(digest, first.number, last.number, (block.number, index), block.hash[:8]).encode()
        return _answer(logs_to_json(found.logs), cursor, first, last, stopped[0] if stopped else ended)

    def _start(
        self, snapshot: Snapshot, criteria: Criteria, options: PageOptions, digest: bytes
    ) -> tuple[LogFilter, Position | None]:
        """The range of the scan, and the place after which this page begins."""
        cursor = options.cursor
        if cursor is None:
            return self._queries.resolve(snapshot, criteria), None
        if cursor.digest != digest:
            raise RpcError(INVALID_PARAMS, "the cursor belongs to another filter or order: start again without it")
        block = self._queries.engine.block_by_number(snapshot, cursor.position[0])
        if block is None or block.hash[:8] != cursor.block_hash or cursor.to_block > snapshot.head.number:
            raise RpcError(SERVER_ERROR, f"block {cursor.position[0]} of the cursor was rolled back: start again without it")
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


def read_options(value: Any, most: int) -> PageOptions:
    """Limit, cursor and order, all of them optional."""
    if not isinstance(value, dict):
        raise ArgumentError("page options must be an object with limit, cursor and order")
    unknown = sorted(set(value) - set(OPTIONS))
    if unknown:
        raise ArgumentError(f"page options have no member {unknown[0][:80]!r}: there are limit, cursor and order")
    order = "asc" if value.get("order") is None else value["order"]
    if not isinstance(order, str) or order not in ORDERS:
        raise ArgumentError("order must be asc or desc")
    return PageOptions(_read_limit(value.get("limit"), most), ORDERS[order], _read_cursor(value.get("cursor")))


def filter_digest(criteria: Criteria, descending: bool) -> bytes:
    """Eight bytes that only the same filter in the same direction has."""
    text = repr((criteria.addresses, criteria.topics, criteria.from_block, criteria.to_block, criteria.block_hash, descending))
    return hashlib.sha256(text.encode()).digest()[:8]


def _known(block: Block | None) -> Block:
    if block is None:
        raise RpcError(SERVER_ERROR, "Block not found.")
    return block


def _read_limit(value: Any, most: int) -> int:
    if value is None:
        return min(DEFAULT_LIMIT, most)
    limit = read_quantity(value) if isinstance(value, str) else value
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= most:
        raise ArgumentError(f"limit must be a number from 1 to {most}")
    return limit


def _read_cursor(value: Any) -> Cursor | None:
    if value is None:
        return None
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
