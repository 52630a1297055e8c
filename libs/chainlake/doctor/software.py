"""What is installed: Python, Java, Delta's JARs, the pinned packages."""

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from packaging.requirements import Requirement

from chainlake.doctor.finding import Finding, ok, problem, warning
from chainlake.errors import BadInput
from chainlake.lake import jars
from chainlake.lake.java import ACCEPTED, find_java, java_version
from chainlake.paths import project_root

OLDEST, NEWEST = (3, 10), (3, 12)
SET_UP = "run make setup"
COMPUTE = "set DATABRICKS_SERVERLESS_COMPUTE_ID=auto, or DATABRICKS_CLUSTER_ID"
PATIENCE = 5
"""Seconds that a workspace has to answer."""
EXTRA_SECTIONS = ("# Development", "# Peers")
"""Comments in requirements.txt from which on packages are not needed to run."""

Installed = Callable[[str], str | None]


def python(running: tuple[int, int] = sys.version_info[:2]) -> Finding:
    """The Python that runs this."""
    what = f"{running[0]}.{running[1]} at {sys.executable}"
    if running < OLDEST:
        return problem("python", what, "use Python 3.10, 3.11 or 3.12: set PYTHON to one and run make setup")
    if running > NEWEST:
        return warning("python", what, "tested with 3.10, 3.11 and 3.12: set PYTHON to one and run make setup")
    return ok("python", what)


def java() -> Finding:
    """The Java that Spark will get."""
    named = os.environ.get("JAVA_HOME")
    found = find_java()
    if found is None:
        return problem("java", "no Java 17 or 21 found", "install openjdk-17-jre-headless, or set JAVA_HOME to one")
    what = f"{java_version(found)} at {found}"
    if named and java_version(Path(named)) not in ACCEPTED:
        return warning("java", f"JAVA_HOME={named} has no Java 17 or 21; {what} is used", "correct JAVA_HOME, or unset it")
    return ok("java", what)


def delta_jars(cache: Path | None = None) -> Finding:
    """Delta's JARs, complete and of the right size."""
    place = cache or jars.default_cache()
    found = jars.cached_jars(place)
    if found is None:
        return problem("jars", f"Delta's JARs are missing or damaged in {place}", f"{SET_UP}; it fetches them from Maven Central")
    return ok("jars", f"{len(found)} in {found[0].parent}")


def installed(name: str) -> str | None:
    """The version of a package that is installed; None if it is not."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def for_workspace(find: Installed = installed) -> bool:
    """Whether this is the environment of databricks-connect, in which Spark is the workspace's."""
    return find("databricks-connect") is not None and find("pyspark") is None


def workspace() -> Finding:
    """Which workspace databricks-connect would ask, on which compute, and whether there is anybody at that address.

    The package itself asks the host for its settings, and would do so for five minutes where nobody answers.
    """
    from databricks.sdk.core import Config

    logging.getLogger("databricks.sdk").setLevel(logging.ERROR)  # it warns of what is told below
    try:
        config = Config(retry_timeout_seconds=PATIENCE, http_timeout_seconds=PATIENCE)
    except ValueError as error:
        return problem("workspace", str(error).split(",")[0], "set DATABRICKS_HOST and a way to log in")
    if not (config.cluster_id or config.serverless_compute_id):
        return problem("workspace", f"{config.host} is set up, but no compute of it", COMPUTE)
    if not any(getproxies().values()) and not _is_there(config.host):
        return problem("workspace", f"nobody answers at {config.host}", "correct DATABRICKS_HOST, or look at the network")
    return ok("workspace", f"{config.host} is set up")


def _is_there(host: str) -> bool:
    address = urlsplit(host)
    try:
        with socket.create_connection((address.hostname or "", address.port or 443), timeout=PATIENCE):
            return True
    except OSError:
        return False


def packages(requirements: Path | None = None, find: Installed = installed) -> list[Finding]:
    """Installed packages against the pinned ones."""
    if requirements is None:
        try:
            requirements = project_root() / ("requirements-connect.txt" if for_workspace(find) else "requirements.txt")
        except BadInput:
            return [ok("packages", "not a checkout, so nothing is pinned")]
    needed, extra = pinned(requirements.read_text(encoding="utf-8").splitlines())
    remedy = f"pip install -r {requirements.name}" if for_workspace(find) else SET_UP
    findings = [*_compared(needed, find, problem, remedy), *_compared(extra, find, warning, remedy), *_rivals(find)]
    return findings or [ok("packages", f"{len(needed) + len(extra)} as pinned in {requirements.name}")]


def pinned(lines: Iterable[str]) -> tuple[list[Requirement], list[Requirement]]:
    """Requirements that apply to this Python: those needed to run, and those of tests and benchmarks."""
    groups: tuple[list[Requirement], list[Requirement]] = ([], [])
    group = groups[0]
    for line in lines:
        if line.startswith(EXTRA_SECTIONS):
            group = groups[1]
        text = line.partition("#")[0].strip()
        if text:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate():
                group.append(requirement)
    return groups


def _compared(
    wanted: Iterable[Requirement], find: Installed, missing: Callable[[str, str, str], Finding], remedy: str
) -> list[Finding]:
    found = []
    for requirement in wanted:
        have = find(requirement.name)
        if have is None:
            found.append(missing("packages", f"{requirement.name} is not installed", remedy))
        elif not requirement.specifier.contains(have, prereleases=True):
            what = f"{requirement.name} is {have}, pinned is {str(requirement.specifier).removeprefix('==')}"
            found.append(warning("packages", what, remedy))
    return found


def _rivals(find: Installed) -> list[Finding]:
    """databricks-connect brings its own pyspark over the one that is there."""
    if find("databricks-connect") and find("pyspark"):
        return [
            problem(
                "packages",
                "databricks-connect and pyspark share this environment and overwrite each other",
                "give databricks-connect one of its own: see docs/databricks.md",
            )
        ]
    return []
