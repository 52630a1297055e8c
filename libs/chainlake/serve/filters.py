"""Installed filters: eth_newFilter and its kin. One that nobody asks about is gone after five minutes, as in geth.

A log filter remembers the last place that its owner has seen, so that each log is reported once even if one answer cannot hold
all new ones. If that place was rolled back, the filter is gone: clients then install a new one and miss nothing.
"""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chainlake.encoding import to_hex
from chainlake.logs.filter import INVALID_PARAMS, PRUNED, SERVER_ERROR, Criteria, Limits, LogFilter
from chainlake.logs.rpc_values import RpcError
from chainlake.serve.arguments import read_filter_id
from chainlake.serve.engine import Block, Position, Snapshot
from chainlake.serve.log_json import logs_to_json
from chainlake.serve.methods import Method, Note, Raw
from chainlake.serve.pool import BUSY, CLIENT
from chainlake.serve.queries import Queries

END_OF_BLOCK = (1 << 31) - 1
MAX_HASHES = 1_000


@dataclass(frozen=True)
class Installed:
    """A filter and what its owner has seen."""

    criteria: Criteria | None
    """None: the filter reports blocks."""
    seen: Position
    block: Block
    """The block of that place."""


@dataclass(frozen=True)
class Entry:
    """An installed filter, whose it is, and when it was last asked about."""

    installed: Installed
    client: str
    used: float


