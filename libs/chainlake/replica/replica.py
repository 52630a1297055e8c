"""A replica in memory, entry by entry: the rules in their plainest form. The Spark stages have to agree with it at every
delivery.

A table has one life at a time. When Meta ends it, its rows are put aside, where nobody sees them. A late command, stamped before
the DROP TABLE, still finds them and has the same result on every replica.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from chainlake.errors import BrokenPromise
from chainlake.replica.commands import MARKERS
from chainlake.replica.entries import Entry
from chainlake.replica.groups import META, OLD_META, is_meta
from chainlake.replica.history import MetaHistory
from chainlake.replica.meta import TABLE, MetaObject, MetaState, Refused
from chainlake.replica.rules import Result, apply, effective_watermark, execute, executes_at, resolve


class Applied(NamedTuple):
    """The result of one command: of which entry, and in which delivery it was carried out."""

    delivery: int
    group: str
    log_index: int
    type: str
    result: Result


class Waiting(NamedTuple):
    """An entry that waits for Meta."""

    entry: Entry
    watermark: int
    received: int


@dataclass
class Shard:
    """A data group: how far its log was received, and what of it still waits."""

    watermark: int = 0
    pending: list[Waiting] = field(default_factory=list)
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of each table that is there."""
    dropped: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)
    """Of each life of a table that has ended, by the index at which it was created."""


class Replica:
    """One replica. `unified=False` starts with the three Meta logs of before; a Snapshot in the Meta log unites them."""

    def __init__(self, unified: bool = True) -> None:
        self.unified = unified
        self.delivery = 0
        self.meta_index = 0
        self.meta = MetaState()
        self.history = MetaHistory()
        self.logs: dict[str, list[Entry]] = {}
        self.first_index: dict[str, int] = {}
        self.shards: dict[str, Shard] = {}
        self.results: list[Applied] = []

    def deliver(self, entries: Iterable[Entry]) -> None:
        """Take one delivery: Meta first, then every shard as far as Meta allows."""
        self.delivery += 1
        fresh = [entry for entry in entries if self.is_fresh(entry)]
        for entry in fresh:
            if is_meta(entry.group):
                self.apply_meta(entry)
        for entry in fresh:
            if not is_meta(entry.group):
                self.queue(entry)
        for group in sorted(self.shards):
            self.drain(group)

    def is_fresh(self, entry: Entry) -> bool:
        """Whether the entry is the next of its log. One that is held already, or is part of the Snapshot that the log starts
        with, is passed over; else a promise is broken."""
        log = self.logs.setdefault(entry.group, [])
        place = entry.log_index - self.first_index.get(entry.group, 1)
        if place < len(log):
            if place >= 0 and log[place] != entry:
                raise BrokenPromise(f"{entry.group} {entry.log_index} came again and is another entry")
            return False
        self.check_group(entry)
        expected = self.expected(entry)
        if entry.log_index != expected:
            raise BrokenPromise(f"{entry.group} {entry.log_index} came where {expected} is expected")
        if not log:
            self.first_index[entry.group] = expected
        log.append(entry)
        return True

    def expected(self, entry: Entry) -> int:
        """The next index of a log. Logs start with 1, but Meta may start with a snapshot at any index; one that unites the old
        logs counts on from them."""
        log = self.logs[entry.group]
        if log:
            return log[-1].log_index + 1
        if entry.group != META or entry.command["type"] != "Snapshot":
            return 1
        return self.meta_count() + 1 if self.meta_count() else entry.log_index

    def check_group(self, entry: Entry) -> None:
        """Before the three Meta logs are united only they may be used, and afterwards only the one. A watermark that is still to
        come may be that of the Snapshot which unites them: such a command waits."""
        if entry.group in OLD_META and self.unified:
            raise BrokenPromise(f"{entry.group} {entry.log_index}: the three Meta logs are retired, there is no way back")
        if 0 < entry.required <= self.meta_index and not self.unified:
            raise BrokenPromise(f"{entry.group} {entry.log_index} has a watermark, but the Meta logs are not united")
        if entry.group == META and not self.unified:
            if entry.command["type"] != "Snapshot":
                raise BrokenPromise(f"{entry.group} {entry.log_index}: the Meta logs are united by a Snapshot first")
            self.unified = True

    def meta_count(self) -> int:
        """Entries of the three old logs together."""
        return sum(len(self.logs.get(group, ())) for group in OLD_META)

    def apply_meta(self, entry: Entry) -> None:
        """The Meta index is that of the united log; before, it counts the entries of the three."""
        is_first = self.meta_index == 0
        self.meta_index = entry.log_index if entry.group == META else self.meta_index + 1
        error, changes = self.meta.apply(self.meta_index, entry.command, is_first)
        for change in changes:
            self.history.note(change)
            if change.gone and change.object.kind == TABLE:
                self.drop(change.object)
        self.note(entry, Result(0, error))

    def drop(self, table: MetaObject) -> None:
        """Put the rows of a table aside. An earlier life with the same index ended before the three Meta logs were united, which
        another replica may have counted in another order: no command that was stamped looks for it."""
        for shard in self.shards.values():
            shard.dropped[table.id, table.created_index] = shard.rows.pop(table.id, {})

    def queue(self, entry: Entry) -> None:
        shard = self.shards.setdefault(entry.group, Shard())
        shard.watermark = effective_watermark(shard.watermark, entry.required)
        shard.pending.append(Waiting(entry, shard.watermark, self.delivery))

    def drain(self, group: str) -> None:
        """Carry out the longest prefix of what waits that Meta satisfies, in log order."""
        pending = self.shards[group].pending
        while pending and pending[0].watermark <= self.meta_index:
            self.carry_out(pending[0])
            del pending[0]

    def carry_out(self, waiting: Waiting) -> None:
        entry = waiting.entry
        if entry.command["type"] in MARKERS:
            return
        index = executes_at(entry.required, waiting.watermark, self.meta_index)
        try:
            operation = resolve(entry.command, index, self.history)
        except Refused as refused:
            self.note(entry, Result(0, str(refused)))
            return
        shard = self.shards[entry.group]
        if operation.dropped_index is None:
            rows = shard.rows.setdefault(operation.table_id, {})
        else:
            rows = shard.dropped.setdefault((operation.table_id, operation.table_index), {})
        result, changes = execute(operation, rows)
        apply(rows, changes)
        self.note(entry, result)

    def note(self, entry: Entry, result: Result) -> None:
        if entry.command["type"] not in MARKERS:
            self.results.append(Applied(self.delivery, entry.group, entry.log_index, entry.command["type"], result))

    def visible_rows(self) -> dict[tuple[str, str, str], str]:
        """What readers see: (group, table, key) to row, of the tables that are there."""
        return {
            (group, table_id, key): row
            for group, shard in self.shards.items()
            for table_id, rows in shard.rows.items()
            for key, row in rows.items()
        }

    def waiting(self) -> dict[str, list[int]]:
        """Log indexes that wait, by group."""
        return {group: [one.entry.log_index for one in shard.pending] for group, shard in self.shards.items() if shard.pending}

    def applied(self) -> dict[str, tuple[int, int]]:
        """Group to index and term of the last entry received."""
        return {group: (log[-1].log_index, log[-1].log_term) for group, log in self.logs.items() if log}


def perfect(entries: Iterable[Entry], unified: bool = True) -> Replica:
    """A replica whose Meta was always ahead: all of Meta first, then every shard."""
    replica = Replica(unified)
    held = list(entries)
    replica.deliver(entry for entry in held if is_meta(entry.group))
    replica.deliver(entry for entry in held if not is_meta(entry.group))
    return replica
