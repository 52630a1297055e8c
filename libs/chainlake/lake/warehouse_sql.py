"""`lake tables --sql`: the reader's views, and functions for people, as one script for a SQL warehouse.

A lake makes its views itself whenever it is opened. The script is for places where it never is: tables that were shared with, or
copied to, another catalog. Views made by it are right at any time. They read the whole history of a state table; opening the lake
with `lake` replaces them by ones that start from the compacted base.
"""

from collections.abc import Iterable, Mapping

from chainlake.lake.ddl import Table
from chainlake.lake.names import LAYERS, Namespace
from chainlake.lake.views import hexes, in_hex, reader_view, shown_columns, visible_view

HEADER = """-- Chainlake: views and functions for a SQL warehouse, made by lake tables --sql; do not edit.
-- Needs the tables of schemas {store} and {control}. Safe to run again.
"""


def script(namespace: Namespace, tables: Mapping[str, Table]) -> str:
    """All statements, each closed by a semicolon."""
    data = [table for table in tables.values() if not table.is_control]
    statements = [
        *(f"CREATE SCHEMA IF NOT EXISTS {namespace.schema(layer)}" for layer in _layers(data)),
        visible_view(namespace).strip(),
        *(reader_view(namespace, table) for table in data),
        *functions(namespace),
        *(state_at(namespace, table) for table in data if table.kind == "state"),
    ]
    header = HEADER.format(store=namespace.schema("store"), control=namespace.schema("control"))
    return header + "\n" + ";\n\n".join(statements) + ";\n"


def functions(namespace: Namespace) -> list[str]:
    """Hex as people write it, and heads by stage."""
    control = namespace.schema("control")
    return [
        f"CREATE OR REPLACE FUNCTION {control}.`to_hex0x`(value BINARY) RETURNS STRING\n"
        f"COMMENT 'Bytes as 0x and hex digits'\nRETURN {in_hex('value')}",
        f"CREATE OR REPLACE FUNCTION {control}.`from_hex0x`(text STRING) RETURNS BINARY\n"
        "COMMENT 'Bytes of hex digits, with or without 0x in front'\nRETURN unhex(regexp_replace(text, '^0[xX]', ''))",
        f"CREATE OR REPLACE FUNCTION {control}.`head`(of_stage STRING, of_chain STRING) RETURNS BIGINT\n"
        "COMMENT 'Block that a stage has reached on a chain'\n"
        f"RETURN (SELECT max(limit_height) FROM {namespace.control('visible')} WHERE stage = of_stage AND chain = of_chain)",
    ]


def state_at(namespace: Namespace, table: Table) -> str:
    """A table function: the state of one chain after a block, as believed now."""
    name = f"{namespace.view(table.name).removesuffix('`')}_at`"
    stages = ", ".join(f"'{stage}'" for stage in table.stages)
    keys = ", ".join(f"t.`{key}`" for key in table.state_key) or "t._chain"
    types = {column.name: column.type for column in table.columns}
    columns = ", ".join(f"`{column}` {types.get(column, 'STRING')}" for column in shown_columns(table))
    shown = ", ".join(["_chain AS `chain`", *(f"`{column.name}`" for column in table.columns), *hexes(table)])
    return f"""CREATE OR REPLACE FUNCTION {name}(at_chain STRING, at_height BIGINT)
RETURNS TABLE ({columns})
COMMENT '{table.name} of one chain after a block'
RETURN SELECT {shown} FROM (
  SELECT t.*, row_number() OVER (PARTITION BY {keys} ORDER BY t._height DESC) AS _newest
  FROM {namespace.control("visible")} v JOIN {namespace.store(table.name)} t
    ON t._commit = v.commit_id AND t._chain = v.chain AND t._height <= v.limit_height
  WHERE v.kind = 'advance' AND v.stage IN ({stages}) AND v.chain = at_chain AND t._height <= at_height)
WHERE _newest = 1 AND NOT _deleted"""


def _layers(tables: Iterable[Table]) -> list[str]:
    used = {table.name.split(".")[0] for table in tables}
    return [layer for layer in LAYERS if layer in used]
