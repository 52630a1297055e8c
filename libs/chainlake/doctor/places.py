"""The home directory and the local Spark server in it."""

import os
import socket
import stat
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from chainlake.doctor.finding import Finding, ok, problem, warning
from chainlake.doctor.machine import nearest
from chainlake.lake import server
from chainlake.lake.home import Home

STOP = "run lake stop; the next command starts a new one"


def home(path: Path) -> list[Finding]:
    """Whether the home is there, ours and safe from others."""
    if not path.exists():
        parent = nearest(path)
        if not os.access(parent, os.W_OK | os.X_OK) or not parent.is_dir():
            return [problem("home", f"{path} cannot be made: {parent} is not writable", "choose another with --home")]
        return [ok("home", f"{path} is not there yet; the first command makes it")]
    if not path.is_dir():
        return [problem("home", f"{path} is a file", "choose a directory with --home")]
    closed = [place for place in (path, path / "warehouse", path / "server") if place.exists() and not _writable(place)]
    if closed:
        who = "the user that made it, or chown it"
        return [problem("home", f"{', '.join(map(str, closed))} cannot be written by this user", f"use --home, run as {who}")]
    if path.stat().st_mode & stat.S_IWOTH:
        return [warning("home", f"{path} can be written by everybody on this machine", f"chmod o-w {path}")]
    return [ok("home", str(path))]


def spark_server(path: Path) -> Finding:
    """The server of the home: running, stale, stuck, or of other packages than ours."""
    files = Home(path).server
    info = files / "server.json"
    if not files.is_dir():
        return ok("spark server", "none runs; commands start one when they need it")
    if not server.holds_lock(Home(path)):
        left = " (files of one that died are left; they do no harm)" if info.exists() else ""
        return ok("spark server", f"none runs; commands start one when they need it{left}")
    found = server.running(Home(path))
    if found is None:
        log = files / "server.log"
        return warning("spark server", "one is starting, or hangs", f"wait a minute; if it stays so, look at {log}")
    if not _answers(found.port):
        return problem("spark server", f"pid {found.pid} runs but port {found.port} does not answer", STOP)
    other = _other_packages(found.pid, info)
    if other:
        return warning("spark server", f"pid {found.pid} {other}", STOP)
    return ok("spark server", f"pid {found.pid} answers at 127.0.0.1:{found.port}")


def _writable(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK | os.X_OK)


def _answers(port: int) -> bool:
    try:
        with closing(socket.create_connection(("127.0.0.1", port), timeout=3)):
            return True
    except OSError:
        return False


def _other_packages(pid: int, info: Path) -> str:
    """How the server differs from what this command would start; empty if it does not."""
    try:
        executable = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return ""
    if executable and executable != sys.executable:
        return f"was started by another Python, {executable}"
    spark = find_spec("pyspark")
    if spark and spark.origin and Path(spark.origin).stat().st_mtime > info.stat().st_mtime:
        return "was started before pyspark was installed anew"
    return ""
