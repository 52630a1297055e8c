"""The log index of a lake that has no logs: nothing is ever indexed."""

from collections.abc import Mapping

from chainlake.errors import Unavailable
from chainlake.logs.filter import LogFilter
from chainlake.serve.engine import Block, Found, Position, Snapshot


class NoLogs:
    """A `LogEngine` without a chain, for gateways that serve other domains only."""

    def snapshot(self) -> Snapshot | None:
        return None

    def query(
        self,
        snapshot: Snapshot,
        wanted: LogFilter,
        *,
        max_results: int,
        descending: bool = False,
        after: Position | None = None,
    ) -> Found:
        raise Unavailable("there is no evm chain here: lake ingest takes one in")

    def block_by_number(self, snapshot: Snapshot, number: int) -> Block | None:
        return None

    def block_by_hash(self, snapshot: Snapshot, block_hash: bytes) -> Block | None:
        return None

    def payload(self, snapshot: Snapshot, number: int) -> bytes | None:
        return None

    def caches(self) -> Mapping[str, Mapping[str, float]]:
        return {}

    def totals(self) -> Mapping[str, float]:
        return {}
