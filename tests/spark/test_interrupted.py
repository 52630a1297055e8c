"""Work that is asked to stop, and appends that Delta refuses once: nothing is lost, and what happened is told."""

import signal
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.readwriter import DataFrameWriter

from chainlake.lake import Lake
from chainlake.lake.home import Home
from chainlake.lake.lease import newest_leases
from tests.spark.domain import expected_total, extend, run_all, total
from tests.spark.test_racing import paused_writer

ONE = "0:1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_finishes_its_step_and_gives_the_lease_back(
    lake: Lake, home: Home, chain: str, tmp_path: Path, number: signal.Signals
) -> None:
    extend(lake, chain, 12)
    run_all(lake, chain, stages=("raw.test", "bronze.test"))
    signal_file = tmp_path / "paused"
    writer = paused_writer(lake, home, chain, "after_appends", signal_file, max_blocks=3)
    writer.send_signal(number)
    signal_file.unlink()
    said = writer.communicate(timeout=120)[0]
    assert writer.returncode == 3 and said.startswith("Stopped: stopped between two steps, as asked"), said
    assert total(lake, chain) == (3, expected_total(ONE, 3)), "the step under way, and none after it"
    assert newest_leases(lake.control.read("leases"))["silver.test", chain].state == "released"
    lake.run_stage("silver.test", chains=chain)
    assert total(lake, chain) == (12, expected_total(ONE, 12))


def test_an_append_that_delta_refuses_is_tried_again_and_counted(lake: Lake, chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extend(lake, chain, 4)
    run_all(lake, chain, stages=("raw.test", "bronze.test"))
    write, refused = DataFrameWriter.saveAsTable, []

    def once(self: DataFrameWriter, name: str, *more: object, **given: object) -> None:
        if "silver_test_totals" in name and not refused:
            refused.append(name)
            raise PySparkException("[DELTA_CONCURRENT_APPEND] another writer came first")
        write(self, name, *more, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(DataFrameWriter, "saveAsTable", once)
    lake.run_stage("silver.test", chains=chain)
    assert len(refused) == 1 and total(lake, chain) == (4, expected_total(ONE, 4))
    runs = [row for row in lake.control.read("runs") if (row["stage"], row["lane"]) == ("silver.test", chain)]
    assert [row["retries"] for row in runs] == [1]
