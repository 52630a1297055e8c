"""Operations folded stream by stream, in any order of streams, and the results put back in the order of transactions.

`split` takes a transaction apart, `fold_stream` runs the rules over all operations of one stream, `assemble` joins what they
gave. As no rule looks at two streams, the result is that of running the blocks one after another (`finalize_block`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from chainlake.errors import BadInput
from chainlake.shards.checks import check_tx
from chainlake.shards.codes import Code, Refused
from chainlake.shards.registry import NodeRegistry
from chainlake.shards.rules import (
    Block,
    Event,
    Operation,
    PendingStream,
    apply,
    check_height,
    commit_stream,
    operations_of,
)
from chainlake.shards.state import StreamState


class StreamOperation(NamedTuple):
    """An operation and its place: block, transaction, and number within a batch (else 0)."""

    height: int
    tx_index: int
    item: int
    operation: Operation


class OperationResult(NamedTuple):
    """What came of an operation, at its place. An operation with an event does not decide the code of its transaction."""

    height: int
    tx_index: int
    item: int
    code: Code
    message: str
    event: Event | None


class TxResult(NamedTuple):
    """The result of a transaction, as FinalizeBlock answers it. `message` is ours: the chain tells the code's name only."""

    height: int
    tx_index: int
    code: Code
    message: str
    events: tuple[Event, ...]

    @property
    def log(self) -> str:
        """The name of the code."""
        return self.code.name


@dataclass(frozen=True)
class FoldedStream:
    """After-images of a stream, one per block that changed it (its `updated_height`), and the results in order."""

    images: list[StreamState]
    results: list[OperationResult]


@dataclass(frozen=True)
class FinalizedBlock:
    """What a block gives: results in transaction order, and the streams that it changed."""

    height: int
    results: list[TxResult]
    changed: dict[bytes, StreamState]


def split(height: int, tx_index: int, data: bytes) -> list[StreamOperation] | TxResult:
    """The operations of a transaction, or its result right away when it fails the stateless checks."""
    try:
        operations = operations_of(check_tx(data))
    except Refused as refused:
        return TxResult(height, tx_index, refused.code, refused.message, ())
    return [StreamOperation(height, tx_index, item, operation) for item, operation in enumerate(operations)]


def fold_stream(state: StreamState | None, operations: Iterable[StreamOperation], registry: NodeRegistry) -> FoldedStream:
    """Runs the operations of one stream, ordered by their place, on its state before the first of them."""
    images: list[StreamState] = []
    results: list[OperationResult] = []
    last = (-1, -1, -1)
    for height, ahead in groupby(operations, key=itemgetter(0)):
        block, pending = Block(height, registry), PendingStream(state)
        for _, tx_index, item, operation in ahead:
            place = (height, tx_index, item)
            if place <= last:
                raise BadInput(f"operation {place} came after {last}: sort by height, tx_index and item")
            last = place
            pending, code, message, event = apply(pending, operation, block)
            results.append(OperationResult(height, tx_index, item, code, message, event))
        after = commit_stream(pending, height)
        if after is not None and after is not state:
            images.append(after)
        state = after
    return FoldedStream(images, results)


def assemble(refused: Iterable[TxResult], results: Iterable[OperationResult]) -> list[TxResult]:
    """Results of transactions in block order, from those of `split` and of the operations of all streams, in any order."""
    found = list(refused)
    ordered = sorted(results, key=lambda one: one[:3])
    found.extend(_joined(list(parts)) for _, parts in groupby(ordered, key=lambda one: one[:2]))
    return sorted(found, key=lambda one: one[:2])


def finalize_block(
    streams: Mapping[bytes, StreamState], last: int | None, height: int, transactions: Sequence[bytes], registry: NodeRegistry
) -> FinalizedBlock:
    """FinalizeBlock: one block, transaction by transaction, on the committed `streams`; they are not changed."""
    check_height(last, height)
    block = Block(height, registry)
    pending: dict[bytes, PendingStream] = {}
    results: list[TxResult] = []
    for tx_index, data in enumerate(transactions):
        operations = split(height, tx_index, data)
        if isinstance(operations, TxResult):
            results.append(operations)
            continue
        parts = []
        for _, _, item, operation in operations:
            key = operation.stream_id
            stream = pending.get(key) or PendingStream(streams.get(key))
            pending[key], code, message, event = apply(stream, operation, block)
            parts.append(OperationResult(height, tx_index, item, code, message, event))
        results.append(_joined(parts))
    after = ((key, streams.get(key), commit_stream(stream, height)) for key, stream in pending.items())
    changed = {key: new for key, old, new in after if new is not None and new is not old}
    return FinalizedBlock(height, results, changed)


def _joined(parts: list[OperationResult]) -> TxResult:
    """The result of a transaction: of its one operation, or OK with the events of a batch."""
    first = parts[0]
    if first.event is None:
        return TxResult(first.height, first.tx_index, first.code, first.message, ())
    return TxResult(first.height, first.tx_index, Code.OK, "", tuple(part.event for part in parts if part.event is not None))
