"""control.ledger: reading it, and the one append that makes a commit exist.

The append is a compare-and-swap: Delta's transaction version of a lane is its seq, which must grow. A concurrent writer gets a
conflict; a late one is skipped silently. So Delta's log is always read back, and only our own commit id in it means success.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, fields, replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException

from chainlake.errors import BadInput, Fenced, Unavailable
from chainlake.lake.clock import new_commit_id, now
from chainlake.lake.control import ControlTables
from chainlake.lake.delta_rs import Turn
from chainlake.lake.deltalog import DeltaLog
from chainlake.lake.names import Namespace
from chainlake.lake.visibility import ROLLBACK, Commit, LedgerView, check_columns, checked

COLUMNS = [column.name for column in fields(Commit)]
REQUIRED = [column.name for column in fields(Commit) if column.default is MISSING and column.default_factory is MISSING]
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Ledger:
    """The ledger of one lake."""

    def __init__(self, namespace: Namespace, control: ControlTables, log: DeltaLog) -> None:
        self._prefix = namespace.prefix
        self._control = control
        self._log = log
        self.table = namespace.control("ledger")

    def read(self, stages: Iterable[str] | None = None, check: bool = True) -> LedgerView:
        """The ledger now, optionally of some stages only. A ledger that contradicts itself is refused unless `check` is off."""
        rows = self._control.arrow("ledger")
        _check_whole(rows)
        if stages is not None:
            rows = rows.filter(pc.is_in(rows["stage"], pa.array(list(stages), pa.string())))
        commits = _commits(rows)
        return checked(commits) if check else LedgerView(commits)

    def commit_ids(self) -> set[int]:
        """Every attempt that committed, whatever else the ledger says of it."""
        return set(self._control.arrow("ledger")["commit_id"].to_pylist())

    def append(self, rows: Sequence[Commit], confirm: Callable[[], None] | None = None) -> None:
        """Commit the rows of one lane (same stage, lane, seq and commit id), or raise Fenced with nothing visible. `confirm`
        raises it too, if the writer no longer holds the lane."""
        first = rows[0]
        turn = Turn(f"{self._prefix}{first.stage}@{first.lane}", first.seq)
        error = None
        try:
            self._control.append("ledger", [asdict(row) for row in rows], {"commit": first.commit_id}, turn, confirm)
        except (PySparkException, Unavailable) as caught:
            error = caught
        if self._log.version_of("commit", first.commit_id) is None:
            if error is not None:
                raise error
            raise Fenced(
                f"{first.stage} {first.lane}: seq {first.seq} was taken by another writer while this one (epoch"
                f" {first.epoch}) worked; nothing of its batch is visible, run again"
            )

    def fence(self, stage: str, lane: str, epoch: int, why: str) -> None:
        """Use up the seq that an older writer of the lane would commit at, with a rollback row that changes nothing.

        A lane without commits has nothing to roll back. An older writer asks for the lease when it commits, so it either has
        done so before, and its commit is here once it let go of the ledger, or is refused.
        """
        has_waited = False
        while True:
            view = self.read([stage])
            histories = [h for (_, c), h in view.histories().items() if h.commits and h.commits[-1].lane == lane]
            if not histories and not has_waited:
                self._control.wait_for_writers("ledger")
                has_waited = True
                continue
            if not histories:
                return
            history = max(histories, key=lambda h: h.seq())
            head, last = history.head(), history.commits[-1]
            if head is None:
                return
            row = replace(
                last,
                kind=ROLLBACK,
                seq=last.seq + 1,
                commit_id=new_commit_id(),
                base_height=head.height,
                height=head.height,
                block_hash=head.block_hash,
                roots=head.roots,
                rows={},
                checksums={},
                epoch=epoch,
                run_id=None,
                why=why,
                committed_at=now(),
            )
            try:
                self.append([row])
                return
            except Fenced:
                continue


def _check_whole(rows: pa.Table) -> None:
    """Every row says what a commit must say."""
    check_columns(rows.schema.names, COLUMNS)
    empty = [name for name in REQUIRED if rows[name].null_count]
    if empty:
        raise BadInput(f"control.ledger is corrupt: a row has no {', '.join(empty)}; see docs/operations.md on repairing it")


def _commits(rows: pa.Table) -> Iterable[Commit]:
    """Column by column: row by row, ten thousand of them would take a second."""
    at = rows["committed_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())  # pyarrow makes times slowly
    rows = rows.set_column(rows.schema.get_field_index("committed_at"), "committed_at", at)
    columns: dict[str, list[Any]] = {
        name: _maps(rows[name]) if pa.types.is_map(rows.schema.field(name).type) else rows[name].to_pylist() for name in COLUMNS
    }
    columns["committed_at"] = [EPOCH + timedelta(microseconds=at) for at in columns["committed_at"]]
    return map(Commit, *columns.values())


def _maps(column: pa.ChunkedArray) -> list[dict[str, Any]]:
    found = []
    for chunk in column.chunks:
        ends, keys, values = chunk.offsets.to_pylist(), chunk.keys.to_pylist(), chunk.items.to_pylist()
        found += [dict(zip(keys[low:high], values[low:high], strict=True)) for low, high in pairwise(ends)]
    return found
