"""Tables made from tables/: physical schema, comments, constraints, drift, migrations, and the SQL of visibility."""

import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from chainlake.errors import BadInput
from chainlake.lake import Lake, open_lake
from chainlake.lake.clock import now
from chainlake.lake.control import ControlTables
from chainlake.lake.delta_rs import PACK_AFTER, Turn
from chainlake.lake.home import Home
from chainlake.lake.views import VISIBLE
from chainlake.lake.visibility import Commit, LedgerView
from tests.spark.domain import TABLES, test_stages


def test_every_physical_table_has_the_declared_columns_comments_and_retention(full_lake: Lake) -> None:
    for table in full_lake.catalog.data_tables():
        for stored in full_lake.catalog.physical_tables(table):
            fields = full_lake.spark.table(full_lake.catalog.full_name(stored)).schema.fields
            assert [f.name for f in fields] == [column.name for column in table.stored], stored
            assert [f.metadata.get("comment") for f in fields] == [column.comment for column in table.stored], stored
    properties = dict(full_lake.spark.sql(f"SHOW TBLPROPERTIES {full_lake.namespace.store('raw.blocks')}").collect())
    assert properties["delta.logRetentionDuration"] == properties["delta.deletedFileRetentionDuration"] == "interval 30 days"
    assert properties["delta.constraints.hash_present"].replace(" ", "") == "length(hash)>0"


def test_views_explain_their_columns(full_lake: Lake) -> None:
    fields = {
        f.name: f.metadata.get("comment") for f in full_lake.spark.table(full_lake.namespace.view("raw.blocks")).schema.fields
    }
    assert list(fields)[:4] == ["chain", "height", "hash", "parent_hash"] and all(fields.values())
    ledger = full_lake.spark.table(full_lake.namespace.control("visible")).schema.fields
    assert [(f.name, f.metadata.get("comment")) for f in ledger] == [(c.name, c.comment) for c in VISIBLE.columns]
    assert [f.dataType.simpleString().upper() for f in ledger] == [c.type for c in VISIBLE.columns]


def test_a_new_lake_is_made_once_by_three_who_open_it_also_after_one_who_was_killed_at_it(home: Home) -> None:
    prefix = f"t{os.getpid()}_together_"
    (home.warehouse / f"{prefix}store" / "raw_test_blocks" / "_delta_log").mkdir(parents=True)

    def opened(_: int) -> Lake:
        return open_lake(home.path, schema_prefix=prefix, stages=test_stages(), directories=[TABLES], standard=False)

    with ThreadPoolExecutor(3) as pool:
        lakes = list(pool.map(opened, range(3)))
    log = lakes[0].catalog.log("raw_test_blocks").all()
    assert [version.operation for version in log] == ["CREATE TABLE"]
    for lake in lakes:
        assert lake.table("silver.test_balances").count() == lake.spark.table(f"{prefix}silver.test_balances").count() == 0


def test_a_constraint_holds(full_lake: Lake) -> None:
    name = full_lake.namespace.store("raw.blocks")
    with pytest.raises(PySparkException, match="hash_present"):
        full_lake.spark.sql(f"INSERT INTO {name} VALUES ('c', 1, 1, X'', X'00', NULL, X'00', 's', 0)")


