"""The SQL that README and docs show, asked on the demo lake as a reader would."""

import json
import re
from pathlib import Path

import pytest

from chainlake.cli.main import main
from chainlake.lake import open_lake
from chainlake.lake.sql import query
from chainlake.lake.sql_text import split_statements
from tests.unit.docs_commands import Shown, blocks, commands, documents

OWN_TABLES = "adding-a-stage.md"
"""Its example makes tables of its own."""
SHOWN = [shown for shown in commands() if shown.arguments[0] == "sql" and not shown.where.startswith(OWN_TABLES)]
LAST = "19"
"""The last block of the demo chain, which is shorter in tests than a reader's."""


def statements() -> list[tuple[str, str]]:
    """Queries in blocks of SQL, but those that leave something out."""
    texts = [
        (path.name, block) for path in documents() if path.name != OWN_TABLES for _, block in blocks(path.read_text(), "sql")
    ]
    found = [(name, text) for name, block in texts for text in split_statements(block)]
    return [(name, text) for name, text in found if not re.search("…|txid", text)]


@pytest.mark.parametrize("shown", SHOWN, ids=str)
def test_queries_on_the_command_line(shown: Shown, demo_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [LAST if word == "120" else word for word in shown.arguments]
    capsys.readouterr()
    code = main([*arguments, *(["--json"] if "--json" not in arguments else []), "--home", str(demo_home)])
    said = capsys.readouterr()
    assert code == 0, said.err
    rows = json.loads(said.out)
    assert isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    for name, value in ((name, value) for row in rows for name, value in row.items() if name.endswith("_hex")):
        assert value is None or re.fullmatch("0x([0-9a-f]{2})+", value), name


def test_queries_in_blocks_of_sql(demo_home: Path) -> None:
    lake, found = open_lake(demo_home), statements()
    assert len(found) >= 5
    for name, text in found:
        assert query(lake, text).columns, name
