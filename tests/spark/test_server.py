"""The local Spark server: started on demand, found again, survives its clients, ends when idle, never orphaned."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chainlake.lake import server
from chainlake.lake.home import Home

CLIENT = (
    "import sys; from chainlake.lake.session import get_spark; print(get_spark().range(3).count()); sys.stdout.flush(); {then}"
)


def client(home: Path, then: str = "", idle: str = "600") -> "subprocess.Popen[str]":
    environment = {**os.environ, "LAKE_HOME": str(home), "LAKE_SERVER_IDLE": idle, "LAKE_DRIVER_MEMORY": "1g"}
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT.format(then=then)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def gone(pid: int, seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.1)
    return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def place(tmp_path: Path):  # type: ignore[no-untyped-def]
    home = Home(tmp_path / "home")
    yield home
    server.stop(home)


def test_a_server_serves_many_clients_survives_one_that_dies_and_leaves_no_java_behind(place: Home) -> None:
    place.server.mkdir(parents=True)
    (place.server / "server.json").write_text('{"pid": 1, "port": 1}')
    both = [client(place.path, "import time; time.sleep(60)"), client(place.path)]
    assert both[1].communicate(timeout=120)[0].strip() == "3"
    found = server.running(place)
    assert found is not None and found.pid != 1, "a stale file is no problem, and two that start at once share one server"
    assert both[0].stdout is not None and both[0].stdout.readline().strip() == "3"
    both[0].send_signal(signal.SIGKILL)
    both[0].wait()
    assert client(place.path).communicate(timeout=120)[0].strip() == "3"
    assert server.running(place) == found, "found again by later commands"
    java = children(found.pid)
    os.kill(found.pid, signal.SIGKILL)
    assert java and all(gone(pid) for pid in java), "when the server dies, its Java ends too"
    assert server.running(place) is None


def test_an_idle_server_ends_itself(place: Home) -> None:
    assert client(place.path, idle="2").communicate(timeout=120)[0].strip() == "3"
    found = server.running(place)
    assert found is not None and gone(found.pid, 40)
    assert server.running(place) is None and server.stop(place) is False
