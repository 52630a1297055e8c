"""Reading `databricks.yml` and `bundles/*.job.yml`, so that one description serves Databricks and this machine.

Locally the target is `local`: variables have their defaults and no target's overrides apply. Every error names the file
and the key, because the file is where it has to be mended.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from chainlake.errors import BadInput
from chainlake.jobs.model import JOB_PARAMETER, Bundle, Job, RunIf, Schedule, Task, in_order
from chainlake.paths import project_root

LOCAL = "local"
SUFFIX = ".job.yml"
RUN_JOB = re.compile(r"\$\{resources\.jobs\.(\w+)\.id\}")
REFERENCE = re.compile(r"\$\{([a-z]+)\.([A-Za-z_][\w.]*)\}")


def load_bundle(root: Path | None = None, target: str = LOCAL, variables: Mapping[str, str] | None = None) -> Bundle:
    """The project's jobs as `target` sees them; `variables` override what the files say."""
    root = root or project_root()
    top = _Node(_read(root / "databricks.yml"), "databricks.yml")
    name = top.at("bundle").text("name")
    values = {**_variables(top, target), **(variables or {})}
    resolve = _resolver(values, {"name": name, "target": target})
    jobs: dict[str, Job] = {}
    for path in sorted(root.glob(f"bundles/*{SUFFIX}")):
        job = _job(path, path.relative_to(root).as_posix(), resolve)
        jobs[job.name] = job
    bundle = Bundle(name, target, values, jobs)
    bundle.check_runs()
    return bundle


class _Node:
    """A YAML value that knows where it stands."""

    def __init__(self, value: Any, where: str) -> None:
        self.value = value
        self.where = where

    def wrong(self, rule: str) -> BadInput:
        return BadInput(f"{self.where} {rule}")

    def mapping(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self.wrong("has to be a mapping")
        return self.value

    def at(self, key: str) -> "_Node":
        if key not in self.mapping():
            raise self.wrong(f"has no {key!r}")
        return _Node(self.mapping()[key], f"{self.where}: {key}" if ": " not in self.where else f"{self.where}.{key}")

    def get(self, key: str, default: Any) -> "_Node":
        return self.at(key) if key in self.mapping() else _Node(default, f"{self.where}.{key}")

    def items(self) -> list["_Node"]:
        if not isinstance(self.value, list):
            raise self.wrong("has to be a list")
        return [_Node(value, f"{self.where}[{index}]") for index, value in enumerate(self.value)]

    def text(self, key: str) -> str:
        value = self.at(key).value
        if not isinstance(value, str) or not value:
            raise self.at(key).wrong("has to be a text")
        return value

    def number(self, key: str) -> int:
        node = self.get(key, 0)
        text = str(node.value)
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise node.wrong(f"has to be a whole number, not {node.value!r}")
        return int(text)


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path} is not YAML: {' '.join(str(error).split())}") from None


