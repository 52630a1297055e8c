"""`lake run` on a terminal: a bar that moves while a task runs, with lines of text above it."""

import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chainlake.cli import task_bar
from chainlake.cli.jobs import run_jobs
from chainlake.cli.task_bar import TaskBar
from chainlake.jobs import load_bundle
from chainlake.jobs.runner import JobResult, State, TaskEvent


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_bar_says_what_is_done_and_what_runs_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("chainlake.cli.task_bar.time.monotonic", lambda: now[0])
    bar = TaskBar(4, Terminal())
    assert bar.line() == f"{'░' * 24}  0/4 tasks"
    bar.started("raw_logs")
    now[0] += 37
    assert bar.line().endswith("  0/4 tasks  raw_logs 37.0 s")
    bar.ended()
    assert bar.line() == f"{'█' * 6}{'░' * 18}  1/4 tasks"
    assert max(map(len, bar.line().splitlines())) < 80


def test_the_bar_moves_on_a_terminal_and_makes_way_for_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_bar, "EVERY", 0.01)
    shown = Terminal()
    with TaskBar(2, shown) as bar:
        bar.started("raw_logs")
        deadline = time.monotonic() + 10
        while "raw_logs" not in shown.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        bar.write("logs: raw_logs success", shown)
    assert "\r\x1b[Klogs: raw_logs success\n" in shown.getvalue() and shown.getvalue().endswith("\r\x1b[K")
    assert "0/2 tasks  raw_logs" in shown.getvalue()


def test_a_program_that_reads_sees_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_bar, "EVERY", 0.01)
    shown = io.StringIO()
    with TaskBar(2, shown) as bar:
        bar.started("raw_logs")
        time.sleep(0.05)
        bar.write("a line", shown)
    assert shown.getvalue() == "a line\n"


@pytest.mark.parametrize("name", [None, "logs", "everything"])
def test_a_run_ends_with_all_tasks_done(name: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every task is tried twice, and those of jobs that a task runs are told, but not counted. A terminal is told no orders of
    strangers."""
    bars = []

    class Kept(TaskBar):
        def __init__(self, total: int) -> None:
            super().__init__(total, io.StringIO())
            bars.append(self)

    def run(job: object, *, on_event: Callable[[TaskEvent], None], **_: object) -> JobResult:
        for task in job.tasks:  # type: ignore[attr-defined]
            for told, state in ((task.key, State.RUNNING), (f"{task.key}/x", State.SUCCESS), (task.key, State.RETRYING)):
                on_event(TaskEvent(told, state))
            on_event(TaskEvent(task.key, State.SUCCESS, error="\x1b]0;from a chain"))
        return JobResult("x", "y", (), 0.0)

    monkeypatch.setattr(task_bar, "TaskBar", Kept)
    monkeypatch.setattr("chainlake.jobs.runner.run_job", run)
    out = io.StringIO()
    run_jobs(tmp_path, name, {}, out)
    assert "\x1b" not in out.getvalue() and "from a chain" in out.getvalue()
    bundle = load_bundle()
    total = sum(len(job.tasks) for job in (bundle.pipeline() if name is None else [bundle.job(name)]))
    assert bars[0].line() == f"{'█' * 24}  {total}/{total} tasks"
