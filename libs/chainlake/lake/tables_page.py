"""docs/tables.md, made from tables/: what each table holds and what its columns mean."""

from collections.abc import Mapping

from chainlake.lake.ddl import Table
from chainlake.lake.views import VISIBLE, shown_columns

HEADER = """# Tables

Made from `tables/` by `lake tables --markdown`; do not edit. Query the names below; the physical tables behind them are in
schema `store`. Every view shows committed rows only. `event` tables have one row per thing that happened, `state` tables show
the current value per key (and every earlier one by height), `index` tables hold rows that span blocks.
"""


def queryable(tables: Mapping[str, Table]) -> dict[str, Table]:
    """What people can query: the tables, and the one view that is no table's."""
    return {**tables, VISIBLE.name: VISIBLE}


def page(tables: Mapping[str, Table]) -> str:
    """The whole page."""
    order = sorted(tables.values(), key=lambda t: (t.is_control, t.name))
    return HEADER + "".join(_section(table) for table in order)


def columns_shown(table: Table) -> list[tuple[str, str, str]]:
    """Name, type and meaning of each column that people query."""
    columns = {c.name: c.comment for c in table.columns} if table.is_control else shown_columns(table)
    types = {"chain": "STRING", "height": "BIGINT", **{c.name: c.type for c in table.columns}}
    return [(name, types.get(name, "STRING"), text) for name, text in columns.items()]


def _section(table: Table) -> str:
    lines = [f"\n## {table.name}\n", table.description, "", f"*{table.kind}*, one row per ({', '.join(table.key)})"]
    if table.stages:
        lines[-1] += f"; written by {', '.join(table.stages)}"
    lines += ["", "| column | type | meaning |", "|---|---|---|"]
    lines += [f"| {name} | {kind} | {text} |" for name, kind, text in columns_shown(table)]
    return "\n".join(lines) + "\n"