def _variables(top: _Node, target: str) -> dict[str, str]:
    """Defaults, then what the target sets. A variable with neither is empty locally, and has no value elsewhere."""
    declared = top.get("variables", {})
    defaults = {name: declared.at(name).mapping().get("default") for name in declared.mapping()}
    if target == LOCAL:
        return {name: _plain(default) for name, default in defaults.items()}
    overrides = top.at("targets").at(target).get("variables", {})
    for name in overrides.mapping():
        if name not in defaults:
            raise overrides.at(name).wrong("is not declared under variables")
    values = {**defaults, **overrides.mapping()}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def _plain(value: Any) -> str:
    """A YAML scalar as the text that a notebook gets."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _resolver(variables: Mapping[str, str], bundle: Mapping[str, str]) -> Callable[[_Node], Any]:
    """A function that fills `${var.…}` and `${bundle.…}` in every text under a node; others are for Databricks."""

    def fill(text: str, where: str) -> str:
        def value_of(match: re.Match[str]) -> str:
            known = {"var": variables, "bundle": bundle}.get(match.group(1))
            if known is None:
                return match.group(0)
            if match.group(2) not in known:
                raise BadInput(f"{where} uses {match.group(0)}, which has no value: set it in databricks.yml")
            return known[match.group(2)]

        return REFERENCE.sub(value_of, text)

    def resolve(node: _Node) -> Any:
        if isinstance(node.value, dict):
            return {key: resolve(node.at(key)) for key in node.value}
        if isinstance(node.value, list):
            return [resolve(item) for item in node.items()]
        return fill(node.value, node.where) if isinstance(node.value, str) else node.value

    return resolve


def _job(path: Path, shown: str, resolve: Callable[[_Node], Any]) -> Job:
    jobs = _Node(_read(path), shown).at("resources").at("jobs")
    name = path.name.removesuffix(SUFFIX)
    if list(jobs.mapping()) != [name]:
        raise jobs.wrong(f"has to hold the one job {name!r}, after which the file is named")
    node = _Node(resolve(jobs.at(name)), jobs.at(name).where)
    parameters = {item.text("name"): _plain(item.at("default").value) for item in node.get("parameters", []).items()}
    environments = {item.text("environment_key"): _dependencies(item) for item in node.get("environments", []).items()}
    tasks = [_task(item, path.parent, parameters, environments) for item in node.at("tasks").items()]
    keys = [task.key for task in tasks]
    if len(set(keys)) != len(keys):
        raise node.at("tasks").wrong(f"has a task_key twice: {', '.join(keys)}")
    ordered = in_order(tasks, shown)
    return Job(name, node.text("name"), parameters, ordered, _schedule(node), environments)


def _dependencies(environment: _Node) -> tuple[str, ...]:
    return tuple(str(item.value) for item in environment.at("spec").get("dependencies", []).items())


def _schedule(job: _Node) -> Schedule | None:
    if "schedule" not in job.mapping():
        return None
    node = job.at("schedule")
    paused = node.text("pause_status") == "PAUSED"
    return Schedule(node.text("quartz_cron_expression"), node.text("timezone_id"), paused)


def _task(node: _Node, folder: Path, job_parameters: Mapping[str, str], environments: Mapping[str, Any]) -> Task:
    kinds = [kind for kind in ("notebook_task", "run_job_task") if kind in node.mapping()]
    if len(kinds) != 1:
        raise node.wrong("is not a notebook_task or a run_job_task, the kinds that run locally")
    work = node.at(kinds[0])
    is_notebook = kinds == ["notebook_task"]
    environment = node.text("environment_key") if "environment_key" in node.mapping() else None
    if environment is not None and environment not in environments:
        raise node.at("environment_key").wrong(f"is {environment!r}, which is not among the job's environments")
    return Task(
        key=node.text("task_key"),
        notebook=(folder / work.text("notebook_path")).resolve() if is_notebook else None,
        parameters=_parameters(work.get("base_parameters" if is_notebook else "job_parameters", {}), job_parameters),
        depends_on=tuple(item.text("task_key") for item in node.get("depends_on", []).items()),
        run_if=_run_if(node.get("run_if", RunIf.ALL_SUCCESS.value)),
        max_retries=node.number("max_retries"),
        retry_interval_seconds=node.number("min_retry_interval_millis") / 1000,
        retry_on_timeout=bool(node.get("retry_on_timeout", False).value),
        timeout_seconds=node.number("timeout_seconds"),
        environment=environment,
        run_job=None if is_notebook else _named_job(work),
    )


def _named_job(work: _Node) -> str:
    """The job that a task runs; Databricks fills in its id."""
    match = RUN_JOB.fullmatch(work.text("job_id"))
    if not match:
        raise work.at("job_id").wrong("has to be ${resources.jobs.NAME.id}, a job of this bundle")
    return match.group(1)


def _parameters(node: _Node, job_parameters: Mapping[str, str]) -> dict[str, str]:
    values = {name: _plain(value) for name, value in node.mapping().items()}
    for name, value in values.items():
        for used in JOB_PARAMETER.findall(value):
            if used not in job_parameters:
                raise node.at(name).wrong(f"uses job parameter {used!r}, which the job does not declare")
    return values


def _run_if(node: _Node) -> RunIf:
    try:
        return RunIf(node.value)
    except ValueError:
        raise node.wrong(f"is {node.value!r}: use one of {', '.join(rule.value for rule in RunIf)}") from None
