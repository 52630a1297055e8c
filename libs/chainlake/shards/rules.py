"""The stateful rules of a metadata shard: what an operation does to its stream.

All checks of a block are against *committed* state, the state before the block. What the block itself has done so far counts in
three places only: a stream is created once, gets one miniblock, and moves once per block. So a stream cannot be updated in the
block that creates it, and two chained miniblocks need two blocks; but a miniblock and a move of the same stream go together. An
operation that fails leaves nothing behind: only one that succeeded stands in the way of the next.

Creating and moving a stream answer with a code. Miniblocks answer with an event each, `mbok` or `mberr`, so that some of a batch
may fail while its transaction is OK.
"""

from collections.abc import Iterable
from typing import NamedTuple

from chainlake.shards.checks import check_factor
from chainlake.shards.codes import Code, Refused
from chainlake.shards.placement import STREAM_ID, is_well_formed
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.state import StreamState
from chainlake.shards.transactions import (
    CreateStreamTx,
    MiniblockUpdate,
    SetStreamLastMiniblockBatchTx,
    StreamMetadata,
    Transaction,
    UpdateStreamNodesAndReplicationTx,
)

Operation = StreamMetadata | MiniblockUpdate | UpdateStreamNodesAndReplicationTx
"""What concerns one stream: its creation, one miniblock of a batch, or its move."""


class Event(NamedTuple):
    """An event of a transaction result; attributes in order."""

    type: str
    attributes: tuple[tuple[str, str], ...]


class Block(NamedTuple):
    """The block that an operation is in: its height, and the nodes that exist (each from its own height on)."""

    height: int
    registry: NodeRegistry


class Placement(NamedTuple):
    """Where a stream moves."""

    nodes: tuple[int, ...]
    replication_factor: int


class PendingStream(NamedTuple):
    """A stream inside a block: what is committed of it, and what the block has done to it so far."""

    committed: StreamState | None
    created: StreamState | None = None
    miniblock: MiniblockUpdate | None = None
    placement: Placement | None = None


class Outcome(NamedTuple):
    """What came of an operation. `code` is its own: the transaction of a failed miniblock is OK all the same."""

    stream: PendingStream
    code: Code
    message: str
    event: Event | None


def operations_of(transaction: Transaction) -> tuple[Operation, ...]:
    """The operations of a transaction that has passed `checks`, in order; there is at least one."""
    if isinstance(transaction, CreateStreamTx):
        return (transaction.stream,) if transaction.stream is not None else ()
    if isinstance(transaction, SetStreamLastMiniblockBatchTx):
        return transaction.miniblocks
    return (transaction,)


def apply(stream: PendingStream, operation: Operation, block: Block) -> Outcome:
    """What an operation does to its stream; a refused one leaves the stream as it was."""
    try:
        if isinstance(operation, MiniblockUpdate):
            return Outcome(set_last_miniblock(stream, operation), Code.OK, "", _mbok(operation))
        if isinstance(operation, StreamMetadata):
            return Outcome(create_stream(stream, operation, block), Code.OK, "", None)
        return Outcome(update_placement(stream, operation, block), Code.OK, "", None)
    except Refused as refused:
        event = _mberr(operation, refused) if isinstance(operation, MiniblockUpdate) else None
        return Outcome(stream, refused.code, refused.message, event)


def create_stream(stream: PendingStream, wanted: StreamMetadata, block: Block) -> PendingStream:
    """A stream comes into being as its creator describes it, sealed even, on registered nodes."""
    _check_stream_id(wanted.stream_id)
    nodes = resolve_nodes(wanted.nodes, block)
    if stream.committed is not None or stream.created is not None:
        raise Refused(Code.ALREADY_EXISTS, "stream already exists")
    created = StreamState(
        wanted.stream_id,
        wanted.last_miniblock_hash,
        wanted.last_miniblock_num,
        nodes,
        wanted.replication_factor,
        wanted.sealed,
        created_height=block.height,
        updated_height=block.height,
    )
    return stream._replace(created=created)


