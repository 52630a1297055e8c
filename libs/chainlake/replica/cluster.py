"""A small cluster in files, to play with: a leader's log, and the deliveries that each replica received.

`log.jsonl` has the leader's entries in the order of appending, `<replica>.jsonl` the deliveries of a replica, ready for `lake
ingest`. Both only grow, and everything else is read from them, so that a crash between two commands loses nothing. A line that a
crash has cut off was never said to be appended: it does not count, and the next one takes its place. `cluster.json` holds what
cannot be seen from them: which replicas there are, and who is cut off. Whoever changes any of them holds the lock meanwhile, so
that two leaders never give one index to two entries.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chainlake.demo import write_pieces
from chainlake.errors import BadInput, Unavailable
from chainlake.replica.commands import check_group
from chainlake.replica.entries import Entry, read_entry
from chainlake.replica.groups import META, is_meta
from chainlake.replica.leader import Leader
from chainlake.replica.migrate import unite
from chainlake.replica.replica import Replica
from chainlake.sources.json_text import canonical, parse, utf8

NOTHING, FROM_META, FROM_ALL = "", "meta", "all"


@dataclass
class Cluster:
    """The leader and its replicas."""

    directory: Path
    cut_off: dict[str, str] = field(default_factory=dict)
    """Replica to what it is cut off from: nothing, meta, or all."""
    started_unified: bool = True

    @classmethod
    def create(cls, directory: Path, replicas: Iterable[str], unified: bool = True) -> "Cluster":
        """A cluster without entries."""
        names = cls.check_new(directory, replicas)
        cluster = cls(directory, dict.fromkeys(names, NOTHING), unified)
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("log", *names):
            (directory / f"{name}.jsonl").touch()
        cluster._save()
        return cluster

    @staticmethod
    def check_new(directory: Path, replicas: Iterable[str]) -> list[str]:
        """The names of the replicas of a cluster that can be made there; refused if it cannot."""
        names = list(replicas)
        if (directory / "cluster.json").exists():
            raise BadInput(f"{directory.name} exists already in {directory.parent}: choose another name")
        if not names or len(set(names)) < len(names) or not all(name.isidentifier() and name != "log" for name in names):
            raise BadInput(f"replicas {','.join(names)!r}: different names of letters and digits are expected, like a,b,c")
        return names

    @classmethod
    def load(cls, directory: Path) -> "Cluster":
        try:
            held = json.loads((directory / "cluster.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            there = sorted(path.parent.name for path in directory.parent.glob("*/cluster.json"))
            raise BadInput(f"there is no cluster {directory.name!r}: there are {', '.join(there) or 'none yet'}") from None
        return cls(directory, held["cut_off"], held["unified"])

    def log(self) -> list[Entry]:
        """The leader's entries, in the order of appending."""
        return [read_entry(line) for line in _lines(self.directory / "log.jsonl")]

    @property
    def unified(self) -> bool:
        """Whether Meta is one log: from the start, or since the migration."""
        return self.started_unified or any(entry.group == META for entry in self.log())

    def leader(self, entries: list[Entry]) -> Leader:
        """The leader as its log has made it."""
        ends: dict[str, int] = {}
        for entry in entries:
            ends[entry.group] = entry.log_index
        term = max((entry.log_term for entry in entries), default=1)
        return Leader(term, ends, ends.get(META, 0), self.started_unified or META in ends)

    def propose(self, commands: Iterable[Mapping[str, Any]], group: str | None = None, new_term: bool = False) -> list[Entry]:
        """Append commands to the leader's logs, stamped and routed. All of them, or none if one is wrong."""
        with self._alone():
            leader = self.leader(self.log())
            leader.term += new_term
            entries = [leader.propose(command, group) for command in commands]
            _append(self.directory / "log.jsonl", [_entry(entry) for entry in entries])
        return entries

    def migrate(self) -> Entry:
        """Unite the three Meta logs by a snapshot of what they have made."""
        with self._alone():
            replica = Replica(self.started_unified)
            replica.deliver(self.log())
            snapshot = unite(replica)
            _append(self.directory / "log.jsonl", [_entry(snapshot)])
        return snapshot

    def deliver(self, replica: str | None = None, only: str | None = None, most: int | None = None) -> dict[str, int]:
        """One delivery of what is new to each replica (or one), as far as it is not cut off: entries delivered, by replica.
        `only` is `meta`, `data` or a group."""
        if only not in (None, "meta", "data"):
            check_group(only)
        names = list(self.cut_off) if replica is None else [self.check_member(replica)]
        with self._alone():
            entries = self.log()
            return {name: self._send(name, entries, only, most) for name in names}

    def _send(self, name: str, entries: list[Entry], only: str | None, most: int | None) -> int:
        held = _lines(self.directory / f"{name}.jsonl")
        news = [entry for entry in _after(entries, held) if self._reaches(name, entry) and _wanted(entry, only)][:most]
        if news:
            line = {"delivery": len(held) + 1, "entries": [_entry(entry) for entry in news]}
            _append(self.directory / f"{name}.jsonl", [line])
        return len(news)

    def isolate(self, replica: str, what: str = FROM_ALL) -> None:
        """Cut a replica off, from everything or from Meta alone."""
        self._cut(replica, what)

    def rejoin(self, replica: str) -> None:
        """Let a replica hear everything again."""
        self._cut(replica, NOTHING)

    def check_member(self, replica: str) -> str:
        """The name of a replica, if there is one."""
        if replica not in self.cut_off:
            raise BadInput(f"{self.directory.name} has no replica {replica!r}: there are {', '.join(self.cut_off)}")
        return replica

    def _reaches(self, replica: str, entry: Entry) -> bool:
        what = self.cut_off[replica]
        return what == NOTHING or (what == FROM_META and not is_meta(entry.group))

    def _cut(self, replica: str, what: str) -> None:
        with self._alone():
            self.cut_off[self.check_member(replica)] = what
            self._save()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else changes the cluster meanwhile, and who is cut off is as the last one left it."""
        with (self.directory / "lock").open("w") as handle:
            with suppress(OSError):  # file systems of workspaces know no locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            self.cut_off = Cluster.load(self.directory).cut_off
            yield

    def _save(self) -> None:
        held = {"cut_off": self.cut_off, "unified": self.started_unified}
        write_pieces(self.directory / "cluster.json", [json.dumps(held).encode()])


def _wanted(entry: Entry, only: str | None) -> bool:
    if only in ("meta", "data"):
        return is_meta(entry.group) == (only == "meta")
    return only in (None, entry.group)


def _after(entries: list[Entry], deliveries: list[Any]) -> list[Entry]:
    """The entries that a replica has not received."""
    held: dict[str, int] = {}
    for delivery in deliveries:
        for entry in delivery["entries"]:
            held[entry["group"]] = max(held.get(entry["group"], 0), entry["log_index"])
    return [entry for entry in entries if entry.log_index > held.get(entry.group, 0)]


def _entry(entry: Entry) -> dict[str, Any]:
    return {"group": entry.group, "log_index": entry.log_index, "log_term": entry.log_term, "command": entry.command}


def _lines(path: Path) -> list[Any]:
    """Only a line feed ends a line: texts may hold other characters that Unicode counts as line ends."""
    return [parse(utf8(line)) for line in path.read_bytes().split(b"\n")[:-1]]


def _append(path: Path, values: list[Any]) -> None:
    """Lines after the last whole line of a file; none if one of them has no bytes, or the disk no place."""
    lines = b"".join(canonical(value) + b"\n" for value in values)
    with open(path, "r+b", buffering=0) as file:
        held = file.read()
        end = file.seek(held.rfind(b"\n") + 1)
        if end < len(held):
            file.truncate()
        try:
            if file.write(lines) < len(lines):
                raise Unavailable(f"the disk is full: {path} could not be written")
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(end)
            raise
