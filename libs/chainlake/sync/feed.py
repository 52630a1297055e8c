"""Notifications read straight from the files of a lake, without Spark: for servers, which look for news all the time."""

import threading

import pyarrow as pa
import pyarrow.compute as pc

from chainlake.serve.embedded import EmbeddedLake, LedgerReader
from chainlake.serve.row_groups import Reads, RowGroupFiles
from chainlake.serve.visible import Limits, VisibleFiles, select
from chainlake.sync.query import COLUMNS, MOST_BYTES, Notification, check_range, read

STAGE, TABLE = "gold.sync", "gold.notifications"
FOOTER_BYTES = 16 << 20


class Feed:
    """The notifications of one chain. Threads may share it."""

    def __init__(self, lake: EmbeddedLake, chain: str) -> None:
        self.chain = chain
        self._ledger = LedgerReader(lake, chain, [STAGE])
        self._log = lake.log(TABLE, "offset")
        self._files = RowGroupFiles(FOOTER_BYTES, 1)
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
        rows = self._rows(files, offset + 1, offset + limit)
        if rows is None:
            return []
        order = pc.sort_indices(rows["offset"])
        sizes = pc.cumulative_sum(pc.binary_length(rows["payload"]).take(order).cast(pa.int64()))
        fitting = pc.sum(pc.less_equal(sizes, MOST_BYTES)).as_py() or 0
        return [read(row) for row in rows.take(order[: max(1, fitting)]).to_pylist()]

    def _rows(self, files: VisibleFiles, low: int, high: int) -> pa.Table | None:
        """Rows from `low` on, as far as a page goes: row groups are read by the offsets they begin with, and no more of them
        once what was read fills a page. Those after it may have rows between those that were read."""
        groups = []
        for source in files.overlapping(low, high):
            footer = self._files.footer(source, Reads())
            first, last = footer.bounds("offset")
            groups += [(int(first[at]), source, at) for at in range(footer.groups) if first[at] <= high and last[at] >= low]
        found, size, lowest = list[pa.Table](), 0, high
        for begin, source, at in sorted(groups, key=lambda group: group[0]):
            if size > MOST_BYTES and lowest < begin:
                high = begin - 1
                break
            rows = _between(self._files.read(source, self._files.footer(source, Reads()), [at], COLUMNS, False), low, high)
            if len(rows):
                lowest = min(lowest, pc.min(rows["offset"]).as_py())
                size += pc.sum(pc.binary_length(rows["payload"])).as_py()
                found.append(rows)
        return _between(pa.concat_tables(found), low, high) if found else None


def _between(rows: pa.Table, low: int, high: int) -> pa.Table:
    offsets = rows["offset"]
    return rows.filter(pc.and_(pc.greater_equal(offsets, low), pc.less_equal(offsets, high)))
