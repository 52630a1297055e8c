"""Which Delta version a read of the past uses."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from chainlake.lake.clock import now
from chainlake.lake.ddl import parse
from chainlake.lake.names import Namespace
from chainlake.lake.reader import Snapshot
from chainlake.lake.visibility import ADVANCE, ROLLBACK, Commit, History, LedgerView
from tests.unit.ledger_model import CHAIN, commit

TABLE = parse(
    """-- What happened in each block.
-- kind: event
-- key: chain, height
-- stages: silver.test
-- retention: 30 days
CREATE TABLE silver.happened (value STRING NOT NULL COMMENT 'What');""",
    "event",
)


def asked(*commits: Commit) -> str:
    """What Spark is asked for, to read the table as these commits left it."""
    spark: Any = SimpleNamespace(sql=lambda text: text, table=lambda name: f"{name} as it is")
    catalog: Any = SimpleNamespace(namespace=Namespace(), control=None)
    found: Any = Snapshot(spark, catalog, LedgerView(commits))._stored(TABLE, {CHAIN: History(commits)}, True)
    return str(found)


def written(kind: str, seq: int, days_ago: int, version: int) -> Commit:
    made = commit(kind, 0, 5, seq)
    return replace(made, delta_versions={"silver_happened": version}, committed_at=now() - timedelta(days=days_ago))


def test_the_version_that_the_newest_commit_made_is_read_while_delta_keeps_it() -> None:
    found = asked(written(ADVANCE, 1, 9, 3), written(ADVANCE, 2, 8, 4))
    assert found == "SELECT * FROM `store`.`silver_happened` VERSION AS OF 4"
    assert asked(written(ADVANCE, 1, 40, 3)) == "`store`.`silver_happened` as it is"


def test_a_rollback_of_yesterday_does_not_make_an_old_version_young() -> None:
    assert asked(written(ADVANCE, 1, 40, 3), written(ROLLBACK, 2, 1, 3)) == "`store`.`silver_happened` as it is"


class Looking(Snapshot):
    """Says in which commits it would look for rows."""

    def _visible(self, frame: Any, live: Any, lower: Any) -> Any:
        return [v.commit.seq for v in live]


def looked_for(*commits: Commit) -> tuple[Any, Any]:
    """The commits in which a batch of blocks 3 to 12 is looked for, and the state before it."""
    catalog: Any = SimpleNamespace(namespace=Namespace(), control=None, table=lambda name: TABLE)
    spark: Any = SimpleNamespace(table=lambda name: name)
    looking = Looking(spark, catalog, LedgerView(commits))
    of_state, _ = looking._held_at(TABLE, {CHAIN: 12}, None)
    return looking.between("silver.happened", {CHAIN: (2, 12)}), of_state


def test_rows_are_not_looked_for_in_commits_that_wrote_none_of_the_table() -> None:
    rows = ({"silver_happened": 7}, {"silver_happened": 0}, {"silver_other": 0}, {})
    made = [commit(ADVANCE, 3 * seq - 3, 3 * seq, seq, rows=rows[seq - 1]) for seq in (1, 2, 3, 4)]
    assert looked_for(*made) == ([1, 3, 4], [1, 3, 4]), "only where the ledger says that there are none"
    assert looked_for(made[1]) == ([], [])
