"""What a bundle says, as types: jobs with parameters, a schedule and a graph of tasks, each a notebook or another job."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from chainlake.errors import BadInput

EVERYTHING = "everything"
JOB_PARAMETER = re.compile(r"\{\{\s*job\.parameters\.([A-Za-z_]\w*)\s*\}\}")


class RunIf(Enum):
    """When a task runs, given how the tasks it depends on ended. The names are Databricks' own."""

    ALL_SUCCESS = "ALL_SUCCESS"
    AT_LEAST_ONE_SUCCESS = "AT_LEAST_ONE_SUCCESS"
    NONE_FAILED = "NONE_FAILED"
    ALL_DONE = "ALL_DONE"
    ALL_FAILED = "ALL_FAILED"
    AT_LEAST_ONE_FAILED = "AT_LEAST_ONE_FAILED"


@dataclass(frozen=True)
class Schedule:
    """When Databricks starts a job. The local runner only shows it."""

    cron: str
    timezone: str
    paused: bool


@dataclass(frozen=True)
class Task:
    """One notebook with its parameters, or one run of another job. `timeout_seconds` 0 means no limit."""

    key: str
    notebook: Path | None
    parameters: Mapping[str, str]
    depends_on: tuple[str, ...] = ()
    run_if: RunIf = RunIf.ALL_SUCCESS
    max_retries: int = 0
    retry_interval_seconds: float = 0.0
    retry_on_timeout: bool = False
    timeout_seconds: int = 0
    environment: str | None = None
    run_job: str | None = None
    """The job to run, in place of a notebook."""


@dataclass(frozen=True)
class Job:
    """A graph of tasks, listed so that each comes after those it depends on. `name` is what `lake run` takes."""

    name: str
    title: str
    parameters: Mapping[str, str]
    tasks: tuple[Task, ...]
    schedule: Schedule | None = None
    environments: Mapping[str, tuple[str, ...]] | None = None

    def bind(self, given: Mapping[str, str]) -> dict[str, str]:
        """The job's parameters with `given` in place of defaults; a name that the job lacks is refused."""
        for name in given:
            if name not in self.parameters:
                known = ", ".join(sorted(self.parameters)) or "none"
                raise BadInput(f"job {self.name} has no parameter {name!r}: it takes {known}")
        return {**self.parameters, **given}


@dataclass(frozen=True)
class Bundle:
    """The jobs of a project as one target sees them."""

    name: str
    target: str
    variables: Mapping[str, str]
    jobs: Mapping[str, Job]

    def job(self, name: str) -> Job:
        """The job called `name`."""
        if name not in self.jobs:
            raise BadInput(f"there is no job {name!r}: the bundle has {', '.join(sorted(self.jobs)) or 'none'}")
        return self.jobs[name]

    def pipeline(self) -> list[Job]:
        """What `lake run` runs without a name: the jobs that the job `everything` runs, in its order; else all."""
        if EVERYTHING not in self.jobs:
            return list(self.jobs.values())
        return [self.jobs[task.run_job] for task in self.jobs[EVERYTHING].tasks if task.run_job]

    def check_runs(self) -> None:
        """Jobs that run other jobs name existing ones, give them parameters that they take, and do not run in a circle."""
        for job in self.jobs.values():
            self._check_runs(job, (job.name,))

    def _check_runs(self, job: Job, path: tuple[str, ...]) -> None:
        for task in (task for task in job.tasks if task.run_job):
            run = self.job(str(task.run_job))
            run.bind(task.parameters)
            if run.name in path:
                raise BadInput(f"jobs run each other in a circle: {' -> '.join((*path, run.name))}")
            self._check_runs(run, (*path, run.name))


def task_parameters(task: Task, job_parameters: Mapping[str, str]) -> dict[str, str]:
    """What the notebook gets: the task's parameters with `{{job.parameters.…}}` filled in."""

    def fill(match: re.Match[str]) -> str:
        return job_parameters[match.group(1)]

    return {name: JOB_PARAMETER.sub(fill, value) for name, value in task.parameters.items()}


def in_order(tasks: Sequence[Task], where: str) -> tuple[Task, ...]:
    """The tasks, each after those it depends on, otherwise as written. Cycles and unknown names are refused."""
    keys = {task.key for task in tasks}
    for task in tasks:
        for needed in task.depends_on:
            if needed not in keys:
                raise BadInput(f"{where}: task {task.key!r} depends on {needed!r}, which is no task of the job")
    ordered: list[Task] = []
    waiting = list(tasks)
    while waiting:
        done = {task.key for task in ordered}
        ready = [task for task in waiting if done.issuperset(task.depends_on)]
        if not ready:
            circle = ", ".join(task.key for task in waiting)
            raise BadInput(f"{where}: tasks depend on each other in a circle: {circle}")
        ordered += ready
        waiting = [task for task in waiting if task not in ready]
    return tuple(ordered)
