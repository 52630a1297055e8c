"""The SQL of the reader's views. The ledger comes first in every join, so that its snapshot is never newer than the data's."""

from collections.abc import Mapping
from datetime import timedelta

from chainlake.lake.ddl import Column, Table
from chainlake.lake.names import Namespace
from chainlake.lake.visibility import Commit

MOST_CHAINS = 64
VISIBLE = Table(
    name="control.visible",
    description="Commits that can be seen now: heights in (base_height, limit_height] of each. A view of control.ledger.",
    kind="control",
    key=("stage", "lane", "seq", "chain"),
    stages=(),
    retention=timedelta(0),
    columns=(
        Column("stage", "STRING", False, "Stage that committed"),
        Column("lane", "STRING", False, "Chains that advance together"),
        Column("chain", "STRING", False, "Chain of the blocks"),
        Column("seq", "BIGINT", False, "Number of the commit in its lane"),
        Column("commit_id", "BIGINT", False, "Attempt that wrote the rows: _commit of the physical tables"),
        Column("kind", "STRING", False, "advance, or compact: the base that counts"),
        Column("base_height", "BIGINT", False, "Head before the commit"),
        Column("height", "BIGINT", False, "Head after the commit; of a compact row: the height its base holds"),
        Column("limit_height", "BIGINT", False, "Highest block of the commit that can be seen: later rollbacks hide those above"),
    ),
    checks=(),
    cluster_by=(),
    properties=(),
)
"""The one view that has no file in tables/: it shows no table but the ledger."""


def visible_view(namespace: Namespace) -> str:
    """control.visible: commits that can be seen, each with the highest height that can."""
    newest_base = "max(CASE WHEN kind = 'compact' THEN seq END) OVER (PARTITION BY stage, chain) AS newest_base"
    return f"""
CREATE OR REPLACE VIEW {namespace.control("visible")} ({_comments({one.name: one.comment for one in VISIBLE.columns})})
COMMENT '{quoted(VISIBLE.description)}'
AS SELECT stage, lane, chain, seq, commit_id, kind, base_height, height,
  least(height, coalesce(floor, height)) AS limit_height
FROM ({_with_floors(namespace, "true", newest_base)})
WHERE (kind = 'advance' AND least(height, coalesce(floor, height)) > base_height)
   OR (kind = 'compact' AND seq = newest_base AND coalesce(floor, height) >= height)"""


def _advances(namespace: Namespace, wanted: str) -> str:
    """The advances among the wanted ledger rows that can be seen: a lighter plan than control.visible for the views of tables."""
    return f"""SELECT chain, commit_id, least(height, coalesce(floor, height)) AS limit_height
FROM ({_with_floors(namespace, wanted)})
WHERE kind = 'advance' AND least(height, coalesce(floor, height)) > base_height"""


def _with_floors(namespace: Namespace, wanted: str, *more: str) -> str:
    """The wanted ledger rows, each with the lowest height gone back to since. They must hold all rollbacks of their chains.

    There are few, and all in one partition they are in order without an exchange.
    """
    floor = """min(CASE WHEN kind = 'rollback' THEN height END) OVER (
    PARTITION BY stage, chain ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS floor"""
    rows = f"SELECT /*+ COALESCE(1) */ * FROM {namespace.control('ledger')} WHERE {wanted}"
    return f"""SELECT *, {", ".join((floor, *more))} FROM ({rows})"""


def reader_view(namespace: Namespace, table: Table, bases: Mapping[str, Commit] | None = None) -> str:
    """The view that people query. `bases` are the newest usable compact rows by chain: what they hold is read from the base.

    They are written into the view as they are, so a view must be made anew before one of them stops being usable: before a
    rollback below it, and before its rows are collected.
    """
    body = _state(namespace, table, bases or {}) if table.kind == "state" else _events(namespace, table)
    body = _while_degraded(namespace, table, body) if table.while_degraded else body
    comments = _comments(shown_columns(table))
    return f"CREATE OR REPLACE VIEW {namespace.view(table.name)} ({comments})\nCOMMENT '{quoted(table.description)}'\nAS {body}"


def shown_columns(table: Table) -> Mapping[str, str]:
    """Columns of the reader's view, with their comments."""
    kernel = {"chain": "Chain that the row belongs to"}
    if table.kind != "state":
        kernel["height"] = "Block that the row describes"
    in_hex = {shown: f"{name} as 0x and hex digits" for shown, name in table.hex_columns.items()}
    return {**kernel, **{column.name: column.comment for column in table.columns}, **in_hex}


def in_hex(column: str) -> str:
    """Bytes as people write them."""
    return f"concat('0x', lower(hex({column})))"


def hexes(table: Table, alias: str = "") -> list[str]:
    """The expressions of a view's hex columns."""
    return [f"{in_hex(f'{alias}`{name}`')} AS `{shown}`" for shown, name in table.hex_columns.items()]


