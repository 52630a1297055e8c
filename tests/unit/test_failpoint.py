"""Real processes end, or wait, exactly where a test asks for it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CODE = """
from chainlake.lake.failpoint import failpoint
for i in range(4):
    print(f"a{i}", flush=True)
    failpoint("a")
    failpoint("b")
print("end", flush=True)
"""


def start(**environment: str) -> "subprocess.Popen[str]":
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAKE_FAILPOINT")}
    return subprocess.Popen(
        [sys.executable, "-c", CODE],
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(**environment: str) -> tuple[int, list[str]]:
    with start(**environment) as child:
        out, err = child.communicate(timeout=20)
        assert "Traceback" not in err, err
        return child.returncode, out.split()


def test_a_failpoint_that_nobody_asked_for_does_nothing() -> None:
    whole = (0, ["a0", "a1", "a2", "a3", "end"])
    assert finished() == whole
    assert finished(LAKE_FAILPOINT="another") == whole
    assert finished(LAKE_FAILPOINT="a:9") == whole


def test_a_process_is_killed_at_once_as_by_a_power_failure() -> None:
    assert finished(LAKE_FAILPOINT="b") == (-signal.SIGKILL, ["a0"])


def test_a_process_is_killed_the_nth_time() -> None:
    assert finished(LAKE_FAILPOINT="a:3") == (-signal.SIGKILL, ["a0", "a1", "a2"])


def test_a_process_waits_while_its_file_exists_and_then_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "paused"
    with start(LAKE_FAILPOINT="pause:a:2", LAKE_FAILPOINT_FILE=str(file)) as child:
        try:
            wait_for(file)
            assert child.stdout is not None
            assert [child.stdout.readline().strip() for _ in range(2)] == ["a0", "a1"]
            time.sleep(0.2)
            assert child.poll() is None, "it does not wait"
            file.unlink()
            out, _ = child.communicate(timeout=20)
        finally:
            child.kill()
    assert (child.returncode, out.split()) == (0, ["a2", "a3", "end"])


def test_a_paused_process_can_be_killed_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "paused"
    with start(LAKE_FAILPOINT="pause:b", LAKE_FAILPOINT_FILE=str(file)) as child:
        wait_for(file)
        child.kill()
        out, _ = child.communicate(timeout=20)
    assert (child.returncode, out.split()) == (-signal.SIGKILL, ["a0"])


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 20
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.01)
