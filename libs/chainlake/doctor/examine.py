"""All checks, in the order in which things have to work."""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from chainlake.doctor import lake_state, machine, places, software
from chainlake.doctor.finding import Finding, problem
from chainlake.lake.jars import default_cache
from chainlake.paths import tables_dir

Check = Callable[[], Finding | list[Finding]]


def examine(home: Path, port: int) -> list[Finding]:
    """What there is to say, one line each."""
    prefix = os.environ.get("LAKE_PREFIX", "")
    spark: Sequence[tuple[str, Check]] = (("java", software.java), ("jars", software.delta_jars))
    if software.for_workspace():
        spark = (("workspace", software.workspace),)
    checks: Sequence[tuple[str, Check]] = (
        ("cores", machine.cores),
        ("memory", lambda: machine.memory(machine.total_memory(), os.environ)),
        ("disk of the home", lambda: machine.disk("disk of the home", home)),
        ("disk of the cache", lambda: machine.disk("disk of the cache", default_cache())),
        ("temporary files", lambda: machine.disk("temporary files", Path(tempfile.gettempdir()))),
        ("python", software.python),
        ("packages", software.packages),
        *spark,
        ("loopback", machine.loopback),
        ("gateway port", lambda: machine.gateway_port(port)),
        ("home", lambda: places.home(home)),
        ("spark server", lambda: places.spark_server(home)),
        ("lake", lambda: lake_state.lake(home, prefix, tables_dir())),
    )
    return [finding for subject, check in checks for finding in _asked(subject, check)]


def _asked(subject: str, check: Check) -> list[Finding]:
    """What a check says. One that itself fails is a finding too, and keeps no other from being asked."""
    try:
        found = check()
    except Exception as error:
        return [problem(subject, f"could not be checked: {type(error).__name__}: {str(error)[:150]}", "mend that first")]
    return found if isinstance(found, list) else [found]
