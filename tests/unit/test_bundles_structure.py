"""The bundle files, the notebooks and the library fit each other, so that a deployment does not find out for us."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from chainlake.jobs import Job, load_bundle
from chainlake.jobs.bundle import REFERENCE
from chainlake.jobs.model import JOB_PARAMETER
from chainlake.lake.ddl import load
from chainlake.notebook import declared_params
from chainlake.paths import bundles_dir, notebooks_dir, project_root, tables_dir
from tests.unit.fake_workspace import WAREHOUSE, Workspace, workspace

FOR_PROD = {"notify": "ops@example.com", "service_principal": "an-id"}
BUNDLE = load_bundle()
JOBS = BUNDLE.jobs
DOMAINS = ("logs", "shards", "cage", "replica", "sync")
BY_HAND = {"everything", "backfill"}
"""Jobs that a person starts."""
DASHBOARDS = sorted((project_root() / "dashboards").glob("*.lvdash.json"))
NOTEBOOKS = sorted(notebooks_dir().rglob("*.ipynb"))
VALIDATED = "bundle validated by"
"""Property that says what validated the bundle, told at the end of a test run."""
CRON_FIELD = re.compile(r"[\d*/,?LW#A-Z-]+")

each_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def files() -> list[Path]:
    return [project_root() / "databricks.yml", *sorted(bundles_dir().glob("*.yml"))]


def test_there_is_a_job_for_every_domain(record_property: Callable[[str, object], None]) -> None:
    record_property(VALIDATED, "its structure")
    assert {*DOMAINS, "everything", "maintenance", "backfill"} <= set(JOBS)
    assert [job.name for job in BUNDLE.pipeline()] == list(DOMAINS), "what lake run runs without a name"


def test_names_are_unique_across_files() -> None:
    titles = [job.title for job in JOBS.values()]
    keys = [key for path in files()[1:] for group in _resources(path).values() for key in group]
    assert len(set(titles)) == len(titles)
    assert len(set(keys)) == len(keys)


def _resources(path: Path) -> dict[str, dict[str, dict[str, object]]]:
    resources: dict[str, dict[str, dict[str, object]]] = yaml.safe_load(path.read_text())["resources"]
    return resources


@each_job
def test_every_notebook_exists_and_gets_exactly_the_parameters_it_declares(job: Job) -> None:
    for task in (task for task in job.tasks if task.notebook):
        assert task.notebook.is_file(), f"{job.name}: {task.notebook} does not exist"
        assert set(task.parameters) == set(declared_params(task.notebook)), f"{job.name}: {task.key}"


@each_job
def test_every_job_is_ready_for_serverless(job: Job) -> None:
    for task in job.tasks:
        assert task.timeout_seconds > 0 and task.max_retries > 0
        assert (task.environment is None) == (task.run_job is not None), f"{job.name}: {task.key}: notebooks have an environment"
        if task.environment is not None:
            assert "../dist/*.whl" in (job.environments or {})[task.environment], "the wheel of this project"


@each_job
def test_every_failure_is_told_to_somebody(job: Job) -> None:
    text = (bundles_dir() / f"{job.name}.job.yml").read_text()
    settings = yaml.safe_load(text)["resources"]["jobs"][job.name]
    assert settings["email_notifications"]["on_failure"] == ["${var.notify}"]
    assert settings["max_concurrent_runs"] == 1


@each_job
def test_every_job_parameter_is_used(job: Job) -> None:
    used = {name for task in job.tasks for value in task.parameters.values() for name in JOB_PARAMETER.findall(value)}
    assert used == set(job.parameters)


@pytest.mark.parametrize(("target", "paused"), [("dev", True), ("prod", False)])
@each_job
def test_schedules_are_paused_in_dev_and_run_in_prod(job: Job, target: str, paused: bool) -> None:
    schedule = load_bundle(target=target, variables=FOR_PROD).jobs[job.name].schedule
    assert (schedule is None) == (job.name in BY_HAND)
    if schedule is None:
        return
    assert schedule.paused is paused
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


def test_maintenance_is_weekly_and_verifies_whatever_happened_before() -> None:
    job = JOBS["maintenance"]
    assert job.schedule is not None and job.schedule.cron.split()[5] == "SUN"
    assert [task.key for task in job.tasks] == ["compact", "collect_garbage", "verify"]
    assert job.tasks[-1].run_if.value == "ALL_DONE"


def test_a_backfill_takes_a_range_of_heights() -> None:
    assert {"stage", "chain", "from_height", "to_height", "why"} <= set(JOBS["backfill"].parameters)


def columns_of(query: str) -> set[str]:
    """Names that a query gives its columns, as far as a reader without a database can tell."""
    head = query.split("\nFROM")[0].split(" FROM ")[0]
    return set(re.findall(r"\bAS (\w+)", head)) | set(re.findall(r"(?:SELECT|,)\s*(\w+)(?=\s*(?:,|$| FROM|\n))", head))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_every_dashboard_shows_columns_that_its_queries_have(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    queries = {one["name"]: "".join(one["queryLines"]) for one in dashboard["datasets"]}
    widgets = [item["widget"] for page in dashboard["pages"] for item in page["layout"]]
    assert len({widget["name"] for widget in widgets}) == len(widgets)
    used = set()
    for widget in widgets:
        (query,) = (one["query"] for one in widget["queries"])
        used.add(query["datasetName"])
        names = {one["name"] for one in query["fields"]}
        assert names <= columns_of(queries[query["datasetName"]]), widget["spec"]["frame"]["title"]
        shown = re.findall(r'"fieldName": "(\w+)"', json.dumps(widget["spec"]["encodings"]))
        assert shown and set(shown) <= names
        assert widget["spec"]["frame"]["title"]
    assert used == set(queries), "a query that nothing shows"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_every_dashboard_is_deployed_and_reads_tables_of_its_schema(path: Path) -> None:
    name = path.name.removesuffix(".lvdash.json")
    resource = yaml.safe_load((bundles_dir() / f"{name}.dashboard.yml").read_text())["resources"]["dashboards"][name]
    assert (bundles_dir() / resource["file_path"]).resolve() == path
    layer = resource["dataset_schema"].removeprefix("${var.schema_prefix}")
    known = {table.split(".")[1] for table in load(tables_dir()) if table.startswith(f"{layer}.")}
    for dataset in json.loads(path.read_text())["datasets"]:
        read = re.findall(r"\bFROM (\w+)", "".join(dataset["queryLines"]))
        assert read and set(read) <= known, dataset["name"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_every_widget_is_of_the_version_whose_fields_it_has(path: Path) -> None:
    """A workspace draws nothing where they do not fit. Columns of a table of version 1 have many more fields than ours."""
    versions = {"counter": 2, "table": 2, "bar": 3, "line": 3}
    for item in (item for page in json.loads(path.read_text())["pages"] for item in page["layout"]):
        spec = item["widget"]["spec"]
        assert spec["version"] == versions[spec["widgetType"]], item["widget"]["name"]
        columns = spec["encodings"].get("columns", []) if spec["widgetType"] == "table" else []
        assert all(set(column) == {"fieldName", "displayName"} for column in columns)


def test_no_dashboard_overlaps_itself() -> None:
    for path in DASHBOARDS:
        for page in json.loads(path.read_text())["pages"]:
            cells = [
                (item["position"]["x"] + dx, item["position"]["y"] + dy)
                for item in page["layout"]
                for dx in range(item["position"]["width"])
                for dy in range(item["position"]["height"])
            ]
            assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 6


@pytest.fixture
def databricks() -> str:
    """Databricks' own command."""
    command = shutil.which("databricks") or shutil.which(str(Path.home() / "go/bin/databricks"))  # where make databricks puts it
    if command is None:
        pytest.skip("the databricks command is not installed (make databricks): the bundle was checked by its structure only")
    return command


