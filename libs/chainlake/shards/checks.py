"""Stateless checks: what a transaction must be before any stream is looked at (CheckTx), and what goes into a proposal.

The order of the checks is part of the protocol: the first one that fails names the reason.
"""

from collections.abc import Iterable

from chainlake.errors import BadInput
from chainlake.shards.codec import decode
from chainlake.shards.codes import Code, Refused
from chainlake.shards.placement import STREAM_ID
from chainlake.shards.registry import ADDRESS
from chainlake.shards.transactions import (
    CreateStreamTx,
    MiniblockUpdate,
    SetStreamLastMiniblockBatchTx,
    Transaction,
    UpdateStreamNodesAndReplicationTx,
)

HASH = 32


def check_tx(data: bytes) -> Transaction:
    """CheckTx: the transaction that the bytes are, if a shard may take it; `Refused` otherwise."""
    try:
        transaction = decode(data)
    except BadInput as error:
        raise Refused(Code.INVALID_ARGUMENT, "unable to decode metadata tx") from error
    if transaction is None:
        raise Refused(Code.INVALID_ARGUMENT, "missing op")
    check(transaction)
    return transaction


def check(transaction: Transaction) -> None:
    """`Refused` with the first rule that a transaction breaks on its own."""
    if isinstance(transaction, CreateStreamTx):
        _check_create(transaction)
    elif isinstance(transaction, SetStreamLastMiniblockBatchTx):
        _check_batch(transaction)
    else:
        _check_update(transaction)


def prepare_proposal(transactions: Iterable[bytes], max_bytes: int) -> list[bytes]:
    """PrepareProposal: the valid transactions, in order, up to the first that does not fit any more."""
    found, size = [], 0
    for data in transactions:
        if not is_valid(data):
            continue
        size += len(data)
        if size > max_bytes:
            break
        found.append(data)
    return found


def process_proposal(transactions: Iterable[bytes]) -> bool:
    """ProcessProposal: whether a block may be voted for, which is when all of its transactions are valid."""
    return all(is_valid(data) for data in transactions)


def is_valid(data: bytes) -> bool:
    """Whether CheckTx takes a transaction."""
    try:
        check_tx(data)
    except Refused:
        return False
    return True


def _check_create(transaction: CreateStreamTx) -> None:
    stream = transaction.stream
    if stream is None:
        raise _invalid("stream metadata missing")
    _check_stream_id(stream.stream_id)
    if len(stream.last_miniblock_hash) != HASH:
        raise _invalid("last_miniblock_hash must be 32 bytes")
    if stream.last_miniblock_num < 0:
        raise _invalid("last_miniblock_num must be >= 0")
    if not stream.nodes:
        raise _invalid("nodes required")
    _check_addresses(stream.nodes)
    if stream.replication_factor == 0:
        raise _invalid("replication_factor must be > 0")
    check_factor(stream.replication_factor, len(stream.nodes))


def _check_batch(transaction: SetStreamLastMiniblockBatchTx) -> None:
    if not transaction.miniblocks:
        raise _invalid("miniblocks missing")
    for update in transaction.miniblocks:
        _check_miniblock(update)


def _check_miniblock(update: MiniblockUpdate) -> None:
    _check_stream_id(update.stream_id)
    if len(update.prev_miniblock_hash) != HASH or len(update.last_miniblock_hash) != HASH:
        raise _invalid("hashes must be 32 bytes")
    if update.last_miniblock_num <= 0:
        raise _invalid("last_miniblock_num must be > 0")


def _check_update(transaction: UpdateStreamNodesAndReplicationTx) -> None:
    _check_stream_id(transaction.stream_id)
    if not transaction.nodes and transaction.replication_factor == 0:
        raise _invalid("nothing to update")
    _check_addresses(transaction.nodes)
    if transaction.nodes:
        check_factor(transaction.replication_factor, len(transaction.nodes))


def check_factor(factor: int, nodes: int) -> None:
    """A stream cannot have more replicas than nodes."""
    if factor > nodes:
        raise _invalid("replication_factor cannot exceed number of nodes")


def _check_stream_id(stream_id: bytes) -> None:
    if len(stream_id) != STREAM_ID:
        raise _invalid("stream_id must be 32 bytes")


def _check_addresses(nodes: Iterable[bytes]) -> None:
    if any(len(node) != ADDRESS for node in nodes):
        raise _invalid("node address must be 20 bytes")


def _invalid(message: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, message)
