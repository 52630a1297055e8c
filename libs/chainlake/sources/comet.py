"""CometBFT blocks: from a node (see `comet_rpc`), or from files of `/block` results or whole JSON-RPC answers.

A file has one a line, one JSON array of them, or one after another. Lines have their byte offset as position. In an array (or a
`.json` file, which may be written over many lines) a position is the number of the block in the file, counted from 0. Such a file
is read whole, so it is one split and has a size limit.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from chainlake.encoding import from_hex
from chainlake.errors import BadInput
from chainlake.sources import files
from chainlake.sources.base import ZERO_HASH, BadBlock, Cursor, RawBlock, RawTransaction, Split, is_url
from chainlake.sources.endpoint import check_url
from chainlake.sources.json_text import compact, documents, parse, utf8

MAX_DOCUMENT = 256 << 20
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class CometFormat:
    """JSON lines or documents, plain or gzip."""

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
        """Heights of a node, or byte ranges of whole lines; one split for a file of documents."""
        if is_url(paths[0]):
            from chainlake.sources import comet_rpc

            return comet_rpc.plan(paths[0], cursor, max_blocks, max_bytes, options)
        there = files.still_there(paths, cursor, lambda split: self.read(split, options))
        return files.plan(paths, there, max_blocks, max_bytes, _bounds, _divisible)

    def read(self, split: Split, options: Mapping[str, str]) -> Iterator[RawBlock | BadBlock]:
        """The blocks of a split, in order."""
        if is_url(split.source):
            from chainlake.sources import comet_rpc

            return comet_rpc.read(split, options)
        try:
            whole = is_document(split.source)
        except files.UNREADABLE as error:
            return iter([files.bad_block(split.source, split.start, error)])
        if whole:
            return _read_documents(split)
        return files.read_lines(split, lambda line, position: parse_block(parse(utf8(line)), split.source, position))


def is_document(path: str) -> bool:
    """Whether a file is read as a whole: named `.json`, or an array."""
    if path.endswith((".json", ".json.gz")):
        return True
    with files.open_stream(path) as stream:
        return stream.read(4096).lstrip().startswith(b"[")


def _divisible(path: str) -> bool:
    return not is_document(path) and not files.is_gzip(path)


def _bounds(path: str, held: int | None) -> Iterator[int]:
    try:
        whole = is_document(path)
    except files.UNREADABLE:
        yield from (0, 1)
        return
    yield from _document_bounds(path, held) if whole else files.line_bounds(path, held)


def _document_bounds(path: str, held: int | None) -> Iterator[int]:
    first = 0 if held is None else held + 1
    yield first
    position = 0
    try:
        for position, _ in enumerate(documents(document_text(path)), start=1):
            if position > first:
                yield position
    except (BadInput, *files.UNREADABLE):
        yield max(position, first) + 1


def _read_documents(split: Split) -> Iterator[RawBlock | BadBlock]:
    position = taken = 0
    try:
        for position, value in enumerate(documents(document_text(split.source))):
            if position >= split.end or taken >= split.max_blocks:
                return
            if position >= split.start:
                yield parse_block(value, split.source, position)
                taken += 1
    except (BadInput, *files.UNREADABLE) as error:
        yield files.bad_block(split.source, split.start + taken, error)


def document_text(path: str) -> str:
    """A file that is read as a whole."""
    with files.open_stream(path) as stream:
        data = stream.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise BadInput(f"the file is one JSON text of more than {MAX_DOCUMENT} bytes: write one answer a line (.jsonl)")
    return utf8(data)


def parse_block(value: Any, source: str, position: int) -> RawBlock:
    """The block of a `/block` result, or of the JSON-RPC answer around it; `BadInput` says what is wrong with it."""
    result = value["result"] if isinstance(value, dict) and isinstance(value.get("result"), dict) else value
    header = _member(result, "block.header")
    return RawBlock(
        height=_height(header.get("height")),
        hash=_hash(_member(result, "block_id").get("hash"), "block_id.hash"),
        parent_hash=_parent(header.get("last_block_id")),
        timestamp_us=micros(header.get("time")),
        payload=compact(result),
        transactions=tuple(_transactions(_member(result, "block.data").get("txs"))),
        source=source,
        position=position,
    )


def _member(value: Any, path: str) -> dict[str, Any]:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, dict):
        raise BadInput(f"{path} is missing: the result of CometBFT's /block is expected")
    return value


def _height(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch("[0-9]{1,19}", value) or (height := int(value)) >= 1 << 63:
        raise BadInput(f"header.height is {value!r:.60}: a decimal number in quotes is expected")
    return height


def _hash(value: Any, what: str) -> bytes:
    if not isinstance(value, str) or len(value) != 64 or len(found := from_hex(value, what)) != 32:
        raise BadInput(f"{what} is {value!r:.80}: 64 hex digits are expected")
    return found


def _parent(last: Any) -> bytes:
    """The first block of a chain has no last block: an empty hash, or none at all."""
    value = last.get("hash") if isinstance(last, dict) else None
    return _hash(value, "last_block_id.hash") if value else ZERO_HASH


def micros(value: Any) -> int:
    """Unix microseconds of an RFC 3339 time; CometBFT's nanoseconds are cut off."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    try:
        if match is None:
            raise ValueError
        moment = datetime.fromisoformat(match[1] + ("+00:00" if match[3] == "Z" else match[3]))
    except ValueError:
        raise BadInput(f"header.time is {value!r:.60}: an RFC 3339 time is expected") from None
    return (moment - _EPOCH) // timedelta(microseconds=1) + int((match[2] or "0").ljust(6, "0")[:6])


def _transactions(values: Any) -> Iterator[RawTransaction]:
    if not isinstance(values, list | None):
        raise BadInput(f"data.txs is {values!r:.60}: an array of base64 texts is expected")
    for index, value in enumerate(values or ()):
        try:
            payload = base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise BadInput(f"transaction {index} is {value!r:.60}: base64 is expected") from None
        yield RawTransaction(index, hashlib.sha256(payload).digest(), payload)
