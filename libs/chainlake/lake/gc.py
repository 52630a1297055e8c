"""Garbage collection: rows that nobody can see, past a retention.

Three kinds: orphans (attempts that never committed), rolled-back rows, and base rows that a newer base replaced. Within the
retention they stay, so that audits and reads by seq or time keep working. What will be deleted is recorded first; each table's
DELETE is one Delta commit, and a crash between two of them is repaired by running again.
"""

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from chainlake.errors import BadInput
from chainlake.lake.clock import commit_time, now
from chainlake.lake.control import is_conflict
from chainlake.lake.deltalog import never_written
from chainlake.lake.failpoint import failpoint
from chainlake.lake.lease import newest_leases
from chainlake.lake.maintenance import Maintenance
from chainlake.lake.progress import Progress, side_by_side
from chainlake.lake.views import quoted
from chainlake.lake.visibility import ADVANCE, COMPACT, ROLLBACK, Commit, History, LedgerView

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

RETENTION = timedelta(days=7)
GRACE = timedelta(hours=1)
ORPHAN, ROLLED_BACK, OLD_BASE = "orphan", "rolled_back", "old_base"
NOTHING = -2
CONDITIONS = 200
NEWEST = 100


@dataclass(frozen=True)
class Fate:
    """The rows of a commit and chain above `limit` are garbage, of this kind, since then."""

    limit: int
    kind: str = ""
    since: datetime | None = None

    def is_past(self, retention: timedelta, grace: timedelta) -> bool:
        """Whether the rows may be deleted. Some may be in use at first: an orphan may belong to a writer at work, and a base that
        was just replaced is still read by those who looked before."""
        keep = max(retention, grace) if self.kind in (ORPHAN, OLD_BASE) else retention
        return self.since is not None and now() - self.since >= keep


@dataclass(frozen=True)
class Garbage:
    """Invisible rows of one commit and chain in one physical table."""

    table: str
    kind: str
    commit_id: int
    chain: str
    above: int
    rows: int
    stored: int  # rows of the commit in this table before anything is deleted
    bytes: int
    removable: bool


def collect(lake: "Lake", retention: timedelta = RETENTION, dry_run: bool = False, grace: timedelta = GRACE) -> list[Garbage]:
    """Measure garbage, record it in control.orphans, and delete what is past the retention unless `dry_run`.

    Orphans and replaced bases younger than `grace` may be in use and stay whatever the retention; so do all rows that a writer at
    work has appended since it took its lease, however long its batch takes.
    """
    if retention < timedelta(0):
        raise BadInput("retention must not be negative: give days to keep, 0 for none")
    begun = begun_by_writers(lake.control.read("leases")) if grace else {}  # before the ledger, which may have their rows by then
    view = lake.ledger.read()

    def one(stored: str) -> list[Garbage]:
        writers = [begun[stage] for stage in lake.catalog.declared(stored).stages if stage in begun]
        return measure(lake, view, stored, retention, grace, min(writers, default=None))

    measured = side_by_side(one, _stored(lake), "gc", "tables")
    found = [garbage for one in measured for garbage in one]
    if not dry_run:
        _delete(lake, [garbage for garbage in found if garbage.removable])
    _record(lake, [garbage for garbage in found if dry_run or not garbage.removable])
    return found


def begun_by_writers(leases: Sequence[Mapping[str, Any]]) -> dict[str, datetime]:
    """When the writers at work, of those who hold a lease, took it: the first of each stage."""
    begun: dict[str, datetime] = {}
    for (stage, lane), lease in newest_leases(leases).items():
        if not lease.is_free():
            taken = min(row["at"] for row in leases if (row["stage"], row["lane"], row["epoch"]) == (stage, lane, lease.epoch))
            begun[stage] = min(taken, begun.get(stage, taken))
    return begun


