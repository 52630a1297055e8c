"""A shard at one height as one file that can be checked: a header in JSON, then chunks of streams.

    chainlake shard snapshot\\n
    {"format": 2, "chain_id": …, "height": …, "state_root": …, "registry": […], "chunks": [{"size": …, "sha256": …}], …}\\n
    SHA-256 of the line above, in hex\\n
    chunk chunk chunk …

A chunk is a run of streams by id: each is its canonical bytes with their length before them, then the heights of its creation and
last change. Whoever reads a snapshot checks the header against its hash, every chunk against the header, and the root over all
streams against the header's; what the root must be, a light client or a block of the chain tells. What the root does not cover
(heights, permanent indexes, results of the last block) rests on the hash of the header alone, so that is what to compare with a
party that one trusts (`--hash`).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import orjson

from chainlake.encoding import excerpt, from_hex, short, to_hex
from chainlake.errors import BadInput, CheckFailed
from chainlake.shards.checks import check
from chainlake.shards.codec import decode_stream, encode_stream
from chainlake.shards.codes import Code, Refused
from chainlake.shards.machine import Shard
from chainlake.shards.placement import is_well_formed
from chainlake.shards.registry import MAX_HEIGHT, NodeRecord, NodeRegistry, parse_record
from chainlake.shards.state import PLACEHOLDER, TREE, StreamState, metadata_of
from chainlake.shards.transactions import CreateStreamTx, StreamMetadata
from chainlake.sources.base import RawBlock
from chainlake.sources.comet import parse_block
from chainlake.sources.wire import to_varint, varint

MAGIC = b"chainlake shard snapshot\n"
FORMAT = 2
CHUNK_BYTES = 1 << 20
MAX_HEADER = 256 << 20
MOST_CHUNKS, MOST_BYTES = 1 << 20, 16 << 20
DIGEST = 65
UNREADABLE = (orjson.JSONDecodeError, orjson.JSONEncodeError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""What strangers' JSON comes to where it has another shape. The last: it is nested so deeply that no message could quote it."""

Watch = Callable[[Iterable[bytes]], Iterator[bytes]]


@dataclass(frozen=True)
class Chunk:
    """Size and hash of a chunk."""

    size: int
    sha256: bytes


@dataclass(frozen=True)
class Header:
    """What a snapshot says of itself. `registry` has the nodes that are registered at its height. `block` is the block at its
    height as received, and `results` what came of its transactions; a snapshot that a validator offers has neither."""

    chain_id: str
    height: int
    mode: str
    state_root: bytes
    app_hash: bytes
    stream_count: int
    registry: tuple[NodeRecord, ...]
    chunks: tuple[Chunk, ...]
    block: dict[str, Any] | None = None
    results: list[dict[str, Any]] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """The header line, without its end."""
        return orjson.dumps(
            {
                "format": FORMAT,
                "chain_id": self.chain_id,
                "height": self.height,
                "app_hash_mode": self.mode,
                "state_root": to_hex(self.state_root),
                "app_hash": to_hex(self.app_hash),
                "stream_count": self.stream_count,
                "registry": [
                    {"address": to_hex(one.address), "permanent_index": one.permanent_index, "from_height": one.from_height}
                    for one in self.registry
                ],
                "chunks": [{"size": one.size, "sha256": to_hex(one.sha256)} for one in self.chunks],
                "block": self.block,
                "results": self.results,
            }
        )

    @property
    def hash(self) -> bytes:
        """What tells one snapshot from another."""
        return hashlib.sha256(self.to_bytes()).digest()


def parse_header(data: bytes) -> Header:
    """The header of a line; `BadInput` says what is wrong with it."""
    try:
        value = orjson.loads(data)
        if value["format"] != FORMAT:
            raise BadInput(
                f"the snapshot has format {excerpt(value['format'])}: this version reads format {FORMAT}, export it again"
            )
        header = Header(
            chain_id=_text(value["chain_id"]),
            height=_whole(value["height"], MAX_HEIGHT),
            mode=_text(value["app_hash_mode"]),
            state_root=_hash(value["state_root"]),
            app_hash=_hash(value["app_hash"]),
            stream_count=_whole(value["stream_count"], MAX_HEIGHT),
            registry=tuple(map(parse_record, value["registry"])),
            chunks=tuple(Chunk(_whole(one["size"], MOST_BYTES), _hash(one["sha256"])) for one in value["chunks"]),
            block=value["block"],
            results=[_result(index, one) for index, one in enumerate(value["results"])],
        )
        is_as_written = header.to_bytes() == data
    except UNREADABLE as error:
        raise BadInput(f"the header of the snapshot cannot be read ({type(error).__name__}): the file is damaged") from None
    if not is_as_written or not _is_sound(header):
        raise BadInput("the header of the snapshot is not as it is written: the file is damaged")
    return header


