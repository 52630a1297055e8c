"""Recorded passes over river streams: `DIR/<pass number>/<stream id hex>.bin`, each one GetStreamResponse as received. Beside it,
`<stream id hex>.<from>-<to>.bin` are GetMiniblocksResponses: the pages that were fetched to fill a gap before it.

A pass is a block: its transactions are the miniblocks of all answers. The block's payload says which stream each came
from (`miniblocks`: how many of each stream, in order) and keeps the rest of every answer: cookie, minipool events,
snapshot. The content of miniblocks is not checked here, so that one bad stream does not stop the others.
"""

import base64
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chainlake.errors import BadInput
from chainlake.sources import files, wire
from chainlake.sources.base import ZERO_HASH, BadBlock, Cursor, RawBlock, RawTransaction, Split, is_url
from chainlake.sources.chained import check_parent, parent_at_start
from chainlake.sources.endpoint import check_url
from chainlake.sources.json_text import canonical

MAX_RESPONSE = 256 << 20
SUFFIX = ".bin"
RESPONSE_STREAM, STREAM_COOKIE, STREAM_MINIBLOCKS, COOKIE_STREAM, PAGE_MINIBLOCKS = 1, 2, 3, 2, 1
_NAME = re.compile(r"((?:[0-9a-f]{2}){1,64})(?:\.([0-9]{1,18})-[0-9]{1,18})?" + re.escape(SUFFIX))
MINIBLOCK_HEADER, ENVELOPE_HASH, ENVELOPE_EVENT, EVENT_HEADER, HEADER_NUMBER = 2, 1, 3, 100, 1


class RiverFormat:
    """A directory of passes. The source is the directory, the position the number of the pass."""

    suffixes = (SUFFIX,)

    def expand(self, path: str) -> list[str]:
        """The directory of `--from DIR` itself, or the nodes of `--from URL,URL`."""
        if is_url(path):
            return nodes(path)
        full = os.path.abspath(path)
        if not os.path.isdir(full) or not os.access(full, os.R_OK | os.X_OK):
            raise BadInput(f"{path} is not a directory that can be read: give DIR with DIR/<pass>/<stream id>.bin")
        if not passes(full):
            raise BadInput(f"{path} holds no pass: directories named by number are expected (DIR/1, DIR/2, …)")
        return [full]

    def plan(
        self, paths: list[str], cursor: Cursor | None, max_blocks: int, max_bytes: int, options: Mapping[str, str]
    ) -> list[Split]:
        """One split: a pass is hashed over the one before."""
        for path, held in files.remaining(paths, cursor):
            new = [number for number in passes(path) if held is None or number > held]
            if new:
                parent = cursor.hash if cursor and held is not None else parent_at_start(new[0], cursor)
                return [Split(path, new[0], _end(path, new, max_blocks, max_bytes), max_blocks, parent)]
        return []

    def read(self, split: Split, options: Mapping[str, str]) -> Iterator[RawBlock | BadBlock]:
        """The passes of a split, each linked to the one before."""
        parent = split.parent_hash
        numbers = [number for number in passes(split.source) if split.start <= number < split.end]
        for number in numbers[: split.max_blocks] or [split.start]:
            try:
                check_parent(parent, number)
                block = read_pass(split.source, number, parent)
            except (BadInput, OSError) as error:
                yield BadBlock(split.source, number, files.reason_of(error))
                return
            yield block
            parent = block.hash


def nodes(urls: str) -> list[str]:
    """The nodes of a stream service, in order of preference."""
    found = [url.strip() for url in urls.split(",") if url.strip()]
    for url in found:
        check_url(url)
    return found


def stream_ids(options: Mapping[str, str]) -> list[bytes]:
    """The streams that a live chain follows, each once, in the order of the file."""
    path = options.get("streams")
    if not path:
        raise BadInput("which streams? give --option streams=FILE, a file with one hex stream id a line")
    try:
        with open(path, encoding="utf-8") as lines:
            texts = [line.strip() for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"option streams: {path} cannot be read ({files.reason_of(error)})") from None
    found: dict[bytes, None] = {}
    for number, text in enumerate(texts, start=1):
        if text and not re.fullmatch("(?:0x)?(?:[0-9a-fA-F]{2}){1,64}", text):
            raise BadInput(f"{path} line {number}: {text[:80]!r} is not a stream id in hex")
        if text:
            found[bytes.fromhex(text.removeprefix("0x"))] = None
    if not found:
        raise BadInput(f"option streams: {path} names no stream")
    return list(found)


@dataclass(frozen=True)
class _Answer:
    stream_id: bytes
    digest: bytes
    miniblocks: list[tuple[bytes, bytes]]
    rest: bytes
    pages: int = 0


