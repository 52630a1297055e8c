"""Log queries as the methods make them: one snapshot, limits that are kept, and errors that say which range would fit."""

from typing import Any

import numpy as np
import pyarrow as pa

from chainlake.encoding import to_hex
from chainlake.logs.filter import INVALID_PARAMS, SERVER_ERROR, Bounds, Criteria, LogFilter, read_criteria, resolve
from chainlake.logs.rpc_values import RpcError
from chainlake.serve.engine import Found, LogEngine, Position, Snapshot
from chainlake.serve.log_json import sizes
from chainlake.serve.methods import Note
from chainlake.serve.settings import Settings


class Queries:
    """The engine behind its limits."""

    def __init__(self, engine: LogEngine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings

    def read_criteria(self, value: Any) -> Criteria:
        """The filter parameter of a call."""
        return read_criteria(value, self.settings.filters)

    def snapshot(self) -> Snapshot:
        """What is indexed now."""
        snapshot = self.engine.snapshot()
        if snapshot is None:
            raise RpcError(SERVER_ERROR, "head block not available: no block is indexed yet")
        return snapshot

    def resolve(self, snapshot: Snapshot, criteria: Criteria) -> LogFilter:
        """The filter with block numbers in place of tags."""
        return resolve(criteria, Bounds(snapshot.first, snapshot.head.number), self.settings.filters)

    def find(
        self,
        note: Note,
        snapshot: Snapshot,
        wanted: LogFilter,
        limit: int,
        descending: bool = False,
        after: Position | None = None,
    ) -> Found:
        """At most `limit` logs; the call's note tells what was asked for."""
        _describe(note, snapshot, wanted)
        found = self.engine.query(snapshot, wanted, max_results=limit, descending=descending, after=after)
        note.candidates = found.candidates
        note.details |= {"logs": found.logs.num_rows, **found.took}
        return found

    def all_logs(self, note: Note, criteria: Criteria) -> pa.Table | None:
        """All logs that a filter asks for, or an error that says which part of the range would fit: of two limits, within
        the one that is reached first. None: no such blocks."""
        snapshot = self.snapshot()
        wanted = self.resolve(snapshot, criteria)
        if wanted.empty_range:
            return None
        most = self.settings.max_results
        logs = self.find(note, snapshot, wanted, most + 1).logs
        fit = self.fitting(logs)
        if fit < min(most, logs.num_rows):
            raise _does_not_fit(wanted, logs, fit, f"max response size {self.settings.max_response} bytes")
        if logs.num_rows > most:
            raise _does_not_fit(wanted, logs, most, f"max results {most}")
        return logs

    def fitting(self, logs: pa.Table) -> int:
        """How many of the logs, from the first on, fit into one response."""
        total = np.cumsum(sizes(logs))
        return int(np.searchsorted(total, self.settings.max_response, side="right"))


def _does_not_fit(wanted: LogFilter, logs: pa.Table, fit: int, limit: str) -> RpcError:
    """All blocks before that of the first log that does not fit are whole."""
    over = logs["block_number"][fit].as_py()
    first = logs["block_number"][0].as_py() if wanted.from_block is None else wanted.from_block
    if wanted.block_hash is not None or over <= first:
        return RpcError(INVALID_PARAMS, f"query exceeds {limit}, block {over} alone has more: use lake_getLogsPage")
    message = f"query exceeds {limit}, retry with the range {first}-{over - 1}"
    return RpcError(INVALID_PARAMS, message, {"fromBlock": hex(first), "toBlock": hex(over - 1)})


def _describe(note: Note, snapshot: Snapshot, wanted: LogFilter) -> None:
    note.details["head"] = snapshot.head.number
    note.details["version"] = snapshot.version
    if wanted.block_hash is not None:
        note.details["block_hash"] = to_hex(wanted.block_hash)
    else:
        note.details["from"], note.details["to"] = wanted.from_block, wanted.to_block
    note.details["addresses"] = len(wanted.addresses)
    note.details["topics"] = [len(any_of) for any_of in wanted.topics]
