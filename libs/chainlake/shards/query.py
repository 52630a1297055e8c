"""The queries of a shard, as Python functions and by the paths that validators and the gateway answer.

    /stream/<hex>                       one stream
    /streams                            streams by id, in pages
    /streams/node/<0xaddr>              those of a node
    /streams/count[/<0xaddr>]           how many

Pages are asked for by `offset` (default 0) and `limit` (default 100, at most 10,000; the answer says what was used). Streams are
written as protobuf's JSON: camelCase, bytes in base64, 64-bit numbers as text, defaults left out.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from chainlake.encoding import to_hex
from chainlake.errors import BadInput
from chainlake.shards.codes import Code, Refused
from chainlake.shards.placement import STREAM_ID
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.state import StreamState, metadata_of
from chainlake.shards.transactions import StreamMetadata

DEFAULT_LIMIT, MOST = 100, 10_000
NUMBER = re.compile("[+-]?[0-9]{1,19}")
MOST_NUMBER = (1 << 63) - 1


class View(Protocol):
    """The streams of a shard after one block."""

    @property
    def registry(self) -> NodeRegistry:
        """Nodes that are registered."""
        ...

    def stream(self, stream_id: bytes) -> StreamState | None:
        """One stream."""
        ...

    def streams(self) -> Sequence[StreamState]:
        """All streams by id."""
        ...

    def count(self) -> int:
        """How many there are."""
        ...


@dataclass(frozen=True)
class Page:
    """Which part of a list is wanted."""

    offset: int = 0
    limit: int = DEFAULT_LIMIT


@dataclass(frozen=True)
class StreamList:
    """A part of a list, and how long the whole list is."""

    streams: list[StreamMetadata]
    page: Page
    count: int
    node: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        """As queries answer it."""
        found = {"streams": [stream_json(one) for one in self.streams], "offset": self.page.offset, "limit": self.page.limit}
        return {**found, "count": self.count, **({"node": to_hex(self.node)} if self.node is not None else {})}


def get_stream(view: View, stream_id: bytes) -> StreamMetadata:
    """One stream; `Refused` if there is none."""
    state = view.stream(stream_id)
    if state is None:
        raise Refused(Code.NOT_FOUND, "stream not found")
    return metadata_of(state, view.registry)


def list_streams(view: View, page: Page | None = None, node: bytes | None = None) -> StreamList:
    """Streams by id, of the shard or of one node."""
    page = page or Page()
    found = _of_node(view, node)
    part, registry = found[page.offset : page.offset + page.limit], view.registry
    return StreamList([metadata_of(one, registry) for one in part], page, len(found), node)


def count_streams(view: View, node: bytes | None = None) -> int:
    """How many streams there are, in the shard or on one node."""
    return view.count() if node is None else len(_of_node(view, node))


def answer(view: View, path: str, query: Mapping[str, str]) -> dict[str, Any]:
    """What a path asks for; `Refused` with the code and message of the protocol."""
    match path.strip("/").split("/"):
        case ["stream", text]:
            return stream_json(get_stream(view, read_stream_id(text)))
        case ["streams"]:
            return list_streams(view, read_page(query)).to_json()
        case ["streams", "node", text]:
            return list_streams(view, read_page(query), read_address(text)).to_json()
        case ["streams", "count"]:
            return {"count": count_streams(view)}
        case ["streams", "count", text]:
            node = read_address(text)
            return {"count": count_streams(view, node), "node": to_hex(node)}
    raise Refused(Code.INVALID_ARGUMENT, "unsupported query path")


def read_page(query: Mapping[str, str]) -> Page:
    """Offset and limit of a query; where both are wrong, the offset is named."""
    offset = _number(query, "offset")
    if offset is not None and offset < 0:
        raise Refused(Code.INVALID_ARGUMENT, "offset must be >= 0")
    limit = _number(query, "limit")
    return Page(offset or 0, min(limit, MOST) if limit is not None and limit > 0 else DEFAULT_LIMIT)


def read_stream_id(text: str) -> bytes:
    """The id in a path, with or without 0x."""
    digits = text[2:] if text[:2] in ("0x", "0X") else text
    if not re.fullmatch(f"[0-9a-fA-F]{{{2 * STREAM_ID}}}", digits):
        raise Refused(Code.INVALID_ARGUMENT, "stream_id must be 32 bytes")
    return bytes.fromhex(digits)


def parse_stream_id(text: str) -> bytes:
    """The id that somebody typed: whoever asks over HTTP or ABCI is told what the protocol says, a person what to type."""
    try:
        return read_stream_id(text)
    except Refused:
        raise BadInput(
            f"{text[:80]!r} is not the id of a stream: 64 hex digits (32 bytes) are expected, "
            "see SELECT hex(stream_id) FROM silver.streams"
        ) from None


def read_address(text: str) -> bytes:
    """The node in a path."""
    if not re.fullmatch("0[xX][0-9a-fA-F]{40}", text):
        raise Refused(Code.INVALID_ARGUMENT, "node address must be 20 bytes")
    return bytes.fromhex(text[2:])


def stream_json(stream: StreamMetadata) -> dict[str, Any]:
    """A stream as protobuf's JSON has it."""
    values = {
        "streamId": _base64(stream.stream_id),
        "lastMiniblockHash": _base64(stream.last_miniblock_hash),
        "lastMiniblockNum": str(stream.last_miniblock_num) if stream.last_miniblock_num else "",
        "nodes": [_base64(node) for node in stream.nodes],
        "replicationFactor": stream.replication_factor,
        "sealed": stream.sealed,
    }
    return {name: value for name, value in values.items() if value}


def _of_node(view: View, node: bytes | None) -> Sequence[StreamState]:
    if node is None:
        return view.streams()
    index = next((one.permanent_index for one in view.registry.records if one.address == node), None)
    return [one for one in view.streams() if index in one.nodes]


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not NUMBER.fullmatch(text) or abs(int(text)) > MOST_NUMBER:
        raise Refused(Code.INVALID_ARGUMENT, f"invalid {name}")
    return int(text)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
