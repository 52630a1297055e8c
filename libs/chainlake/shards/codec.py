"""Bytes of transactions: the messages of shards.proto, read as Go's protobuf reads them and written in one way only.

Every replica must find the same transactions readable, so reading follows the validators' library to the letter: unknown fields
and fields of another wire type are passed over, of a repeated single field the last value counts, messages that come twice are
merged, of two ops the last one holds. Writing is canonical: fields by ascending number, defaults left out.

A message is read into a list of slots. Its fields are found by key (number and wire type in one), so that a known number with
another wire type is an unknown field without further ado. `BadInput` says why bytes are not a transaction.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from chainlake.errors import BadInput
from chainlake.shards.transactions import (
    CreateStreamTx,
    MiniblockUpdate,
    SetStreamLastMiniblockBatchTx,
    StreamMetadata,
    Transaction,
    UpdateStreamNodesAndReplicationTx,
)
from chainlake.sources.wire import FIXED32, FIXED64, LENGTH, VARINT, to_varint

GROUP_START, GROUP_END = 3, 4
MAX_NUMBER, MAX_NUMBER_IN_GROUP, MAX_GROUPS = (1 << 29) - 1, (1 << 31) - 1, 10_001

Slots = list[Any]
Fields = dict[int, tuple[int, Callable[..., Any] | None]]
"""Key of a field: its slot, and how its value is taken (numbers: from the varint; the rest: from what the slot holds and the
bytes; None: the bytes as they are)."""


def decode(data: bytes) -> Transaction | None:
    """The transaction that the bytes are; None when it has no op."""
    slots: Slots = [None]
    try:
        _merge(slots, _METADATA_TX, data)
    except IndexError:
        raise BadInput("not protobuf: it ends in the middle of a number") from None
    if slots[0] is None:
        return None
    build, held = slots[0]
    transaction: Transaction = build(held)
    return transaction


def encode(transaction: Transaction) -> bytes:
    """The canonical bytes of a transaction."""
    if isinstance(transaction, CreateStreamTx):
        stream = transaction.stream
        return _data(0x0A, b"" if stream is None else _data(0x0A, encode_stream(stream)))
    if isinstance(transaction, SetStreamLastMiniblockBatchTx):
        return _data(0x12, b"".join(_data(0x0A, _encode_miniblock(one)) for one in transaction.miniblocks))
    pieces = (
        _present(0x0A, transaction.stream_id),
        _repeated(0x12, transaction.nodes),
        _uint32(0x18, transaction.replication_factor),
    )
    return _data(0x1A, b"".join(pieces))


def encode_stream(stream: StreamMetadata) -> bytes:
    """The canonical bytes of StreamMetadata, which the state root commits to."""
    last = (stream.stream_id, stream.last_miniblock_hash, stream.last_miniblock_num)
    return stream_bytes(*last, stream.nodes, stream.replication_factor, stream.sealed)


def stream_bytes(stream_id: bytes, last_hash: bytes, last_num: int, nodes: tuple[bytes, ...], factor: int, sealed: bool) -> bytes:
    """The same from its fields: a root needs so many that making the message first would be felt."""
    last = _present(0x0A, stream_id) + _present(0x12, last_hash) + _int64(0x18, last_num)
    return last + _placement_bytes(nodes, factor) + (b"\x40\x01" if sealed else b"")


@lru_cache(1 << 14)
def _placement_bytes(nodes: tuple[bytes, ...], factor: int) -> bytes:
    """Nodes and factor, which many streams have in common."""
    return _repeated(0x22, nodes) + _uint32(0x28, factor)


def decode_stream(data: bytes) -> StreamMetadata:
    """The StreamMetadata of bytes that a proof or a snapshot carries."""
    try:
        return _stream(_stream_slots(None, data))
    except IndexError:
        raise BadInput("not protobuf: it ends in the middle of a number") from None


def _encode_miniblock(update: MiniblockUpdate) -> bytes:
    return b"".join(
        (
            _present(0x0A, update.stream_id),
            _present(0x12, update.prev_miniblock_hash),
            _int64(0x18, update.last_miniblock_num),
            _present(0x22, update.last_miniblock_hash),
            b"\x28\x01" if update.sealed else b"",
        )
    )


def _data(key: int, value: bytes) -> bytes:
    return _head(key, len(value)) + value


@lru_cache(1 << 10)
def _head(key: int, size: int) -> bytes:
    """What comes before so many bytes; most are of a few sizes."""
    return bytes((key,)) + to_varint(size)


def _present(key: int, value: bytes) -> bytes:
    return _data(key, value) if value else b""


def _repeated(key: int, values: Iterable[bytes]) -> bytes:
    return b"".join(_data(key, value) for value in values)


def _int64(key: int, value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 63:
        raise BadInput(f"{value} is not an int64: a smaller number is expected")
    return bytes((key,)) + to_varint(value & (1 << 64) - 1) if value else b""


def _uint32(key: int, value: int) -> bytes:
    if not 0 <= value < 1 << 32:
        raise BadInput(f"{value} is not a uint32: a number from 0 to {(1 << 32) - 1} is expected")
    return bytes((key,)) + to_varint(value) if value else b""


def _merge(slots: Slots, fields: Fields, data: bytes) -> None:
    """Reads a message into `slots`, on top of what they hold. An `IndexError` means that it ends in the middle of a number."""
    position, end = 0, len(data)
    while position < end:
        key = data[position]
        position += 1
        if key > 0x7F:
            key, position = _number_at(data, position - 1)
        field = fields.get(key)
        if field is None:
            position = _skip(data, position, key)
            continue
        value = data[position]
        position += 1
        if value > 0x7F:
            value, position = _number_at(data, position - 1)
        slot, take = field
        if not key & 7:
            slots[slot] = take(value) if take else value
            continue
        start, position = position, position + value
        if position > end:
            raise BadInput(f"not protobuf: field {key >> 3} claims {value} bytes, {end - start} are left")
        slots[slot] = take(slots[slot], data[start:position]) if take else data[start:position]


def _number_at(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after) of a varint. Unlike `wire.varint`, and like Go, it refuses more than 64 bits."""
    value = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
        shift += 7
    raise BadInput("not protobuf: a number has more than 64 bits")


