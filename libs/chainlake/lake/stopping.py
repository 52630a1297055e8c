"""Stopping cleanly: Ctrl-C or SIGTERM sets a flag that long work looks at between its steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from chainlake.errors import LakeError


class Stopped(LakeError):
    """The user asked to stop; everything committed so far stays."""

    exit_code = 130


_asked = threading.Event()


@contextmanager
def listening() -> Iterator[None]:
    """Inside, Ctrl-C and SIGTERM are requests to stop; a second one acts at once. Only the main thread can listen."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _asked.clear()

    def handler(number: int, frame: FrameType | None) -> None:
        if _asked.is_set():
            signal.default_int_handler(number, frame)
        _asked.set()

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def check() -> None:
    """Raise Stopped if somebody asked to."""
    if _asked.is_set():
        raise Stopped("stopped between two steps, as asked: run again to go on")