def passes(directory: str) -> list[int]:
    """The numbers of the passes in a directory, in order."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]{0,17}", name))


def read_pass(directory: str, number: int, parent: bytes) -> RawBlock:
    """One pass as a block; `BadInput` names the answer that cannot be read."""
    folder = os.path.join(directory, str(number))
    answers = _answers(folder)
    linked = parent + b"".join(answer.stream_id + answer.digest for answer in answers)
    found = [miniblock for answer in answers for miniblock in answer.miniblocks]
    payload = {
        "pass": number,
        "streams": [answer.stream_id.hex() for answer in answers],
        "miniblocks": [len(answer.miniblocks) for answer in answers],
        "rest": [base64.b64encode(answer.rest).decode() for answer in answers],
    }
    if any(answer.pages for answer in answers):
        payload["pages"] = [answer.pages for answer in answers]
    return RawBlock(
        height=number,
        hash=hashlib.sha256(linked).digest(),
        parent_hash=parent,
        timestamp_us=None,
        payload=canonical(payload),
        transactions=tuple(RawTransaction(index, mark, raw) for index, (mark, raw) in enumerate(found)),
        source=directory,
        position=number,
    )


def _names(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX) and not name.startswith("."))


def _end(directory: str, numbers: list[int], max_blocks: int, max_bytes: int) -> int:
    """The number after the last pass that fits in a batch; at least one does."""
    size = 0
    for number in numbers[:max_blocks]:
        size += _size(os.path.join(directory, str(number)))
        if size > max_bytes and number != numbers[0]:
            return number
    return numbers[:max_blocks][-1] + 1


def _size(folder: str) -> int:
    """The bytes of a pass; 0 when it cannot be listed, which reading it reports."""
    try:
        return sum(os.path.getsize(os.path.join(folder, name)) for name in _names(folder))
    except OSError:
        return 0


def _answers(folder: str) -> list[_Answer]:
    """The answers of a pass in order of their streams, each behind the pages of its gap."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name in _names(folder):
        named = _NAME.fullmatch(name)
        if not named:
            raise BadInput(f"{os.path.join(folder, name)} is not named by a stream id in lower-case hex")
        found.setdefault(named[1], []).append((int(named[2]) if named[2] else -1, name))
    answers = []
    for stream, names in sorted(found.items()):
        if min(names)[0] >= 0:
            raise BadInput(
                f"{os.path.join(folder, min(names)[1])} is a page without the answer {stream}{SUFFIX} that it belongs to"
            )
        answer = _answer(folder, min(names)[1])
        pages = [_page(folder, name) for start, name in sorted(names)[1:]]
        answers.append(_behind(pages, answer) if pages else answer)
    return answers


def _behind(pages: list[tuple[bytes, list[bytes]]], answer: _Answer) -> _Answer:
    """An answer behind the miniblocks of its pages, whichever order these came in."""
    before = _ordered([miniblock for _, miniblocks in pages for miniblock in miniblocks])
    digest = hashlib.sha256(answer.digest + b"".join(digest for digest, _ in pages)).digest()
    return _Answer(answer.stream_id, digest, [*before, *answer.miniblocks], answer.rest, len(before))


def _page(folder: str, name: str) -> tuple[bytes, list[bytes]]:
    data = _contents(os.path.join(folder, name))
    try:
        return hashlib.sha256(data).digest(), wire.messages(data, PAGE_MINIBLOCKS)
    except BadInput as error:
        raise BadInput(f"{os.path.join(folder, name)} is not a GetMiniblocksResponse: {error}") from None


def _contents(path: str) -> bytes:
    with open(path, "rb") as stream:
        data = stream.read(MAX_RESPONSE + 1)
    if len(data) > MAX_RESPONSE:
        raise BadInput(f"{path} is larger than {MAX_RESPONSE} bytes: no answer of a stream node is")
    return data


def _answer(folder: str, name: str) -> _Answer:
    path = os.path.join(folder, name)
    data = _contents(path)
    try:
        stream_and_cookie = wire.message(data, RESPONSE_STREAM)
        miniblocks = wire.messages(stream_and_cookie, STREAM_MINIBLOCKS)
        rest = wire.without(stream_and_cookie, STREAM_MINIBLOCKS)
        told = wire.message(wire.message(stream_and_cookie, STREAM_COOKIE), COOKIE_STREAM)
    except BadInput as error:
        raise BadInput(f"{path} is not a GetStreamResponse: {error}") from None
    stream_id = bytes.fromhex(name[: -len(SUFFIX)])
    if told not in (b"", stream_id):
        raise BadInput(f"{path} is an answer about the stream {told[:64].hex()}, not about the one that it is named by")
    return _Answer(stream_id, hashlib.sha256(data).digest(), _ordered(miniblocks), rest)


def _ordered(miniblocks: list[bytes]) -> list[tuple[bytes, bytes]]:
    """(hash, bytes) by number. One without a readable header stays behind the miniblock before it, with a zero hash."""
    keyed: list[tuple[int, bytes, bytes]] = []
    for raw in miniblocks:
        try:
            number, mark = _header(raw)
        except BadInput:
            number, mark = keyed[-1][0] if keyed else 0, ZERO_HASH
        keyed.append((number, mark, raw))
    return [(mark, raw) for _, mark, raw in sorted(keyed, key=lambda entry: entry[0])]


def _header(raw: bytes) -> tuple[int, bytes]:
    envelope = wire.message(raw, MINIBLOCK_HEADER)
    header = wire.message(wire.message(envelope, ENVELOPE_EVENT), EVENT_HEADER)
    mark = wire.message(envelope, ENVELOPE_HASH)
    if len(mark) != 32:
        raise BadInput("the miniblock has no header with a hash of 32 bytes")
    return wire.number(header, HEADER_NUMBER), mark
