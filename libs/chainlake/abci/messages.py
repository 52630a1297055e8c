"""The messages of ABCI, as far as a shard reads and writes them.

CometBFT 0.38 (package tendermint.abci) and 1.0 (cometbft.abci.v1) name the messages differently, but number requests, responses
and the fields below alike. So one form serves both; what a shard does not look at is passed over.
"""

from collections.abc import Iterable
from enum import IntEnum

from chainlake.errors import BadInput
from chainlake.shards.codes import CODESPACE
from chainlake.shards.fold import TxResult
from chainlake.sources.wire import field_bytes, field_int, fields

EXCEPTION = 1
ACCEPT, REJECT = 1, 2


class Method(IntEnum):
    """Field numbers of `Request.value`. The answer has the next number in `Response.value`."""

    ECHO = 1
    FLUSH = 2
    INFO = 3
    INIT_CHAIN = 5
    QUERY = 6
    CHECK_TX = 8
    COMMIT = 11
    LIST_SNAPSHOTS = 12
    OFFER_SNAPSHOT = 13
    LOAD_SNAPSHOT_CHUNK = 14
    APPLY_SNAPSHOT_CHUNK = 15
    PREPARE_PROPOSAL = 16
    PROCESS_PROPOSAL = 17
    EXTEND_VOTE = 18
    VERIFY_VOTE_EXTENSION = 19
    FINALIZE_BLOCK = 20


METHODS = frozenset(map(int, Method))


class Offer(IntEnum):
    """What an application makes of an offered snapshot."""

    ACCEPT = 1
    REJECT = 3
    REJECT_FORMAT = 4


class Applied(IntEnum):
    """What an application makes of a chunk of a snapshot."""

    ACCEPT = 1
    ABORT = 2
    RETRY = 3
    REJECT_SNAPSHOT = 5


def read_request(data: bytes) -> tuple[Method, bytes]:
    """The method that a request calls, and its message."""
    for field in fields(data):
        if field.number in METHODS:
            return Method(field.number), field.data
    raise BadInput("the request calls no method that this version of ABCI has: connect CometBFT 0.38 or 1.0")


def response(method: Method, body: bytes) -> bytes:
    """The answer to a method."""
    return field_bytes(method + 1, body)


def exception(text: str) -> bytes:
    """The answer that ends the conversation: CometBFT stops when it gets one."""
    return field_bytes(EXCEPTION, text_field(1, text))


def text_field(number: int, text: str) -> bytes:
    """A field of text; proto3 leaves out empty ones."""
    return field_bytes(number, text.encode()) if text else b""


def data_field(number: int, data: bytes) -> bytes:
    """A field of bytes; proto3 leaves out empty ones."""
    return field_bytes(number, data) if data else b""


def repeated(number: int, values: Iterable[bytes]) -> bytes:
    """A repeated field, empty values included."""
    return b"".join(field_bytes(number, value) for value in values)


def tx_result(result: TxResult) -> bytes:
    """ExecTxResult: code, log, events in order, codespace."""
    events = (
        text_field(1, event.type)
        + repeated(2, (text_field(1, key) + text_field(2, value) + field_int(3, 1) for key, value in event.attributes))
        for event in result.events
    )
    return field_int(1, result.code) + text_field(3, result.log) + repeated(7, events) + text_field(8, CODESPACE)
