"""The codes with which a shard answers, and the error that carries one."""

from enum import IntEnum

from chainlake.errors import BadInput

CODESPACE = "towns"


class Code(IntEnum):
    """Codes of the codespace `towns`; the log of a transaction result is the name."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    FAILED_PRECONDITION = 9
    INTERNAL = 13
    BAD_STREAM_ID = 18
    BAD_PREV_MINIBLOCK_HASH = 24
    BAD_BLOCK_NUMBER = 40
    UNKNOWN_NODE = 46


class Refused(BadInput):
    """A transaction, block or query that a shard refuses. Normal operation: the code and message are part of the protocol."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message
