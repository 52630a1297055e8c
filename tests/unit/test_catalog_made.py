"""Making a lake: by one process at a time, and again after one that was killed at it."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from chainlake.errors import Unavailable
from chainlake.lake.catalog import Catalog
from chainlake.lake.names import Namespace
from tests.unit.test_catalog_pure import STATE


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    spark: Any = None
    return Catalog(spark, Namespace(), tmp_path / "warehouse", [])


def test_of_three_who_open_a_new_lake_one_makes_it(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work: list[str] = []
    made: list[str] = []

    def make(_: Catalog, digest: str) -> None:
        assert not at_work, "another is at it"
        at_work.append(digest)
        time.sleep(0.2)
        made.append(at_work.pop())

    monkeypatch.setattr(Catalog, "_marked", lambda _, digest: digest in made)
    monkeypatch.setattr(Catalog, "_make", make)
    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(lambda _: catalog.ensure(), range(3))) == [False, False, True]
    assert made == [catalog.digest()]


def test_a_log_without_a_version_is_no_table_and_makes_room_for_one(catalog: Catalog) -> None:
    assert catalog.location is not None
    place = catalog.location / "store" / "silver_things"
    (place / "_delta_log").mkdir(parents=True)
    (place / "_delta_log" / ".00000000000000000000.json.abc.tmp").touch()
    assert not catalog._is_made("store", "silver_things")
    assert "`value`" in catalog._create("store", "silver_things", STATE) and not place.exists()
    (place / "_delta_log").mkdir(parents=True)
    (place / "_delta_log" / "00000000000000000000.json").touch()
    assert catalog._is_made("store", "silver_things")
    assert "`value`" not in catalog._create("store", "silver_things", STATE) and place.exists()


def test_data_without_a_log_stays_for_a_person_to_look_at(catalog: Catalog) -> None:
    assert catalog.location is not None
    data = catalog.location / "store" / "silver_things" / "part-0.parquet"
    data.parent.mkdir(parents=True)
    data.touch()
    catalog._create("store", "silver_things", STATE)
    assert data.exists()


def test_a_lake_whose_ledger_is_gone_is_not_made_anew(catalog: Catalog) -> None:
    """Nobody could see its rows any more, and garbage collection would take them."""
    assert catalog.location is not None
    catalog.tables[STATE.name] = STATE
    place = catalog.location / "store" / "silver_things"
    DeltaTable.create(str(place), pa.schema([("k", pa.string())]))
    catalog._refuse_without_ledger()
    write_deltalake(str(place), pa.table({"k": ["one"]}), mode="append")
    with pytest.raises(Unavailable, match="control/ledger is gone, but silver_things has rows: see Repairing"):
        catalog._make_tables()
