"""The JAR cache: complete or not there, whatever interrupts or damages it; and the finder of Java."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chainlake.errors import Unavailable
from chainlake.lake import jars, java
from chainlake.lake.jars import artifact, delta_jars
from chainlake.lake.java import find_java, java_home, java_version

CONTENT = {"delta-spark.jar": b"spark" * 9, "delta-storage.jar": b"storage"}


class Registry:
    """Stands in for spark-submit: writes the JARs where it would, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.output = ""
        self.works = True

    def run(self, command: list[str], **options: object) -> "subprocess.CompletedProcess[str]":
        self.asked += 1
        (ivy,) = (Path(part.partition("=")[2]) for part in command if part.startswith("spark.jars.ivy="))
        (ivy / "jars").mkdir(parents=True)
        (ivy.parents[1] / jars.LOG).write_text(self.output)
        for name, content in CONTENT.items() if self.works else ():
            (ivy / "jars" / name).write_bytes(content)
        return subprocess.CompletedProcess(command, 0 if self.works else 1)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry()
    monkeypatch.setattr(jars.subprocess, "run", registry.run)
    monkeypatch.setattr(jars, "java_home", lambda: Path("/java"))
    return registry


def test_jars_are_resolved_once(registry: Registry, tmp_path: Path) -> None:
    first = delta_jars(tmp_path)
    assert {jar.name: jar.read_bytes() for jar in first} == CONTENT
    assert delta_jars(tmp_path) == first
    assert registry.asked == 1
    assert {path.name for path in first[0].parent.iterdir()} == {*CONTENT, jars.MARKER}


@pytest.mark.parametrize("damage", ["truncated", "missing", "no marker", "broken marker", "empty marker"])
def test_a_damaged_cache_is_resolved_again(registry: Registry, tmp_path: Path, damage: str) -> None:
    jar = delta_jars(tmp_path)[0]
    marker = jar.parent / jars.MARKER
    if damage == "truncated":
        jar.write_bytes(CONTENT[jar.name][:-1])
    elif damage == "missing":
        jar.unlink()
    elif damage == "no marker":
        marker.unlink()
    else:
        marker.write_text("what\n" if damage == "broken marker" else "")
    assert {jar.name: jar.read_bytes() for jar in delta_jars(tmp_path)} == CONTENT
    assert registry.asked == 2


def test_what_an_interrupted_resolver_left_is_no_obstacle(registry: Registry, tmp_path: Path) -> None:
    home = delta_jars(tmp_path)[0].parent
    home.rename(home.with_name(home.name + ".partial"))
    assert {jar.name for jar in delta_jars(tmp_path)} == set(CONTENT)


def test_concurrent_resolvers_ask_once(registry: Registry, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: delta_jars(tmp_path), range(8)))
    assert all(result == found[0] for result in found)
    assert registry.asked == 1


def test_an_unreachable_registry_is_one_line_that_names_the_artifact(registry: Registry, tmp_path: Path) -> None:
    registry.works = False
    registry.output = "java.net.ConnectException\n:::: UNRESOLVED DEPENDENCIES ::\n\tat org.apache.ivy\n"
    with pytest.raises(Unavailable) as caught:
        delta_jars(tmp_path)
    assert str(caught.value).startswith(f"could not fetch {artifact()}: the Maven registry cannot be reached")
    assert "\n" not in str(caught.value)
    registry.works = True
    assert delta_jars(tmp_path)


def test_a_cache_that_cannot_be_written_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=r"cannot write the JAR cache .*set XDG_CACHE_HOME"):
        delta_jars(tmp_path / "file")


def test_the_artifact_is_for_the_installed_spark_and_delta() -> None:
    assert artifact() == "io.delta:delta-spark_4.1_2.13:4.4.0"


def test_java_goes_through_the_proxy_that_pip_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    environment = jars._environment()
    assert environment["SPARK_SUBMIT_OPTS"] == "-Dhttps.proxyHost=proxy.example -Dhttps.proxyPort=3128"
    assert "SPARK_REMOTE" not in environment
    assert environment["PYSPARK_PYTHON"] == sys.executable


def make_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 1), ("11.0.2", 11)])
def test_the_version_of_a_java_home(tmp_path: Path, version: str, major: int) -> None:
    assert java_version(make_java(tmp_path, version)) == major


def test_java_home_comes_first_but_only_if_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, good = make_java(tmp_path / "old", "11.0.2"), make_java(tmp_path / "usual" / "good", "21.0.1")
    monkeypatch.setattr(java, "USUAL_PLACES", (str(tmp_path / "usual"),))
    monkeypatch.setattr(java.shutil, "which", lambda _: None)
    monkeypatch.setenv("JAVA_HOME", str(good))
    assert java_home() == good
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert java_home() == good, "an old JAVA_HOME does not hide a good Java elsewhere"
    (good / "bin" / "java").unlink()
    assert find_java() is None
    with pytest.raises(Unavailable, match="no Java 17 or 21 found: install openjdk-17-jre-headless or set JAVA_HOME"):
        java_home()
