"""Parameters of notebooks: from the environment, from Databricks widgets, or by default; always of the default's type."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from chainlake import notebook
from chainlake.errors import BadInput
from chainlake.notebook import declared_params, params


class Widgets:
    """Databricks' widgets: a default is set once, a job's value wins."""

    def __init__(self, **given: str) -> None:
        self.given = given
        self.defaults: dict[str, str] = {}

    def text(self, name: str, default: str) -> None:
        self.defaults[name] = default

    def get(self, name: str) -> str:
        return self.given.get(name, self.defaults[name])


def test_defaults_hold_when_nobody_says_otherwise() -> None:
    assert params(chain="", size=5) == SimpleNamespace(chain="", size=5)


def test_values_from_the_environment_keep_the_type_of_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"CHAIN": "main", "MAX_BLOCKS": " 12 ", "RATIO": "0.5", "DRY_RUN": "True"}
    for name, value in given.items():
        monkeypatch.setenv(f"LAKE_PARAM_{name}", value)
    p = params(chain="", max_blocks=1000, ratio=1.0, dry_run=False)
    assert p == SimpleNamespace(chain="main", max_blocks=12, ratio=0.5, dry_run=True)
    assert [type(value) for value in vars(p).values()] == [str, int, float, bool]


def test_an_empty_number_means_the_default_and_an_empty_text_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_PARAM_SIZE", "")
    monkeypatch.setenv("LAKE_PARAM_CHAIN", "")
    assert params(size=5, chain="main") == SimpleNamespace(size=5, chain="")


@pytest.mark.parametrize(
    ("default", "text", "rule"),
    [
        (5, "many", "a whole number"),
        (5, "1.5", "a whole number"),
        (1.0, "nan", "a number"),
        (1.0, "much", "a number"),
        (False, "perhaps", "true or false"),
    ],
)
def test_a_bad_value_is_named(monkeypatch: pytest.MonkeyPatch, default: float, text: str, rule: str) -> None:
    monkeypatch.setenv("LAKE_PARAM_SIZE", text)
    with pytest.raises(BadInput, match=f"parameter size is '{text}': it has to be {rule}"):
        params(size=default)


def test_on_databricks_widgets_are_made_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    widgets = Widgets(max_blocks="7")
    monkeypatch.setattr(notebook, "_dbutils", lambda: SimpleNamespace(widgets=widgets))
    monkeypatch.setenv("LAKE_PARAM_MAX_BLOCKS", "99")
    assert params(chain="all", max_blocks=1000) == SimpleNamespace(chain="all", max_blocks=7)
    assert widgets.defaults == {"chain": "all", "max_blocks": "1000"}


def write(path: Path, *cells: str) -> Path:
    content = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "params(x=1)"}, *content]}))
    return path


def test_declared_parameters_are_read_without_running_the_notebook(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", "%pip install x\nimport boom", "p = params(chain='', size=5, dry=False)\n!ls")
    assert declared_params(path) == {"chain": "", "size": 5, "dry": False}


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["x = 1"], r"a\.ipynb calls params\(…\) 0 times"),
        (["p = params(x=1)", "q = params(y=1)"], "2 times"),
        (["p = params(x=size)"], "the default of parameter x has to be a literal"),
        (["p = params(x=1"], "cannot read the code of notebook"),
    ],
)
def test_a_notebook_has_to_declare_its_parameters_once_and_plainly(tmp_path: Path, cells: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        declared_params(write(tmp_path / "a.ipynb", *cells))
