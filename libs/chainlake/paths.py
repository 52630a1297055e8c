"""Where the project's own files are: in a checkout (plain or editable install), or inside the wheel."""

from pathlib import Path

from chainlake.errors import BadInput

PACKAGE = Path(__file__).resolve().parent


def project_root() -> Path:
    """The checkout this package runs from; a wheel has none."""
    root = PACKAGE.parents[1]
    if not (root / "databricks.yml").is_file():
        raise BadInput(f"{PACKAGE} is not in a checkout, where jobs and notebooks are: run this in a clone of the project")
    return root


def bundles_dir() -> Path:
    """The folder of job definitions, which only a checkout has."""
    return project_root() / "bundles"


def notebooks_dir() -> Path:
    """The folder of notebooks, which only a checkout has."""
    return project_root() / "notebooks"


def tables_dir() -> Path:
    """The folder of table definitions: the wheel carries its own copy."""
    packaged = PACKAGE / "_tables"
    return packaged if packaged.is_dir() else project_root() / "tables"
