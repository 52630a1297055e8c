"""The errors that people meet, split by what is expected in normal operation.

Every message names the value, the rule and the remedy in one line. The command line prints the message without a
stack trace and exits with `exit_code`.
"""


class LakeError(Exception):
    """Something a user or operator can understand and act on."""

    exit_code = 1


class BadInput(LakeError):
    """A wrong argument, file, name or setting. Nothing was changed."""

    exit_code = 2


class CheckFailed(LakeError):
    """A check that was asked for did not hold (`lake verify`, a failed job)."""


class BrokenPromise(LakeError):
    """Input or state contradicts what the lake holds. The stage that raises it becomes degraded."""


class Degraded(LakeError):
    """The stage stopped at an earlier broken promise and waits for an operator's `lake resume`."""


class Fenced(LakeError):
    """Another writer holds a newer lease, or won this sequence number. Nothing of ours became visible."""


class LeaseHeld(LakeError):
    """Another live writer holds the lease."""


class Unavailable(LakeError):
    """Something outside is missing or cannot be reached (Java, a registry, the Spark server)."""
