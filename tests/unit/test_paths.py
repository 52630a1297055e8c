"""The project's files are found in a checkout and in the wheel, which carries the tables only."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from chainlake import paths
from chainlake.errors import BadInput


def test_a_checkout_has_everything() -> None:
    assert (paths.project_root() / "Makefile").is_file()
    assert list(paths.tables_dir().rglob("*.sql"))
    assert list(paths.bundles_dir().glob("*.job.yml"))
    assert list(paths.notebooks_dir().rglob("*.ipynb"))


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.sql")}


def build_wheel(tmp_path: Path) -> Path:
    """Build from a copy, because building leaves folders in the source."""
    source = tmp_path / "source"
    for name in ("libs", "tables"):
        shutil.copytree(paths.project_root() / name, source / name)
    for name in ("pyproject.toml", "setup.py"):
        shutil.copy(paths.project_root() / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("chainlake-*.whl")
    return wheel


def test_the_wheel_carries_the_tables_and_says_that_jobs_need_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = names(paths.tables_dir())
    zipfile.ZipFile(build_wheel(tmp_path)).extractall(tmp_path / "site")
    site = tmp_path / "site" / "chainlake"
    for file in (path for path in paths.PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        assert (site / file.relative_to(paths.PACKAGE)).is_file(), f"the wheel lacks {file.name}"
    monkeypatch.setattr(paths, "PACKAGE", tmp_path / "site" / "chainlake")
    assert names(paths.tables_dir()) == tables
    for missing in (paths.bundles_dir, paths.notebooks_dir):
        with pytest.raises(BadInput, match="is not in a checkout"):
            missing()
