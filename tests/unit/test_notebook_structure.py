"""What every notebook promises its reader, checked without running it: the same in Jupyter, in nbmake and on Databricks."""

import ast
import json
import re
import sys
from pathlib import Path

import pytest

from chainlake.notebook import declared_params
from chainlake.paths import notebooks_dir

ALL = sorted(notebooks_dir().rglob("*.ipynb"))
LIBRARIES = {"chainlake", "mlflow", "pandas", "pyspark"}
ELSEWHERE = ("dbutils", "display", "get_ipython", "spark", "sc")
"""Names that one place has and another has not."""
LOCAL = {"LogIndex", "CageReader", "ShardReader", "bot.run", "rehearsal.run_and_die", "crash"}
"""What needs the files of a local lake, or a process of its own beside this one."""
OPERATE = {
    "status",
    "audit",
    "rehearse_rollback",
    "rehearse_restore",
    "rehearse_rejoin",
    "compact",
    "collect_garbage",
    "verify",
    "backfill",
}

each_notebook = pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[str]:
    """The texts of the cells of a kind."""
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def code(path: Path) -> ast.Module:
    return ast.parse("\n".join(cells(path, "code")))


def calls(tree: ast.AST) -> set[str]:
    """What is called, as it is written."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@each_notebook
def test_the_first_cell_says_what_one_will_learn(path: Path) -> None:
    title, _, text = cells(path, "markdown")[0].partition("\n\n")
    assert re.fullmatch(r"# \S.*", title)
    assert re.match(r"What you will (learn|see|do): \S", text), "begin with what the reader gets out of it"


@each_notebook
def test_parameters_come_from_the_one_helper_in_the_first_code_cell(path: Path) -> None:
    assert {"catalog", "schema_prefix"} <= set(declared_params(path)) or "open_lake" not in path.read_text()
    assert re.search(r"^p = params\(", cells(path, "code")[0], re.MULTILINE)
    assert not re.search(r"getenv|environ(\.get|\[)", "\n".join(cells(path, "code"))), "parameters are not read by hand"


@each_notebook
def test_code_is_the_same_everywhere(path: Path) -> None:
    tree = code(path)
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= LIBRARIES | set(sys.stdlib_module_names)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert not names & set(ELSEWHERE), "it would work in one place only"


@each_notebook
def test_what_a_local_lake_alone_can_do_is_left_out_elsewhere(path: Path) -> None:
    tree = code(path)
    asked = [node for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp) and "location" in ast.unparse(node.test)]
    assert calls(tree) & LOCAL <= {call for node in asked for call in calls(node)}


@each_notebook
def test_axes_of_bars_say_what_they_show(path: Path) -> None:
    """The other plots take no default for a label; bars are of chains unless they say otherwise."""
    for call in (node for node in ast.walk(code(path)) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Name) and call.func.id == "bar":
            given = {keyword.arg for keyword in call.keywords}
            assert {"title", "unit"} <= given and ("what" in given or "chain" in ast.unparse(call.args[0]))


def test_the_start_walks_through_the_whole_idea() -> None:
    path = notebooks_dir() / "0_start_here.ipynb"
    headings = re.findall(r"^## \d\. (.+)$", "\n".join(cells(path, "markdown")), re.MULTILINE)
    assert headings == ["Commit", "Crash", "Rollback", "Time travel", "Proof"]
    calls = [ast.unparse(node) for node in ast.walk(code(path)) if isinstance(node, ast.Call)]
    for wanted in ("lake.run_stage(", "rehearsal.run_and_die(", "lake.rollback(", "height=5", "at=", "smt.prove(", "smt.verify("):
        assert any(wanted in call for call in calls), wanted


def test_operators_have_a_notebook_for_each_of_their_tasks() -> None:
    assert {path.stem for path in ALL if path.parent.name == "operate"} >= OPERATE
