"""The home directory of a local lake: tables, the Spark server's files, demo chains, executed notebooks."""

import os
from dataclasses import dataclass
from pathlib import Path

from chainlake.errors import BadInput


@dataclass(frozen=True)
class Home:
    """Paths under one home."""

    path: Path

    @property
    def warehouse(self) -> Path:
        return self.path / "warehouse"

    @property
    def server(self) -> Path:
        return self.path / "server"

    @property
    def demo(self) -> Path:
        return self.path / "demo"


def _default() -> Path:
    """The nearest `.lake` upwards, or that of the checkout, so that a notebook in a sub-directory finds it too."""
    here = Path.cwd()
    for directory in (here, *here.parents):
        if (directory / ".lake").is_dir() or (directory / "databricks.yml").is_file():
            return directory / ".lake"
    return here / ".lake"


def home_path(given: str | os.PathLike[str] | None = None) -> Path:
    """`given`, else $LAKE_HOME, else the `.lake` of this checkout or directory, whether it is there or not."""
    path = Path(given or os.environ.get("LAKE_HOME") or _default())
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise BadInput(f"home directory {path}: there is no such user; choose another with --home") from None


def find_home(given: str | os.PathLike[str] | None = None) -> Home:
    """The home at `home_path`; made if missing, and writable."""
    path = home_path(given)
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".writable.{os.getpid()}"
        probe.touch()
        probe.unlink(missing_ok=True)  # another thread may have been as far
    except OSError as error:
        raise BadInput(f"home directory {path} cannot be written ({error.strerror}): choose another with --home") from None
    return Home(path)
