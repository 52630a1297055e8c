"""Running a job's task graph on this machine, with the rules that Databricks has.

Tasks run one after another even where the graph would let them overlap: one Spark server takes all cores anyway.
"""

import re
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Protocol

from chainlake.errors import BadInput, CheckFailed, LakeError
from chainlake.jobs.failure import NotebookFailed, NotebookTimedOut
from chainlake.jobs.model import Job, RunIf, Task, task_parameters
from chainlake.jobs.notebook import execute_notebook

KEPT_RUNS = 500
RUN_ID = re.compile(r"\d{8}T\d{6}-[\w-]+-[0-9a-f]{4}")


class State(Enum):
    """Where a task stands."""

    RUNNING = "running"
    RETRYING = "retrying"
    SUCCESS = "success"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class TaskEvent:
    """Something to show while a job runs."""

    task: str
    state: State
    attempt: int = 0
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class TaskResult:
    """How a task ended. `upstream_failed` marks a skipped task that never had its chance."""

    task: str
    state: State
    seconds: float = 0.0
    attempts: int = 0
    error: str = ""
    upstream_failed: bool = False
    failure: LakeError | None = field(default=None, compare=False)

    @property
    def is_failure(self) -> bool:
        return self.state in (State.FAILED, State.TIMED_OUT) or self.upstream_failed


