"""One miniblock, opened and checked by itself: header hash, number, count and hash of each event. Links are for the rules."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from chainlake.encoding import short
from chainlake.errors import BadInput
from chainlake.sources import wire
from chainlake.sync.hashing import river_hash
from chainlake.sync.proto import parse

UNREAD = -1
MOST_NUMBER = 1 << 62
YEAR_10000 = 253_402_300_800
HEADER = 100


class Event(NamedTuple):
    """An event as sent: the hash that its envelope states, and the serialized StreamEvent."""

    hash: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Miniblock:
    """A miniblock as sent. `problem` says what is wrong with it; `number` is -1 where it cannot be read."""

    number: int
    hash: bytes
    prev_hash: bytes
    timestamp_us: int | None
    has_snapshot: bool
    events: tuple[Event, ...]
    problem: str | None


@dataclass(frozen=True)
class Block:
    """A miniblock as sent, and what it says; it is opened once, when somebody asks."""

    raw: bytes

    @cached_property
    def opened(self) -> Miniblock:
        return open_miniblock(self.raw)

    @property
    def place(self) -> tuple[int, bytes]:
        return self.opened.number, self.opened.hash


def open_miniblock(raw: bytes) -> Miniblock:
    """What the bytes say. Never raises: what cannot be read is a problem too."""
    try:
        found = parse("Miniblock", _few(raw))
        events = tuple([Event(envelope.hash, envelope.event) for envelope in found.events])
        head = Event(found.header.hash, found.header.event)
        stated = parse("HeaderEvent", _few(head.body, HEADER))
    except BadInput as error:
        return Miniblock(UNREAD, b"", b"", None, False, (), f"it cannot be read ({error})")
    if not stated.HasField("miniblock_header") or len(head.hash) != 32:
        return Miniblock(UNREAD, b"", b"", None, False, (), "it has no header with a hash of 32 bytes")
    header = stated.miniblock_header
    if not 0 <= header.miniblock_num < MOST_NUMBER:
        return Miniblock(UNREAD, b"", b"", None, False, (), f"no miniblock can have its number {header.miniblock_num}")
    return Miniblock(
        header.miniblock_num,
        head.hash,
        header.prev_miniblock_hash,
        _micros(header),
        header.HasField("snapshot") or header.HasField("snapshot_hash"),
        events,
        _header_problem(head, header) or _event_problem(events, header.event_hashes),
    )


def _few(message: bytes, *inside: int) -> bytes:
    """A message, unless it (or one inside) has more fields than are ever read: parsed, two bytes can take a hundred. Only a large
    one can have so many, so others are not looked through."""
    if len(message) > 2 * wire.MOST_FIELDS:
        for number in inside:
            _few(b"".join(wire.messages(message, number)))
        deque(wire.fields(message), maxlen=0)
    return message


def _micros(header: Any) -> int | None:
    """When it was made; None where it says nothing that a calendar has."""
    seconds, nanos = header.timestamp.seconds, header.timestamp.nanos
    if not header.HasField("timestamp") or not (0 <= seconds < YEAR_10000 and 0 <= nanos < 1_000_000_000):
        return None
    micros: int = seconds * 1_000_000 + nanos // 1_000
    return micros


def _header_problem(head: Event, header: Any) -> str | None:
    number, previous = header.miniblock_num, header.prev_miniblock_hash
    if river_hash(head.body) != head.hash:
        return f"its header does not have the hash {short(head.hash)} that it states"
    if number and len(previous) != 32:
        return f"it is number {number}, with a previous hash of {len(previous)} bytes"
    return None


def _event_problem(events: tuple[Event, ...], stated: Sequence[bytes]) -> str | None:
    if len(events) != len(stated):
        return f"it has {len(events)} events, its header lists {len(stated)}"
    for index, (event, wanted) in enumerate(zip(events, stated, strict=True)):
        if event.hash != wanted:
            return f"event {index} states the hash {short(event.hash)}, the header {short(wanted)}"
        if river_hash(event.body) != event.hash:
            return f"event {index} does not have the hash {short(event.hash)} that it states"
    return None
