"""Views that start from a base, and a rollback below it at the same moment: no view keeps a base that is gone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.lake import views
from chainlake.lake.catalog import Catalog
from chainlake.lake.control import ControlTables
from chainlake.lake.going_back import wide_views
from chainlake.lake.names import Namespace
from chainlake.lake.visibility import ROLLBACK, Commit, LedgerView
from tests.unit.control_tables import commit_row, made_lake
from tests.unit.test_catalog_pure import STATE

BACK = {**commit_row(3, 9, 4), "kind": "rollback", "stage": "silver.test"}


class Spark:
    """Keeps the newest text of each view."""

    def __init__(self) -> None:
        self.views: dict[str, str] = {}

    def sql(self, text: str) -> None:
        self.views[text.split()[4]] = text


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    """A stage with a base at height 5, and views that start from it."""
    rows = [commit_row(1, 0, 9), {**commit_row(2, 5, 5), "kind": "compact"}]
    made_lake(tmp_path, [{**row, "stage": "silver.test"} for row in rows])
    spark: Any = Spark()
    catalog = Catalog(spark, Namespace(), tmp_path / "warehouse", [])
    catalog.tables[STATE.name] = STATE
    catalog.renew_views()
    assert starts_from_base(spark)
    return SimpleNamespace(spark=spark, catalog=catalog, home=tmp_path)


def starts_from_base(spark: Spark) -> bool:
    return "silver_things_base" in spark.views["`silver`.`things`"]


def rollback_row(height: int = 4) -> Commit:
    return Commit("silver.test", "c", "c", 3, 3, ROLLBACK, 9, height, 1, BACK["committed_at"])


def view_of(lake: Any) -> LedgerView:
    from chainlake.lake.ledger import Ledger

    return Ledger(lake.catalog.namespace, lake.catalog.control, lake.catalog.control_log("ledger")).read()


def test_while_a_rollback_below_the_base_is_written_views_read_all_history_and_nobody_makes_them(lake: Any) -> None:
    renewing = threading.Thread(target=lake.catalog.renew_views)
    with wide_views(lake, view_of(lake), [rollback_row()]):
        assert not starts_from_base(lake.spark)
        renewing.start()
        renewing.join(0.3)
        assert renewing.is_alive() and not starts_from_base(lake.spark), "one who would still read the old ledger waits"
        made_lake(lake.home, [BACK], mode="append")
    renewing.join(30)
    assert not starts_from_base(lake.spark)


def test_a_rollback_that_failed_gives_the_base_back_at_the_next_renewal(lake: Any) -> None:
    with pytest.raises(RuntimeError), wide_views(lake, view_of(lake), [rollback_row()]):
        raise RuntimeError("another writer took the seq")
    assert not starts_from_base(lake.spark), "slower, and right"
    lake.catalog.renew_views()
    assert starts_from_base(lake.spark)


def test_a_rollback_that_leaves_the_base_usable_touches_no_view(lake: Any) -> None:
    lake.spark.views.clear()
    with wide_views(lake, view_of(lake), [rollback_row(5)]):
        made_lake(lake.home, [{**BACK, "height": 5}], mode="append")
    assert lake.spark.views == {}


def test_bases_of_other_chains_are_used_again_after_the_rollback(lake: Any) -> None:
    rows = [commit_row(1, 0, 9), {**commit_row(2, 6, 6), "kind": "compact"}]
    made_lake(lake.home, [{**row, "stage": "silver.test", "chain": "d", "lane": "d"} for row in rows], mode="append")
    with wide_views(lake, view_of(lake), [rollback_row()]):
        made_lake(lake.home, [BACK], mode="append")
    text = lake.spark.views["`silver`.`things`"]
    assert "WHEN 'd' THEN 6" in text and "'c'" not in text


def test_without_a_lock_a_rollback_that_comes_while_views_are_made_is_seen_by_looking_again(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a workspace."""

    @contextmanager
    def unlocked(*_: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(ControlTables, "alone", unlocked)
    made = lake.spark.sql

    def meanwhile(text: str) -> None:
        monkeypatch.setattr(lake.spark, "sql", made)
        made_lake(lake.home, [BACK], mode="append")
        made(text)

    lake.spark.sql = meanwhile
    lake.catalog.renew_views([STATE])
    assert not starts_from_base(lake.spark)


def test_a_version_that_writes_views_in_another_way_makes_them_anew(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a workspace they outlive the session."""
    before = lake.catalog.digest()
    assert before == lake.catalog.digest()
    changed = tmp_path / "views.py"
    changed.write_text(Path(views.__file__).read_text(encoding="utf-8") + "# other\n", encoding="utf-8")
    monkeypatch.setattr(views, "__file__", str(changed))
    assert lake.catalog.digest() != before


def test_the_path_of_a_table_may_have_a_quote_in_it(tmp_path: Path) -> None:
    spark: Any = Spark()
    catalog = Catalog(spark, Namespace(), tmp_path / "Bob's lake", [])
    assert f" LOCATION '{tmp_path}/Bob\\'s lake/store/silver_things'" in catalog._create("store", "silver_things", STATE)
