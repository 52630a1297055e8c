"""Everything runs over Spark Connect, and nothing knows the machine that it was written on."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from chainlake.paths import project_root

ROOT = project_root()
CLASSIC = {"rdd", "parallelize", "sparkContext", "SparkContext", "_jvm", "_jsc", "_jdf", "_sc", "DeltaTable"}
BUILDERS = {"libs/chainlake/lake/session.py", "libs/chainlake/lake/server.py"}
DELTA_RS = "libs/chainlake/lake/delta_rs.py"
OUTSIDE = "../" + "shared"
MACHINE = re.compile(r"(?<![\w.])/" + r"work/|/home/\w+/|/Users/\w+/")


@cache
def sources() -> dict[str, str]:
    """Python of the library and of the notebooks' code cells, by path."""
    found = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.glob("libs/chainlake/**/*.py")}
    for path in ROOT.glob("notebooks/**/*.ipynb"):
        found[path.relative_to(ROOT).as_posix()] = "\n".join(cells(path))
    return found


def cells(path: Path) -> Iterator[str]:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines()
            yield "\n".join("" if line.lstrip()[:1] in ("%", "!") else line for line in lines)


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name, attribute, import and getattr text, with its line."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Attribute):
            yield line, node.attr
        elif isinstance(node, ast.Name):
            yield line, node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            module = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in [*module, *(alias.name for alias in node.names)]:
                yield from ((line, part) for part in name.split("."))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            yield from ((line, a.value) for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def classic_api(text: str) -> list[str]:
    return [f"line {line}: {name}" for line, name in names(ast.parse(text)) if name in CLASSIC]


def builds_a_session(text: str) -> list[str]:
    found = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute) and node.attr in ("builder", "Builder")
    ]
    return [f"line {node.lineno}: {ast.unparse(node)}" for node in found if "Session" in ast.unparse(node.value)]


def calls(text: str, method: str) -> list[str]:
    """Every use of an attribute."""
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute) and node.attr == method]
    return [f"line {node.lineno}: {ast.unparse(node)}" for node in found]


@pytest.mark.parametrize(
    "text",
    [
        "df.rdd.map(f)",
        "spark.sparkContext.parallelize([1])",
        "spark._jvm.x()",
        "getattr(spark, '_jsc')",
        "from delta import DeltaTable",
        "from delta.tables import DeltaTable as T",
        "from pyspark import SparkContext",
    ],
)
def test_the_scan_finds_what_it_looks_for(text: str) -> None:
    assert classic_api(text)


def test_the_scan_does_not_find_text_and_comments() -> None:
    assert not classic_api('"""no rdd, no DeltaTable"""\nx = "sparkContext"  # _jvm')
    assert builds_a_session("SparkSession.builder.getOrCreate()") and not builds_a_session("row.builder")
    assert MACHINE.search("open('/" + "work/main/x')") and not MACHINE.search("notebooks/work/x net/work/")


def test_there_is_something_to_scan() -> None:
    found = sources()
    assert "libs/chainlake/lake/commit.py" in found and any(name.endswith(".ipynb") and text for name, text in found.items())


@pytest.mark.parametrize("name", sorted(set(sources()) - {DELTA_RS}))
def test_only_spark_connect_is_used(name: str) -> None:
    assert classic_api(sources()[name]) == []


def test_the_class_of_delta_rs_is_met_in_one_module_only() -> None:
    assert {text.partition(": ")[2] for text in classic_api(sources()[DELTA_RS])} == {"DeltaTable"}
    assert "from deltalake import CommitProperties, DeltaTable," in sources()[DELTA_RS] and "pyspark" not in sources()[DELTA_RS]


@pytest.mark.parametrize("name", sorted(set(sources()) - BUILDERS))
def test_there_is_one_way_to_a_session(name: str) -> None:
    assert builds_a_session(sources()[name]) == []


@pytest.mark.parametrize("name", sorted(name for name in sources() if name.startswith("libs/chainlake/lake/")))
def test_the_kernel_never_collects_through_pandas(name: str) -> None:
    assert calls(sources()[name], "toPandas") == []


def project_files() -> list[Path]:
    kinds = {".py", ".ipynb", ".sql", ".yml", ".sh", ".toml", ".md", ".txt", ".cfg"}
    tops = ("libs", "notebooks", "tables", "bundles", "scripts", "tests", "docs", ".ci")
    inside = [path for top in tops for path in (ROOT / top).rglob("*") if path.suffix in kinds and path.is_file()]
    beside = [path for path in ROOT.iterdir() if path.is_file() and (path.suffix in kinds or path.name == "Makefile")]
    return [path for path in inside + beside if "egg-info" not in path.as_posix()]


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    """Paths outside of the checkout do not exist elsewhere."""
    wrong = []
    for path in project_files():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if MACHINE.search(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert wrong == []


def test_only_conformance_tests_look_for_outside_data() -> None:
    allowed = ROOT / "tests" / "conformance"
    files = [path for path in project_files() if allowed not in path.parents]
    wrong = [str(path.relative_to(ROOT)) for path in files if OUTSIDE in path.read_text(encoding="utf-8", errors="replace")]
    assert wrong == []
