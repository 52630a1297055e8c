"""Reading bundles: what the files say becomes typed jobs, and what is wrong in them is named with file and key."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

from chainlake.errors import BadInput
from chainlake.jobs.bundle import load_bundle
from chainlake.jobs.model import RunIf, task_parameters

TOP = """
bundle: {name: demo}
variables:
  size: {default: 7}
  mail: {description: who hears}
targets:
  dev: {variables: {size: 3, mail: me}}
  prod: {variables: {}}
"""

JOB = """
resources:
  jobs:
    words:
      name: Words of ${bundle.name} for ${bundle.target}
      schedule: {quartz_cron_expression: "0 0 * * * ?", timezone_id: UTC, pause_status: PAUSED}
      parameters: [{name: chain, default: ""}]
      environments: [{environment_key: main, spec: {dependencies: [a.whl]}}]
      tasks:
        - task_key: last
          depends_on: [{task_key: first}]
          run_if: ALL_DONE
          notebook_task: {notebook_path: ../notebooks/last.ipynb}
        - task_key: first
          environment_key: main
          max_retries: 2
          min_retry_interval_millis: 1500
          timeout_seconds: 60
          notebook_task:
            notebook_path: ../notebooks/first.ipynb
            base_parameters: {chain: "{{job.parameters.chain}}", size: "${var.size}", mail: "${var.mail}"}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "bundles").mkdir()
    (tmp_path / "databricks.yml").write_text(TOP)
    (tmp_path / "bundles" / "words.job.yml").write_text(JOB)
    return tmp_path


def change(project: Path, old: str, new: str, name: str = "bundles/words.job.yml") -> None:
    path = project / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_job_is_read_with_everything_the_runner_needs(project: Path) -> None:
    job = load_bundle(project).job("words")
    first, last = job.tasks
    assert (first.key, last.key) == ("first", "last"), "each task comes after those it depends on"
    assert first.notebook == project / "notebooks" / "first.ipynb"
    assert (first.max_retries, first.retry_interval_seconds, first.timeout_seconds) == (2, 1.5, 60)
    assert (last.depends_on, last.run_if) == (("first",), RunIf.ALL_DONE)
    assert job.title == "Words of demo for local"
    assert job.schedule is not None and job.schedule.paused
    assert job.environments == {"main": ("a.whl",)}


def test_local_runs_see_defaults_and_targets_see_their_own_values(project: Path) -> None:
    assert dict(load_bundle(project).variables) == {"size": "7", "mail": ""}
    assert dict(load_bundle(project, "dev").variables) == {"size": "3", "mail": "me"}
    assert load_bundle(project, "dev", {"size": "9"}).job("words").tasks[0].parameters["size"] == "9"


def test_a_variable_that_a_target_leaves_without_value_is_an_error(project: Path) -> None:
    with pytest.raises(BadInput, match=r"base_parameters\.mail uses \$\{var\.mail\}, which has no value"):
        load_bundle(project, "prod")


def test_job_parameters_reach_the_notebook(project: Path) -> None:
    job = load_bundle(project).job("words")
    values = task_parameters(job.tasks[0], job.bind({"chain": "main"}))
    assert values == {"chain": "main", "size": "7", "mail": ""}


def test_a_parameter_that_the_job_lacks_is_refused(project: Path) -> None:
    with pytest.raises(BadInput, match="job words has no parameter 'chian': it takes chain"):
        load_bundle(project).job("words").bind({"chian": "main"})


