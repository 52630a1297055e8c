"""What sync asks of a stream service, whoever answers."""

from collections.abc import Callable, Sequence
from typing import Protocol

from chainlake.errors import LakeError
from chainlake.sync.messages import Answer
from chainlake.sync.miniblock import Block

NEW, KNOWN, LAGS = "new", "known", "lags"
Judge = Callable[[Answer], str]
"""What the caller thinks of an answer: it may bring something, brings nothing, or is older than what the caller has."""


def anything(_: Answer) -> str:
    """The judge who knows nothing yet."""
    return NEW


NOBODY = "no node could be reached"


class Refused(LakeError):
    """The service cannot give a stream now: no node has it, none answers, or none answers soundly. Asking later may help."""


class Missing(Refused):
    """Every node was heard, and none has it."""


class StreamService(Protocol):
    """The nodes of some streams, behind one face."""

    def get_stream(self, stream_id: bytes, judge: Judge) -> Answer:
        """The stream from its last snapshot on, or from before it; at least one miniblock. An answer that is known needs no
        check of its miniblocks; one that lags is given only if no node has a newer one."""
        ...

    def get_miniblocks(self, stream_id: bytes, start: int, end: int) -> Sequence[Block]:
        """A page of miniblocks from [start, end), in order: perhaps not all, perhaps from later than `start` if the older ones
        are gone, none if all are. Raises `Refused` if they should be there and are not: `Missing` if every node says so."""
        ...
