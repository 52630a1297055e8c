"""The one step that pyproject.toml cannot say: table definitions live at the root and travel inside the wheel."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TABLES = Path(__file__).parent / "tables"


class BuildWithTables(build_py):
    """Copies `tables/` to `chainlake/_tables`; an editable install reads them where they are."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "chainlake" / "_tables"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(TABLES, target)


setup(cmdclass={"build_py": BuildWithTables})
