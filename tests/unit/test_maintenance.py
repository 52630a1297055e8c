"""Physical work beside what others do to the same files."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from chainlake.lake.maintenance import METADATA, Maintenance


def lake_that_refuses(message: str, settings: dict[str, str]) -> Any:
    def sql(text: str) -> None:
        raise PySparkException(message)

    conf = SimpleNamespace(set=settings.__setitem__, unset=settings.pop)
    return SimpleNamespace(spark=SimpleNamespace(sql=sql, conf=conf))


def test_packing_leaves_files_that_another_rewrote_meanwhile_for_the_next_time() -> None:
    """The run that packs has committed all of its blocks by then: it must not fail."""
    settings: dict[str, str] = {}
    lake = lake_that_refuses("[DELTA_CONCURRENT_DELETE_READ] a concurrent operation deleted a file", settings)
    Maintenance(lake).optimize("store.`raw_blocks`", "raw_blocks")
    assert METADATA not in settings, "what comes next is not marked as packing"


def test_packing_that_fails_for_another_reason_says_so() -> None:
    with pytest.raises(PySparkException, match="no space left"):
        Maintenance(lake_that_refuses("no space left on device", {})).optimize("store.`raw_blocks`", "raw_blocks")