def _is_sound(header: Header) -> bool:
    """Nodes by index, all of them registered by the height; a block, or none and no results of one."""
    has_block = isinstance(header.block, dict) or (header.block is None and not header.results)
    nodes = list(header.registry) == registered(NodeRegistry(header.registry), header.height)
    return header.mode in (TREE, PLACEHOLDER) and len(header.chunks) <= MOST_CHUNKS and has_block and nodes


def registered(registry: NodeRegistry, height: int) -> list[NodeRecord]:
    """The nodes that a block knows, by permanent index. Those to come are no part of the state."""
    return [one for one in registry.records if one.from_height <= height]


def check_block(header: Header) -> RawBlock:
    """The block of a snapshot, which must be of its height and chain, with a result for each transaction."""
    if header.block is None:
        raise BadInput("the snapshot has no block, so nothing could follow it: make it with lake snapshot export")
    block = parse_block(header.block, "snapshot", 0)
    chain_id = str(orjson.loads(block.payload)["block"]["header"].get("chain_id", ""))
    told = (block.height, chain_id, len(block.transactions))
    if told != (header.height, header.chain_id, len(header.results)):
        raise CheckFailed(
            f"the snapshot is of block {header.height} of {header.chain_id[:60]!r} with {len(header.results)} results, "
            f"its block is {block.height} of {chain_id[:60]!r} with {len(block.transactions)} transactions: do not use it"
        )
    return block


