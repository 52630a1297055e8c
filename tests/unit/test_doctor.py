"""`lake doctor` on set-ups that are broken in one way each: it names the break, says what to do, and goes on."""

import fcntl
import json
import os
import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from chainlake.cli.main import main
from chainlake.doctor import Finding, Level, examine, lake_state, machine, places, software
from chainlake.lake.control import ControlTables
from chainlake.lake.migrations import Migration
from chainlake.lake.names import Namespace
from chainlake.paths import tables_dir
from tests.unit.control_tables import AT, commit_row, made_lake, with_control

GIB = 1 << 30


def only(findings: list[Finding], subject: str) -> Finding:
    found = [finding for finding in findings if finding.subject == subject]
    assert len(found) == 1, findings
    return found[0]


def java_at(place: Path, version: str) -> Path:
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "java").touch(mode=0o755)
    (place / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return place


@pytest.mark.parametrize(
    ("total", "asked", "level"),
    [
        (16 * GIB, "4g", Level.OK),
        (5 * GIB, "4g", Level.WARNING),
        (4 * GIB, "4g", Level.PROBLEM),
        (4 * GIB, "1500m", Level.OK),
        (16 * GIB, "much", Level.PROBLEM),
        (16 * GIB, "", Level.PROBLEM),
    ],
)
def test_memory_that_spark_would_not_get_is_told(total: int, asked: str, level: Level) -> None:
    finding = machine.memory(total, {"LAKE_DRIVER_MEMORY": asked})
    assert finding.level is level and (finding.level is Level.OK) == (finding.remedy == "")


@pytest.mark.parametrize(("free", "level"), [(GIB // 2, Level.PROBLEM), (2 * GIB, Level.WARNING), (50 * GIB, Level.OK)])
def test_a_full_disk_is_told(free: int, level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": free}))
    finding = machine.disk("disk", tmp_path / "not" / "there" / "yet")
    assert finding.level is level and str(tmp_path) in finding.what


def test_a_port_that_somebody_has_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        finding = machine.gateway_port(taken.getsockname()[1])
    assert finding.level is Level.WARNING and "--port" in finding.remedy
    assert machine.gateway_port(0).level is Level.OK and machine.loopback().level is Level.OK


def test_pythons_that_were_not_tried_are_told() -> None:
    assert software.python((3, 9)).level is Level.PROBLEM
    assert software.python((3, 12)).level is Level.OK
    assert software.python((3, 15)).level is Level.WARNING


def test_a_missing_java_and_a_wrong_java_home_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainlake.lake.java.USUAL_PLACES", (str(tmp_path / "jvm"),))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(java_at(tmp_path / "old", "1.8.0_401")))
    assert software.java().level is Level.PROBLEM
    java_at(tmp_path / "jvm" / "seventeen", "17.0.9")
    finding = software.java()
    assert finding.level is Level.WARNING and "seventeen" in finding.what and str(tmp_path / "old") in finding.what
    monkeypatch.delenv("JAVA_HOME")
    assert software.java().level is Level.OK


def test_a_cut_jar_is_told(tmp_path: Path) -> None:
    assert software.delta_jars(tmp_path).level is Level.PROBLEM
    place = tmp_path / f"jars-{software.installed('delta-spark')}"
    place.mkdir()
    (place / "delta.jar").write_bytes(b"12345")
    (place / "complete").write_text("5 delta.jar\n")
    assert software.delta_jars(tmp_path).level is Level.OK
    (place / "delta.jar").write_bytes(b"123")
    assert software.delta_jars(tmp_path).level is Level.PROBLEM


PINS = """# Needed.
one[extra]==1.0
two==2.0; python_version < "3"
three==3.0  # with a word
# Development: tests.
four==4.0
"""


def packages(tmp_path: Path, **have: str) -> list[Finding]:
    (tmp_path / "requirements.txt").write_text(PINS)
    return software.packages(tmp_path / "requirements.txt", lambda name: have.get(name.replace("-", "_")))


def test_packages_are_compared_with_the_pinned_ones(tmp_path: Path) -> None:
    (good,) = packages(tmp_path, one="1.0", three="3.0", four="4.0")
    assert good.level is Level.OK and good.what.startswith("3 as pinned"), "two is not for this Python"
    (missing,) = packages(tmp_path, three="3.0", four="4.0")
    assert (missing.level, missing.what, missing.remedy) == (Level.PROBLEM, "one is not installed", "run make setup")
    (other,) = packages(tmp_path, one="1.1", three="3.0", four="4.0")
    assert (other.level, other.what) == (Level.WARNING, "one is 1.1, pinned is 1.0")
    (of_tests,) = packages(tmp_path, one="1.0", three="3.0")
    assert of_tests.level is Level.WARNING
    (rivals,) = packages(tmp_path, one="1.0", three="3.0", four="4.0", pyspark="4.1.4", databricks_connect="18.3")
    assert rivals.level is Level.PROBLEM


def test_the_environment_of_databricks_connect_has_pins_and_remedies_of_its_own() -> None:
    have = {"databricks-connect": "18.3.7"}
    assert software.for_workspace(have.get) and not software.for_workspace({**have, "pyspark": "4.1.4"}.get)
    found = software.packages(find=have.get)
    assert all(one.remedy == "pip install -r requirements-connect.txt" for one in found)
    assert not any("delta-spark" in one.what or "mlflow" in one.what for one in found), "what a workspace has, or nobody needs"


class Settings:
    """As databricks-sdk reads them."""

    wanted: ClassVar[dict[str, object]] = {}

    def __init__(self, **given: object) -> None:
        assert given == {"retry_timeout_seconds": 5, "http_timeout_seconds": 5}, "else it waits for five minutes"
        if not self.wanted:
            raise ValueError("default auth: cannot configure default credentials, please check")
        self.host, self.cluster_id = self.wanted["host"], None
        self.serverless_compute_id = self.wanted.get("serverless_compute_id")


def test_a_workspace_without_login_without_compute_or_without_anybody_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "getproxies", dict)
    for name in ("databricks", "databricks.sdk", "databricks.sdk.core"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["databricks.sdk.core"], "Config", Settings, raising=False)
    monkeypatch.setattr(Settings, "wanted", {})
    found = software.workspace()
    assert (found.level, found.what) == (Level.PROBLEM, "default auth: cannot configure default credentials")
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(Settings, "wanted", {"host": host})
        found = software.workspace()
        assert found.level is Level.PROBLEM and "no compute" in found.what and "SERVERLESS_COMPUTE_ID=auto" in found.remedy
        monkeypatch.setattr(Settings, "wanted", {"host": host, "serverless_compute_id": "auto"})
        assert software.workspace() == Finding("workspace", Level.OK, f"{host} is set up")
    found = software.workspace()
    assert found.level is Level.PROBLEM and found.what == f"nobody answers at {host}"


def test_homes_that_cannot_be_used_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert places.home(tmp_path / "file")[0].level is Level.PROBLEM
    assert places.home(tmp_path / "file" / "below")[0].level is Level.PROBLEM
    assert places.home(tmp_path / "new" / "home")[0].level is Level.OK and not (tmp_path / "new").exists()
    home = tmp_path / "home"
    (home / "warehouse").mkdir(parents=True)
    assert places.home(home)[0].level is Level.OK
    home.chmod(0o777)
    assert "chmod" in places.home(home)[0].remedy
    monkeypatch.setattr(places, "_writable", lambda path: path.name != "warehouse")
    finding = places.home(home)[0]
    assert finding.level is Level.PROBLEM and "warehouse" in finding.what


@pytest.fixture
def server_files(tmp_path: Path) -> Iterator[Path]:
    """A home whose server lock is held, as by a living server."""
    files = tmp_path / "server"
    files.mkdir()
    with (files / "server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield files


def test_a_server_that_died_does_no_harm(tmp_path: Path) -> None:
    assert places.spark_server(tmp_path).level is Level.OK
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "server.lock").touch()
    (tmp_path / "server" / "server.json").write_text('{"pid": 1, "port": 1}')
    finding = places.spark_server(tmp_path)
    assert finding.level is Level.OK and "of one that died" in finding.what


def test_a_server_that_starts_hangs_or_is_old_is_told(server_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, info = server_files.parent, server_files / "server.json"
    assert places.spark_server(home).level is Level.WARNING, "no server.json: it starts"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        info.write_text(json.dumps({"pid": os.getpid(), "port": port}))
        command = Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode()
        monkeypatch.setattr(places.sys, "executable", command)
        assert places.spark_server(home).level is Level.OK
        os.utime(info, (0, 0))
        assert "before pyspark was installed" in places.spark_server(home).what
        monkeypatch.setattr(places.sys, "executable", "/another/python")
        finding = places.spark_server(home)
        assert finding.level is Level.WARNING and "another Python" in finding.what
    finding = places.spark_server(home)
    assert finding.level is Level.PROBLEM and "lake stop" in finding.remedy


def test_migrations_of_lake_and_checkout_are_compared() -> None:
    one, two = Migration(1, "0001_a.sql", "A"), Migration(2, "0002_b.sql", "B")
    had = [{"number": 1, "digest": one.digest}]

    def level(rows: list[dict[str, Any]], wanted: list[Migration]) -> Level:
        return lake_state.applied_migrations(rows, wanted)[0].level

    assert level(had, [one]) is Level.OK
    assert level(had, [one, two]) is Level.WARNING
    assert level(had, [Migration(1, "0001_a.sql", "changed")]) is Level.PROBLEM
    assert level(had, []) is Level.PROBLEM, "a newer version wrote this lake"


def test_only_stages_that_are_degraded_now_are_told() -> None:
    def row(status: str, hours: int) -> dict[str, Any]:
        return {"stage": "raw.logs", "chain": "c", "status": status, "reason": "bad parent", "at": AT + timedelta(hours=hours)}

    stopped, resumed = row("degraded", 1), row("ok", 2)
    assert lake_state.degraded_stages([resumed, stopped])[0].level is Level.OK
    (finding,) = lake_state.degraded_stages([stopped])
    assert finding.level is Level.PROBLEM and "lake resume raw.logs c" in finding.remedy


def test_a_lake_is_looked_at_without_spark(tmp_path: Path) -> None:
    found = lake_state.lake(made_lake(tmp_path, [commit_row(1, 0, 9), commit_row(2, 9, 20)]), "", tables_dir())
    assert only(found, "ledger").what.startswith("2 commits of 1 stages")
    assert only(found, "tables").level is Level.WARNING and only(found, "health").level is Level.OK


def test_a_ledger_that_is_gone_is_a_problem_and_not_a_lake_to_come(tmp_path: Path) -> None:
    with_control(tmp_path)
    assert [one.level for one in lake_state.lake(tmp_path, "", tables_dir())] == [Level.OK]
    row = {"chain": "c", "kind": "evm", "source": "f", "options": [], "at": AT}
    ControlTables(None, Namespace(), tmp_path / "warehouse").append("chains", [row])
    (found,) = lake_state.lake(tmp_path, "", tables_dir())
    assert (found.level, found.remedy) == (Level.PROBLEM, "see Repairing in docs/operations.md")
    assert found.what.endswith("control/ledger is gone, but control.chains has rows")


def test_a_ledger_with_a_gap_is_told(tmp_path: Path) -> None:
    found = lake_state.lake(made_lake(tmp_path, [commit_row(1, 0, 9), commit_row(2, 12, 20)]), "", tables_dir())
    assert only(found, "ledger").level is Level.PROBLEM and "advances from 12 to 20" in only(found, "ledger").what


def test_a_table_whose_log_is_empty_is_a_problem(tmp_path: Path) -> None:
    home = made_lake(tmp_path, [commit_row(1, 0, 9)])
    assert only(lake_state.lake(home, "", tables_dir()), "tables").level is Level.WARNING, "the others are not made yet"
    (home / "warehouse" / "control" / "health" / "_delta_log" / "_staged_commits").mkdir(parents=True)
    found = only(lake_state.lake(home, "", tables_dir()), "tables")
    assert (found.level, found.what) == (Level.PROBLEM, "the log of control.health is empty")


def test_control_tables_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    home = made_lake(tmp_path, [commit_row(1, 0, 9)])
    for file in (home / "warehouse" / "control" / "ledger").glob("*.parquet"):
        file.write_bytes(b"not parquet")
    assert only(lake_state.lake(home, "", tables_dir()), "lake").level is Level.PROBLEM


def test_sources_that_have_gone_are_told(tmp_path: Path) -> None:
    node, here = {"chain": "a", "source": "http://node"}, {"chain": "b", "source": str(tmp_path)}
    gone = {"chain": "c", "source": str(tmp_path / "gone")}
    assert lake_state.missing_sources([node, here])[0].level is Level.OK
    assert "c (" in lake_state.missing_sources([node, here, gone])[0].what


def test_a_check_that_fails_keeps_no_other_from_being_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Finding:
        raise RuntimeError("no idea")

    monkeypatch.setattr(software, "java", broken)
    found = examine(tmp_path / "home", 0)
    assert only(found, "java").level is Level.PROBLEM and "no idea" in only(found, "java").what
    assert only(found, "lake").level is Level.OK and not (tmp_path / "home").exists(), "looking makes nothing"


def test_the_command_ends_with_1_on_a_problem_and_is_one_array_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(software, "java", lambda: software.ok("java", "17"))
    monkeypatch.setattr(software, "packages", lambda: [software.ok("packages", "all")])
    monkeypatch.setattr(software, "delta_jars", lambda: software.ok("jars", "all"))
    assert main(["doctor", "--port", "0", "--home", str(tmp_path / "home")]) == 0
    assert all(line.startswith(("ok", "warning")) for line in capsys.readouterr().out.splitlines())
    (tmp_path / "file").touch()
    assert main(["doctor", "--json", "--home", str(tmp_path / "file")]) == 1
    shown = capsys.readouterr()
    rows = json.loads(shown.out)
    assert {tuple(row) for row in rows} == {("subject", "level", "what", "remedy")}
    assert any(row["level"] == "problem" and row["subject"] == "home" for row in rows)
    assert shown.err == "lake: 1 problem found\n"
    assert main(["doctor", "--port", "many"]) == 2
