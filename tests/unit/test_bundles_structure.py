"""The bundle files, the notebooks and the library fit each other, so that a deployment does not find out for us."""

import re
from pathlib import Path

import nbformat
import pytest
import yaml

from chainlake.jobs import Job, load_bundle
from chainlake.jobs.bundle import REFERENCE
from chainlake.jobs.model import JOB_PARAMETER
from chainlake.notebook import declared_params
from chainlake.paths import bundles_dir, notebooks_dir, project_root

FOR_PROD = {"notify": "ops@example.com", "service_principal": "an-id"}
JOBS = load_bundle().jobs
NOTEBOOKS = sorted(notebooks_dir().rglob("*.ipynb"))
CRON_FIELD = re.compile(r"[\d*/,?LW#A-Z-]+")

each_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def files() -> list[Path]:
    return [project_root() / "databricks.yml", *sorted(bundles_dir().glob("*.yml"))]


def test_there_is_a_job_for_every_domain() -> None:
    assert {"logs", "shards", "cage", "replica", "sync"} <= set(JOBS)


def test_names_are_unique_across_files() -> None:
    titles = [job.title for job in JOBS.values()]
    keys = [key for path in files()[1:] for group in _resources(path).values() for key in group]
    assert len(set(titles)) == len(titles)
    assert len(set(keys)) == len(keys)


def _resources(path: Path) -> dict[str, dict[str, object]]:
    resources: dict[str, dict[str, object]] = yaml.safe_load(path.read_text())["resources"]
    return resources


@each_job
def test_every_notebook_exists_and_gets_exactly_the_parameters_it_declares(job: Job) -> None:
    for task in job.tasks:
        assert task.notebook.is_file(), f"{job.name}: {task.notebook} does not exist"
        assert set(task.parameters) == set(declared_params(task.notebook)), f"{job.name}: {task.key}"


@each_job
def test_every_job_is_ready_for_serverless(job: Job) -> None:
    for task in job.tasks:
        assert task.environment is not None, f"{job.name}: {task.key} has no environment"
        assert "../dist/*.whl" in (job.environments or {})[task.environment], "the wheel of this project"
        assert task.timeout_seconds > 0 and task.max_retries > 0


@each_job
def test_every_job_parameter_is_used(job: Job) -> None:
    used = {name for task in job.tasks for value in task.parameters.values() for name in JOB_PARAMETER.findall(value)}
    assert used == set(job.parameters)


@pytest.mark.parametrize(("target", "paused"), [("dev", True), ("prod", False)])
@each_job
def test_schedules_are_paused_in_dev_and_run_in_prod(job: Job, target: str, paused: bool) -> None:
    schedule = load_bundle(target=target, variables=FOR_PROD).jobs[job.name].schedule
    assert schedule is not None and schedule.paused is paused
    fields = schedule.cron.split()
    assert len(fields) in (6, 7) and all(CRON_FIELD.fullmatch(field) for field in fields)
    assert fields[3:6].count("?") == 1, "Quartz wants exactly one ? among day of month and day of week"


def test_every_variable_is_defined_and_used() -> None:
    used = {name for path in files() for kind, name in REFERENCE.findall(path.read_text()) if kind == "var"}
    defined = yaml.safe_load(files()[0].read_text())["variables"]
    assert used == set(defined)
    assert all(variable["description"] for variable in defined.values())


def test_dev_is_the_default_target_and_prod_is_production() -> None:
    targets = yaml.safe_load(files()[0].read_text())["targets"]
    assert (targets["dev"]["mode"], targets["dev"]["default"]) == ("development", True)
    assert targets["prod"]["mode"] == "production"
    assert targets["prod"]["workspace"]["root_path"] and targets["prod"]["run_as"]


@each_notebook
def test_notebooks_are_valid_thin_and_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    assert 1 <= len(code) <= 6
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert notebook.metadata.kernelspec.name == "python3"


@each_notebook
def test_every_notebook_is_in_the_table_of_contents(path: Path) -> None:
    contents = (notebooks_dir() / "README.md").read_text()
    assert f"({path.relative_to(notebooks_dir()).as_posix()})" in contents