def asked(command: str, held: Workspace, place: Path, project: Path, *words: str) -> tuple[str, list[str]]:
    """What the command prints when it is told something in a project, and what it has to say against it."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the Python that builds the wheel
    own = {"PATH": path, "HOME": str(place), "DATABRICKS_BUNDLE_TMP": str(place), "DATABRICKS_BUNDLE_ENGINE": "direct"}
    offline = {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}  # 0 is how pip spells: with what is installed
    there = {"DATABRICKS_HOST": held.url, "DATABRICKS_TOKEN": "none", "DATABRICKS_RATE_LIMIT": "1000"}
    done = subprocess.run(
        [command, "bundle", *words], cwd=project, env={**own, **offline, **there}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if line.strip() and "[hostmetadata]" not in line]


def validated(command: str, target: str, user: str, given: dict[str, str], place: Path) -> dict[str, Any]:
    """The bundle as the command understands it for a target. There is nothing that it warns of."""
    variables = [word for name, value in given.items() for word in ("--var", f"{name}={value}")]
    with workspace(user) as held:
        said = ("validate", "--target", target, "--output", "json", *variables)
        printed, against = asked(command, held, place, project_root(), *said)
    assert against == []
    bundle: dict[str, Any] = json.loads(printed)
    return bundle


@pytest.mark.parametrize(
    ("target", "user", "given"),
    [("dev", "ann@example.com", {}), ("prod", FOR_PROD["service_principal"], FOR_PROD)],
    ids=["dev", "prod"],
)
def test_the_real_validator_accepts_the_bundle(
    databricks: str,
    target: str,
    user: str,
    given: dict[str, str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """`databricks bundle validate` asks a workspace who one is and which warehouse there is: here a stand-in answers."""
    bundle = validated(databricks, target, user, given, tmp_path)
    jobs = bundle["resources"]["jobs"]
    assert set(jobs) == set(JOBS) and set(bundle["resources"]["dashboards"]) == {path.name.split(".")[0] for path in DASHBOARDS}
    assert bundle["resources"]["dashboards"]["lake_health"]["warehouse_id"] == WAREHOUSE["id"]
    paused = {job["schedule"]["pause_status"] for job in jobs.values() if "schedule" in job}
    assert paused == {"PAUSED" if target == "dev" else "UNPAUSED"}
    files = bundle["workspace"]["file_path"]
    for name, job in jobs.items():
        left = set(re.findall(r"\$\{([^}]*)\}", json.dumps(job)))
        assert all(re.fullmatch(r"resources\.jobs\.\w+\.id", one) for one in left), f"{name}: only ids are known later"
        for task in (one for one in job["tasks"] if "notebook_task" in one):
            path = task["notebook_task"]["notebook_path"]
            assert (project_root() / f"{path.removeprefix(files)[1:]}.ipynb").is_file(), path
    record_property(VALIDATED, "the databricks command")


def test_only_the_deployer_can_write_where_production_runs_from(databricks: str, tmp_path: Path) -> None:
    bundle = validated(databricks, "prod", FOR_PROD["service_principal"], FOR_PROD, tmp_path)
    assert bundle["workspace"]["root_path"].startswith(f"/Workspace/Users/{FOR_PROD['service_principal']}/")


def test_the_real_command_deploys_everything_with_the_wheel(databricks: str, tmp_path: Path) -> None:
    """`databricks bundle deploy` builds the wheel, and sends files, jobs and dashboards to the stand-in."""
    project = tmp_path / "project"
    for name in (".gitignore", "LICENSE", "databricks.yml", "pyproject.toml", "setup.py"):
        project.mkdir(exist_ok=True)
        shutil.copy(project_root() / name, project)
    for name in ("bundles", "dashboards", "libs", "notebooks", "tables"):
        shutil.copytree(project_root() / name, project / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    with workspace("ann@example.com") as held:
        asked(databricks, held, tmp_path / "own", project, "deploy", "--target", "dev")
    assert {job["name"] for job in held.jobs} == {f"[dev ann] {job.title}" for job in JOBS.values()}
    assert len(held.dashboards) == len(DASHBOARDS) and {"warehouse_id", "serialized_dashboard"} <= set(held.dashboards[0])
    wheels = {f"/{path.lstrip('/')}" for path in held.files if path.endswith(".whl")}
    assert len(wheels) == 1
    for environment in (one for job in held.jobs for one in job.get("environments", ())):
        assert set(environment["spec"]["dependencies"]) == wheels, "every task gets the wheel that was built and sent"
    sent = "\n".join(held.files)
    assert all(path.relative_to(notebooks_dir()).as_posix() in sent for path in NOTEBOOKS)
    assert "/tests/" not in sent


def test_the_schema_of_the_real_command_accepts_every_file(
    databricks: str, record_property: Callable[[str, object], None]
) -> None:
    """`databricks bundle schema` needs no workspace: it tells every field that a bundle may have, as a JSON schema."""
    done = subprocess.run([databricks, "bundle", "schema"], cwd=project_root(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    schema = json.loads(done.stdout)
    assert refused_by(schema) == []
    found = refused_by(schema, lambda text: text.replace("timeout_seconds", "timeout"))
    assert len(found) == len(JOBS) and all("'timeout' was unexpected" in one for one in found)
    record_property(VALIDATED, "the schema of the databricks command")


def test_a_schema_that_does_not_fit_is_told_by_file_and_place() -> None:
    fields = {field for path in files()[1:] for job in _resources(path).get("jobs", {}).values() for field in job}

    def schema(known: set[str]) -> dict[str, object]:
        jobs = {"additionalProperties": {"$ref": "#/$defs/config/resources.Job"}}
        job = {"additionalProperties": False, "properties": {field: {} for field in known}}
        resources = {"properties": {"jobs": jobs}}
        return {"properties": {"resources": resources}, "$defs": {"config": {"resources.Job": job}}}

    assert refused_by(schema(fields)) == []
    found = refused_by(schema(fields - {"tasks"}))
    assert len(found) == len(JOBS)
    assert any(one.startswith("logs.job.yml resources/jobs/logs: ") and "'tasks' was unexpected" in one for one in found)


def refused_by(schema: dict[str, object], change: Callable[[str], str] = str) -> list[str]:
    """What a JSON schema does not allow, in each file of the bundle, or in what a change makes of it."""
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schema)
    found = [(path, one) for path in files() for one in validator.iter_errors(yaml.safe_load(change(path.read_text())))]
    deepest = [(path, _deepest(one)) for path, one in found]
    return [f"{path.name} {'/'.join(map(str, one.absolute_path))}: {one.message[:200]}" for path, one in deepest]


def _deepest(error: Any) -> Any:
    """Each place may also hold a reference as text, so a schema only says that neither fits: what is wrong lies further down."""
    below = [_deepest(one) for one in error.context]
    return max(below, key=lambda one: len(one.absolute_path), default=error)


def test_the_bundle_package_accepts_jobs_and_dashboards(record_property: Callable[[str, object], None]) -> None:
    """The databricks-bundles package where it is installed: it knows every field of a resource."""
    reason = "databricks-bundles is not installed: structure only"
    jobs = pytest.importorskip("databricks.bundles.jobs", reason=reason)
    dashboards = pytest.importorskip("databricks.bundles.dashboards", reason=reason)
    known = {"jobs": jobs.Job, "dashboards": dashboards.Dashboard}
    accepted = [
        known[kind].from_dict(one) for path in files()[1:] for kind, group in _resources(path).items() for one in group.values()
    ]
    assert len(accepted) == len(JOBS) + len(DASHBOARDS)
    with pytest.raises(ValueError, match="Unexpected field 'timeout'"):
        jobs.Job.from_dict({"name": "x", "timeout": 3})
    record_property(VALIDATED, "the databricks-bundles package")
