"""Entries in the order of their logs: which is the next, which came again, and where one is missing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from chainlake.replica.columns import rows_of, typed
from chainlake.replica.groups import META
from chainlake.replica.rules import effective_watermark
from chainlake.replica.timeline import Progress

FRESH, AGAIN, GAP = 0, 1, 2
_ENTRY = (
    "_height",
    "tx_index",
    "group_name",
    "log_index",
    "log_term",
    "type",
    "required_meta_index",
    "table_id",
    "user_id",
    "command",
)
INPUT, ADDED = typed(*_ENTRY), typed("expected", "status")
SCHEMA = pa.unify_schemas([INPUT, ADDED])
UNEXPECTED = "unexpected"
UNEXPECTED_COLUMNS = ("_height", "group_name", "log_index", "log_term", "type", "command", "tx_index", *ADDED.names)
"""What the folds give back of an entry that is not the next one of its log."""


@dataclass
class LogEnd:
    """Where a log ends, and how high its watermark stands there."""

    index: int = 0
    watermark: int = 0

    @classmethod
    def of(cls, before: Progress) -> "LogEnd":
        return cls(before.applied_index, before.watermark)

    def take(self, log_index: int, required: int) -> int:
        """Whether an entry is the next one. Only the first gap counts, so the log goes on after it."""
        if log_index <= self.index:
            return AGAIN
        status = FRESH if log_index == self.index + 1 else GAP
        self.index = log_index
        self.watermark = effective_watermark(self.watermark, required)
        return status


class LogEnds:
    """The ends of several logs. A Meta log that is new may start with a snapshot, at any index."""

    def __init__(self, before: Mapping[str, Progress]) -> None:
        self._ends = {group: LogEnd.of(now) for group, now in before.items()}

    def take(self, group: str, log_index: int, kind: str, required: int = 0) -> tuple[int, int]:
        """The index that is expected of the next entry of a log, and the status of the one that came."""
        if group not in self._ends:
            self._ends[group] = LogEnd(log_index - 1 if group == META and kind == "Snapshot" else 0)
        end = self._ends[group]
        return end.index + 1, end.take(log_index, required)


def sequence(batches: Iterable[pa.RecordBatch], before: Mapping[str, Progress]) -> Iterator[pa.RecordBatch]:
    """Entries sorted by group and arrival, each with the index that is `expected` there, and its `status`."""
    ends = LogEnds(before)
    for batch in batches:
        told = [ends.take(*entry) for entry in rows_of(batch, ("group_name", "log_index", "type", "required_meta_index"))]
        held = [batch.column(name) for name in INPUT.names]
        added = [pa.array([one[at] for one in told], field.type) for at, field in enumerate(ADDED)]
        yield pa.RecordBatch.from_arrays([*held, *added], schema=SCHEMA)
