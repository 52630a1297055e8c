"""What the gateway needs of a log index. `log_engine` gives it the lake's; tests give it a list of logs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from chainlake.encoding import to_hex
from chainlake.errors import LakeError
from chainlake.lake.visibility import LedgerView
from chainlake.logs.filter import LogFilter

Position = tuple[int, int]
"""Block number and log index."""


class UnknownBlock(LakeError):
    """No block with this hash is indexed."""


class TooBroad(LakeError):
    """The filter lists more alternatives than the planner takes."""


class Damaged(LakeError):
    """Stored data does not match its checksum. Nothing that rests on it is answered."""


@dataclass(frozen=True)
class Block:
    """A block by its place in the chain."""

    number: int
    hash: bytes
    parent_hash: bytes

    def to_json(self) -> dict[str, str]:
        """As answers name it."""
        return {"number": hex(self.number), "hash": to_hex(self.hash), "parentHash": to_hex(self.parent_hash)}


@dataclass(frozen=True)
class Snapshot:
    """What was indexed at one moment. All reads of one request go through one snapshot."""

    first: int
    head: Block
    version: int
    """Grows with every change of the index, also with a rollback."""
    committed_at: datetime | None = None
    """When the newest block became visible."""
    token: Any = None
    """The engine's own."""


@dataclass(frozen=True)
class Found:
    """Logs in the order asked for, and what finding them took."""

    logs: pa.Table
    """Columns of bronze.evm_logs."""
    more: bool
    """Stopped at the limit with more to come."""
    candidates: Sequence[tuple[str, int]] = ()
    """Per clause of the filter (address, topic0 …): how many entries the index held of it."""
    took: Mapping[str, Any] = field(default_factory=dict)
    """For the access log: a few plain values."""
    plan: Callable[[], Mapping[str, Any]] = dict
    """The plan in full, made only for who asks for it."""


class LogEngine(Protocol):
    """A log index. Methods may block and are called from several threads."""

    def snapshot(self) -> Snapshot | None:
        """The newest state; None while no block is indexed."""
        ...

    def query(
        self,
        snapshot: Snapshot,
        wanted: LogFilter,
        *,
        max_results: int,
        descending: bool = False,
        after: Position | None = None,
    ) -> Found:
        """At most `max_results` logs, from behind `after` in the direction asked for."""
        ...

    def block_by_number(self, snapshot: Snapshot, number: int) -> Block | None: ...

    def block_by_hash(self, snapshot: Snapshot, block_hash: bytes) -> Block | None: ...

    def payload(self, snapshot: Snapshot, number: int) -> bytes | None:
        """The block as its source gave it: the JSON object of eth_getBlockByNumber."""
        ...

    def caches(self) -> Mapping[str, Mapping[str, float]]:
        """Of each cache: hits, misses and evictions since start, entries and bytes now."""
        ...

    def totals(self) -> Mapping[str, float]:
        """What all queries since start took together."""
        ...


class ControlTables(Protocol):
    """What the lake keeps about itself, for health and metrics."""

    def ledger(self) -> LedgerView:
        """control.ledger now."""
        ...

    def rows(self, name: str) -> Sequence[Mapping[str, Any]]:
        """All rows of another control table; none if it does not exist. Times are aware."""
        ...

    def files(self, table: str) -> Sequence[tuple[int, int]]:
        """Rows and bytes of each file of a table."""
        ...
