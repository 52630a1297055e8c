"""The way to a workspace: the same stages, planned in a session that is set up as Databricks sets it up."""

from pathlib import Path

from chainlake.lake import Lake, open_lake
from chainlake.lake.commit import prepared
from chainlake.lake.session import settings
from chainlake.lake.stage import Batch

DATABRICKS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.sources.default": "delta",
    "spark.sql.session.timeZone": "Etc/UTC",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    "spark.databricks.delta.optimizeWrite.enabled": "true",
    "spark.databricks.delta.autoCompact.enabled": "true",
}


def test_every_stage_plans_with_the_settings_of_a_workspace(demo_home: Path) -> None:
    lake = open_lake(demo_home)
    view, planned = lake.ledger.read(), set()
    with settings(lake.spark, DATABRICKS):
        assert all(lake.spark.conf.get(key) == value for key, value in DATABRICKS.items())
        for stage in lake.stages.all():
            chains = view.chains([stage.name])
            if stage.advance is None or not chains:
                continue
            lane = [chain for chain in chains if stage.lane_of(chain) == stage.lane_of(chains[0])]
            heads = {chain: head.height for chain in lane if (head := view.of(stage.name, chain).head())}
            ranges = {chain: (height - 1, height) for chain, height in heads.items()}
            options = {chain: lake.chain(chain).options for chain in ranges}
            output = stage.advance(Batch(lake.spark, lake.snapshot(), ranges, options))
            for name, frame in ((name, frame) for name, frame in output.tables.items() if frame is not None):
                table = lake.catalog.table(name)
                columns = [column.name for column in table.stored]
                assert prepared(table, frame, commit_id=1).schema.names == columns, name
            planned.add(stage.name)
    assert {name.split(".")[1] for name in planned} >= {"logs", "shards", "cage", "replica", "sync"}


def test_settings_for_a_while_leave_what_the_server_was_started_with(lake: Lake) -> None:
    started_with, never_set, unknown = "spark.sql.shuffle.partitions", "spark.sql.files.openCostInBytes", "parquet.page.size"
    before = {key: lake.spark.conf.get(key, None) for key in (started_with, never_set, unknown)}
    assert before[started_with] != "200", "the local server's own, not Spark's default"
    with settings(lake.spark, {started_with: "7", never_set: "1024", unknown: "4096"}):
        assert lake.spark.conf.get(started_with) == "7"
    assert {key: lake.spark.conf.get(key, None) for key in before} == before
