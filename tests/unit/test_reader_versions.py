"""Which Delta version a read of the past uses."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.lake.clock import RANDOM_BITS, now
from chainlake.lake.ddl import parse
from chainlake.lake.names import Namespace
from chainlake.lake.reader import Snapshot
from chainlake.lake.visibility import ADVANCE, ROLLBACK, Commit, History, LedgerView
from tests.unit.ledger_model import CHAIN, commit, moment

TABLE = parse(
    """-- What happened in each block.
-- kind: event
-- key: chain, height
-- stages: silver.test
-- retention: 30 days
CREATE TABLE silver.happened (value STRING NOT NULL COMMENT 'What');""",
    "event",
)

COLUMNS = [column.name for column in TABLE.stored]


class Frame:
    """What Spark was asked for: the text, and the columns that it has."""

    def __init__(self, text: str, columns: Sequence[str]) -> None:
        self.text = text
        self.columns = list(columns)

    def select(self, *columns: str) -> "Frame":
        return Frame(f"{self.text} with {columns[1:]}", self.columns)


def asked(*commits: Commit, restores: Sequence[Mapping[str, Any]] = (), columns: Sequence[str] = COLUMNS) -> str:
    """What Spark is asked for, to read the table as these commits left it."""
    spark: Any = SimpleNamespace(sql=lambda text: Frame(text, columns), table=lambda name: Frame(f"{name} as it is", COLUMNS))
    control = SimpleNamespace(read=lambda name: restores)
    catalog: Any = SimpleNamespace(namespace=Namespace(), control=control)
    found: Any = Snapshot(spark, catalog, LedgerView(commits))._stored(TABLE, {CHAIN: History(commits)}, True)
    return str(found.text)


def written(kind: str, seq: int, days_ago: int, version: int) -> Commit:
    at = now() - timedelta(days=days_ago)
    made = commit(kind, 0, 5, seq, commit_id=int(at.timestamp() * 1000) << RANDOM_BITS)
    return replace(made, delta_versions={"silver_happened": version}, committed_at=at)


def restored(days_ago: int, version: int, table: str = "silver_happened", action: str = "restore") -> dict[str, Any]:
    """A row of control.maintenance."""
    details = json.dumps({"tables": {table: version}})
    return {"action": action, "state": "started", "details": details, "at": now() - timedelta(days=days_ago)}


def test_the_version_that_the_newest_commit_made_is_read_while_delta_keeps_it() -> None:
    found = asked(written(ADVANCE, 1, 9, 3), written(ADVANCE, 2, 8, 4))
    assert found == "SELECT * FROM `store`.`silver_happened` VERSION AS OF 4"
    assert asked(written(ADVANCE, 1, 40, 3)) == "`store`.`silver_happened` as it is"


def test_a_rollback_of_yesterday_does_not_make_an_old_version_young() -> None:
    assert asked(written(ADVANCE, 1, 40, 3), written(ROLLBACK, 2, 1, 3)) == "`store`.`silver_happened` as it is"


def test_a_version_that_a_restore_went_back_behind_may_be_damaged_and_is_not_read() -> None:
    made = written(ADVANCE, 1, 9, 3), written(ADVANCE, 2, 7, 5)
    present, version = "`store`.`silver_happened` as it is", "SELECT * FROM `store`.`silver_happened` VERSION AS OF 5"
    assert asked(*made, restores=[restored(6, 3)]) == present
    for harmless in (restored(6, 5), restored(8, 3), restored(6, 3, "silver_other"), restored(6, 3, action="gc")):
        assert asked(*made, restores=[harmless]) == version
    assert asked(made[0], restores=[restored(6, 3)]) == version.replace("5", "3")


def test_a_version_from_before_a_migration_has_its_columns_as_null(monkeypatch: pytest.MonkeyPatch) -> None:
    column = SimpleNamespace(alias=lambda name: f"no {name}")
    monkeypatch.setattr("chainlake.lake.reader.F.lit", lambda value: SimpleNamespace(cast=lambda kind: column))
    before = [name for name in COLUMNS if name != "value"]
    found = asked(written(ADVANCE, 1, 9, 3), columns=before)
    assert found == "SELECT * FROM `store`.`silver_happened` VERSION AS OF 3 with ('no value',)"


def test_a_time_without_a_zone_is_utc() -> None:
    catalog: Any = SimpleNamespace(control=None)
    snapshot = Snapshot(None, catalog, LedgerView([commit(ADVANCE, 0, 5, 1), commit(ADVANCE, 5, 9, 2)]))  # type: ignore[arg-type]
    for at in (moment(1), moment(1).replace(tzinfo=None)):
        assert [one.seq for one in snapshot._histories(TABLE, CHAIN, None, at)[CHAIN].commits] == [1]


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
