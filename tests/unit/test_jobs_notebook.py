"""Real notebooks in real kernels (without Spark): parameters in, outputs kept, failures in one line, nothing left running."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from chainlake.errors import BadInput, CheckFailed
from chainlake.jobs import notebook
from chainlake.jobs.failure import NotebookFailed, NotebookTimedOut, one_line
from chainlake.jobs.notebook import execute_notebook


def write(path: Path, *cells: str) -> Path:
    notebook = new_notebook(cells=[new_markdown_cell("# Title"), *map(new_code_cell, cells)])
    notebook.metadata["kernelspec"] = {"name": "a-kernel-that-nobody-has", "display_name": "?"}
    nbformat.write(notebook, path)
    return path


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not is_running(pid):
            return True
        time.sleep(0.05)
    return False


LOOK = """
import json, os, sys
from chainlake.notebook import params
p = params(chain="", max_blocks=5)
json.dump([p.chain, p.max_blocks, os.getcwd(), sys.executable, os.environ["LAKE_HOME"]], open("seen.json", "w"))
print("looked")
"""


def test_a_notebook_gets_its_parameters_its_folder_and_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_PARAM_MAX_BLOCKS", "99")  # left by somebody: not a parameter of this task
    folder = tmp_path / "nb"
    folder.mkdir()
    copy = tmp_path / "runs" / "look.ipynb"
    seconds = execute_notebook(write(folder / "look.ipynb", LOOK), {"chain": "main"}, copy, home=tmp_path / "lake")
    seen = (folder / "seen.json").read_text()
    assert seen == f'["main", 5, "{folder}", "{sys.executable}", "{tmp_path / "lake"}"]'
    assert "looked" in copy.read_text()
    assert 0 < seconds < 30


def test_a_failing_cell_is_named_with_its_reason_and_the_copy_is_kept(tmp_path: Path) -> None:
    notebook = write(tmp_path / "bad.ipynb", "print('before')", "x = 1\nraise ValueError('no block 17')", "print('after')")
    copy = tmp_path / "runs" / "bad.ipynb"
    with pytest.raises(NotebookFailed) as caught:
        execute_notebook(notebook, {}, copy, home=tmp_path)
    failure = caught.value
    assert str(failure) == f"bad.ipynb cell 2 failed: ValueError: no block 17; see {copy}"
    assert failure.source.startswith("x = 1\nraise")
    assert failure.exit_code == 1
    outputs = [cell.get("outputs") for cell in nbformat.read(copy, 4).cells if cell.cell_type == "code"]
    assert [bool(output) for output in outputs] == [True, True, False], "nothing runs after a failure"


def test_a_notebook_that_takes_too_long_is_stopped_and_its_kernel_ended(tmp_path: Path) -> None:
    code = f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    with pytest.raises(NotebookTimedOut, match=r"slow\.ipynb cell 1 failed: took longer than its timeout of 2\.5 s"):
        execute_notebook(write(tmp_path / "slow.ipynb", code), {}, tmp_path / "c.ipynb", home=tmp_path, timeout_seconds=2.5)
    assert wait_until_gone(int((tmp_path / "pid").read_text()))


def test_a_kernel_that_dies_is_an_error_not_a_hang(tmp_path: Path) -> None:
    notebook = write(tmp_path / "dies.ipynb", "import os\nos._exit(3)")
    with pytest.raises(NotebookFailed, match=r"dies\.ipynb cell 1 failed: the kernel died"):
        execute_notebook(notebook, {}, tmp_path / "c.ipynb", home=tmp_path, timeout_seconds=20)


RUNNER = """
import sys
from pathlib import Path
from chainlake.jobs import Job, Task, run_job
here = Path(sys.argv[1])
job = Job("j", "J", {}, (Task("t", here / "long.ipynb", {}), Task("u", here / "never.ipynb", {})))
try:
    run_job(job, home=here)
except KeyboardInterrupt:
    sys.exit(130)
"""

LONG = """
import os, pathlib, time
pathlib.Path("pid").write_text(str(os.getpid()))
try:
    time.sleep(60)
