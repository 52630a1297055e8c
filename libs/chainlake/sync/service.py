"""What sync asks of a stream service, whoever answers."""

from collections.abc import Sequence
from typing import Protocol

from chainlake.errors import LakeError
from chainlake.sync.messages import Answer


class Refused(LakeError):
    """The service cannot give a stream now: no node has it, none answers, or none answers soundly. Asking later may help."""


class StreamService(Protocol):
    """The nodes of some streams, behind one face."""

    def get_stream(self, stream_id: bytes) -> Answer:
        """The stream from its last snapshot on, or from before it; at least one miniblock."""
        ...

    def get_miniblocks(self, stream_id: bytes, start: int, end: int) -> Sequence[bytes]:
        """A page of miniblocks from [start, end), in order: perhaps not all, perhaps from later than `start` if the older ones
        are gone, none if all are. Raises `Refused` if they should be there and are not."""
        ...
