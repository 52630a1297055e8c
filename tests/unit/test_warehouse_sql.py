"""The script of views and functions for a SQL warehouse, as text; tests/spark/test_product.py runs it."""

import pytest

from chainlake.cli.main import main
from chainlake.lake.ddl import load
from chainlake.lake.names import Namespace
from chainlake.lake.sql_text import split_statements
from chainlake.lake.warehouse_sql import script, state_at
from chainlake.paths import tables_dir

TABLES = load(tables_dir())
DATA = [table for table in TABLES.values() if not table.is_control]


def test_every_table_has_its_view_and_every_state_table_a_function() -> None:
    statements = split_statements(script(Namespace(), TABLES))
    views = [text.split("`")[1:4:2] for text in statements if text.startswith("CREATE OR REPLACE VIEW")]
    assert sorted(".".join(name) for name in views) == sorted(["control.visible", *(table.name for table in DATA)])
    made = [text for text in statements if text.startswith("CREATE OR REPLACE FUNCTION")]
    assert len(made) == 3 + sum(1 for table in DATA if table.kind == "state")
    assert len(statements) == len(views) + len(made) + len({table.name.split(".")[0] for table in DATA})


def test_catalog_and_prefix_are_in_every_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LAKE_CATALOG", "main")
    monkeypatch.setenv("LAKE_PREFIX", "dev_")
    assert main(["tables", "--sql"]) == 0
    text = capsys.readouterr().out
    assert "`main`.`dev_raw`.`blocks`" in text and "`main`.`dev_control`.`to_hex0x`" in text
    assert "`raw`" not in text and "`control`" not in text


def test_views_come_after_what_they_read_and_comments_survive() -> None:
    text = script(Namespace(), TABLES)
    assert text.index("VIEW `control`.`visible`") < text.index("VIEW `raw`.`blocks`") < text.index("FUNCTION `control`.`head`")
    assert all(table.description.replace("'", "\\'") in text for table in DATA)


def test_state_at_a_height_shows_the_newest_row_per_key_and_no_deleted_one() -> None:
    table = next((table for table in DATA if table.kind == "state"), None)
    if table is None:
        pytest.skip("no state tables are declared")
    text = state_at(Namespace(), table)
    assert "t._height <= at_height" in text and "NOT _deleted" in text and "`_deleted`" not in text.split("RETURN SELECT")[0]


def test_markdown_and_sql_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tables", "--sql", "--markdown"])
    assert ended.value.code == 2 and "not allowed with" in capsys.readouterr().err
