"""Parameters of a notebook: widgets on Databricks, environment variables in a local job, defaults for a person.

A notebook says `p = params(chain="", max_blocks=1000)` once; each value keeps the type of its default.
"""

import ast
import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from chainlake.errors import BadInput

ENVIRONMENT_PREFIX = "LAKE_PARAM_"
TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

Value = str | int | float | bool


def params(**defaults: Value) -> SimpleNamespace:
    """The notebook's parameters. An empty text for a number or a flag means its default."""
    dbutils = _dbutils()
    values = {}
    for name, default in defaults.items():
        text = _environment(name) if dbutils is None else _widget(dbutils, name, default)
        values[name] = default if text is None else _typed(name, text, default)
    return SimpleNamespace(**values)


def environment_name(name: str) -> str:
    """The environment variable that carries a parameter to a local notebook."""
    return ENVIRONMENT_PREFIX + name.upper()


def declared_params(path: Path) -> dict[str, Value]:
    """The parameters, with defaults, that a notebook declares by its `params(…)` call; read, not executed."""
    calls = [call for call in _calls(path) if _is_params(call.func)]
    if len(calls) != 1:
        raise BadInput(f"{path.name} calls params(…) {len(calls)} times: a notebook declares its parameters once")
    declared = {}
    for keyword in calls[0].keywords:
        try:
            declared[keyword.arg or "**"] = ast.literal_eval(keyword.value)
        except ValueError:
            raise BadInput(f"{path.name}: the default of parameter {keyword.arg} has to be a literal") from None
    return declared


def _dbutils() -> Any:
    """Databricks' utilities, which it puts among the notebook's names; None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell.user_ns.get("dbutils") if shell else None


def _widget(dbutils: Any, name: str, default: Value) -> str:
    dbutils.widgets.text(name, str(default))
    return str(dbutils.widgets.get(name))


def _environment(name: str) -> str | None:
    return os.environ.get(environment_name(name))


def _typed(name: str, text: str, default: Value) -> Value:
    if isinstance(default, str):
        return text
    if not text.strip():
        return default
    try:
        return _parse(text.strip(), default)
    except (ValueError, KeyError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(default)]
        raise BadInput(f"parameter {name} is {text!r}: it has to be {kind}") from None


def _parse(text: str, default: int | float | bool) -> Value:
    if isinstance(default, bool):
        return TRUTH[text.lower()]
    if isinstance(default, int):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _calls(path: Path) -> list[ast.Call]:
    """Every call in the notebook's code, outside of magics and shell lines."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        lines = [line for source in sources for line in source.splitlines() if line.lstrip()[:1] not in ("%", "!")]
        tree = ast.parse("\n".join(lines))
    except (OSError, ValueError, KeyError, SyntaxError) as error:
        raise BadInput(f"cannot read the code of notebook {path}: {error}") from None
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _is_params(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and function.id == "params"
