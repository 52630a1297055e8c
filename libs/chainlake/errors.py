"""The errors that people meet, split by what is expected in normal operation.

Every message names the value, the rule and the remedy in one line. The command line prints the message without a
stack trace and exits with `exit_code`.
"""

from collections.abc import Iterable, Sequence

MOST_NAMES = 10


class LakeError(Exception):
    """Something a user or operator can understand and act on."""

    exit_code = 1
    chains: Sequence[str] = ()
    """Those of a lane that it is about: the others go on. Empty: all of them."""


class BadInput(LakeError):
    """A wrong argument, file, name or setting. Nothing was changed."""

    exit_code = 2


class CheckFailed(LakeError):
    """A check that was asked for did not hold (`lake verify`, a failed job)."""


class BrokenPromise(LakeError):
    """Input or state contradicts what the lake holds. The stage that raises it becomes degraded.

    A stage of one chain may say at which `height`: the blocks before it are then committed first.
    """

    def __init__(self, message: str, height: int | None = None) -> None:
        super().__init__(message)
        self.height = height


class Degraded(LakeError):
    """The stage stopped at an earlier broken promise and waits for an operator's `lake resume`."""


class Fenced(LakeError):
    """Another writer holds a newer lease, or won this sequence number. Nothing of ours became visible."""


class LeaseHeld(LakeError):
    """Another live writer holds the lease."""


class Unavailable(LakeError):
    """Something outside is missing or cannot be reached (Java, a registry, the Spark server)."""


def first_line(error: BaseException) -> str:
    """The first telling line of a Spark error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def some_of(names: Iterable[str], none: str = "none yet") -> str:
    """Names for a message of one line, which a thousand of them would not be."""
    known = sorted(names)
    more = f" and {len(known) - MOST_NAMES:,} more" if len(known) > MOST_NAMES else ""
    return ", ".join(known[:MOST_NAMES]) + more if known else none
