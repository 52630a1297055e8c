"""What a check says: one line on one subject."""

from dataclasses import dataclass
from enum import Enum

GIB = 1 << 30


class Level(Enum):
    """How bad it is. A problem stops the lake from working; a warning will cost time or surprise somebody."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """A subject, its state, and what to do about it."""

    subject: str
    level: Level
    what: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        return {"subject": self.subject, "level": self.level.value, "what": self.what, "remedy": self.remedy}


def ok(subject: str, what: str) -> Finding:
    return Finding(subject, Level.OK, what)


def warning(subject: str, what: str, remedy: str) -> Finding:
    return Finding(subject, Level.WARNING, what, remedy)


def problem(subject: str, what: str, remedy: str) -> Finding:
    return Finding(subject, Level.PROBLEM, what, remedy)


def gib(size: float) -> str:
    """Bytes as people read them."""
    return f"{size / GIB:.1f} GiB"
