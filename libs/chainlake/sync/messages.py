"""The messages of river's stream service, as far as sync needs them: requests written, answers read from the wire.

Payloads stay bytes as sent, because hashes are taken over them.
"""

from dataclasses import dataclass

from chainlake.sources import wire
from chainlake.sources.wire import LENGTH, VARINT, to_varint

RESPONSE_STREAM = 1
ANSWER_EVENTS, ANSWER_COOKIE, ANSWER_MINIBLOCKS, ANSWER_SNAPSHOT, ANSWER_SNAPSHOT_INDEX = 1, 2, 3, 5, 6
COOKIE_GEN, COOKIE_PREV_HASH = 3, 5
PAGE_MINIBLOCKS, PAGE_FROM = 1, 3
ENVELOPE_HASH, ENVELOPE_EVENT = 1, 3
EVENT_CREATOR, EVENT_CREATED_MS, FIRST_PAYLOAD = 1, 5, 100
PAYLOADS = {
    100: "miniblock_header",
    101: "member",
    102: "space",
    103: "channel",
    104: "user",
    105: "user_settings",
    106: "user_metadata",
    107: "user_inbox",
    108: "media",
    109: "dm_channel",
    110: "gdm_channel",
    111: "metadata",
}


@dataclass(frozen=True, slots=True)
class Event:
    """An event as sent: the hash that its envelope states, and the serialized StreamEvent."""

    hash: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node says of a stream now: miniblocks from its last snapshot on (or earlier), then events in none yet."""

    miniblocks: tuple[bytes, ...]
    snapshot_index: int
    minipool: tuple[Event, ...]
    minipool_gen: int
    prev_hash: bytes
    rest: bytes


@dataclass(frozen=True, slots=True)
class EventFields:
    """What an event says of itself."""

    creator: bytes
    created_ms: int
    kind: str | None


def read_answer(stream: bytes) -> Answer:
    """A StreamAndCookie. `rest` is what belongs to it besides miniblocks and snapshot, as sent."""
    miniblocks, events, rest, index, cookie = [], [], [], 0, b""
    for field in wire.fields(stream):
        if field.number == ANSWER_MINIBLOCKS:
            miniblocks.append(field.data)
            continue
        if field.number == ANSWER_SNAPSHOT:
            continue
        rest.append(stream[field.start : field.end])
        if field.number == ANSWER_EVENTS:
            events.append(read_event(field.data))
        elif field.number == ANSWER_COOKIE:
            cookie = field.data
        elif field.number == ANSWER_SNAPSHOT_INDEX:
            index = field.value
    gen, prev_hash = wire.number(cookie, COOKIE_GEN), wire.message(cookie, COOKIE_PREV_HASH)
    return Answer(tuple(miniblocks), index, tuple(events), gen, prev_hash, b"".join(rest))


def read_event(envelope: bytes) -> Event:
    """Hash and body of an envelope."""
    mark = body = b""
    for number, _, start, end in wire.spans(envelope):
        if number == ENVELOPE_HASH:
            mark = envelope[start:end]
        elif number == ENVELOPE_EVENT:
            body = envelope[start:end]
    return Event(mark, body)


def event_fields(body: bytes) -> EventFields:
    """Who made an event, when, and of which kind it is; None for a kind that has no name here."""
    creator, created, kind = b"", 0, None
    for number, value, start, end in wire.spans(body):
        if number == EVENT_CREATOR:
            creator = body[start:end]
        elif number == EVENT_CREATED_MS:
            created = value - (1 << 64) if value >> 63 else value
        elif number >= FIRST_PAYLOAD:
            kind = PAYLOADS.get(number, kind)
    return EventFields(creator, created, kind)


def get_stream_request(stream_id: bytes) -> bytes:
    """GetStreamRequest without a cookie: the node answers from its last snapshot on."""
    return data_field(1, stream_id)


def get_miniblocks_request(stream_id: bytes, from_inclusive: int, to_exclusive: int) -> bytes:
    """GetMiniblocksRequest."""
    return data_field(1, stream_id) + int_field(2, from_inclusive) + int_field(3, to_exclusive)


def data_field(number: int, value: bytes) -> bytes:
    """A field of bytes, or of a message."""
    return to_varint(number << 3 | LENGTH) + to_varint(len(value)) + value


def int_field(number: int, value: int) -> bytes:
    """A field of a number or bool; proto3 leaves out 0."""
    return to_varint(number << 3 | VARINT) + to_varint(value) if value else b""
