"""A stream node in memory: streams that grow, are trimmed, recreated, backed up and restored; answers as on the wire."""

import random

from chainlake.demo.river import SNAPSHOT_EVERY, Stream
from chainlake.errors import BadInput
from chainlake.sources import wire
from chainlake.sync.messages import Answer, read_answer
from chainlake.sync.miniblock import Block
from chainlake.sync.service import Judge, Refused, anything


class StreamNode:
    """The streams of a node. It is a `StreamService` too, without a network in between."""

    def __init__(self, streams: int = 0, seed: int = 1, page_limit: int = 200, snapshot_every: int = SNAPSHOT_EVERY) -> None:
        self.streams: dict[bytes, Stream] = {}
        self.page_limit = page_limit
        self.earlier = 0
        self._snapshot_every = snapshot_every
        self._rng = random.Random(f"node {seed}")
        self._backup: dict[bytes, Stream] | None = None
        for _ in range(streams):
            self.create(b"\x20" + self._rng.randbytes(31))

    def create(self, stream_id: bytes) -> Stream:
        """A stream with its genesis; one that was there before is replaced by it."""
        stream = Stream(stream_id, random.Random(self._rng.random()), snapshot_every=self._snapshot_every)
        stream.add_event()
        stream.make_miniblock()
        self.streams[stream_id] = stream
        return stream

    def grow(self, stream_id: bytes, miniblocks: int, events: int = 2, minipool: int = 0) -> None:
        """More miniblocks with so many events each; then some events that wait for the next."""
        stream = self.streams[stream_id]
        for _ in range(miniblocks):
            for _ in range(events):
                stream.add_event()
            stream.make_miniblock()
        for _ in range(minipool):
            stream.add_event()

    def back_up(self) -> None:
        """Keep all streams as they are now."""
        self._backup = {stream_id: stream.backup() for stream_id, stream in self.streams.items()}

    def restore(self) -> None:
        """Go back to the backup. What comes after it will differ from what came after it before."""
        if self._backup is None:
            raise BadInput("there is no backup to go back to: make one first (POST /control/backup)")
        self.streams = {stream_id: stream.backup() for stream_id, stream in self._backup.items()}
        for stream in self.streams.values():
            stream.rng = random.Random(self._rng.random())

    def answer(self, stream_id: bytes) -> bytes:
        """A GetStreamResponse."""
        return self._stream(stream_id).answer(self.earlier)

    def page(self, stream_id: bytes, start: int, end: int) -> bytes:
        """A GetMiniblocksResponse."""
        return self._stream(stream_id).page(start, end, self.page_limit)

    def get_stream(self, stream_id: bytes, judge: Judge = anything) -> Answer:
        return read_answer(wire.message(self.answer(stream_id), 1))

    def get_miniblocks(self, stream_id: bytes, start: int, end: int) -> list[Block]:
        found = [Block(raw) for raw in wire.messages(self.page(stream_id, start, end), 1)]
        if not found and self._stream(stream_id).trimmed < end:
            raise Refused(f"there are no miniblocks from {start} on")
        return found

    def _stream(self, stream_id: bytes) -> Stream:
        if stream_id not in self.streams:
            raise Refused(f"there is no stream {stream_id.hex()}")
        return self.streams[stream_id]