def set_last_miniblock(stream: PendingStream, update: MiniblockUpdate) -> PendingStream:
    """A stream that is not sealed gets the miniblock that follows its last one, once per block."""
    _check_stream_id(update.stream_id)
    state = _committed(stream)
    if stream.miniblock is not None:
        raise Refused(Code.FAILED_PRECONDITION, "can't update miniblock twice in the same block")
    if state.sealed:
        raise Refused(Code.FAILED_PRECONDITION, "stream is sealed")
    if update.prev_miniblock_hash != state.last_miniblock_hash:
        raise Refused(Code.BAD_PREV_MINIBLOCK_HASH, "prev_miniblock_hash mismatch")
    if update.last_miniblock_num != state.last_miniblock_num + 1:
        raise Refused(Code.BAD_BLOCK_NUMBER, "last_miniblock_num must increase by 1")
    return PendingStream(state, None, update, stream.placement)


def update_placement(stream: PendingStream, wanted: UpdateStreamNodesAndReplicationTx, block: Block) -> PendingStream:
    """A stream, sealed or not, moves to other nodes or gets another factor, once per block; what is not given stays."""
    _check_stream_id(wanted.stream_id)
    nodes = resolve_nodes(wanted.nodes, block)
    state = _committed(stream)
    if stream.placement is not None:
        raise Refused(Code.FAILED_PRECONDITION, "can't update placement twice in the same block")
    placement = Placement(nodes or state.nodes, wanted.replication_factor or state.replication_factor)
    check_factor(placement.replication_factor, len(placement.nodes))
    return stream._replace(placement=placement)


def commit_stream(stream: PendingStream, height: int) -> StreamState | None:
    """The stream after the block: the same state if nothing succeeded, None if there is still no such stream."""
    state, miniblock, placement = stream.committed, stream.miniblock, stream.placement
    if state is None or (miniblock is None and placement is None):
        return stream.created or state
    nodes, factor = placement or (state.nodes, state.replication_factor)
    return StreamState(
        state.stream_id,
        miniblock.last_miniblock_hash if miniblock else state.last_miniblock_hash,
        miniblock.last_miniblock_num if miniblock else state.last_miniblock_num,
        nodes,
        factor,
        state.sealed or (miniblock is not None and miniblock.sealed),
        state.created_height,
        updated_height=height,
    )


def check_height(last: int | None, height: int) -> None:
    """Blocks follow each other; the first one of a chain (`last` is None) may have any height."""
    if last is not None and height != last + 1:
        raise Refused(Code.FAILED_PRECONDITION, "height mismatch")


def resolve_nodes(addresses: Iterable[bytes], block: Block) -> tuple[int, ...]:
    """Permanent indexes in the order given. Node by node: first whether it is registered, then whether it came before."""
    found: dict[int, None] = {}
    for address in addresses:
        index = block.registry.index_of(address, block.height)
        if index is None:
            raise Refused(Code.UNKNOWN_NODE, "node is not registered")
        if index in found:
            raise Refused(Code.INVALID_ARGUMENT, "node list cannot contain duplicates")
        found[index] = None
    return tuple(found)


def _check_stream_id(stream_id: bytes) -> None:
    if not is_well_formed(stream_id):
        raise Refused(Code.BAD_STREAM_ID, "can't parse stream id")


def _committed(stream: PendingStream) -> StreamState:
    if stream.committed is None:
        raise Refused(Code.NOT_FOUND, "stream not found")
    return stream.committed


def _mbok(update: MiniblockUpdate) -> Event:
    said = ("sid", update.stream_id.hex()), ("n", str(update.last_miniblock_num)), ("h", update.last_miniblock_hash.hex())
    return Event("mbok", (*said, ("sealed", "true")) if update.sealed else said)


def _mberr(update: MiniblockUpdate, refused: Refused) -> Event:
    """An id that is not well-formed is given as zeros."""
    stream_id = bytes(STREAM_ID) if refused.code == Code.BAD_STREAM_ID else update.stream_id
    code = refused.code
    return Event("mberr", (("sid", stream_id.hex()), ("code", str(int(code))), ("name", code.name), ("msg", refused.message)))
