"""The way to a workspace: the same stages, planned in a session that is set up as Databricks sets it up."""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.lake import Lake, open_lake
from chainlake.lake.commit import prepared
from chainlake.lake.session import settings
from chainlake.lake.stage import Batch, Stage
from chainlake.logs.segments import merge_segments
from chainlake.raw.stages import MAX_BYTES, transactions_of
from chainlake.sources.datasource import read_blocks, register
from chainlake.sources.formats import format_of

DATABRICKS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.sources.default": "delta",
    "spark.sql.session.timeZone": "Etc/UTC",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    "spark.databricks.delta.optimizeWrite.enabled": "true",
    "spark.databricks.delta.autoCompact.enabled": "true",
}


def read(lake: Lake, chain: str) -> Mapping[str, DataFrame | None]:
    """What a raw stage makes of the first blocks of a chain."""
    register(lake.spark)
    info = lake.chain(chain)
    frame = read_blocks(lake.spark, info.kind, format_of(info.kind).expand(info.source), None, 2, MAX_BYTES, dict(info.options))
    blocks = frame.withColumn("_chain", F.lit(chain)).withColumnRenamed("height", "_height")
    return {"raw.blocks": blocks.drop("transactions"), "raw.transactions": transactions_of(blocks)}


def made(lake: Lake, stage: Stage) -> Mapping[str, DataFrame | None]:
    """What a stage makes of the last blocks of the demo chains of a lane. Merges of the log index come when they are due: here
    one is made of the last blocks of the index."""
    view, of = lake.ledger.read(), stage.inputs[0] if stage.as_needed else stage.name
    chains = [chain for chain in view.chains([of]) if chain.startswith("demo-")]
    assert chains, f"{stage.name} has committed nothing of the demo"
    if stage.is_source:
        return read(lake, chains[0])
    lane = [chain for chain in chains if stage.lane_of(chain) == stage.lane_of(chains[0])]
    heads = {chain: head.height for chain in lane if (head := view.of(of, chain).head())}
    ranges = {chain: (height - 1, height) for chain, height in heads.items()}
    options = {chain: lake.chain(chain).options for chain in ranges}
    return (stage.advance or merge_segments)(Batch(lake.spark, lake.snapshot(), ranges, options)).tables


def test_every_stage_plans_with_the_settings_of_a_workspace(demo_home: Path) -> None:
    lake = open_lake(demo_home)
    with settings(lake.spark, DATABRICKS):
        assert all(lake.spark.conf.get(key) == value for key, value in DATABRICKS.items())
        for stage in lake.stages.all():
            for name, frame in made(lake, stage).items():
                table = lake.catalog.table(name)
                columns = [column.name for column in table.stored]
                assert frame is None or prepared(table, frame, commit_id=1).schema.names == columns, f"{stage.name}: {name}"


def test_settings_for_a_while_leave_what_the_server_was_started_with(lake: Lake) -> None:
    started_with, never_set, unknown = "spark.sql.shuffle.partitions", "spark.sql.files.openCostInBytes", "parquet.page.size"
    before = {key: lake.spark.conf.get(key, None) for key in (started_with, never_set, unknown)}
    assert before[started_with] != "200", "the local server's own, not Spark's default"
    with settings(lake.spark, {started_with: "7", never_set: "1024", unknown: "4096"}):
        assert lake.spark.conf.get(started_with) == "7"
    assert {key: lake.spark.conf.get(key, None) for key in before} == before
