"""Who runs a server here, and who still uses it: told by locks that end with their process."""

import fcntl
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from chainlake.lake import server
from chainlake.lake.home import Home
from chainlake.lake.server import (
    Server,
    _alive,
    _free_port,
    _is_locked,
    _locked,
    _watch,
    register_client,
    running,
    spark_settings,
    stop,
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.server.mkdir()
    return made


class Child:
    """A real process that does something, says so, and waits to be ended."""

    def __init__(self, code: str) -> None:
        text = f"{code}\nprint('ready', flush=True)\ninput()"
        self.process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for child in made:
        child.kill()


def write_info(home: Home, text: str) -> None:
    (home.server / "server.json").write_text(text, encoding="utf-8")


def lock_in_child(path: Path) -> Child:
    return Child(f"import fcntl; handle = open({str(path)!r}, 'w'); fcntl.flock(handle, fcntl.LOCK_EX)")


def client_in_child(home: Home) -> Child:
    code = f"""from pathlib import Path
from chainlake.lake.home import Home
from chainlake.lake.server import register_client
register_client(Home(Path({str(home.path)!r})))"""
    return Child(code)


def test_no_server_runs_where_there_are_no_files(home: Home, tmp_path: Path) -> None:
    assert running(home) is None
    assert running(Home(tmp_path / "none")) is None
    assert not (tmp_path / "none").exists(), "looking must not make anything"


def test_files_that_a_dead_server_left_mean_nothing(home: Home, children: list[Child]) -> None:
    child = lock_in_child(home.server / "server.lock")
    children.append(child)
    write_info(home, json.dumps({"pid": child.process.pid, "port": 15002}))
    assert running(home) == Server(child.process.pid, 15002)
    child.kill()
    assert running(home) is None
    assert stop(home) is False, "a dead server's pid must never be signalled"


def test_a_server_that_is_not_ready_yet_is_not_running(home: Home, children: list[Child]) -> None:
    children.append(lock_in_child(home.server / "server.lock"))
    assert running(home) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '"text"', "null", "{}", '{"pid": 1}', '{"pid": 1, "port": 2, "more": 3}', "\x00"]
)
def test_a_locked_server_with_a_damaged_file_is_not_running(home: Home, text: str) -> None:
    write_info(home, text)
    with _locked(home.server / "server.lock"):
        assert running(home) is None


def test_two_commands_that_look_at_once_do_not_take_each_other_for_the_server(home: Home) -> None:
    (home.server / "server.lock").touch()
    write_info(home, json.dumps({"pid": 1, "port": 2}))
    found: list[Server | None] = []

    def look() -> None:
        found.extend(running(home) for _ in range(300))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1200 and set(found) == {None}


def test_a_home_with_spaces_and_quotes_in_its_path_is_one_option_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's launcher splits options as a shell does."""
    monkeypatch.setattr("chainlake.lake.server.delta_jars", list)
    monkeypatch.setenv("LAKE_JAVA_OPTIONS", "-Xss4m")
    for place in ("/plain/.lake", '/My Lakes/Bob\'s "best"/back\\slash/.lake'):
        options = spark_settings(Home(Path(place)))["spark.driver.extraJavaOptions"]
        assert shlex.split(options) == [f"-Dderby.system.home={place}/server", "-Xss4m"]


def test_the_url_of_a_server_is_on_this_machine_only() -> None:
    assert Server(1, 15002).url == "sc://127.0.0.1:15002"


def test_a_lock_is_seen_until_it_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not _is_locked(path)
    with _locked(path):
        assert _is_locked(path)
    assert not _is_locked(path) and path.exists()


def test_a_client_is_alive_until_its_process_ends(home: Home, children: list[Child]) -> None:
    first, second = client_in_child(home), client_in_child(home)
    children.extend([first, second])
    files = {child: home.server / "clients" / str(child.process.pid) for child in (first, second)}
    assert sorted(path.name for path in (home.server / "clients").iterdir()) == sorted(path.name for path in files.values())
    assert _alive(files[first]) and _alive(files[second])
    first.kill()
    assert not _alive(files[first]) and not files[first].exists(), "what a dead client left is removed"
    assert _alive(files[second]) and files[second].exists()