def _events(namespace: Namespace, table: Table) -> str:
    return f"""SELECT {_shown("t", table)}
FROM ({_advances(namespace, _of(table))}) v
JOIN {namespace.store(table.name)} t ON t._commit = v.commit_id AND t._chain = v.chain AND t._height <= v.limit_height"""


def _state(namespace: Namespace, table: Table, bases: Mapping[str, Commit]) -> str:
    keys = ", ".join(f"t.`{name}`" for name in ("_chain", *table.state_key))
    advances = _advances(namespace, _of(table) + _above(bases))
    if bases:
        advances = f"SELECT a.*, coalesce(b.height, -1) AS low FROM ({advances}) a LEFT JOIN b ON b.chain = a.chain"
    since = f" AND t._height > v.low{_pruned(bases)}" if bases else ""
    tail = f"""SELECT t.*, row_number() OVER (PARTITION BY {keys} ORDER BY t._height DESC) AS _newest
  FROM ({advances}) v JOIN {namespace.store(table.name)} t
    ON t._commit = v.commit_id AND t._chain = v.chain AND t._height <= v.limit_height{since}"""
    if not bases:
        return f"""SELECT {_shown("t", table)} FROM (
  {tail}) t
WHERE t._newest = 1 AND NOT t._deleted"""
    same = " AND ".join(f"x.`{name}` = t.`{name}`" for name in ("_chain", *table.state_key))
    rows = ", ".join(f"('{chain}', {base.commit_id}, {base.height})" for chain, base in sorted(bases.items()))
    return f"""WITH b(chain, commit_id, height) AS (VALUES {rows}),
t AS (SELECT * FROM ({tail}) WHERE _newest = 1)
SELECT {_shown("x", table)}
FROM b JOIN {namespace.base(table.name)} x ON x._commit = b.commit_id AND x._chain = b.chain{_only(bases)}
  LEFT ANTI JOIN t ON {same}
UNION ALL SELECT {_shown("t", table)} FROM t WHERE NOT t._deleted"""


def _while_degraded(namespace: Namespace, table: Table, body: str) -> str:
    """The rows of a view, with what they say instead while a stage of their chain is degraded: the stage itself stands still."""
    said = dict(table.while_degraded)
    shown = [
        f"CASE WHEN d.chain IS NULL THEN s.`{name}` ELSE {said[name]} END AS `{name}`" if name in said else f"s.`{name}`"
        for name in shown_columns(table)
    ]
    latest = f"SELECT chain, stage, max_by(status, at) AS status FROM {namespace.control('health')} GROUP BY chain, stage"
    return f"""SELECT {", ".join(shown)} FROM ({body}) s
LEFT JOIN (SELECT DISTINCT chain FROM ({latest}) WHERE status = 'degraded') d ON d.chain = s.chain"""


def _of(table: Table) -> str:
    stages = ", ".join(f"'{stage}'" for stage in table.stages)
    return f"stage IN ({stages})"


def _above(bases: Mapping[str, Commit]) -> str:
    """Ledger rows of which something is above the base of their chain, and all rollbacks."""
    if not bases or len(bases) > MOST_CHAINS:
        return ""
    lowest = min(base.height for base in bases.values())
    return f" AND (kind = 'rollback' OR height > {lowest} OR chain NOT IN ({_chains(bases)}))"


def _pruned(bases: Mapping[str, Commit]) -> str:
    """Lets Delta skip files that hold only compacted heights. Chains that are not compacted are never skipped."""
    if len(bases) > MOST_CHAINS:
        return ""
    lowest = min(base.height for base in bases.values())
    return f"\n    AND (t._height > {lowest} OR t._chain NOT IN ({_chains(bases)}))"


def _only(bases: Mapping[str, Commit]) -> str:
    """Lets Delta skip the files of older bases."""
    if len(bases) > MOST_CHAINS:
        return ""
    return f" AND x._commit IN ({', '.join(map(str, sorted({base.commit_id for base in bases.values()})))})"


def _chains(bases: Mapping[str, Commit]) -> str:
    return ", ".join(f"'{chain}'" for chain in sorted(bases))


def _shown(alias: str, table: Table) -> str:
    kernel = [f"{alias}._chain AS chain"]
    if table.kind != "state":
        kernel.append(f"{alias}._height AS height")
    return ", ".join(kernel + [f"{alias}.`{column.name}`" for column in table.columns] + hexes(table, f"{alias}."))


def _comments(columns: Mapping[str, str]) -> str:
    """The columns of a view, each with what it means."""
    return ", ".join(f"`{name}` COMMENT '{quoted(text)}'" for name, text in columns.items())


def quoted(text: str) -> str:
    """Text for between single quotes in SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