def vacuum(lake: "Lake") -> None:
    """Free the disk space of files that no Delta version within the retention needs."""
    control = [name.partition(".")[2] for name, table in lake.catalog.tables.items() if table.is_control]
    tables = [(lake.control.vacuum, name) for name in control]
    tables += [(partial(_vacuum_stored, lake), stored) for stored in _stored(lake)]
    for vacuumed, name in Progress("vacuum", len(tables), unit="tables").over(tables):
        vacuumed(name)


def _vacuum_stored(lake: "Lake", stored: str) -> None:
    lake.spark.sql(f"VACUUM {lake.catalog.full_name(stored)}").collect()


def _stored(lake: "Lake") -> list[str]:
    """Physical tables that ever had a row."""
    every = [stored for table in lake.catalog.data_tables() for stored in lake.catalog.physical_tables(table)]
    return [stored for stored in every if not never_written(lake.catalog.log(stored).all())]


def fates(history: History) -> dict[int, Fate]:
    """What becomes of each commit of one stage and chain."""
    found: dict[int, Fate] = {}
    floor: int | None = None
    since: datetime | None = None
    newer: Commit | None = None
    for commit in reversed(history.commits):
        if commit.kind == ROLLBACK:
            if floor is None or commit.height <= floor:
                floor, since = commit.height, commit.committed_at
        elif commit.kind == ADVANCE:
            limit = commit.height if floor is None else min(floor, commit.height)
            found[commit.commit_id] = Fate(limit if limit > commit.base_height else NOTHING, ROLLED_BACK, since)
        elif commit.kind == COMPACT:
            if newer is not None:
                found[commit.commit_id] = Fate(NOTHING, OLD_BASE, newer.committed_at)
            elif floor is not None and floor < commit.height:
                found[commit.commit_id] = Fate(NOTHING, ROLLED_BACK, since)
            else:
                found[commit.commit_id] = Fate(commit.height, OLD_BASE, commit.committed_at)
            newer = commit
    return found


def measure(
    lake: "Lake", view: LedgerView, stored: str, retention: timedelta, grace: timedelta, writer_since: datetime | None = None
) -> list[Garbage]:
    """The garbage of one physical table. What was appended from `writer_since` on may be of a batch that is not finished."""
    known = {(c, key[1]): fate for key, h in view.histories().items() for c, fate in fates(h).items()}
    limits = [(commit_id, chain, fate.limit) for (commit_id, chain), fate in known.items()]
    kept = lake.spark.createDataFrame(limits, "_commit long, _chain string, g_limit long")
    frame = lake.spark.table(lake.catalog.full_name(stored))
    counted = (
        frame.join(F.broadcast(kept), ["_commit", "_chain"], "left")
        .groupBy("_commit", "_chain")
        .agg(F.count(F.lit(1)), F.count_if(F.expr("g_limit IS NULL OR _height > g_limit")))
        .collect()
    )
    totals: dict[int, int] = {}
    for commit_id, _, total, _ in counted:
        totals[commit_id] = totals.get(commit_id, 0) + total
    size = _row_bytes(lake, stored) if any(row[3] for row in counted) else 0.0
    found = []
    for commit_id, chain, _, rows in counted:
        if not rows:
            continue
        fate = known.get((commit_id, chain)) or Fate(NOTHING, ORPHAN, commit_time(commit_id))
        removable = fate.is_past(retention, grace) and not (fate.kind == ORPHAN and is_of_writer(commit_id, writer_since))
        size_of = round(rows * size)
        found.append(Garbage(stored, fate.kind, commit_id, chain, fate.limit, rows, totals[commit_id], size_of, removable))
    return found


def is_of_writer(commit_id: int, since: datetime | None) -> bool:
    """Whether an attempt may be of a writer that took its lease then. (Ids have milliseconds, leases have more.)"""
    return since is not None and commit_time(commit_id) >= since - timedelta(milliseconds=1)


