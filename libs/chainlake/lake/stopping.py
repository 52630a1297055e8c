"""Stopping cleanly: Ctrl-C or SIGTERM sets a flag that long work looks at between its steps."""

import signal
import threading
from types import FrameType

from chainlake.errors import LakeError


class Stopped(LakeError):
    """The user asked to stop; everything committed so far stays."""

    exit_code = 130


_asked = threading.Event()


def install() -> None:
    """Turn Ctrl-C and SIGTERM into a request to stop; a second one ends the process at once."""

    def handler(number: int, _: FrameType | None) -> None:
        if _asked.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        _asked.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def asked() -> bool:
    """Somebody asked to stop."""
    return _asked.is_set()


def check() -> None:
    """Raise Stopped if somebody asked to."""
    if _asked.is_set():
        raise Stopped("stopped between two steps, as asked: run again to go on")
