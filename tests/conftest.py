"""One Spark server and one lake for the whole run; tests use chains of their own, or a lake of their own by prefix."""

import io
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from chainlake.lake import Lake, open_lake, server
from chainlake.lake.home import Home, find_home

_numbers = itertools.count(1)
# Test data is small: compiled queries, the JVM's optimising compiler and its concurrent collector would cost half of all work and
# give nothing. (Without the optimising compiler, the JVM also reserves too little room for compiled code.)
os.environ.setdefault(
    "LAKE_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseParallelGC -XX:MetaspaceSize=256m"
)
os.environ.setdefault(
    "LAKE_SPARK_CONF",
    "spark.sql.codegen.wholeStage=false spark.sql.codegen.factoryMode=NO_CODEGEN spark.sql.ui.explainMode=simple",
)
_AT_THE_END = {"test_docs_on_a_lake": 1, "test_server": 2}
"""Tests that leave more chains in the demo lake than they found, or no server."""
_WITH_DOMAINS = ("cage", "cage_outside_data", "damage", "logs", "logs_node", "product", "raw_node", "replica", "shards", "sync")


def _group(path: str) -> str:
    """Tests of one group run in one process, on one Spark server: those of the domains, with some others so that both take as
    long, or those of the kernel, the command line and the notebooks. Other tests are a group per file."""
    if Path(path).stem.removeprefix("test_") in _WITH_DOMAINS:
        return "domains"
    return "kernel" if Path(path).parent.name in ("spark", "notebooks") else path


class _Groups(LoadScopeScheduling):
    """Hands out whole groups, in the order in which their first tests come."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Groups:
    config.option.loadscopereorder = False
    return _Groups(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of two processes, one begins with the Spark tests of the domains and one with the others, and tests without Spark fill what
    is left; in one process they come first."""
    spark_first = hasattr(config, "workerinput")
    for item in items:
        if item.path.parent.name in ("spark", "notebooks"):
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: ((item.get_closest_marker("spark") is None) is spark_first, _AT_THE_END.get(item.path.stem, 0)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What checked the bundle: its structure always, Databricks' own tools where they are installed."""
    told = [pair for report in terminalreporter.getreports("passed") for pair in report.user_properties]
    if by := sorted({str(value) for name, value in told if name == "bundle validated by"}):
        terminalreporter.write_line(f"bundle validated by {', '.join(by)}")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    given = os.environ.get("LAKE_TEST_HOME")
    place = find_home(given or tmp_path_factory.mktemp("home"))
    yield place
    if not given:
        server.stop(place)


def _copy(source: Path, from_prefix: str, target: Path, to_prefix: str) -> None:
    for schema in ("store", "control"):
        shutil.copytree(source / f"{from_prefix}{schema}", target / f"{to_prefix}{schema}")


@pytest.fixture(scope="session")
def make_lake(home: Home) -> Callable[..., Lake]:
    """A new, empty lake with the test domain, on the shared server: made once, then copied, which is several times faster."""
    from tests.spark.domain import TABLES, test_stages

    pristine = home.path / f"pristine-{os.getpid()}"

    def make(lane: str | None = None, prefix: str | None = None) -> Lake:
        name = prefix or f"t{os.getpid()}_{next(_numbers)}_"
        is_new = not (home.warehouse / f"{name}store").exists()
        if is_new and pristine.exists():
            _copy(pristine, "", home.warehouse, name)
        lake = open_lake(home.path, schema_prefix=name, stages=test_stages(lane), directories=[TABLES], standard=False)
        if is_new and not pristine.exists():
            _copy(home.warehouse, name, pristine, "")
        return lake

    return make


@pytest.fixture(scope="session")
def lake(make_lake: Callable[..., Lake]) -> Lake:
    """The lake that tests share, each with a chain of its own."""
    return make_lake()


@pytest.fixture
def chain(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name.replace('[', '-').replace(']', '')[:50].rstrip('-')}-{next(_numbers)}"


@pytest.fixture(scope="session")
def demo_home(home: Home) -> Path:
    """The shared home with the demo chains, as `make run` makes it, only smaller. The second time it does nothing but say so."""
    from chainlake.cli.main import main

    up = ["up", "--size", "tiny", "--home", str(home.path)]
    assert main(up) == 0
    with redirect_stdout(io.StringIO()) as said:
        assert main(up) == 0
    assert "nothing to do" in said.getvalue()
    return home.path


@pytest.fixture(scope="session")
def full_lake(home: Home) -> Lake:
    """A lake with the tables and stages of all domains, shared too."""
    return open_lake(home.path, schema_prefix=f"t{os.getpid()}_full_")
