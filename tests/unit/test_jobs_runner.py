"""The task graph: what runs, what is retried, what is skipped, and what the job says in the end."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from chainlake.errors import BadInput, CheckFailed
from chainlake.jobs.failure import NotebookFailed, NotebookTimedOut
from chainlake.jobs.model import Job, RunIf, Task
from chainlake.jobs.runner import JobResult, State, TaskEvent, TaskResult, forget_old_runs, may_run, run_job

Outcome = type[NotebookFailed] | None


class Notebooks:
    """Stands in for the kernel: each notebook ends as told, the last outcome repeating."""

    def __init__(self, **outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        self.ran: list[str] = []
        self.parameters: list[dict[str, str]] = []
        self.copies: list[Path] = []

    def __call__(self, notebook: Path, parameters: Mapping[str, str], copy: Path, *, home: Path, timeout_seconds: float) -> float:
        outcomes = self.outcomes.get(notebook.stem, [None])
        outcome = outcomes[min(self.ran.count(notebook.stem), len(outcomes) - 1)]
        self.ran.append(notebook.stem)
        self.parameters.append(dict(parameters))
        self.copies.append(copy)
        if outcome is not None:
            raise outcome(notebook, 1, "boom()", "ValueError: boom", copy)
        return 0.1


def task(key: str, *needs: str, run_if: RunIf = RunIf.ALL_SUCCESS, retries: int = 0) -> Task:
    return Task(key, Path(f"/nb/{key}.ipynb"), {"who": "{{job.parameters.who}}"}, needs, run_if, retries)


def run(notebooks: Callable[..., float], tmp_path: Path, *tasks: Task, **params: str) -> JobResult:
    job = Job("words", "Words", {"who": "all"}, tasks)
    return run_job(job, home=tmp_path, params=params, execute=notebooks)


def states(result: JobResult) -> dict[str, str]:
    return {task.task: task.state.value for task in result.tasks}


def test_every_task_runs_after_those_it_depends_on(tmp_path: Path) -> None:
    notebooks = Notebooks()
    result = run(notebooks, tmp_path, task("a"), task("b", "a"), task("c", "a", "b"))
    assert notebooks.ran == ["a", "b", "c"]
    assert result.ok
    result.require_success()


def test_parameters_are_filled_in_and_unknown_ones_refused(tmp_path: Path) -> None:
    notebooks = Notebooks()
    run(notebooks, tmp_path, task("a"))
    run(notebooks, tmp_path, task("a"), who="me")
    assert notebooks.parameters == [{"who": "all"}, {"who": "me"}]
    with pytest.raises(BadInput, match="no parameter 'whom'"):
        run(notebooks, tmp_path, task("a"), whom="me")


def test_executed_notebooks_of_the_newest_runs_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    """A job that runs every ten minutes would fill the disk with them."""
    old = [f"20260131T1200{second:02}-logs-00ff" for second in range(5)]
    for name in (*old, "notes", "mine-20260131"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "raw_logs.ipynb").write_text("{}")
    forget_old_runs(tmp_path / "runs", keep=2)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {*old[-2:], "notes", "mine-20260131"}
    forget_old_runs(tmp_path / "nowhere", keep=2)


def test_a_job_forgets_old_runs_and_keeps_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainlake.jobs.runner.KEPT_RUNS", 1)
    old = tmp_path / "runs" / "20200131T120000-words-00ff"
    old.mkdir(parents=True)

    def notebook(notebook: Path, parameters: Mapping[str, str], copy: Path, *, home: Path, timeout_seconds: float) -> float:
        copy.parent.mkdir(parents=True)
        copy.write_text("{}")
        return 0.1

    done = run(notebook, tmp_path, task("a"))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [done.run_id]


def test_a_failed_task_fails_the_job_and_skips_what_depends_on_it_alone(tmp_path: Path) -> None:
    notebooks = Notebooks(a=[NotebookFailed])
    result = run(notebooks, tmp_path, task("a"), task("b", "a"), task("c", "b"), task("d"))
    assert states(result) == {"a": "failed", "b": "skipped", "c": "skipped", "d": "success"}
    assert not result.ok
    assert result.tasks[2].error == "b failed"
    with pytest.raises(CheckFailed, match=r"job words: task a failed: a\.ipynb cell 1 failed: ValueError: boom"):
        result.require_success()


def test_a_task_is_retried_as_often_as_it_may_and_each_attempt_keeps_its_copy(tmp_path: Path) -> None:
    notebooks = Notebooks(a=[NotebookFailed, NotebookFailed, None])
    events: list[TaskEvent] = []
    job = Job("words", "Words", {"who": "all"}, (task("a", retries=2),))
    result = run_job(job, home=tmp_path, on_event=events.append, execute=notebooks)
    assert (result.tasks[0].state, result.tasks[0].attempts) == (State.SUCCESS, 3)
    assert [copy.name for copy in notebooks.copies] == ["a.ipynb", "a.2.ipynb", "a.3.ipynb"]
    assert {copy.parent for copy in notebooks.copies} == {tmp_path / "runs" / result.run_id}
    shown = [event.state.value for event in events]
    assert shown == ["running", "retrying", "running", "retrying", "running", "success"]


def test_retries_end(tmp_path: Path) -> None:
    notebooks = Notebooks(a=[NotebookFailed])
    result = run(notebooks, tmp_path, task("a", retries=2))
    assert (result.tasks[0].state, result.tasks[0].attempts) == (State.FAILED, 3)


def test_what_was_refused_is_not_tried_again(tmp_path: Path) -> None:
    """The same parameters would be refused again, only later."""

    def refuse(notebook: Path, parameters: Mapping[str, str], copy: Path, *, home: Path, timeout_seconds: float) -> float:
        raise NotebookFailed(notebook, 2, "backfill()", "BadInput: height 99 is above the head 19", copy)

    def unreadable(notebook: Path, parameters: Mapping[str, str], copy: Path, *, home: Path, timeout_seconds: float) -> float:
        raise BadInput("it is not a notebook")

    for execute in (refuse, unreadable):
        job = Job("words", "Words", {"who": "all"}, (task("a", retries=2),))
        result = run_job(job, home=tmp_path, execute=execute)
        assert (result.tasks[0].state, result.tasks[0].attempts) == (State.FAILED, 1)


def test_a_timeout_is_its_own_state_and_not_retried_unless_asked(tmp_path: Path) -> None:
    notebooks = Notebooks(a=[NotebookTimedOut])
    result = run(notebooks, tmp_path, task("a", retries=3), task("b", "a"))
    assert states(result) == {"a": "timed out", "b": "skipped"}
    assert notebooks.ran == ["a"]
    patient = Task("a", Path("/nb/a.ipynb"), {}, max_retries=1, retry_on_timeout=True)
    assert run(notebooks, tmp_path, patient).tasks[0].attempts == 2


OK = TaskResult("ok", State.SUCCESS)
BAD = TaskResult("bad", State.FAILED)
LATE = TaskResult("late", State.TIMED_OUT)
LEFT_OUT = TaskResult("left out", State.SKIPPED)
DOOMED = TaskResult("doomed", State.SKIPPED, upstream_failed=True)


@pytest.mark.parametrize(
    ("rule", "runs_after", "not_after"),
    [
        (RunIf.ALL_SUCCESS, [[OK, OK], []], [[OK, BAD], [OK, LATE], [OK, LEFT_OUT], [OK, DOOMED]]),
        (RunIf.AT_LEAST_ONE_SUCCESS, [[OK, BAD], [OK, LEFT_OUT], []], [[BAD, LATE], [LEFT_OUT], [DOOMED]]),
        (RunIf.NONE_FAILED, [[OK, LEFT_OUT], [OK], []], [[OK, BAD], [OK, LATE], [OK, DOOMED], [LEFT_OUT]]),
        (RunIf.ALL_DONE, [[BAD, LATE, LEFT_OUT], [OK], []], []),
        (RunIf.ALL_FAILED, [[BAD, LATE], [DOOMED], []], [[OK, BAD], [BAD, LEFT_OUT]]),
        (RunIf.AT_LEAST_ONE_FAILED, [[OK, BAD], [OK, LATE], [DOOMED], []], [[OK, OK], [LEFT_OUT]]),
    ],
)
def test_run_if(rule: RunIf, runs_after: list[list[TaskResult]], not_after: list[list[TaskResult]]) -> None:
    assert [may_run(rule, dependencies) for dependencies in runs_after] == [True] * len(runs_after)
    assert [may_run(rule, dependencies) for dependencies in not_after] == [False] * len(not_after)


def test_a_task_that_waits_for_failure_is_left_out_of_a_good_run(tmp_path: Path) -> None:
    repair = task("repair", "a", run_if=RunIf.AT_LEAST_ONE_FAILED)
    good = run(Notebooks(), tmp_path, task("a"), repair)
    assert states(good) == {"a": "success", "repair": "skipped"} and good.ok
    bad = run(Notebooks(a=[NotebookFailed]), tmp_path, task("a"), repair)
    assert states(bad) == {"a": "failed", "repair": "success"} and not bad.ok


def test_a_cleaning_task_runs_even_though_all_before_it_was_skipped(tmp_path: Path) -> None:
    notebooks = Notebooks(a=[NotebookFailed])
    result = run(notebooks, tmp_path, task("a"), task("b", "a"), task("clean", "b", run_if=RunIf.ALL_DONE))
    assert states(result) == {"a": "failed", "b": "skipped", "clean": "success"}


def test_sigterm_stops_the_job_and_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    ran: list[str] = []

    def terminated(notebook: Path, parameters: Mapping[str, str], copy: Path, **_: object) -> float:
        ran.append(notebook.stem)
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("SIGTERM did not interrupt")

    with pytest.raises(KeyboardInterrupt):
        run(terminated, tmp_path, task("a", retries=3), task("b"))
    assert ran == ["a"]
    assert signal.getsignal(signal.SIGTERM) is before


def runs(key: str, job: str, *needs: str, **parameters: str) -> Task:
    return Task(key, None, parameters, needs, run_job=job)


def test_a_task_may_run_another_job(tmp_path: Path) -> None:
    notebooks, told = Notebooks(), list[TaskEvent]()
    inner = Job("inner", "Inner", {"who": "nobody"}, (task("a"), task("b", "a")))
    first, last = runs("first", "inner", who="{{job.parameters.name}}"), Task("last", Path("/nb/last.ipynb"), {}, ("first",))
    outer = Job("outer", "Outer", {"name": "me"}, (first, last))
    result = run_job(outer, home=tmp_path, on_event=told.append, execute=notebooks, jobs={"inner": inner})
    assert result.ok and notebooks.ran == ["a", "b", "last"]
    assert notebooks.parameters[0] == {"who": "me"}
    assert [event.task for event in told if event.state is State.SUCCESS] == ["first/a", "first/b", "first", "last"]


def test_a_job_that_fails_fails_the_task_that_ran_it(tmp_path: Path) -> None:
    inner = Job("inner", "Inner", {"who": "all"}, (task("a"),))
    outer = Job("outer", "Outer", {}, (runs("first", "inner"), Task("last", Path("/nb/last.ipynb"), {}, ("first",))))
    notebooks = Notebooks(a=[NotebookFailed])
    result = run_job(outer, home=tmp_path, execute=notebooks, jobs={"inner": inner})
    assert states(result) == {"first": "failed", "last": "skipped"} and notebooks.ran == ["a"]
    with pytest.raises(CheckFailed, match="job outer: task first failed: job inner: task a failed"):
        result.require_success()
