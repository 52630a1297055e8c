"""The lake in a home, read without Spark: its tables, migrations, ledger, health and sources."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chainlake.doctor.finding import Finding, ok, problem, warning
from chainlake.errors import LakeError
from chainlake.lake import ddl, migrations
from chainlake.lake.migrations import Migration
from chainlake.lake.names import Namespace
from chainlake.lake.visibility import problems
from chainlake.serve.control import LakeControl
from chainlake.serve.embedded import EmbeddedLake
from chainlake.serve.operations import stopped

Row = Mapping[str, Any]

SHOWN = 5


def lake(home: Path, prefix: str, tables: Path) -> list[Finding]:
    """Everything that can be said of the lake; nothing if there is none."""
    try:
        embedded = EmbeddedLake(home, prefix)
    except LakeError:
        from chainlake.lake.records import lost_ledger  # loads Spark

        if lost := lost_ledger(Namespace("", prefix), home / "warehouse"):
            what, _, remedy = str(lost).rpartition(": ")
            return [problem("lake", what, remedy)]
        return [ok("lake", "none yet: make run builds the demo, lake ingest takes in a chain of yours")]
    try:
        control = LakeControl(embedded)
        return [
            _tables(embedded, tables),
            *applied_migrations(control.rows("migrations"), migrations.find([tables])),
            *_ledger(control),
            *degraded_stages(control.rows("health")),
            *missing_sources(control.chains().values()),
        ]
    except Exception as error:
        what = f"its control tables cannot be read: {type(error).__name__}: {str(error)[:150]}"
        return [problem("lake", what, "run lake verify, then see Restore in docs/operations.md")]


def _tables(embedded: EmbeddedLake, tables: Path) -> Finding:
    declared = ddl.load(tables)
    absent = [name for name in declared if not (embedded.directory(name) / "_delta_log").is_dir()]
    empty = [name for name in declared if name not in absent and not _has_versions(embedded.directory(name) / "_delta_log")]
    if empty:
        return problem(
            "tables", f"the log of {_some(empty)} is empty", "put the folder back, see Repairing in docs/operations.md"
        )
    if absent:
        return warning(
            "tables", f"{_some(absent)} not made yet", "nothing to do: the next command that opens the lake makes them"
        )
    return ok("tables", f"{len(declared)} as declared")


def _has_versions(log: Path) -> bool:
    return any(path.suffix in (".json", ".parquet") for path in log.iterdir())


def applied_migrations(rows: Sequence[Row], wanted: Sequence[Migration]) -> list[Finding]:
    """Migrations of this version against those that the lake has had."""
    had = {row["number"]: row["digest"] for row in rows}
    changed = [one.name for one in wanted if had.get(one.number, one.digest) != one.digest]
    ahead = sorted(set(had) - {one.number for one in wanted})
    waiting = [one.name for one in wanted if one.number not in had]
    if changed:
        return [
            problem("migrations", f"{_some(changed)} changed after it was applied", "restore the file, add a new one instead")
        ]
    if ahead:
        newer = f"the lake has had migration {ahead[-1]}, which this version does not know"
        return [problem("migrations", newer, "update the checkout: a newer version wrote this lake")]
    if waiting:
        return [
            warning(
                "migrations", f"{_some(waiting)} to be applied", "nothing to do: the next command that opens the lake does it"
            )
        ]
    return [ok("migrations", f"{len(had)} applied")]


def _ledger(control: LakeControl) -> list[Finding]:
    view = control.ledger()
    wrong = [text for history in view.histories().values() for text in problems(history)]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return [problem("ledger", wrong[0] + more, "see Repairing the ledger in docs/operations.md")]
    return [ok("ledger", f"{sum(1 for _ in view.commits())} commits of {len(view.histories())} stages and chains, in order")]


def degraded_stages(rows: Iterable[Row]) -> list[Finding]:
    """Stages that stopped and wait for somebody."""
    found = [
        problem("health", f"{stage} {chain} is degraded: {reason}", f"mend it, then lake resume {stage} {chain} --why TEXT")
        for (stage, chain), reason in sorted(stopped(rows).items())
    ]
    return found or [ok("health", "no stage is degraded")]


def missing_sources(chains: Iterable[Row]) -> list[Finding]:
    """Chains whose files have gone. What is in the lake stays readable; nothing new comes in."""
    known = list(chains)
    gone = [
        f"{row['chain']} ({row['source']})" for row in known if "://" not in row["source"] and not Path(row["source"]).exists()
    ]
    if gone:
        return [warning("sources", f"files are gone of {_some(gone)}", "put them back, or lake ingest NAME --from the new place")]
    return [ok("sources", f"{len(known)} chains followed")]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