class FilterTable:
    """Filters by id: a limited number, each for a limited time. When all are taken, the client that has most gives one up to
    a client that has few."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def install(self, installed: Installed, client: str = "") -> str:
        """The id of a new filter."""
        with self._lock:
            self._expire()
            if len(self._entries) >= self._most and not self._has_made_room(client):
                raise RpcError(BUSY, f"too many filters: {self._most} are installed, uninstall some or retry later")
            name = "0x" + secrets.token_hex(16)
            self._entries[name] = Entry(installed, client, self._clock())
            return name

    def get(self, name: str) -> Installed:
        """A filter, which lives on from now."""
        with self._lock:
            self._expire()
            if name not in self._entries:
                raise _not_found()
            found = self._entries[name] = replace(self._entries[name], used=self._clock())
            return found.installed

    def update(self, name: str, before: Installed, after: Installed) -> bool:
        """Remember what was reported, unless another call reported it at the same time."""
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or entry.installed is not before:
                return False
            self._entries[name] = replace(entry, installed=after, used=self._clock())
            return True

    def remove(self, name: str) -> bool:
        with self._lock:
            self._expire()
            return self._entries.pop(name, None) is not None

    def _expire(self) -> None:
        oldest = self._clock() - self._seconds
        for name in [name for name, entry in self._entries.items() if entry.used < oldest]:
            del self._entries[name]

    def _has_made_room(self, client: str) -> bool:
        """Takes from the client that has most what it has not asked about for longest, if it has much more than this one."""
        held = Counter(entry.client for entry in self._entries.values())
        most, count = held.most_common(1)[0]
        if count < held[client] + 2:
            return False
        del self._entries[min((n for n, e in self._entries.items() if e.client == most), key=lambda n: self._entries[n].used)]
        return True


class FilterMethods:
    """eth_newFilter, eth_newBlockFilter, eth_getFilterLogs, eth_getFilterChanges and eth_uninstallFilter."""

    def __init__(self, queries: Queries, table: FilterTable) -> None:
        self._queries = queries
        self._table = table

    def methods(self) -> list[Method]:
        return [
            Method("eth_newFilter", self._new_filter, (self._queries.read_criteria,)),
            Method("eth_newBlockFilter", self._new_block_filter),
            Method("eth_getFilterLogs", self._filter_logs, (read_filter_id,)),
            Method("eth_getFilterChanges", self._filter_changes, (read_filter_id,)),
            Method("eth_uninstallFilter", self._uninstall, (read_filter_id,), blocking=False),
        ]

    def _new_filter(self, note: Note, criteria: Criteria) -> str:
        snapshot = self._queries.snapshot()
        check_installable(criteria, snapshot, self._queries.settings.filters)
        return self._install(snapshot, criteria)

    def _new_block_filter(self, note: Note) -> str:
        return self._install(self._queries.snapshot(), None)

    def _install(self, snapshot: Snapshot, criteria: Criteria | None) -> str:
        return self._table.install(Installed(criteria, (snapshot.head.number, END_OF_BLOCK), snapshot.head), CLIENT.get())

    def _filter_logs(self, note: Note, name: str) -> Raw:
        """All logs of the filter, as eth_getLogs answers them."""
        criteria = self._table.get(name).criteria
        if criteria is None:
            raise _not_found()
        logs = self._queries.all_logs(note, criteria)
        return Raw(b"[]" if logs is None else logs_to_json(logs))

    def _filter_changes(self, note: Note, name: str) -> Any:
        """What is new since the last call."""
        installed = self._table.get(name)
        snapshot = self._queries.snapshot()
        if self._queries.engine.block_by_number(snapshot, installed.seen[0]) != installed.block:
            self._table.remove(name)
            raise _not_found()
        if installed.criteria is None:
            result, after = self._new_blocks(snapshot, installed)
        else:
            result, after = self._new_logs(note, snapshot, installed, installed.criteria)
        if not self._table.update(name, installed, after):
            return []
        return result

    def _uninstall(self, note: Note, name: str) -> bool:
        return self._table.remove(name)

    def _new_blocks(self, snapshot: Snapshot, installed: Installed) -> tuple[Any, Installed]:
        start = installed.seen[0] + 1
        numbers = range(start, min(snapshot.head.number, installed.seen[0] + MAX_HASHES) + 1)
        blocks = [b for b in (self._queries.engine.block_by_number(snapshot, number) for number in numbers) if b is not None]
        if not blocks:
            return [], installed
        return [to_hex(b.hash) for b in blocks], replace(installed, seen=(blocks[-1].number, END_OF_BLOCK), block=blocks[-1])

    def _new_logs(self, note: Note, snapshot: Snapshot, installed: Installed, criteria: Criteria) -> tuple[Any, Installed]:
        wanted = _unseen(criteria, installed.seen, snapshot)
        all_seen = replace(installed, seen=(snapshot.head.number, END_OF_BLOCK), block=snapshot.head)
        if wanted is None:
            return [], all_seen
        settings = self._queries.settings
        found = self._queries.find(note, snapshot, wanted, settings.max_results, after=installed.seen)
        fit = max(1, self._queries.fitting(found.logs))
        if not found.more and fit >= found.logs.num_rows:
            return Raw(logs_to_json(found.logs)), all_seen
        logs = found.logs.slice(0, fit)
        number, index = (logs[name][-1].as_py() for name in ("block_number", "log_index"))
        block = self._queries.engine.block_by_number(snapshot, number)
        if block is None:
            raise _not_found()
        return Raw(logs_to_json(logs)), replace(installed, seen=(number, index), block=block)


def check_installable(criteria: Criteria, snapshot: Snapshot, limits: Limits) -> None:
    """Refuse what could never report anything. A filter may ask for blocks that are still to come."""
    if len(criteria.addresses) > limits.max_addresses:
        raise RpcError(SERVER_ERROR, "exceed max addresses or topics per search position")
    start, end = criteria.from_block, criteria.to_block
    if "pending" in (start, end):
        raise RpcError(INVALID_PARAMS, "pending logs are not supported")
    if limits.range_rule == "strict" and isinstance(start, int) and start < snapshot.first:
        raise RpcError(PRUNED, f"pruned history unavailable: the first block indexed is {snapshot.first}")
    if isinstance(end, int) and not (isinstance(start, int) and start <= end) and start != "earliest":
        raise RpcError(INVALID_PARAMS, "invalid block range params")


def _unseen(criteria: Criteria, seen: Position, snapshot: Snapshot) -> LogFilter | None:
    """The blocks of the filter that may hold something new; None if there are none."""
    start = seen[0] + 1 if seen[1] == END_OF_BLOCK else seen[0]
    first = max(start, criteria.from_block) if isinstance(criteria.from_block, int) else start
    last = min(snapshot.head.number, criteria.to_block) if isinstance(criteria.to_block, int) else snapshot.head.number
    if criteria.block_hash is not None or first > last:
        return None
    return LogFilter(criteria.addresses, criteria.topics, first, last)


def _not_found() -> RpcError:
    return RpcError(SERVER_ERROR, "filter not found")
