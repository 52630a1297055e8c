"""One miniblock, opened and checked by itself: header hash, number, count and hash of each event. Links are for the rules."""

from dataclasses import dataclass

from chainlake.encoding import short
from chainlake.errors import BadInput
from chainlake.sources import wire
from chainlake.sync.hashing import river_hash
from chainlake.sync.messages import Event, read_event

EVENTS, HEADER = 1, 2
EVENT_HEADER = 100
NUMBER, PREV_HASH, TIMESTAMP, EVENT_HASHES = 1, 2, 3, 4
SNAPSHOTS = (5, 8)
UNREAD = -1
MOST_SECONDS = 1 << 40


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


def open_miniblock(raw: bytes) -> Miniblock:
    """What the bytes say. Never raises: what cannot be read is a problem too."""
    try:
        parts = wire.spans(raw)
        envelopes = [raw[start:end] for number, _, start, end in parts if number == EVENTS]
        header = read_event(next((raw[start:end] for number, _, start, end in reversed(parts) if number == HEADER), b""))
        body = wire.message(header.body, EVENT_HEADER)
        events = tuple(read_event(envelope) for envelope in envelopes)
        found = _Header(body)
    except BadInput as error:
        return Miniblock(UNREAD, b"", b"", None, False, (), f"it cannot be read ({error})")
    if not body or len(header.hash) != 32:
        return Miniblock(UNREAD, b"", b"", None, False, (), "it has no header with a hash of 32 bytes")
    problem = _header_problem(header, found) or _event_problem(events, found.event_hashes)
    return Miniblock(found.number, header.hash, found.prev_hash, found.timestamp_us, found.has_snapshot, events, problem)


class _Header:
    """The fields of a MiniblockHeader."""

    def __init__(self, body: bytes) -> None:
        self.number, self.prev_hash, self.has_snapshot = 0, b"", False
        self.timestamp_us: int | None = None
        self.event_hashes: list[bytes] = []
        for number, value, start, end in wire.spans(body):
            if number == EVENT_HASHES:
                self.event_hashes.append(body[start:end])
            elif number == NUMBER:
                self.number = value - (1 << 64) if value >> 63 else value
            elif number == PREV_HASH:
                self.prev_hash = body[start:end]
            elif number == TIMESTAMP:
                seconds, nanos = wire.number(body[start:end], 1), wire.number(body[start:end], 2)
                self.timestamp_us = seconds * 1_000_000 + nanos // 1_000 if abs(seconds) < MOST_SECONDS else None
            elif number in SNAPSHOTS:
                self.has_snapshot = True


def _header_problem(header: Event, found: _Header) -> str | None:
    if river_hash(header.body) != header.hash:
        return f"its header does not have the hash {short(header.hash)} that it states"
    if found.number < 0:
        return f"its number {found.number} is negative"
    if found.number and len(found.prev_hash) != 32:
        return f"it is number {found.number}, with a previous hash of {len(found.prev_hash)} bytes"
    return None


def _event_problem(events: tuple[Event, ...], stated: list[bytes]) -> str | None:
    if len(events) != len(stated):
        return f"it has {len(events)} events, its header lists {len(stated)}"
    for index, (event, wanted) in enumerate(zip(events, stated, strict=True)):
        if event.hash != wanted:
            return f"event {index} states the hash {short(event.hash)}, the header {short(wanted)}"
        if river_hash(event.body) != event.hash:
            return f"event {index} does not have the hash {short(event.hash)} that it states"
    return None