def test_registering_twice_keeps_one_lock(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_clients", {})
    register_client(home)
    register_client(home)
    (path,) = (home.server / "clients").iterdir()
    assert path.name == str(os.getpid()) and _alive(path)
    for handle in server._clients.values():
        handle.close()
    assert not _alive(path)


def test_threads_of_one_process_register_it_together(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waited for the first for ever."""
    monkeypatch.setattr(server, "_clients", {})
    is_at = server._is_at
    monkeypatch.setattr(server, "_is_at", lambda *given: time.sleep(0.1) or is_at(*given))
    threads = [threading.Thread(target=server.register_client, args=[home], daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_a_file_that_the_server_removed_meanwhile_is_made_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path, flock = home.server / "clients" / str(os.getpid()), fcntl.flock
    taken: list[IO[str]] = []

    def late(handle: IO[str], operation: int) -> None:
        taken.append(handle)
        if len(taken) == 1:
            path.unlink()  # as the server does, between open and lock
        flock(handle, operation)

    with monkeypatch.context() as patch:
        patch.setattr(server, "_clients", {})
        patch.setattr(fcntl, "flock", late)
        register_client(home)
    assert len(taken) == 2 and taken[0].closed
    assert _alive(path), "the server sees the client"
    taken[1].close()


def test_a_dead_clients_file_is_removed_under_its_lock(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a client could lock it, and find it in place, just before it goes."""
    path = home.server / "client"
    path.touch()
    unlink, locked = Path.unlink, []

    def look(self: Path, missing_ok: bool = False) -> None:
        with self.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked.append(False)
            except BlockingIOError:
                locked.append(True)
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", look)
    assert not _alive(path) and locked == [True] and not path.exists()


@pytest.mark.parametrize("text", ["soon", "", "nan", "-1"])
def test_an_idle_time_that_is_no_number_is_one_line(
    home: Home, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "serve", lambda *_: pytest.fail("the server started"))
    monkeypatch.setattr(sys, "argv", ["server", "--home", str(home.path)])
    monkeypatch.setenv("LAKE_SERVER_IDLE", text)
    with pytest.raises(SystemExit) as ended:
        server.main()
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith(f"{text!r} is not a number of seconds, 0 or more: correct LAKE_SERVER_IDLE")


def test_an_idle_time_is_taken_from_the_environment(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    idle: list[float] = []
    monkeypatch.setattr(server, "serve", lambda _, seconds: idle.append(seconds))
    monkeypatch.setattr(sys, "argv", ["server", "--home", str(home.path)])
    monkeypatch.delenv("LAKE_SERVER_IDLE", raising=False)
    server.main()
    monkeypatch.setenv("LAKE_SERVER_IDLE", "1.5")
    server.main()
    assert idle == [600.0, 1.5]


def test_the_server_ends_when_nobody_has_used_it_for_the_idle_time(home: Home, children: list[Child]) -> None:
    child = client_in_child(home)
    children.append(child)
    watcher = threading.Thread(target=_watch, args=(home, 0.0, threading.Event()), daemon=True)
    watcher.start()
    watcher.join(1.5)
    assert watcher.is_alive(), "a client is there"
    child.kill()
    watcher.join(4)
    assert not watcher.is_alive()


def test_the_server_ends_when_its_home_is_gone_or_it_is_told_to(tmp_path: Path, home: Home) -> None:
    _watch(Home(tmp_path / "gone"), 1000.0, threading.Event())
    told = threading.Event()
    told.set()
    _watch(home, 1000.0, told)


def test_a_free_port_can_be_bound() -> None:
    port = _free_port()
    assert 1024 <= port < 65536
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))


def test_a_lock_that_a_probe_took_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    assert not _is_locked(path)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
