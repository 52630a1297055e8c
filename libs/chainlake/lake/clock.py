"""Time and identity: when a thing was written, by whom, under which id."""

import getpass
import os
import secrets
import socket
import time
from datetime import datetime, timezone
from pathlib import Path

RANDOM_BITS = 21


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(timezone.utc)


def new_commit_id() -> int:
    """A positive 63-bit id, ordered by time: 42 bits of milliseconds and 21 random bits.

    The order is used only to skip files; nothing relies on clocks agreeing.
    """
    return (time.time_ns() // 1_000_000) << RANDOM_BITS | secrets.randbits(RANDOM_BITS)


def commit_time(commit_id: int) -> datetime:
    """When a commit id was made."""
    return datetime.fromtimestamp((commit_id >> RANDOM_BITS) / 1000, timezone.utc)


def actor() -> str:
    """The person at the keyboard, for audit."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def process_id() -> str:
    """host:pid:start, so that a later process can tell whether this one still lives."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def process_is_dead(owner: str) -> bool:
    """True only if the owner ran on this host and is certainly gone."""
    host, pid, started = [*owner.split(":"), "", "", ""][:3]
    return host == socket.gethostname() and pid.isdigit() and _started(int(pid)) != started


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "gone"
    except IndexError:
        return "unknown"
