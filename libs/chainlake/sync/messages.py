"""The messages of river's stream service, as far as sync needs them: requests written, answers read from the wire.

Payloads stay bytes as sent, because hashes are taken over them.
"""

from dataclasses import dataclass
from typing import NamedTuple

from chainlake.errors import BadInput
from chainlake.sources import wire
from chainlake.sources.wire import field_bytes, field_int
from chainlake.sync.miniblock import Block, Event
from chainlake.sync.proto import parse

RESPONSE_STREAM = 1
ANSWER_EVENTS, ANSWER_COOKIE, ANSWER_MINIBLOCKS, ANSWER_SNAPSHOT, ANSWER_SNAPSHOT_INDEX = 1, 2, 3, 5, 6
COOKIE_STREAM, COOKIE_GEN, COOKIE_PREV_HASH = 2, 3, 5
PAGE_MINIBLOCKS, PAGE_FROM = 1, 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node says of a stream now: miniblocks from its last snapshot on (or earlier), then events in none yet. Without
    `stream_id` it does not say of which stream."""

    stream_id: bytes
    miniblocks: tuple[Block, ...]
    snapshot_index: int
    minipool: tuple[Event, ...]
    minipool_gen: int
    prev_hash: bytes
    rest: bytes

    @property
    def standing(self) -> tuple[int, bytes]:
        """Where the node stands: number of the next miniblock, hash of the last. By its cookie; if that is not about the last
        miniblock sent, by that one."""
        last = self.miniblocks[-1]
        if self.prev_hash and self.prev_hash in last.raw:
            return self.minipool_gen, self.prev_hash
        return last.opened.number + 1, last.opened.hash


class EventFields(NamedTuple):
    """What an event says of itself."""

    creator: bytes
    created_ms: int
    kind: str | None


def read_answer(stream: bytes) -> Answer:
    """A StreamAndCookie. `rest` is what belongs to it besides miniblocks and snapshot, as sent."""
    miniblocks, events, rest, index, cookie = [], [], [], 0, b""
    for field in wire.fields(stream):
        if field.number == ANSWER_MINIBLOCKS:
            miniblocks.append(Block(field.data))
            continue
        if field.number == ANSWER_SNAPSHOT:
            continue
        rest.append(stream[field.start : field.end])
        if field.number == ANSWER_EVENTS:
            events.append(_event(field.data))
        elif field.number == ANSWER_COOKIE:
            cookie = field.data
        elif field.number == ANSWER_SNAPSHOT_INDEX:
            index = field.value
    gen, prev_hash = wire.number(cookie, COOKIE_GEN), wire.message(cookie, COOKIE_PREV_HASH)
    return Answer(wire.message(cookie, COOKIE_STREAM), tuple(miniblocks), index, tuple(events), gen, prev_hash, b"".join(rest))


def _event(envelope: bytes) -> Event:
    """An event of a minipool. One that cannot be read is kept as it came, without a hash, so that it is quarantined alone."""
    try:
        found = parse("Envelope", envelope)
    except BadInput:
        return Event(b"", envelope)
    return Event(found.hash, found.event)


def event_fields(body: bytes) -> EventFields:
    """Who made an event, when, and of which kind it is; None for a kind that has no name here."""
    found = parse("StreamEvent", body)
    return EventFields(found.creator_address, found.created_at_epoch_ms, found.WhichOneof("payload"))


def get_stream_request(stream_id: bytes) -> bytes:
    """GetStreamRequest without a cookie: the node answers from its last snapshot on."""
    return field_bytes(1, stream_id)


def get_miniblocks_request(stream_id: bytes, from_inclusive: int, to_exclusive: int) -> bytes:
    """GetMiniblocksRequest."""
    return field_bytes(1, stream_id) + field_int(2, from_inclusive) + field_int(3, to_exclusive)
