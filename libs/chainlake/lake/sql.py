"""`lake sql`: one read-only query over the views, at the head or as of a block or a time."""

import importlib
import re
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from chainlake.errors import BadInput, first_line
from chainlake.lake.sql_text import strip_comments, tokens
from chainlake.lake.views import hexes

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

QUERIES = ("select", "with", "values", "from", "table", "(")
LOOKING = ("show", "describe", "desc", "explain")
LOCAL_CATALOG = "spark_catalog"
FUNCTIONS = {
    "get_logs": "chainlake.logs.functions",
    "prove_stream": "chainlake.shards.functions",
    "prove_cage": "chainlake.cage.functions",
    "prove_utxo": "chainlake.cage.functions",
}
"""Table functions by name: the module that makes each known to a session."""


def check_readonly(text: str) -> str:
    """Whether a statement is a "query" or only a "look" at names and plans, by its first word; any other is refused.

    This needs no Spark. That what begins as a query also stays one, `query` makes sure."""
    word = re.match(r"\(|\w+", strip_comments(text).strip())
    first = word.group(0).lower() if word else ""
    if first not in QUERIES + LOOKING:
        raise BadInput(f"lake sql only reads: {first.upper() or 'an empty text'} is refused; start with SELECT")
    return "query" if first in QUERIES else "look"


def check_functions(statement: str, as_of: bool) -> None:
    """Refuses table functions where the past is asked for: a stand-in for views would leave them at the head."""
    named = _functions_in(statement)
    if named and as_of:
        raise BadInput(f"{named[0]} says by its own arguments which blocks it is about: leave out --height and --at")


def query(lake: "Lake", text: str, height: int | None = None, at: datetime | None = None) -> DataFrame:
    """The result of a query. Anything that could write is refused before it runs."""
    statement = text.strip().rstrip(";").strip()
    kind = check_readonly(statement)
    check_functions(statement, height is not None or at is not None)
    if height is not None or at is not None or lake.pinned is not None:
        statement = _as_of(lake, statement, height, at)
    _register_functions(lake, statement)
    try:
        if kind == "query":
            lake.spark.sql(f"SELECT * FROM (\n{statement}\n) LIMIT 0").schema  # noqa: B018  a writing statement cannot be nested
        return lake.spark.sql(statement)
    except PySparkException as error:
        raise BadInput(f"the query does not work: {first_line(error)}") from None


def _register_functions(lake: "Lake", statement: str) -> None:
    """Makes the table functions that a statement names known to the session."""
    for module in sorted({FUNCTIONS[name] for name in _functions_in(statement)}):
        importlib.import_module(module).register(lake)


def _functions_in(statement: str) -> list[str]:
    code = "".join(part for kind, part in tokens(statement) if kind == "code")
    return [name for name in FUNCTIONS if re.search(rf"\b{name}\s*\(", code, re.IGNORECASE)]


def _as_of(lake: "Lake", statement: str, height: int | None, at: datetime | None) -> str:
    """Replace the views by temporary ones that hold the past. A view that is named in another way than these would be left at the
    head, so that is refused."""
    names = {f"{lake.namespace.prefix}{table.name}".lower(): table.name for table in lake.catalog.data_tables()}
    snapshot = lake.pinned or lake.snapshot()
    used: dict[str, str] = {}

    def stand_in(match: "re.Match[str]") -> str:
        name = names.get(f"{match.group(2)}.{match.group(3)}".lower(), "")
        if not name or (match.group(1) or "").lower() not in ("", (lake.namespace.catalog or LOCAL_CATALOG).lower()):
            return match.group(0)
        if name not in used:
            used[name] = f"as_of_{name.replace('.', '_')}"
            rows = snapshot.table(name, height=height, at=at)
            rows.selectExpr("*", *hexes(lake.catalog.table(name))).createOrReplaceTempView(used[name])
        return used[name]

    pattern = re.compile(r"(?<![\w.`])(?:`?(\w+)`?\s*\.\s*)?`?(\w+)`?\s*\.\s*`?(\w+)`?(?![\w`.])")
    replaced = "".join(pattern.sub(stand_in, part) if kind == "code" else part for kind, part in tokens(statement))
    _refuse_the_present(replaced, names)
    return replaced


def _refuse_the_present(statement: str, names: Iterable[str]) -> None:
    """Refuses a query of the past that still names a view of the present."""
    code = "".join(part if kind == "code" else " " for kind, part in tokens(statement))
    if re.search(r"\bidentifier\s*\(", code, re.IGNORECASE):
        raise BadInput("IDENTIFIER() would be read at the head: with --height, --at or a pinned lake, name the view itself")
    plain = re.sub(r"\s*\.\s*", ".", code.replace("`", "")).lower()
    left = next((name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", plain)), None)
    if left:
        raise BadInput(
            f"{left} would be read at the head: with --height, --at or a pinned lake, write FROM {left} and give it an alias to"
            f" name its columns by"
        )