def chunks_of(streams: Iterable[StreamState], registry: NodeRegistry, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The streams of a shard, by id, in chunks of about a size."""
    pieces: list[bytes] = []
    held = 0
    for one in sorted(streams, key=lambda state: state.stream_id):
        value = encode_stream(metadata_of(one, registry))
        pieces.append(to_varint(len(value)) + value + to_varint(one.created_height) + to_varint(one.updated_height))
        held += len(pieces[-1])
        if held >= size:
            yield b"".join(pieces)
            pieces, held = [], 0
    if pieces:
        yield b"".join(pieces)


def read_chunk(chunk: bytes, registry: NodeRegistry) -> Iterator[StreamState]:
    """The streams of a chunk. Each has one form only, is such as the rules could make it, and is on nodes that were registered
    when it was last changed."""
    position = 0
    while position < len(chunk):
        size, position = varint(chunk, position)
        data = chunk[position : position + size]
        value = decode_stream(data)
        created, position = varint(chunk, position + size)
        updated, position = varint(chunk, position)
        nodes = tuple(registry.index_of(node, updated) or 0 for node in value.nodes)
        if 0 in nodes:
            raise CheckFailed(f"stream {short(value.stream_id)} of the snapshot is on a node that its registry does not have")
        if encode_stream(value) != data:
            raise CheckFailed(f"stream {short(value.stream_id)} of the snapshot is not in its canonical form: do not use it")
        _check_stream(value)
        last = (value.stream_id, value.last_miniblock_hash, value.last_miniblock_num)
        yield StreamState(*last, nodes, value.replication_factor, value.sealed, created, updated)


def _check_stream(value: StreamMetadata) -> None:
    """What holds of a stream since its creation, whatever became of it."""
    try:
        check(CreateStreamTx(value))
    except Refused as refused:
        raise CheckFailed(f"stream {short(value.stream_id)} of the snapshot breaks a rule ({refused}): do not use it") from None
    if not is_well_formed(value.stream_id) or len(set(value.nodes)) < len(value.nodes):
        raise CheckFailed(f"stream {short(value.stream_id)} of the snapshot has no stream's id, or a node twice: do not use it")


def make(shard: Shard, chain_id: str, block: dict[str, Any] | None, results: list[dict[str, Any]]) -> tuple[Header, list[bytes]]:
    """The snapshot of a shard as it is."""
    if shard.height is None:
        raise BadInput("a shard without blocks has nothing to take a snapshot of")
    chunks = list(chunks_of(shard.streams.values(), shard.registry))
    header = Header(
        chain_id=chain_id,
        height=shard.height,
        mode=shard.mode,
        state_root=shard.state_root,
        app_hash=shard.app_hash,
        stream_count=len(shard.streams),
        registry=tuple(registered(shard.registry, shard.height)),
        chunks=tuple(Chunk(len(one), hashlib.sha256(one).digest()) for one in chunks),
        block=block,
        results=results,
    )
    return header, chunks


def pieces_of(header: Header, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The file, piece by piece."""
    yield MAGIC + header.to_bytes() + b"\n" + header.hash.hex().encode() + b"\n"
    yield from chunks


def read(source: BinaryIO, watch: Watch = iter) -> tuple[Header, Shard]:
    """The shard that a file holds, checked: `BadInput` for what is no snapshot, `CheckFailed` for one that contradicts itself.
    `watch` sees the chunks go by."""
    if source.readline(len(MAGIC) + 1) != MAGIC:
        raise BadInput("the file is no snapshot of a shard: make one with lake snapshot export")
    line = source.readline(MAX_HEADER)
    if not line.endswith(b"\n"):
        raise BadInput("the snapshot ends in the middle of its header: the file is truncated")
    digest = source.readline(DIGEST)
    header = parse_header(line[:-1])
    if digest != header.hash.hex().encode() + b"\n":
        raise CheckFailed("the header of the snapshot has another hash than the file says: it was damaged or tampered with")
    chunks = [source.read(one.size) for one in header.chunks]
    if source.read(1):
        raise CheckFailed("the snapshot goes on after its last chunk: the file was tampered with")
    return header, restore(header, chunks, watch)


def restore(header: Header, chunks: Sequence[bytes], watch: Watch = iter) -> Shard:
    """The shard of checked chunks; its root must be the header's."""
    registry = NodeRegistry(header.registry)
    streams: dict[bytes, StreamState] = {}
    last = b""
    for number, chunk in enumerate(watch(chunks)):
        check_chunk(header, number, chunk)
        for one in read_chunk(chunk, registry):
            if not one.created_height <= one.updated_height <= header.height:
                raise CheckFailed(f"stream {short(one.stream_id)} of the snapshot was changed after block {header.height}")
            if one.stream_id <= last:
                raise CheckFailed(f"stream {short(one.stream_id)} of the snapshot is not where its id belongs: do not use it")
            last = one.stream_id
            streams[last] = one
    if len(chunks) != len(header.chunks):
        raise CheckFailed(f"the snapshot has {len(chunks)} chunks, its header says {len(header.chunks)}: it is truncated")
    shard = Shard(registry, header.mode, header.height, streams.values())
    found = (shard.state_root, shard.app_hash, len(shard.streams))
    if found != (header.state_root, header.app_hash, header.stream_count):
        raise CheckFailed(
            f"the {len(streams)} streams of the snapshot have root {short(shard.state_root)}, its header says "
            f"{short(header.state_root)} over {header.stream_count}: do not use it"
        )
    return shard


def check_chunk(header: Header, number: int, chunk: bytes) -> None:
    """`CheckFailed` if a chunk is not the one that the header names."""
    wanted = header.chunks[number]
    if len(chunk) != wanted.size:
        raise CheckFailed(
            f"chunk {number} of the snapshot has {len(chunk)} bytes, its header says {wanted.size}: it is truncated"
        )
    if hashlib.sha256(chunk).digest() != wanted.sha256:
        raise CheckFailed(
            f"chunk {number} of the snapshot has another hash than its header says: it was damaged or tampered with"
        )


def _result(index: int, value: Any) -> dict[str, Any]:
    """The result of the transaction with this index, as `lake snapshot export` writes it."""
    if {type(value["tx_index"]), type(value["code"])} != {int} or value["tx_index"] != index:
        raise ValueError(value)
    if value["log"] != Code(value["code"]).name:
        raise ValueError(value)
    for event in value["events"]:
        pairs = [text for key, text in event["attributes"] for text in (key, text)]
        if not all(isinstance(text, str) for text in (event["type"], *pairs)):
            raise ValueError(event)
    found: dict[str, Any] = value
    _text(value["message"])
    return found


def _whole(value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _hash(value: Any) -> bytes:
    found = from_hex(_text(value))
    if len(found) != 32:
        raise ValueError(value)
    return found
