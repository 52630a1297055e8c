"""What people use around the pipelines: the warehouse's SQL, the dashboards' queries, backfills."""

import json
import re
from pathlib import Path

import pytest

from chainlake.demo.write import write_demo
from chainlake.errors import BadInput
from chainlake.lake import Lake
from chainlake.lake.backfill import backfill
from chainlake.lake.sql_text import split_statements
from chainlake.lake.warehouse_sql import script
from chainlake.paths import project_root

DASHBOARDS = sorted((project_root() / "dashboards").glob("*.lvdash.json"))


def test_the_warehouse_script_runs(full_lake: Lake) -> None:
    """Functions are made temporary and without a schema: open-source Spark takes no other."""
    names = full_lake.namespace
    for statement in split_statements(script(names, full_lake.catalog.tables)):
        made = re.sub(
            r"CREATE OR REPLACE FUNCTION .*?\.`(\w+)`\(", r"CREATE OR REPLACE TEMPORARY FUNCTION \1(", statement, count=1
        )
        full_lake.spark.sql(made)
    found = full_lake.spark.sql("SELECT to_hex0x(X'00ff') AS a, from_hex0x('0x00FF') AS b, from_hex0x('00ff') AS c").collect()[0]
    assert (found.a, bytes(found.b), bytes(found.c)) == ("0x00ff", b"\x00\xff", b"\x00\xff")
    full_lake.catalog.renew_views()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_every_query_of_a_dashboard_works(full_lake: Lake, path: Path) -> None:
    layer = "control" if path.name.startswith("lake_health") else "gold"
    dashboard = json.loads(path.read_text())
    shown = {
        one["query"]["datasetName"]: {field["name"] for field in one["query"]["fields"]}
        for page in dashboard["pages"]
        for item in page["layout"]
        for one in item["widget"]["queries"]
    }
    for dataset in dashboard["datasets"]:
        text = re.sub(r"\bFROM (\w+)", rf"FROM {full_lake.namespace.schema(layer)}.\1", "".join(dataset["queryLines"]))
        frame = full_lake.spark.sql(text)
        assert shown[dataset["name"]] <= set(frame.columns), dataset["name"]
        frame.limit(1).collect()


def test_a_backfill_does_a_range_again_in_all_that_consume_it(full_lake: Lake, chain: str, tmp_path: Path) -> None:
    (demo,) = write_demo(tmp_path, "logs", "tiny")
    full_lake.add_chain(chain, demo.kind, str(demo.path), demo.options)
    with pytest.raises(BadInput, match="from_height 9 is above to_height 4"):
        backfill(full_lake, "raw.logs", chain, 9, 4)
    done = backfill(full_lake, "raw.logs", chain, to_height=9)
    assert (
        set(done["stage"]) >= {"raw.logs", "bronze.logs"} and full_lake.ledger.read().of("bronze.logs", chain).head().height == 9
    )
    backfill(full_lake, "bronze.logs", chain, from_height=5, why="decoder fixed")
    view = full_lake.ledger.read()
    rollback = next(commit for commit in view.of("bronze.logs", chain).commits if commit.kind == "rollback")
    assert (rollback.height, view.of("bronze.logs", chain).head().height) == (4, 9)
    assert rollback.why is not None and "decoder fixed" in rollback.why
