"""Passes over river streams: what a stream node answered to GetStream, stream by stream, pass after pass.

Hashes are the real ones. Answers overlap: each starts at the last snapshot or where the pass before ended, whichever is
older, so a reader has to skip what it knows. The newest events are in the minipool, and in the next pass in a
miniblock.
"""

import copy
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chainlake.demo import write_pieces
from chainlake.sources.wire import field_bytes, field_int
from chainlake.sync.hashing import SNAPSHOT, river_hash

STREAMS = 4
SNAPSHOT_EVERY = 5
START_MS = 1_735_689_600_000
NODE = bytes.fromhex("a0" * 20)


@dataclass
class Miniblock:
    """A miniblock as sent, and its hash."""

    raw: bytes
    hash: bytes


@dataclass
class Stream:
    """A stream on its node."""

    stream_id: bytes
    rng: random.Random
    miniblocks: list[Miniblock] = field(default_factory=list)
    minipool: list[bytes] = field(default_factory=list)
    events: int = 0
    snapshot: int = 0
    answered: int = 0
    trimmed: int = 0
    snapshot_every: int = SNAPSHOT_EVERY

    @property
    def last_hash(self) -> bytes:
        """The hash of the last miniblock; nothing before the first."""
        return self.miniblocks[-1].hash if self.miniblocks else b""

    def envelope(self, event: bytes) -> bytes:
        """An event with its hash and a signature."""
        return field_bytes(1, river_hash(event)) + field_bytes(2, self.rng.randbytes(65)) + field_bytes(3, event)

    def stream_event(self, number: int, payload: bytes) -> bytes:
        """A StreamEvent; `number` is the field of its payload."""
        event = field_bytes(1, self.rng.randbytes(20)) + field_bytes(3, self.rng.randbytes(16))
        event += field_bytes(4, self.last_hash) if self.miniblocks else b""
        return event + field_int(5, START_MS + 1_000 * len(self.miniblocks)) + field_bytes(number, payload)

    def add_event(self) -> None:
        """A channel message in the minipool."""
        text = f"message {self.rng.randrange(10**6)} in {self.stream_id[:4].hex()}"
        self.minipool.append(self.envelope(self.stream_event(103, field_bytes(2, text.encode()))))

    def make_miniblock(self) -> None:
        """Moves the minipool into a miniblock; every fifth carries a snapshot."""
        number, hashes = len(self.miniblocks), [event[2:34] for event in self.minipool]
        header = field_int(1, number) + (field_bytes(2, self.last_hash) if number else b"")
        header += field_bytes(3, field_int(1, START_MS // 1_000 + number))
        header += b"".join(field_bytes(4, found) for found in hashes)
        if number % self.snapshot_every == 0:
            state = field_bytes(1, self.stream_id) + field_int(2, self.events)
            header += field_bytes(5, state)
        header += field_int(6, self.events) + field_int(7, self.snapshot)
        if number % self.snapshot_every == 0:
            header += field_bytes(8, river_hash(state, SNAPSHOT))
            self.snapshot = number
        event = self.stream_event(100, header)
        raw = b"".join(field_bytes(1, found) for found in self.minipool) + field_bytes(2, self.envelope(event))
        self.events += len(hashes) + 1
        self.minipool = []
        self.miniblocks.append(Miniblock(raw, river_hash(event)))

    def answer(self, earlier: int | None = None) -> bytes:
        """A GetStreamResponse with what the node holds now: from the snapshot on, or from where the answer before ended; with
        `earlier`, from so many miniblocks before the snapshot."""
        first = min(self.snapshot, self.answered) if earlier is None else self.snapshot - earlier
        first = max(first, self.trimmed, 0)
        cookie = field_bytes(1, NODE) + field_bytes(2, self.stream_id)
        cookie += field_int(3, len(self.miniblocks)) + field_bytes(5, self.last_hash)
        stream = b"".join(field_bytes(1, event) for event in self.minipool) + field_bytes(2, cookie)
        stream += b"".join(field_bytes(3, miniblock.raw) for miniblock in self.miniblocks[first:])
        stream += field_int(6, self.snapshot - first)
        self.answered = len(self.miniblocks)
        return field_bytes(1, stream)

    def page(self, start: int, end: int, limit: int) -> bytes:
        """A GetMiniblocksResponse: at most `limit` miniblocks of [start, end), from the first that was not trimmed."""
        first = max(start, self.trimmed)
        found = self.miniblocks[first : min(end, first + limit)] if first < end else []
        told = field_int(2, int(first == 0)) + field_int(3, first) + field_int(4, limit)
        return b"".join(field_bytes(1, miniblock.raw) for miniblock in found) + told

    def trim(self, before: int) -> None:
        """Forget miniblocks before a number, but none from the snapshot on."""
        self.trimmed = max(self.trimmed, min(before, self.snapshot))

    def backup(self) -> "Stream":
        """The stream as it is now, for a node that is restored later."""
        kept = copy.copy(self)
        kept.rng, kept.miniblocks, kept.minipool = copy.deepcopy(self.rng), list(self.miniblocks), list(self.minipool)
        return kept


def blocks(count: int, seed: int = 1, streams: int = STREAMS) -> Iterator[dict[bytes, bytes]]:
    """`count` passes: per stream id, the answer of its node."""
    rng = random.Random(f"river {seed}")
    known = [Stream(b"\x20" + rng.randbytes(31), random.Random(f"river {seed} {index}")) for index in range(streams)]
    for stream in known:
        stream.make_miniblock()
    for _ in range(count):
        for stream in known:
            for _ in range(stream.rng.randint(0, 6)):
                for _ in range(stream.rng.randint(1, 4)):
                    stream.add_event()
                stream.make_miniblock()
            for _ in range(stream.rng.randint(0, 2)):
                stream.add_event()
        yield {stream.stream_id: stream.answer() for stream in known}


def write(directory: Path, count: int, seed: int = 1) -> list[Path]:
    """One directory per pass, one file per stream. A pass is there whole or not at all: who reads it in between would miss the
    answers that come later."""
    found = []
    for number, answers in enumerate(blocks(count, seed), start=1):
        whole, draft = directory / str(number), directory / f".{number}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        place = whole if whole.exists() else draft
        for stream_id, answer in answers.items():
            found.append(whole / write_pieces(place / f"{stream_id.hex()}.bin", [answer]).name)
        if place is draft:
            draft.rename(whole)
    return found