def abandoned(lake: "Lake", tables: Iterable[str], since: datetime | None) -> tuple[int, int]:
    """Rows and bytes that attempts left in tables since a time and never committed, by what Delta's logs tell of their newest
    versions."""
    committed = lake.ledger.commit_ids()
    collected = {key for key, left in allowed_counts(lake).items() if 0 in left}
    oldest = 0.0 if since is None else since.timestamp() * 1000
    left = [
        version
        for table in tables
        for stored in lake.catalog.physical_tables(lake.catalog.table(table))
        for version in lake.catalog.log(stored).newest(NEWEST)
        if (commit := version.mark.get("commit")) is not None
        and version.timestamp_ms > oldest
        and commit not in committed
        and (stored, commit) not in collected
    ]
    return sum(version.rows for version in left), sum(version.bytes for version in left)


def allowed_counts(lake: "Lake") -> Mapping[tuple[str, int], set[int]]:
    """Row counts that a (physical table, commit) may have because garbage collection took rows from it, or planned to."""
    allowed: dict[tuple[str, int], set[int]] = {}
    for record in Maintenance(lake).records("gc"):
        for table, commits in record["details"].items():
            for commit_id, remaining in commits.items():
                allowed.setdefault((table, int(commit_id)), set()).add(remaining)
    return allowed


def _delete(lake: "Lake", garbage: Iterable[Garbage]) -> None:
    plan: dict[str, list[Garbage]] = {}
    for one in garbage:
        plan.setdefault(one.table, []).append(one)
    if not plan:
        return
    lake.catalog.renew_views()  # a view may still name a base that goes now
    maintenance, action = Maintenance(lake), secrets.token_hex(8)
    maintenance.record("gc", action, "started", {table: _remaining(items) for table, items in plan.items()})
    failpoint("gc_after_plan")
    for table, items in plan.items():
        for start in range(0, len(items), CONDITIONS):
            _delete_some(lake, maintenance, action, table, items[start : start + CONDITIONS])
            failpoint("gc_after_delete")
    maintenance.record("gc", action, "finished", {})


def _remaining(items: list[Garbage]) -> dict[str, int]:
    """Rows that each commit will have left."""
    left: dict[str, int] = {}
    for one in items:
        left[str(one.commit_id)] = left.get(str(one.commit_id), one.stored) - one.rows
    return left


def _delete_some(lake: "Lake", maintenance: Maintenance, action: str, table: str, items: list[Garbage]) -> None:
    terms = [_rows_of(one) for one in items]
    for attempt in range(5):
        try:
            with maintenance.marked("gc", action, table=table):
                lake.spark.sql(f"DELETE FROM {lake.catalog.full_name(table)} WHERE {' OR '.join(terms)}")
            return
        except PySparkException as error:
            if not is_conflict(error) or attempt == 4:
                raise
            time.sleep(0.5)


def _rows_of(one: Garbage) -> str:
    """The rows of some garbage, in SQL. A refused attempt may have left rows of a chain that cannot be, whatever its name."""
    return f"(_commit = {one.commit_id} AND _chain = '{quoted(one.chain)}' AND _height > {one.above})"


def _record(lake: "Lake", garbage: list[Garbage]) -> None:
    """What is left, in control.orphans: one row per table and kind, or one empty row that says that nothing is."""
    at = now()
    rows = []
    for table, kind in sorted({(one.table, one.kind) for one in garbage}):
        these = [one for one in garbage if (one.table, one.kind) == (table, kind)]
        rows.append(
            {
                "table_name": table,
                "kind": kind,
                "rows": sum(one.rows for one in these),
                "bytes": sum(one.bytes for one in these),
                "removable": sum(one.rows for one in these if one.removable),
                "at": at,
            }
        )
    nothing = {"table_name": "", "kind": "", "rows": 0, "bytes": 0, "removable": 0, "at": at}
    lake.control.append("orphans", rows or [nothing])


def _row_bytes(lake: "Lake", stored: str) -> float:
    """Bytes of a row on average."""
    full = lake.catalog.full_name(stored)
    size = lake.spark.sql(f"DESCRIBE DETAIL {full}").select("sizeInBytes").collect()[0][0]
    return float(size) / max(1, lake.spark.table(full).count())