@dataclass(frozen=True)
class JobResult:
    """How a job ended: it succeeds when no task failed."""

    job: str
    run_id: str
    tasks: tuple[TaskResult, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return not any(task.is_failure for task in self.tasks)

    def require_success(self) -> None:
        """Raise an error that names the first task that failed."""
        for task in self.tasks:
            if task.state in (State.FAILED, State.TIMED_OUT):
                raise CheckFailed(f"job {self.job}: task {task.task} {task.state.value}: {task.error}")


class Executor(Protocol):
    """Runs one notebook; `execute_notebook` unless a test says otherwise."""

    def __call__(
        self, notebook: Path, parameters: Mapping[str, str], copy: Path, *, home: Path, timeout_seconds: float
    ) -> float: ...


def run_job(
    job: Job,
    *,
    home: Path,
    params: Mapping[str, str] | None = None,
    on_event: Callable[[TaskEvent], None] = lambda event: None,
    execute: Executor = execute_notebook,
    jobs: Mapping[str, Job] | None = None,
) -> JobResult:
    """Run every task whose turn comes; `jobs` are those that a task may run.

    Ctrl-C and SIGTERM end the running notebook and raise KeyboardInterrupt.
    """
    run = _Run(job, home, job.bind(params or {}), on_event, execute, jobs or {})
    started = time.monotonic()
    results: dict[str, TaskResult] = {}
    with _terminate_like_interrupt():
        for task in job.tasks:
            results[task.key] = run.task(task, [results[needed] for needed in task.depends_on])
    forget_old_runs(home / "runs", KEPT_RUNS)
    return JobResult(job.name, run.run_id, tuple(results.values()), time.monotonic() - started)


def forget_old_runs(place: Path, keep: int) -> None:
    """Executed notebooks of the newest runs are kept. A job that runs every ten minutes would fill the disk."""
    runs = sorted(path for path in place.glob("*") if RUN_ID.fullmatch(path.name))
    for path in runs[:-keep]:
        shutil.rmtree(path, ignore_errors=True)


def may_run(rule: RunIf, dependencies: Sequence[TaskResult]) -> bool:
    """Databricks' `run_if`: whether a task runs after what happened to those it depends on."""
    succeeded = [result.state is State.SUCCESS for result in dependencies]
    failed = [result.is_failure for result in dependencies]
    verdicts = {
        RunIf.ALL_SUCCESS: all(succeeded),
        RunIf.AT_LEAST_ONE_SUCCESS: any(succeeded),
        RunIf.NONE_FAILED: any(succeeded) and not any(failed),
        RunIf.ALL_DONE: True,
        RunIf.ALL_FAILED: all(failed),
        RunIf.AT_LEAST_ONE_FAILED: any(failed),
    }
    return not dependencies or verdicts[rule]


class _Run:
    """One run of one job."""

    def __init__(
        self,
        job: Job,
        home: Path,
        params: Mapping[str, str],
        on_event: Callable[[TaskEvent], None],
        execute: Executor,
        jobs: Mapping[str, Job],
    ) -> None:
        self.run_id = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{job.name}-{secrets.token_hex(2)}"
        self._home = home
        self._params = params
        self._on_event = on_event
        self._execute = execute
        self._jobs = jobs

    def task(self, task: Task, dependencies: Sequence[TaskResult]) -> TaskResult:
        """Run a task with its retries, or skip it."""
        runs = may_run(task.run_if, dependencies)
        result = self._attempts(task) if runs else _skipped(task, dependencies)
        self._on_event(TaskEvent(task.key, result.state, result.attempts, result.seconds, result.error))
        return result

    def _attempts(self, task: Task) -> TaskResult:
        started = time.monotonic()
        for attempt in range(1, task.max_retries + 2):
            self._on_event(TaskEvent(task.key, State.RUNNING, attempt))
            failure = self._attempt(task, attempt)
            seconds = time.monotonic() - started
            if failure is None:
                return TaskResult(task.key, State.SUCCESS, seconds, attempt)
            timed_out = isinstance(failure, NotebookTimedOut)
            is_final = isinstance(failure, BadInput) or (isinstance(failure, NotebookFailed) and failure.is_final)
            if attempt > task.max_retries or is_final or (timed_out and not task.retry_on_timeout):
                break
            self._on_event(TaskEvent(task.key, State.RETRYING, attempt, seconds, str(failure)))
            time.sleep(task.retry_interval_seconds)
        state = State.TIMED_OUT if timed_out else State.FAILED
        return TaskResult(task.key, state, seconds, attempt, str(failure), failure=failure)

    def _attempt(self, task: Task, attempt: int) -> LakeError | None:
        """One execution: None, or what went wrong."""
        try:
            self._run_job(task) if task.notebook is None else self._run_notebook(task, task.notebook, attempt)
        except LakeError as failure:
            return failure
        return None

    def _run_notebook(self, task: Task, notebook: Path, attempt: int) -> None:
        """Each attempt keeps its own copy of the notebook."""
        name = f"{task.key}.ipynb" if attempt == 1 else f"{task.key}.{attempt}.ipynb"
        copy = self._home / "runs" / self.run_id / name
        parameters = task_parameters(task, self._params)
        self._execute(notebook, parameters, copy, home=self._home, timeout_seconds=task.timeout_seconds)

    def _run_job(self, task: Task) -> None:
        """The tasks of another job, told as `task/its task`."""

        def tell(event: TaskEvent) -> None:
            self._on_event(replace(event, task=f"{task.key}/{event.task}"))

        job = self._jobs[str(task.run_job)]
        params = task_parameters(task, self._params)
        done = run_job(job, home=self._home, params=params, on_event=tell, execute=self._execute, jobs=self._jobs)
        done.require_success()


def _skipped(task: Task, dependencies: Sequence[TaskResult]) -> TaskResult:
    """A task that waited for success and met failure hands that on; one that waited for failure does not."""
    failed = [result.task for result in dependencies if result.is_failure]
    waited_for_failure = task.run_if in (RunIf.ALL_FAILED, RunIf.AT_LEAST_ONE_FAILED)
    if failed and not waited_for_failure:
        return TaskResult(task.key, State.SKIPPED, error=f"{', '.join(failed)} failed", upstream_failed=True)
    return TaskResult(task.key, State.SKIPPED, error=f"run_if {task.run_if.value} does not hold")


@contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    """SIGTERM and SIGINT both raise KeyboardInterrupt here, so that there is one way to stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