def _skip(data: bytes, position: int, key: int) -> int:
    """The position after a field that the message does not know. Groups nest as deep as Go lets them, without recursion."""
    groups: list[int] = []
    while True:
        number, kind = key >> 3, key & 7
        if not 1 <= number <= (MAX_NUMBER_IN_GROUP if groups else MAX_NUMBER):
            raise BadInput(f"not protobuf: there is no field number {number}")
        if kind == VARINT:
            _, position = _number_at(data, position)
        elif kind == LENGTH:
            size, position = _number_at(data, position)
            position += size
        elif kind in (FIXED64, FIXED32):
            position += 8 if kind == FIXED64 else 4
        elif kind == GROUP_START and len(groups) < MAX_GROUPS:
            groups.append(number)
        elif kind != GROUP_END or not groups or groups.pop() != number:
            raise BadInput(f"not protobuf: field {number} has wire type {kind}")
        if position > len(data):
            raise BadInput(f"not protobuf: field {number} ends {position - len(data)} bytes after the message")
        if not groups:
            return position
        key, position = _number_at(data, position)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _low_32(value: int) -> int:
    return value & 0xFFFF_FFFF


def _append(held: list[bytes] | None, data: bytes) -> list[bytes]:
    if held is None:
        return [data]
    held.append(data)
    return held


_STREAM_METADATA: Fields = {
    0x0A: (0, None),
    0x12: (1, None),
    0x18: (2, _signed),
    0x22: (3, _append),
    0x28: (4, _low_32),
    0x40: (5, bool),
}
_MINIBLOCK_UPDATE: Fields = {0x0A: (0, None), 0x12: (1, None), 0x18: (2, _signed), 0x22: (3, None), 0x28: (4, bool)}
_PLACEMENT: Fields = {0x0A: (0, None), 0x12: (1, _append), 0x18: (2, _low_32)}


def _stream_slots(held: Slots | None, data: bytes) -> Slots:
    slots = held or [b"", b"", 0, None, 0, False]
    _merge(slots, _STREAM_METADATA, data)
    return slots


def _stream(slots: Slots) -> StreamMetadata:
    stream_id, last_hash, last_num, nodes, factor, sealed = slots
    return StreamMetadata(stream_id, last_hash, last_num, tuple(nodes or ()), factor, sealed)


def _add_miniblock(held: list[MiniblockUpdate] | None, data: bytes) -> list[MiniblockUpdate]:
    held = [] if held is None else held
    held.append(_usual_miniblock(data) or _any_miniblock(data))
    return held


def _usual_miniblock(data: bytes) -> MiniblockUpdate | None:
    """A miniblock as everybody writes it: all fields in order, hashes of 32 bytes, a number below 2^14. Most are so; it takes a
    third of the time."""
    end = 70 if len(data) > 70 and data[69] < 0x80 else 71
    if len(data) < end + 34 or data[0:2] + data[34:36] + data[68:69] + data[end : end + 2] != b"\x0a\x20\x12\x20\x18\x22\x20":
        return None
    tail = data[end + 34 :]
    if tail not in (b"", b"\x28\x01") or data[end - 1] > 0x7F:
        return None
    number = data[69] if end == 70 else data[69] & 0x7F | data[70] << 7
    return MiniblockUpdate(data[2:34], data[36:68], number, data[end + 2 : end + 34], bool(tail))


def _any_miniblock(data: bytes) -> MiniblockUpdate:
    slots: Slots = [b"", b"", 0, b"", False]
    _merge(slots, _MINIBLOCK_UPDATE, data)
    return MiniblockUpdate(*slots)


def _create(slots: Slots) -> CreateStreamTx:
    return CreateStreamTx(None if slots[0] is None else _stream(slots[0]))


def _batch(slots: Slots) -> SetStreamLastMiniblockBatchTx:
    return SetStreamLastMiniblockBatchTx(tuple(slots[0] or ()))


def _update(slots: Slots) -> UpdateStreamNodesAndReplicationTx:
    stream_id, nodes, factor = slots
    return UpdateStreamNodesAndReplicationTx(stream_id, tuple(nodes or ()), factor)


def _op(build: Callable[[Slots], Transaction], fields: Fields, empty: Slots) -> Callable[..., Any]:
    """How an op is taken: merged with one of its kind, or in place of another."""

    def take(held: tuple[Callable[[Slots], Transaction], Slots] | None, data: bytes) -> Any:
        slots = held[1] if held is not None and held[0] is build else list(empty)
        _merge(slots, fields, data)
        return build, slots

    return take


_METADATA_TX: Fields = {
    0x0A: (0, _op(_create, {0x0A: (0, _stream_slots)}, [None])),
    0x12: (0, _op(_batch, {0x0A: (0, _add_miniblock)}, [None])),
    0x1A: (0, _op(_update, _PLACEMENT, [b"", None, 0])),
}
