"""Bundle jobs on this machine: the same files that Databricks deploys, task by task, notebook by notebook."""

from chainlake.jobs.bundle import load_bundle
from chainlake.jobs.model import Bundle, Job, Task
from chainlake.jobs.runner import JobResult, TaskEvent, TaskResult, run_job

__all__ = ["Bundle", "Job", "JobResult", "Task", "TaskEvent", "TaskResult", "load_bundle", "run_job"]
