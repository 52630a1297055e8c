"""`lake verify`: does what the tables hold agree with the ledger, and with itself?

Every finding is one line. Checks: the ledger's own order; row counts and checksums of every commit, which reads every file in
full; each Delta version explained by a commit or by maintenance; one row per key and height in state tables; what each stage
promises of itself (links of raw blocks, roots).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from chainlake.errors import LakeError, first_line
from chainlake.lake.commit import checksum
from chainlake.lake.ddl import Table
from chainlake.lake.deltalog import HARMLESS, Version, never_written
from chainlake.lake.gc import allowed_counts
from chainlake.lake.progress import side_by_side
from chainlake.lake.restore import unfinished
from chainlake.lake.stage import Stage
from chainlake.lake.visibility import Commit, LedgerView, problems

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

Allowed = Mapping[tuple[str, int], set[int]]


@dataclass(frozen=True)
class Finding:
    """One thing that does not hold."""

    stage: str
    what: str


def verify(lake: "Lake", stage: str | None = None) -> list[Finding]:
    """Everything that does not hold, for one stage or all. Empty means that all is well."""
    stages = [lake.stages.get(stage)] if stage else lake.stages.all()
    view = lake.ledger.read(check=False)
    found = [Finding(s.name, text) for s in stages for text in _ledger_problems(view, s)]
    found += [Finding("control", text) for text in _unexplained("ledger", lake.catalog.control_log("ledger").all())]
    if (open_restore := unfinished(lake)) is not None:
        found.append(Finding(open_restore["stage"], f"a restore to seq {open_restore['seq']} was interrupted: run it again"))
    allowed = allowed_counts(lake)
    tables = [(table, stored) for table in _tables(lake, stages) for stored in lake.catalog.physical_tables(table)]
    checked = side_by_side(lambda pair: _table(lake, view, allowed, *pair), tables, "verify", "tables")
    for (table, _), texts in zip(tables, checked, strict=True):
        owner = next(s.name for s in stages if s.name in table.stages)
        found += [Finding(owner, text) for text in texts]
    promises = [(one, chain) for one in stages if one.verify for chain in view.chains([one.name])]
    kept = side_by_side(lambda pair: _promises(lake, *pair), promises, "verify", "promises")
    for (one, _), texts in zip(promises, kept, strict=True):
        found += [Finding(one.name, text) for text in texts]
    return found


def _tables(lake: "Lake", stages: Iterable[Stage]) -> list[Table]:
    names = {stage.name for stage in stages}
    return [table for table in lake.catalog.data_tables() if names & set(table.stages)]


def _ledger_problems(view: LedgerView, stage: Stage) -> list[str]:
    return [text for (name, _), history in view.histories().items() if name == stage.name for text in problems(history)]


def _table(lake: "Lake", view: LedgerView, allowed: Allowed, table: Table, stored: str) -> list[str]:
    """What does not hold in one physical table. One that never had a row is not read."""
    versions = lake.catalog.log(stored).all()
    commits = {c.commit_id: c for c in view.commits() if stored in c.rows}
    contents = [] if not commits and never_written(versions) else _contents(lake, commits.values(), allowed, table, stored)
    return contents + _unexplained(stored, versions)


def _contents(lake: "Lake", commits: Iterable[Commit], allowed: Allowed, table: Table, stored: str) -> list[str]:
    """Rows and checksums per commit, against the ledger."""
    frame = lake.spark.table(lake.catalog.full_name(stored))
    keys = ["_commit", "_chain", "_height", *table.state_key] if table.kind == "state" else []
    try:
        counted = frame.groupBy("_commit").agg(F.count(F.lit(1)), checksum(table)).collect()
        doubled = frame.groupBy(*keys).count().filter("count > 1").limit(3).collect() if keys else []
    except PySparkException as error:
        return [f"{stored} cannot be read: {first_line(error)}; lake restore, or roll back and run again"]
    actual = {row[0]: (row[1], row[2]) for row in counted}
    found = [f"{stored} has {row['count']} rows for one key at height {row['_height']}" for row in doubled]
    for commit in commits:
        rows, digest = actual.get(commit.commit_id, (0, 0))
        where = f"{stored}: commit {commit.commit_id} ({commit.stage} {commit.chain} seq {commit.seq})"
        if rows != commit.rows[stored] and rows not in allowed.get((stored, commit.commit_id), ()):
            found.append(f"{where} has {rows} rows, the ledger says {commit.rows[stored]}; lake restore, or roll back")
        elif rows == commit.rows[stored] and digest != commit.checksums.get(stored, digest):
            found.append(f"{where} has other contents than were committed; lake restore, or roll back")
    return found


def _unexplained(stored: str, versions: Sequence[Version]) -> list[str]:
    """Delta versions that neither a commit, an abandoned attempt, nor maintenance made, since the last restore."""
    restored = max((v.version for v in versions if v.mark.get("step") == "restored"), default=-1)
    return [
        f"{stored}: Delta version {v.version} ({v.operation}) was made around the ledger; see docs/operations.md"
        for v in versions
        if v.version > restored and not _explained(v)
    ]


def _explained(version: Version) -> bool:
    if version.operation in HARMLESS or "maintenance" in version.mark or "migration" in version.mark:
        return True
    return "commit" in version.mark and version.operation == "WRITE"


def _promises(lake: "Lake", stage: Stage, chain: str) -> list[str]:
    assert stage.verify is not None
    try:
        return list(stage.verify(lake, chain))
    except (PySparkException, LakeError) as error:
        return [f"{stage.name} {chain} cannot be checked: {first_line(error)}"]
