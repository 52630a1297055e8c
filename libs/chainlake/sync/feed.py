"""Notifications read straight from the files of a lake, without Spark: for servers, which look for news all the time."""

import threading

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chainlake.serve.embedded import EmbeddedLake, LedgerReader
from chainlake.serve.visible import Limits, select
from chainlake.sync.query import COLUMNS, Notification, check_range, read

STAGE, TABLE = "gold.sync", "gold.notifications"
MOST_BYTES = 32 << 20
"""Of payloads in one page. As JSON it is twice as much, and has to go out beside those of others."""


class Feed:
    """The notifications of one chain. Threads may share it."""

    def __init__(self, lake: EmbeddedLake, chain: str) -> None:
        self.chain = chain
        self._ledger = LedgerReader(lake, chain, [STAGE])
        self._log = lake.log(TABLE, "offset")
        self._lock = threading.Lock()

    def after(self, offset: int, limit: int) -> list[Notification]:
        """Up to `limit` notifications after an offset, in order; fewer if they are large, but one at least. Offsets have no gaps,
        so they say which files to read."""
        check_range(offset, limit)
        with self._lock:
            self._ledger.refresh()
            self._log.refresh()
            visible = self._ledger.view.of(STAGE, self.chain).visible()
            files = select(self._log.files, self.chain, Limits({v.commit.commit_id: v.limit for v in visible}), "offset")
        low, high = offset + 1, offset + limit
        found = []
        for source in files.overlapping(low, high):
            bounds = [("offset", ">=", low), ("offset", "<=", high)]
            rows = source.seen(pq.read_table(source.path, columns=[*COLUMNS, *source.kernel_columns()], filters=bounds))
            found.append(rows.select(COLUMNS))
        if not found:
            return []
        rows = pa.concat_tables(found)
        order = pc.sort_indices(rows["offset"])
        sizes = pc.cumulative_sum(pc.binary_length(rows["payload"]).take(order).cast(pa.int64()))
        fitting = pc.sum(pc.less_equal(sizes, MOST_BYTES)).as_py() or 0
        return [read(row) for row in rows.take(order[: max(1, fitting)]).to_pylist()]
