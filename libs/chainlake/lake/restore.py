"""Putting the tables of a stage back physically with Delta RESTORE, after damage.

`lake restore STAGE CHAIN --seq N` takes every table of the stage to the Delta version recorded at that commit, then brings
forward the rows of all later commits that can still be read, of any chain, since chains share tables. The plan is recorded before
anything is touched, so that an interrupted restore is finished by running it again. What cannot be brought forward is named, and
the chains concerned are rolled back to the last block that is whole.
"""

import secrets
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BadInput, LakeError, first_line, some_of
from chainlake.lake.commit import checksum
from chainlake.lake.compaction import rebuild
from chainlake.lake.failpoint import failpoint
from chainlake.lake.gc import allowed_counts
from chainlake.lake.lease import Lease
from chainlake.lake.maintenance import Maintenance
from chainlake.lake.migrations import migrate_again
from chainlake.lake.progress import Progress
from chainlake.lake.rollback import rollback
from chainlake.lake.visibility import COMPACT, LedgerView

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake


class RestoreFailed(LakeError):
    """Delta no longer has what is needed."""


@dataclass
class Restored:
    """What a restore did."""

    tables: dict[str, int] = field(default_factory=dict)
    carried: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    rolled_back: dict[str, int] = field(default_factory=dict)
    rebuilt: list[str] = field(default_factory=list)


def restore(lake: "Lake", stage: str, chain: str, seq: int) -> Restored:
    """Restore the tables of a stage to a commit and bring later commits forward."""
    view = lake.ledger.read([lake.stages.get(stage).name])
    if chain not in view.chains([stage]):
        raise BadInput(f"{stage} has nothing of chain {chain!r}: it has {some_of(view.chains([stage]))}")
    with lake.lease(stage, view.lane_of(stage, chain)) as lease:
        return _restore(lake, stage, unfinished(lake, stage) or _plan(lake, stage, chain, seq), lease)


def _restore(lake: "Lake", stage: str, plan: dict[str, Any], lease: Lease) -> Restored:
    maintenance, action = Maintenance(lake), str(plan["id"])
    if not plan.get("started"):
        maintenance.record("restore", action, "started", plan, stage)
    failpoint("restore_after_plan")
    done = Restored()
    tables: dict[str, int] = plan["tables"]
    for stored, version in Progress("restore", len(tables), unit="tables").over(tables.items()):
        _restore_table(lake, maintenance, action, stored, version, done)
    failpoint("restore_before_healing")
    lost = _lost_in(maintenance, action)
    done.lost += [line for line in lost.values() if line.partition(":")[0] not in {one.partition(":")[0] for one in done.lost}]
    _heal_lost(lake, {commit_id for commit_id, _ in lost}, done, lease)
    maintenance.record("restore", action, "finished", {"carried": done.carried, "lost": done.lost}, stage)
    return done


def unfinished(lake: "Lake", stage: str | None = None) -> dict[str, Any] | None:
    """The plan of a restore that was interrupted."""
    records = [r for r in Maintenance(lake).records("restore") if stage in (None, r["stage"])]
    finished = {r["id"] for r in records if r["state"] == "finished"}
    for record in records:
        if record["state"] == "started" and record["id"] not in finished:
            return {**record["details"], "started": True}
    return None


def _plan(lake: "Lake", stage: str, chain: str, seq: int) -> dict[str, Any]:
    history = lake.ledger.read([stage]).of(stage, chain)
    if all(commit.seq != seq for commit in history.commits):
        raise BadInput(f"{stage} {chain} has no commit {seq}: the last is {history.seq()}, see lake audit")
    tables = {}
    for table in lake.catalog.of_stage(stage):
        for stored in lake.catalog.physical_tables(table):
            versions = [c.delta_versions[stored] for c in history.commits if c.seq <= seq and stored in c.delta_versions]
            if versions:
                tables[stored] = versions[-1]
    return {"id": secrets.token_hex(8), "stage": stage, "chain": chain, "seq": seq, "tables": tables}


def _restore_table(lake: "Lake", maintenance: Maintenance, action: str, stored: str, version: int, done: Restored) -> None:
    log = lake.catalog.log(stored)
    steps = {v.mark["step"]: v.version for v in log.all() if v.mark.get("id") == action}
    if "restored" not in steps:
        try:
            with maintenance.marked("restore", action, step="restored"):
                lake.spark.sql(f"RESTORE TABLE {lake.catalog.full_name(stored)} TO VERSION AS OF {version}").collect()
        except PySparkException as error:
            raise RestoreFailed(
                f"{stored} cannot go back to version {version}: {first_line(error)};"
                f" choose another --seq, or roll back and run again"
            ) from None
        failpoint("restore_after_restore")
        steps = {v.mark["step"]: v.version for v in log.all() if v.mark.get("id") == action}
    migrate_again(lake.spark, lake.catalog, stored)
    lake.catalog.assert_properties(stored)
    done.tables[stored] = version
    before = steps.get("restored", log.latest() + 1) - 1
    if "carried" not in steps:
        later = {v.mark["commit"] for v in log.all() if version < v.version <= before and "commit" in v.mark}
        done.carried[stored] = _carry(lake, maintenance, action, stored, before, later)
        failpoint("restore_after_carry")
    done.lost += _lost(lake, maintenance, action, stored, before)


