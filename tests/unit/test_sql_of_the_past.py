"""`lake sql --height`, `--at` and a pinned lake: every view of a query stands for the past, or the query is refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.errors import BadInput
from chainlake.lake import sql
from chainlake.lake.ddl import load
from chainlake.lake.names import Namespace
from chainlake.paths import tables_dir

TABLES = load(tables_dir())


class Past:
    """Tables as of some time, and which of them were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def table(self, name: str, **when: object) -> Any:
        self.asked.append(name)
        frame = SimpleNamespace(createOrReplaceTempView=lambda view: None)
        return SimpleNamespace(selectExpr=lambda *columns: frame)


def of_the_past(text: str, catalog: str = "") -> tuple[str, list[str]]:
    past = Past()
    tables = SimpleNamespace(data_tables=lambda: [one for one in TABLES.values() if not one.is_control], table=TABLES.__getitem__)
    lake: Any = SimpleNamespace(namespace=Namespace(catalog), catalog=tables, pinned=past)
    return sql._as_of(lake, text, 5, None), past.asked


@pytest.mark.parametrize(
    "name",
    ["raw.blocks", "RAW.Blocks", "`raw`.`blocks`", "raw . blocks", "spark_catalog.raw.blocks", "`spark_catalog`.raw.blocks"],
)
def test_however_a_view_is_written_it_stands_for_the_past(name: str) -> None:
    text, asked = of_the_past(f"SELECT max(b.height), 'raw.blocks' FROM {name} AS b -- of raw.blocks")
    assert asked == ["raw.blocks"]
    assert text == "SELECT max(b.height), 'raw.blocks' FROM as_of_raw_blocks AS b -- of raw.blocks"


def test_in_a_catalog_too() -> None:
    assert of_the_past("SELECT 1 FROM main.raw.blocks", "main")[0] == "SELECT 1 FROM as_of_raw_blocks"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT max(height) FROM raw./* all */blocks",
        "SELECT max(height) FROM `raw`. -- all\n`blocks`",
        "SELECT max(height) FROM other.raw.blocks",
        "SELECT max(raw.blocks.height) FROM raw.blocks",
        "SELECT max(height) FROM IDENTIFIER('raw.blocks')",
        "SELECT max(height) FROM identifier ('raw' || '.blocks')",
    ],
)
def test_a_view_that_would_be_read_at_the_head_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="would be read at the head: with --height, --at or a pinned lake"):
        of_the_past(text)


def test_other_names_stay() -> None:
    text = "WITH raw AS (SELECT chain AS blocks_of FROM control.ledger) SELECT raw.blocks_of FROM raw"
    assert of_the_past(text) == (text, [])