def test_drift_is_an_error_that_says_how_to_fix_it_and_a_migration_does(make_lake: Callable[..., Lake], tmp_path: Path) -> None:
    lake = make_lake()
    name = lake.namespace.store("silver.test_totals")
    lake.spark.sql(f"ALTER TABLE {name} ADD COLUMNS (surprise STRING)")
    lake.spark.sql(f"ALTER TABLE {name} CLUSTER BY (_chain)")
    lake.spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT odd CHECK (total <> 3)")
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 40 days')")
    lake.catalog._marked = lambda digest: False  # type: ignore[method-assign]
    with pytest.raises(BadInput, match="add a numbered file to tables/migrations") as caught:
        lake.catalog.ensure()
    for part in (
        "unknown surprise;",
        "unknown constraint odd;",
        "clustered by (_chain), declared ();",
        "is interval 40 days, declared",
    ):
        assert part in str(caught.value)
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / "0001_know_the_surprise.sql").write_text(
        "-- The column is declared now.\nALTER TABLE store.silver_test_totals ADD COLUMN surprise STRING;\n"
        "ALTER TABLE store.silver_test_totals ADD COLUMN more BIGINT COMMENT 'a; b';\n"
        "ALTER TABLE store.silver_test_totals DROP CONSTRAINT IF EXISTS odd;\n"
        "ALTER TABLE store.silver_test_totals CLUSTER BY NONE;\n"
        "ALTER TABLE store.silver_test_totals SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 30 days');\n"
    )
    declared = lake.catalog.tables["silver.test_totals"]
    from chainlake.lake.ddl import Column

    extra = (Column("surprise", "STRING", True, "x"), Column("more", "BIGINT", True, "y"))
    lake.catalog.tables["silver.test_totals"] = type(declared)(**{**vars(declared), "columns": declared.columns + extra})
    lake.catalog.directories.append(tmp_path)
    assert lake.catalog.ensure(), "applied, repeatable on the column that was there, and in agreement"
    assert [row["number"] for row in lake.control.read("migrations")] == [1]
    assert lake.catalog.ensure() and len(lake.control.read("migrations")) == 1, "once"


def test_the_sql_of_visibility_equals_the_rules(lake: Lake) -> None:
    rng = random.Random(7)
    commits: list[Commit] = []
    for chain in range(40):
        head = 0
        for seq in range(1, rng.randrange(2, 25)):
            kind = rng.choice(["advance", "advance", "rollback", "compact"]) if head else "advance"
            low, high = (
                head,
                {"advance": head + rng.randrange(1, 6), "rollback": rng.randrange(head + 1)}.get(kind, rng.randrange(head + 1)),
            )
            head = head if kind == "compact" else high
            commits.append(Commit("s", f"c{chain}", f"c{chain}", seq, len(commits) + 1, kind, low, high, 1, now()))
    lake.control.append("ledger", [asdict(commit) for commit in commits], {"commit": 0})
    view = lake.spark.table(lake.namespace.control("visible")).filter("stage = 's'")
    rows = view.select("commit_id", "limit_height").collect()
    histories = LedgerView(commits).histories().values()
    expected = [(v.commit.commit_id, v.limit) for h in histories for v in h.visible()]
    expected += [(base.commit_id, base.height) for h in histories if (base := h.base())]
    assert sorted(map(tuple, rows)) == sorted(expected)


@pytest.mark.parametrize("engine", ["delta-rs", "spark"])
def test_control_rows_are_written_once_per_turn_by_either_engine(make_lake: Callable[..., Lake], engine: str) -> None:
    lake = make_lake()
    control = lake.control if engine == "delta-rs" else ControlTables(lake.spark, lake.namespace, None)
    log = lake.catalog.control_log("health")

    def write(number: int, reason: str) -> bool:
        row = {"stage": "s", "chain": "c", "status": "ok", "reason": reason, "actor": "me", "at": now()}
        control.append("health", [row], {"who": reason}, Turn("series", number))
        return log.version_of("who", reason) is not None

    assert write(1, "first") and not write(1, "late") and write(2, "next") and not write(1, "very late")
    assert sorted(row["reason"] for row in lake.control.read("health")) == ["first", "next"]
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda n: write(3, f"racer {n}"), range(4))) == 1


def test_control_tables_are_packed_as_they_grow(make_lake: Callable[..., Lake]) -> None:
    lake = make_lake()
    row = {"stage": "s", "chain": "c", "status": "ok", "reason": "r", "actor": "me", "at": now()}
    for _ in range(2 * PACK_AFTER):
        lake.control.append("health", [row])
    assert len(lake.control.read("health")) == 2 * PACK_AFTER
    files = lake.spark.sql(f"DESCRIBE DETAIL {lake.namespace.control('health')}").select("numFiles").collect()[0][0]
    assert files <= PACK_AFTER
