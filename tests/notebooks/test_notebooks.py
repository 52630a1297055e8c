"""Every notebook runs on the demo lake, those of stages in their jobs and the others by nbmake, and is committed clean."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
ALL = sorted(NOTEBOOKS.rglob("*.ipynb"))


def test_every_notebook_runs(demo_home: Path) -> None:
    in_jobs = {path.name for path in (demo_home / "runs").rglob("*.ipynb")}
    others = [path for path in ALL if path.name not in in_jobs]
    assert {path.name for path in ALL if path.parent.name[:1].isdigit()} == in_jobs, "the stages' notebooks, as jobs run them"
    environment = {**os.environ, "LAKE_HOME": str(demo_home), "LAKE_PARAM_QUICK": "true"}
    command = [sys.executable, "-m", "pytest", "--nbmake", "--nbmake-timeout=300", "-v", "-p", "no:cacheprovider", *map(str, others)]
    done = subprocess.run(command, env=environment, cwd=NOTEBOOKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{len(others)} passed" in done.stdout


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_notebooks_are_committed_clean(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    assert cells[0]["cell_type"] == "markdown", "the first cell says what one will learn"
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert len(code) <= 12 and not any("%" == line.lstrip()[:1] for cell in code for line in cell["source"])
