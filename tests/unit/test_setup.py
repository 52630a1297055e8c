"""Set-up: the second run does nothing and is quick, and what changed or was left half done is never taken for complete."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from chainlake.paths import project_root

INPUTS = ("requirements.txt", "pyproject.toml", "setup.py", "scripts/setup.sh")


class Checkout:
    """A copy of the files that set-up reads, with an environment that looks complete; nothing is downloaded."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root / "cache"
        for name in INPUTS:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(project_root() / name, root / name)

    def complete(self) -> None:
        (self.root / ".venv" / "bin").mkdir(parents=True)
        (self.root / ".venv" / "bin" / "python").symlink_to("/bin/true")
        (self.root / ".venv" / "pyvenv.cfg").write_text("version = 3.11.7\n")
        (self.root / ".venv" / ".stamp").write_text(self.stamp())
        (self.jars() / "complete").parent.mkdir(parents=True)
        (self.jars() / "complete").write_text("1 a.jar\n")

    def stamp(self) -> str:
        sums = self.run("cksum", *INPUTS).stdout
        return f"{self.root}\nversion = 3.11.7\n{sums}"

    def jars(self) -> Path:
        pins = (self.root / "requirements.txt").read_text().splitlines()
        (version,) = (pin.removeprefix("delta-spark==") for pin in pins if pin.startswith("delta-spark=="))
        return self.cache / "chainlake" / f"jars-{version}"

    def run(self, *command: str, path: str | None = None, **more: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache), "PATH": path or os.environ["PATH"], **more}
        return subprocess.run(command, cwd=self.root, env=environment, text=True, capture_output=True, check=False)

    def is_set_up(self) -> bool:
        return self.run("scripts/setup.sh", "--check").returncode == 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    checkout = Checkout(tmp_path / "project")
    checkout.complete()
    return checkout


def test_the_second_run_does_nothing_quickly(checkout: Checkout) -> None:
    started = time.monotonic()
    result = checkout.run("scripts/setup.sh")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert time.monotonic() - started < 10


def test_a_fresh_clone_is_not_set_up(tmp_path: Path) -> None:
    assert not Checkout(tmp_path / "project").is_set_up()


@pytest.mark.parametrize("name", INPUTS)
def test_a_change_of_what_to_install_calls_for_set_up(checkout: Checkout, name: str) -> None:
    assert checkout.is_set_up()
    with (checkout.root / name).open("a") as file:
        file.write("# changed\n")
    assert not checkout.is_set_up()


@pytest.mark.parametrize("missing", [".venv/.stamp", ".venv/bin/python", ".venv/pyvenv.cfg", "jars"])
def test_what_is_half_made_is_not_taken_for_complete(checkout: Checkout, missing: str) -> None:
    path = checkout.jars() / "complete" if missing == "jars" else checkout.root / missing
    path.unlink()
    assert not checkout.is_set_up()


def test_a_moved_checkout_is_set_up_again(checkout: Checkout, tmp_path: Path) -> None:
    checkout.root.rename(tmp_path / "moved")
    checkout.root = tmp_path / "moved"
    checkout.cache = checkout.root / "cache"
    assert not checkout.is_set_up()


def test_another_python_calls_for_set_up(checkout: Checkout) -> None:
    (checkout.root / ".venv" / "pyvenv.cfg").write_text("version = 3.12.1\n")
    assert not checkout.is_set_up()


def test_a_link_to_the_checkout_is_the_same_checkout(checkout: Checkout, tmp_path: Path) -> None:
    """Else each change of the way there would make the environment anew, or lose it where there is no network."""
    link = tmp_path / "link"
    link.symlink_to(checkout.root)
    assert (
        subprocess.run(
            [link / "scripts" / "setup.sh", "--check"], env={**os.environ, "XDG_CACHE_HOME": str(checkout.cache)}, check=False
        ).returncode
        == 0
    )


def test_without_a_home_in_the_environment_it_says_nothing_strange(tmp_path: Path) -> None:
    root = Checkout(tmp_path / "project").root
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    result = subprocess.run(
        [root / "scripts" / "setup.sh", "--check"], env=environment, text=True, capture_output=True, check=False
    )
    assert (result.returncode, result.stderr) == (1, "")


def bare(tmp_path: Path) -> Path:
    """A folder for PATH that has what set-up needs of the system, and no Python."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "cat", "env", "dirname", "grep", "id", "mkdir", "rm", "sed", "head", "tail", "flock"):
        found = shutil.which(tool)
        if found:
            (tools / tool).symlink_to(found)
    return tools


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)
    return path


PYTHON_WITHOUT_VENV = """
case "$*" in
  *ensurepip*) exit 1 ;;
  *print*) echo 3.10 ;;
  *venv*) echo "Error: no ensurepip"; exit 1 ;;
esac"""
"""As Debian's is until python3.10-venv is installed."""


@pytest.mark.parametrize("as_root", [True, False])
def test_what_a_python_lacks_is_installed_or_named(tmp_path: Path, as_root: bool) -> None:
    checkout, tools = Checkout(tmp_path / "a project"), bare(tmp_path)
    python = script(tmp_path / "my tools" / "python", PYTHON_WITHOUT_VENV)
    script(tools / "apt-get", f"echo apt-get $* >> '{tmp_path}/asked'")
    (tools / "id").unlink()
    script(tools / "id", f"echo {0 if as_root else 1000}")
    result = checkout.run("scripts/setup.sh", path=str(tools), PYTHON=str(python))
    assert result.returncode == 1 and not (checkout.root / ".venv" / ".stamp").exists()
    if as_root:
        (install,) = (line for line in (tmp_path / "asked").read_text().splitlines() if " install " in line)
        assert install.endswith(" python3.10-venv") and "DPkg::Lock::Timeout" in install, "another may be installing too"
        assert f"could not create .venv with {python}: Error: no ensurepip" in result.stderr
    else:
        said = "set-up: Python 3.10 cannot make virtual environments: install python3.10-venv\n"
        assert result.stderr == said and not (tmp_path / "asked").exists()


def test_without_a_python_one_line_says_what_to_install(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "project")
    result = checkout.run("scripts/setup.sh", path=str(bare(tmp_path)))
    assert result.returncode == 1
    assert result.stderr == ("set-up: no Python 3.10 or newer found: install python3 and python3-venv, or set PYTHON to one\n")
    assert not (checkout.root / ".venv" / ".stamp").exists()


def test_the_makefile_has_the_targets_that_people_are_told_of() -> None:
    listed = subprocess.run(["make", "help"], cwd=project_root(), text=True, capture_output=True, check=True).stdout
    targets = {line.split()[1] for line in listed.splitlines()}
    assert {"setup", "run", "test", "lint", "format", "bench", "clean", "help"} <= targets


def test_ci_calls_make_test_and_nothing_cleverer() -> None:
    script = project_root() / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().rstrip().endswith("exec make test")


def test_every_requirement_is_pinned() -> None:
    for name in ("requirements.txt", "requirements-connect.txt"):
        lines = (project_root() / name).read_text().splitlines()
        pins = [line for line in lines if line and not line.startswith("#")]
        assert pins and all("==" in pin.split(";")[0] for pin in pins), name