def test_an_unknown_job_is_answered_with_the_known_ones(project: Path) -> None:
    with pytest.raises(BadInput, match="no job 'word': the bundle has words"):
        load_bundle(project).job("word")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("${var.size}", "${var.sise}", r"words\.tasks\[1\]\.notebook_task\.base_parameters\.size uses \$\{var\.sise\}"),
        ("job.parameters.chain", "job.parameters.shard", "uses job parameter 'shard', which the job does not declare"),
        ("{task_key: first}]", "{task_key: frist}]", "task 'last' depends on 'frist', which is no task of the job"),
        ("environment_key: main\n", "environment_key: other\n", "is 'other', which is not among the job's environments"),
        ("ALL_DONE", "SOMETIMES", r"run_if is 'SOMETIMES': use one of ALL_SUCCESS"),
        ("max_retries: 2", "max_retries: many", r"max_retries has to be a whole number, not 'many'"),
        ("max_retries: 2", "max_retries: ²", r"max_retries has to be a whole number, not '²'"),
        ("task_key: last", "task_key: first", "has a task_key twice: first, first"),
        ("    words:", "    verbs:", "has to hold the one job 'words'"),
        ("notebook_task: {notebook_path", "spark_jar_task: {path", r"tasks\[0\] is not a notebook_task"),
        ("name: Words", "title: Words", r"words\.job\.yml: resources\.jobs\.words has no 'name'"),
        ("resources:", "resources: [", "is not YAML"),
    ],
)
def test_what_is_wrong_in_a_job_file_is_named(project: Path, old: str, new: str, message: str) -> None:
    change(project, old, new)
    with pytest.raises(BadInput, match=message) as caught:
        load_bundle(project)
    assert "words.job.yml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tasks_that_wait_for_each_other_are_refused(project: Path) -> None:
    change(project, "max_retries: 2", "depends_on: [{task_key: last}]")
    with pytest.raises(BadInput, match="depend on each other in a circle: last, first"):
        load_bundle(project)


def test_a_target_may_only_set_declared_variables(project: Path) -> None:
    change(project, "size: 3,", "sise: 3,", "databricks.yml")
    with pytest.raises(BadInput, match=r"databricks\.yml: targets\.dev\.variables\.sise is not declared"):
        load_bundle(project, "dev")


def test_a_missing_project_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*databricks\.yml: No such file"):
        load_bundle(tmp_path)


def test_the_order_of_independent_tasks_is_the_order_of_the_file(project: Path) -> None:
    more = """
        - task_key: other
          notebook_task: {notebook_path: ../notebooks/other.ipynb}
    """
    path = project / "bundles" / "words.job.yml"
    path.write_text(path.read_text().rstrip() + "\n        " + dedent(more).strip().replace("\n", "\n        ") + "\n")
    assert [task.key for task in load_bundle(project).job("words").tasks] == ["first", "other", "last"]


OUTER = """
resources:
  jobs:
    everything:
      name: Everything
      tasks:
        - task_key: first
          run_job_task:
            job_id: ${resources.jobs.words.id}
            job_parameters: {chain: c}
"""
TO_WORDS = "job_id: ${resources.jobs.words.id}\n            job_parameters: {chain: c}"


def test_a_job_may_run_another_one(project: Path) -> None:
    assert [job.name for job in load_bundle(project).pipeline()] == ["words"]
    (project / "bundles" / "everything.job.yml").write_text(OUTER)
    bundle = load_bundle(project)
    (task,) = bundle.jobs["everything"].tasks
    assert (task.run_job, task.notebook, task.parameters) == ("words", None, {"chain": "c"})
    assert [job.name for job in bundle.pipeline()] == ["words"], "everything itself is not run again"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("jobs.words.id", "jobs.verses.id", "there is no job 'verses'"),
        ("${resources.jobs.words.id}", "123", "job_id has to be"),
        ("chain: c", "line: c", "job words has no parameter 'line'"),
        ("jobs.words.id", "jobs.everything.id", "everything has no parameter 'chain'"),
        (TO_WORDS, "job_id: ${resources.jobs.everything.id}", "in a circle: everything -> everything"),
    ],
)
def test_a_job_that_runs_what_it_cannot_is_refused(project: Path, old: str, new: str, text: str) -> None:
    (project / "bundles" / "everything.job.yml").write_text(OUTER)
    change(project, old, new, "bundles/everything.job.yml")
    with pytest.raises(BadInput, match=re.escape(text)):
        load_bundle(project)