except KeyboardInterrupt:
    pathlib.Path("tidied").touch()
    raise
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_a_job_lets_the_cell_tidy_up_and_ends_the_kernel(tmp_path: Path, number: signal.Signals) -> None:
    write(tmp_path / "long.ipynb", LONG)
    process = subprocess.Popen([sys.executable, "-c", RUNNER, str(tmp_path)])
    deadline = time.monotonic() + 20
    while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)
    process.send_signal(number)
    assert process.wait(timeout=20) == 130
    assert (tmp_path / "tidied").exists(), "the cell saw the interrupt"
    assert wait_until_gone(int((tmp_path / "pid").read_text()))


def test_outputs_that_cannot_be_kept_fail_the_task_and_do_not_hide_why_it_failed(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.write_text("a file, where a directory is wanted")
    with pytest.raises(CheckFailed, match=r"good\.ipynb ran, but its outputs cannot be kept: .*full") as caught:
        execute_notebook(write(tmp_path / "good.ipynb", "x = 1"), {}, full / "c.ipynb", home=tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(NotebookFailed, match=r"bad\.ipynb cell 1 failed: ValueError: no block 17"):
        execute_notebook(write(tmp_path / "bad.ipynb", "raise ValueError('no block 17')"), {}, full / "c.ipynb", home=tmp_path)


@pytest.mark.parametrize("loop_is_closed", [True, False])
def test_an_interrupt_stays_one_whatever_the_kernel_does(
    tmp_path: Path, loop_is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    class Interrupted(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            ended.wait(10)
            raise KeyboardInterrupt

        def exception(self, timeout: float | None = None) -> BaseException | None:
            raise TimeoutError

    def drive(execution: notebook._Execution, *_: object) -> None:
        if loop_is_closed:
            execution._loop.close()
        ended.set()

    monkeypatch.setattr(notebook, "Future", Interrupted)
    monkeypatch.setattr(notebook._Execution, "_drive", drive)
    with pytest.raises(KeyboardInterrupt):
        execute_notebook(write(tmp_path / "a.ipynb", "x = 1"), {}, tmp_path / "c.ipynb", home=tmp_path)


def test_what_is_not_a_notebook_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "text.ipynb").write_text("hello")
    with pytest.raises(BadInput, match=r"text\.ipynb is not a notebook: "):
        execute_notebook(tmp_path / "text.ipynb", {}, tmp_path / "c.ipynb", home=tmp_path)
    with pytest.raises(BadInput, match=r"cannot read notebook .*none\.ipynb: No such file"):
        execute_notebook(tmp_path / "none.ipynb", {}, tmp_path / "c.ipynb", home=tmp_path)


WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/rules.py", line 3, in apply
    raise ValueError("bad block")
chainlake.errors.BrokenPromise: block 17 has no parent: re-fetch it

JVM stacktrace:
org.apache.spark.api.python.PythonException
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:645)
"""

ANALYSIS = """[TABLE_OR_VIEW_NOT_FOUND] The table or view `raw`.`blokcs` cannot be found. SQLSTATE: 42P01; line 1 pos 14;
'Project [*]
+- 'UnresolvedRelation [raw, blokcs], [], false

JVM stacktrace:
org.apache.spark.sql.catalyst.ExtendedAnalysisException
\tat org.apache.spark.sql.AnalysisException.copy(AnalysisException.scala:83)"""


@pytest.mark.parametrize(
    ("name", "message", "line"),
    [
        ("ValueError", "boom", "ValueError: boom"),
        ("ValueError", "\x1b[31mboom\x1b[0m\nmore", "ValueError: boom"),
        ("AssertionError", "", "AssertionError"),
        ("PythonException", WORKER, "chainlake.errors.BrokenPromise: block 17 has no parent: re-fetch it"),
        ("AnalysisException", ANALYSIS, "AnalysisException: " + ANALYSIS.splitlines()[0]),
        ("SparkException", "Job aborted\n\tat org.apache.spark.X.y(X.scala:1)", "SparkException: Job aborted"),
        ("E", "x" * 1000, "E: " + "x" * 397),
    ],
)
def test_one_line_of_an_exception(name: str, message: str, line: str) -> None:
    assert one_line(name, message) == line
