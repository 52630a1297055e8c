"""Packing small files takes no longer as a table grows."""

from pathlib import Path

import pytest

from chainlake.lake import Lake
from chainlake.lake.home import Home
from chainlake.lake.maintenance import Maintenance
from chainlake.lake.server import PACKED_CUBE, PACKED_FILE, spark_settings
from chainlake.lake.session import settings


@pytest.mark.parametrize("clustered", [True, False])
def test_what_was_packed_is_left_alone(lake: Lake, home: Home, tmp_path: Path, clustered: bool) -> None:
    """With smaller sizes than the server's own, which take too much data for a test."""
    table = f"delta.`{tmp_path}`"
    lake.spark.sql(f"CREATE TABLE {table} (id BIGINT, text STRING) USING DELTA {'CLUSTER BY (id)' if clustered else ''}")
    small = {key: str(100 << 10) for key in spark_settings(home) if key in (PACKED_CUBE, PACKED_FILE)}
    for turn in range(2):
        for part in range(2):
            first = 10_000 * turn + 2_000 * part
            rows = lake.spark.range(first, first + 2_000).selectExpr("id", "sha2(string(id), 256) AS text")
            rows.coalesce(1).write.format("delta").mode("append").save(str(tmp_path))
        with settings(lake.spark, small):
            Maintenance(lake).optimize(table, "packing")
    done = lake.spark.sql(f"DESCRIBE HISTORY {table}").filter("operation = 'OPTIMIZE'").select("operationMetrics.numRemovedFiles")
    assert [row[0] for row in done.collect()] == ["2", "2"]
    assert lake.spark.read.format("delta").load(str(tmp_path)).count() == 8_000
