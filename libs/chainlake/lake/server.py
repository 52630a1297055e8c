"""The local Spark Connect server: one small process per home, shared by every command and notebook.

A running server holds an exclusive lock on `server.lock`, so that a stale pid file means nothing: whoever can take the lock
knows that no server runs. Each client holds a lock on its own file in `clients/`; when nobody has held one for the idle
time, or the home is gone, the server ends itself. If the server process dies, its JVM sees its input close and ends too.
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from chainlake.errors import Unavailable
from chainlake.lake.home import Home, find_home
from chainlake.lake.jars import delta_jars
from chainlake.lake.java import java_home

START_SECONDS = 180.0
IDLE_SECONDS = 600.0
JAVA_OPTIONS = "-XX:+UseParallelGC"
"""Batches of rows are thrown away as a whole: collecting them in parallel takes a third of what Java's usual collector does."""
PACKED_CUBE = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold"
PACKED_FILE = "spark.databricks.delta.optimize.minFileSize"
"""Bytes from which on what was packed is left alone, in tables that are clustered and in others."""


@dataclass(frozen=True)
class Server:
    """How to reach a running server."""

    pid: int
    port: int

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"


def spark_settings(home: Home) -> dict[str, str]:
    """Settings of a local Spark with Delta, measured for small machines."""
    java_options = os.environ.get("LAKE_JAVA_OPTIONS", JAVA_OPTIONS)
    return {
        "spark.jars": ",".join(str(jar) for jar in delta_jars()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(home.warehouse),
        "spark.driver.memory": os.environ.get("LAKE_DRIVER_MEMORY", "4g"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={_in_one_piece(home.server)} {java_options}".strip(),
        "spark.local.dir": str(home.server / "spark"),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.adaptive.enabled": "false",  # plans again after each exchange: a third of the time of a small query
        "spark.sql.codegen.cache.maxEntries": "1000",  # a pipeline has more queries than the usual 100, and would compile again
        "spark.sql.shuffle.partitions": os.environ.get("LAKE_SHUFFLE_PARTITIONS", "2"),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.autoCompact.minNumFiles": "20",
        "spark.databricks.delta.autoCompact.maxFileSize": str(8 << 20),  # or it writes up to 64 MB again every 20 appends
        PACKED_CUBE: str(64 << 20),  # or packing writes all of a clustered table again, up to 100 GB, however little is new
        PACKED_FILE: str(64 << 20),
        "spark.databricks.delta.optimize.maxFileSize": str(128 << 20),  # one file of 1 GB is written by one core alone
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        **_given_settings(),
    }


def _in_one_piece(path: Path) -> str:
    """A path as Spark's launcher takes it for one option: it splits options at spaces and takes quotes away."""
    return re.sub(r"""([\s"'\\])""", r"\\\1", str(path))


def _given_settings() -> dict[str, str]:
    """More settings from $LAKE_SPARK_CONF: `key=value` pairs separated by spaces."""
    pairs = [pair.partition("=") for pair in os.environ.get("LAKE_SPARK_CONF", "").split()]
    return {key: value for key, equals, value in pairs if equals}


def holds_lock(home: Home) -> bool:
    """Whether a server process of this home lives, ready or not."""
    return home.server.exists() and _is_locked(home.server / "server.lock")


def running(home: Home) -> Server | None:
    """The server of this home, if one runs and is ready."""
    if not holds_lock(home):
        return None
    try:
        return Server(**json.loads((home.server / "server.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def ensure(home: Home) -> Server:
    """The server of this home, started if none runs."""
    home.server.mkdir(parents=True, exist_ok=True)
    with _locked(home.server / "start.lock"):
        server = running(home)
        return server if server else _start(home)


def stop(home: Home, seconds: float = 30.0) -> bool:
    """End the server of this home; False if none runs."""
    server = running(home)
    if server is None:
        return False
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, sign)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not _is_locked(home.server / "server.lock"):
                return True
            time.sleep(0.05)
    raise Unavailable(f"the Spark server (pid {server.pid}) did not stop: end it by hand")


_clients: dict[Path, IO[str]] = {}
_registering = threading.Lock()


def register_client(home: Home) -> None:
    """Keep the server alive as long as this process lives."""
    clients = home.server / "clients"
    clients.mkdir(parents=True, exist_ok=True)
    path = clients / str(os.getpid())
    with _registering:  # the lock of a file keeps a second thread of this process out too, for good
        while path not in _clients:
            handle = path.open("w")
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_at(handle, path):
                _clients[path] = handle
            else:  # the server took it for one that a dead client left, and removed it
                handle.close()


def _start(home: Home) -> Server:
    log = home.server / "server.log"
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    for name in ("SPARK_REMOTE", "SPARK_HOME", "SPARK_CONNECT_MODE_ENABLED", "SPARK_CONF_DIR"):
        environment.pop(name, None)
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "chainlake.lake.server", "--home", str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        server = running(home)
        if server and server.pid == process.pid:
            return server
        time.sleep(0.1)
    process.kill()
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] or ["no output"]
    raise Unavailable(f"the local Spark server did not start: {lines[-1][:300]} (see {log})")


def serve(home: Home, idle_seconds: float) -> None:
    """Be the server until stopped, idle, or without a home."""
    from pyspark.sql import SparkSession

    home.server.mkdir(parents=True, exist_ok=True)
    stopping = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: stopping.set())
    with _locked(home.server / "server.lock"):
        info = home.server / "server.json"
        info.unlink(missing_ok=True)
        port = _free_port()
        builder = SparkSession.builder.master(os.environ.get("LAKE_MASTER", "local[*]")).appName("chainlake")
        for key, value in {**spark_settings(home), "spark.connect.grpc.binding.port": str(port)}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        written = info.with_suffix(".tmp")
        written.write_text(json.dumps(asdict(Server(os.getpid(), port))), encoding="utf-8")
        written.replace(info)
        _watch(home, idle_seconds, stopping)
        spark.stop()
        info.unlink(missing_ok=True)


def _watch(home: Home, idle_seconds: float, stopping: threading.Event) -> None:
    last_used = time.monotonic()
    while not stopping.wait(1.0) and home.server.exists():
        if any(_alive(path) for path in list((home.server / "clients").glob("*"))):
            last_used = time.monotonic()
        elif time.monotonic() - last_used > idle_seconds:
            return


def _alive(client: Path) -> bool:
    """Whether somebody holds the file. One that nobody holds is removed under its lock, so that `register_client`, once it
    has the lock, can tell whether its file is still there."""
    try:
        with client.open() as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            client.unlink(missing_ok=True)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def _is_at(handle: IO[str], path: Path) -> bool:
    """Whether the open file is the one that has this path now."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_locked(path: Path) -> bool:
    try:
        with path.open() as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _idle_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more: correct LAKE_SERVER_IDLE")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="The local Spark Connect server of one lake home.")
    parser.add_argument("--home", required=True)
    parser.add_argument("--idle", type=_idle_seconds, default=os.environ.get("LAKE_SERVER_IDLE", str(IDLE_SECONDS)))
    arguments = parser.parse_args()
    serve(find_home(arguments.home), arguments.idle)


if __name__ == "__main__":
    main()
