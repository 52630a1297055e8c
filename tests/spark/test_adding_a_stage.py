"""docs/adding-a-stage.md works as it stands there: its tables, rules, stages and tests are taken from the text and run."""

import importlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark import cloudpickle

import chainlake
from chainlake.lake import open_lake
from chainlake.lake.home import Home
from chainlake.lake.verify import verify
from chainlake.paths import project_root, tables_dir
from chainlake.stages import all_stages

FILE = re.compile(r"^`([\w/]+\.(?:sql|py))`[^`]*\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
MIGRATION = "tables/migrations/0003_miner_last_block.sql"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the document shows, where it says that they are."""
    root = tmp_path_factory.mktemp("example")
    text = (project_root() / "docs" / "adding-a-stage.md").read_text()
    for name, content in FILE.findall(text):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (root / MIGRATION).unlink()
    (root / "tables" / "raw").mkdir()
    for name in ("blocks", "transactions"):
        shutil.copy(tables_dir() / "raw" / f"{name}.sql", root / "tables" / "raw")
    return root


@pytest.fixture(scope="module")
def gas(written: Path) -> Iterator[ModuleType]:
    """The example's package, also where Spark runs its functions."""
    (written / "libs" / "chainlake" / "gas" / "__init__.py").touch()
    chainlake.__path__.append(str(written / "libs" / "chainlake"))
    stages, rules = (importlib.import_module(f"chainlake.gas.{name}") for name in ("stages", "rules"))
    for module in (stages, rules):
        cloudpickle.register_pickle_by_value(module)
    yield stages
    for module in (stages, rules):
        cloudpickle.unregister_pickle_by_value(module)
    chainlake.__path__.remove(str(written / "libs" / "chainlake"))
    for name in [name for name in sys.modules if name.startswith("chainlake.gas")]:
        del sys.modules[name]


def checks_of(path: Path) -> list[Any]:
    """The tests of a file."""
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return [value for name, value in names.items() if name.startswith("test_")]


def test_its_rules_hold(written: Path, gas: ModuleType) -> None:
    (rule,) = checks_of(written / "tests" / "unit" / "test_gas_rules.py")
    rule()


def test_its_stages_run_roll_back_and_verify(written: Path, gas: ModuleType, home: Home, chain: str, tmp_path: Path) -> None:
    raw = [stage for stage in all_stages() if stage.name == "raw.logs"]
    lake = open_lake(
        home.path, schema_prefix="gas_", stages=[*raw, *gas.gas_stages()], directories=[written / "tables"], standard=False
    )
    (story,) = checks_of(written / "tests" / "spark" / "test_gas.py")
    story(lake, chain, tmp_path)
    assert [finding.what for finding in verify(lake)] == []
