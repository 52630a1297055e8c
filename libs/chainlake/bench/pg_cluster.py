"""A PostgreSQL server of one's own for the length of a benchmark: in a temporary directory, reached by a Unix socket only."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chainlake.errors import Unavailable

INSTALL = "apt-get install postgresql"
SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "1GB",
    "effective_cache_size": "4GB",
    "work_mem": "64MB",
    "maintenance_work_mem": "256MB",
    "synchronous_commit": "off",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "random_page_cost": "1.1",
    "jit": "off",
    "plan_cache_mode": "force_custom_plan",
    "max_connections": "10",
}
"""Defaults but for what anyone would tune. Commits need not wait for the disk; everything else stays as safe as it comes."""
AS_INSTALLED = {"listen_addresses": ""}
START_SECONDS = 60
GUARD = """
read nothing
kill -INT "$1"
for second in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$1" || break; sleep 1; done
rm -rf "$2"
"""


def programs() -> Path:
    """The directory of initdb and postgres, of the newest version that is installed."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name.zfill(4), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise Unavailable(f"PostgreSQL is not installed (no initdb in PATH or /usr/lib/postgresql): {INSTALL}")


def account() -> dict[str, Any]:
    """Who runs the server, as arguments of subprocess: root may not, so another user steps in."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise Unavailable("PostgreSQL does not run as root, and there is no user postgres or nobody: run as another user")


@contextmanager
def cluster(settings: Mapping[str, str] = SETTINGS) -> Iterator[Path]:
    """A running server; the directory of its socket. It is stopped and removed whatever happens."""
    place, who = programs(), account()
    directory = Path(tempfile.mkdtemp(prefix="lakepg-"))
    try:
        if who:
            os.chown(directory, who["user"], who["group"])
        data = directory / "data"
        options = ["-D", str(data), "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run([place / "initdb", *options], cwd=directory, capture_output=True, text=True, check=False, **who)
        if made.returncode:
            raise Unavailable(f"initdb failed: {_last_line(made.stderr or made.stdout)}")
        with _running(place / "postgres", data, directory, who, settings):
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _running(program: Path, data: Path, directory: Path, who: dict[str, Any], settings: Mapping[str, str]) -> Iterator[None]:
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    log = directory / "log"
    with open(log, "wb") as output:
        # A session of its own: Ctrl-C is for us, and we stop the server.
        process = subprocess.Popen(
            [program, "-D", data, "-k", directory, *options],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **who,
        )
    try:
        with _guarded(process.pid, directory, who):
            _wait_until_ready(process, data, log)
            yield
    finally:
        _stop(process)


@contextmanager
def _guarded(server: int, directory: Path, who: dict[str, Any]) -> Iterator[None]:
    """Should we die without a word, our end of a pipe closes, and the guard stops the server and removes what it wrote."""
    guard = subprocess.Popen(
        ["sh", "-c", GUARD, "sh", str(server), directory], stdin=subprocess.PIPE, start_new_session=True, **who
    )
    try:
        yield
    finally:
        guard.kill()
        guard.wait()


def _wait_until_ready(process: "subprocess.Popen[bytes]", data: Path, log: Path) -> None:
    """The server writes `ready` into its pid file."""
    for _ in range(START_SECONDS * 20):
        if process.poll() is not None:
            raise Unavailable(f"PostgreSQL did not start: {_last_line(log.read_text(errors='replace'))}")
        lines = _read(data / "postmaster.pid").split("\n")
        if len(lines) > 7 and lines[7].strip() == "ready":
            return
        time.sleep(0.05)
    raise Unavailable(f"PostgreSQL did not start in {START_SECONDS} s: {_last_line(log.read_text(errors='replace'))}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Politely, then not: what it holds is thrown away anyhow."""
    for number, seconds in ((signal.SIGINT, 20), (signal.SIGQUIT, 10), (signal.SIGKILL, 10)):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