def _carry(lake: "Lake", maintenance: Maintenance, action: str, stored: str, version: int, later: set[int]) -> int:
    """Append the rows of later attempts, committed or still under way: from the Delta version that each attempt made, or from
    the one just before the restore."""
    contents, present = _contents(lake, stored), _present(lake, stored)
    sources: dict[int, list[int]] = {}
    carried = 0
    for commit_id in sorted((later | contents.keys()) - present.keys()):
        found = _find_whole(lake, stored, commit_id, contents.get(commit_id), version)
        if found is not None:
            sources.setdefault(found[0], []).append(commit_id)
            carried += found[1]
    if sources:
        rows = [_version(lake, stored, source).filter(F.col("_commit").isin(ids)) for source, ids in sources.items()]
        together = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), rows)
        with maintenance.marked("restore", action, step="carried"):
            together.write.format("delta").mode("append").saveAsTable(lake.catalog.full_name(stored))
    return carried


def _find_whole(lake: "Lake", stored: str, commit_id: int, wanted: "Contents | None", version: int) -> tuple[int, int] | None:
    """A Delta version that still has the rows of a commit as they were committed, and how many they are."""
    made = lake.catalog.log(stored).version_of("commit", commit_id)
    for source in dict.fromkeys([made.version if made else version, version]):
        count, digest, _ = _readable(lake, stored, source, commit_id)
        if count and (wanted is None or wanted.allows(count, digest)):
            return source, count
    return None


def _lost(lake: "Lake", maintenance: Maintenance, action: str, stored: str, version: int) -> list[str]:
    """Commits that the ledger shows and that are not whole, with what reading them from `version` says."""
    contents, present = _contents(lake, stored), _present(lake, stored)
    lost, left = [], {}
    for commit_id in sorted(_visible_ids(lake.ledger.read()) & contents.keys()):
        if present.get(commit_id, 0) not in contents[commit_id].counts:
            count, _, problem = _readable(lake, stored, version, commit_id)
            lost.append(f"commit {commit_id} of {stored}: {problem or f'{count} of {contents[commit_id].rows} rows are left'}")
            left[str(commit_id)] = present.get(commit_id, 0)
    if left:
        maintenance.record("gc", action, "lost", {stored: left})
    return lost


def _lost_in(maintenance: Maintenance, action: str) -> dict[tuple[int, str], str]:
    """What this restore could not bring back, by commit and table, also if it was interrupted after it had found out."""
    return {
        (int(commit_id), stored): f"commit {commit_id} of {stored}: {rows} rows are left"
        for record in maintenance.records("gc")
        if (record["id"], record["state"]) == (action, "lost")
        for stored, left in record["details"].items()
        for commit_id, rows in left.items()
    }


@dataclass(frozen=True)
class Contents:
    """What a commit must have in a table: rows and checksum as committed, or fewer rows that garbage collection left."""

    rows: int
    checksum: int | None
    left: frozenset[int]

    @property
    def counts(self) -> frozenset[int]:
        return self.left | {self.rows}

    def allows(self, rows: int, checksum: int) -> bool:
        return rows in self.left or (rows == self.rows and self.checksum in (None, checksum))


def _contents(lake: "Lake", stored: str) -> dict[int, Contents]:
    allowed = allowed_counts(lake)
    return {
        c.commit_id: Contents(c.rows[stored], c.checksums.get(stored), frozenset(allowed.get((stored, c.commit_id), ())))
        for c in lake.ledger.read().commits()
        if c.rows.get(stored)
    }


def _present(lake: "Lake", stored: str) -> dict[int, int]:
    return dict(lake.spark.table(lake.catalog.full_name(stored)).groupBy("_commit").count().collect())


def _visible_ids(view: LedgerView) -> set[int]:
    histories = view.histories().values()
    bases = {base.commit_id for history in histories if (base := history.base())}
    return bases | {v.commit.commit_id for history in histories for v in history.visible()}


def _readable(lake: "Lake", stored: str, version: int, commit_id: int) -> tuple[int, int, str]:
    """Rows and checksum of a commit, read in full from a version, or why they cannot be."""
    try:
        source = _version(lake, stored, version).filter(F.col("_commit") == commit_id)
        rows, digest = source.select(F.count(F.lit(1)), checksum(lake.catalog.declared(stored), source.columns)).collect()[0]
        return int(rows), int(digest), ""
    except PySparkException as error:
        return 0, 0, first_line(error)


def _version(lake: "Lake", stored: str, version: int) -> DataFrame:
    return lake.spark.sql(f"SELECT * FROM {lake.catalog.full_name(stored)} VERSION AS OF {version}")


def _heal_lost(lake: "Lake", lost: set[int], done: Restored, lease: Lease) -> None:
    """A chain that lost a commit goes back to the block before it; a lost base is made again from history."""
    for commit in sorted(lake.ledger.read().commits(), key=lambda c: c.base_height):
        if commit.commit_id not in lost:
            continue
        if commit.kind == COMPACT:
            done.rebuilt += [f"{one.stage} {one.chain}" for one in rebuild(lake, commit.stage, commit.chain, lease)]
            continue
        head = lake.ledger.read([commit.stage]).of(commit.stage, commit.chain).head()
        if head is not None and head.height > commit.base_height:
            why = f"restore: commit {commit.commit_id} is damaged beyond what Delta still has"
            rollback(lake, commit.stage, commit.chain, commit.base_height, why, force=True)
            done.rolled_back[f"{commit.stage} {commit.chain}"] = commit.base_height
