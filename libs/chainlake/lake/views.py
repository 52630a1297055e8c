"""The SQL of the reader's views. The ledger comes first in every join, so that its snapshot is never newer than the data's."""

from collections.abc import Mapping
from datetime import timedelta

from chainlake.lake.ddl import Column, Table
from chainlake.lake.names import Namespace, physical
from chainlake.lake.visibility import Commit

MOST_CHAINS = 64
"""So many chains are named in a view where that lets it plan with less."""
SMALL_BASE = 100_000
"""Up to so many rows it takes less to sort a base along with what came since than to plan and read what came since twice."""
ALLOWED = "t._commit = v.commit_id AND t._chain = v.chain AND t._height <= v.limit_height"
"""A row belongs to a visible commit and is within its limit."""
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


def _advances(namespace: Namespace, wanted: str, ledger: str = "", low: str = "") -> str:
    """The advances among the wanted ledger rows that can be seen: a lighter plan than control.visible for the views of tables."""
    return f"""SELECT chain, commit_id, least(height, coalesce(floor, height)) AS limit_height{low}
FROM ({_with_floors(namespace, wanted, ledger=ledger, low=low)})
WHERE kind = 'advance' AND least(height, coalesce(floor, height)) > base_height"""


def _with_floors(namespace: Namespace, wanted: str, *more: str, ledger: str = "", low: str = "") -> str:
    """The wanted ledger rows, each with the lowest height gone back to since. They must hold all rollbacks of their chains.
    `ledger` may be a query of the ledger that has a column `low` too.

    There are few, and all in one partition they are in order without an exchange.
    """
    floor = """min(CASE WHEN kind = 'rollback' THEN height END) OVER (
    PARTITION BY stage, chain ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS floor"""
    columns = f"stage, lane, chain, seq, commit_id, kind, base_height, height{low}"
    rows = f"SELECT /*+ COALESCE(1) */ {columns} FROM {ledger or namespace.control('ledger')} WHERE {wanted}"
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
JOIN {namespace.store(table.name)} t ON {ALLOWED}"""


def _state(namespace: Namespace, table: Table, bases: Mapping[str, Commit]) -> str:
    if not bases:
        return f"""SELECT {_shown("t", table)} FROM (
  SELECT t.*, {_number(table)}
  FROM ({_advances(namespace, _of(table))}) v JOIN {namespace.store(table.name)} t
    ON {ALLOWED}) t
WHERE t._newest = 1 AND NOT t._deleted"""
    if len(bases) > MOST_CHAINS:
        return _state_of_many(namespace, table, bases)
    if _rows(table, bases) <= SMALL_BASE:
        return _state_in_one_pass(namespace, table, bases)
    return _state_by_anti_join(namespace, table, bases)


def _state_in_one_pass(namespace: Namespace, table: Table, bases: Mapping[str, Commit]) -> str:
    """Of the rows of the bases and those since, the newest of each key: each table is planned and read once."""
    return f"""SELECT {_shown("t", table)} FROM (
  SELECT t.*, {_number(table)}
  FROM (SELECT {_stored("t", table)} FROM ({_advances_since(namespace, table, bases)}) v JOIN {namespace.store(table.name)} t
    ON {ALLOWED} AND t._height > v.low{_pruned(bases)}
    UNION ALL SELECT {_stored("x", table)} FROM {namespace.base(table.name)} x WHERE {_held(bases)}) t) t
WHERE t._newest = 1 AND NOT t._deleted"""


def _state_by_anti_join(namespace: Namespace, table: Table, bases: Mapping[str, Commit]) -> str:
    """The bases without the keys that changed since, and what those are now: large bases are neither sorted nor moved."""
    tail = _tail(namespace, table, _advances_since(namespace, table, bases), bases)
    return f"""WITH t AS (SELECT * FROM ({tail}) WHERE _newest = 1)
SELECT {_shown("x", table)}
FROM (SELECT * FROM {namespace.base(table.name)} x WHERE {_held(bases)}) x
  LEFT ANTI JOIN t ON {_same(table)}
UNION ALL SELECT {_shown("t", table)} FROM t WHERE NOT t._deleted"""


def _state_of_many(namespace: Namespace, table: Table, bases: Mapping[str, Commit]) -> str:
    """The same over so many chains that the view has a list of their bases."""
    ledger = f"""(SELECT l.*, b.seq AS base_seq, coalesce(b.height, -1) AS low
    FROM {namespace.control("ledger")} l LEFT JOIN b ON b.chain = l.chain)"""
    wanted = _of(table) + _unless_gone(table, "seq > base_seq AND height < low")
    advances = _advances(namespace, wanted, ledger, ", low")
    rows = ", ".join(f"('{chain}', {base.commit_id}, {base.seq}, {base.height})" for chain, base in sorted(bases.items()))
    return f"""WITH b(chain, commit_id, seq, height) AS (VALUES {rows}),
t AS (SELECT * FROM ({_tail(namespace, table, advances, {})}) WHERE _newest = 1)
SELECT {_shown("x", table)}
FROM b JOIN {namespace.base(table.name)} x ON x._commit = b.commit_id AND x._chain = b.chain
  LEFT ANTI JOIN t ON {_same(table)}
UNION ALL SELECT {_shown("t", table)} FROM t WHERE NOT t._deleted"""


def _tail(namespace: Namespace, table: Table, advances: str, pruned: Mapping[str, Commit]) -> str:
    """Rows since the bases, numbered from the newest of each key."""
    return f"""SELECT t.*, {_number(table)}
  FROM ({advances}) v JOIN {namespace.store(table.name)} t
    ON {ALLOWED} AND t._height > v.low{_pruned(pruned)}"""


def _advances_since(namespace: Namespace, table: Table, bases: Mapping[str, Commit]) -> str:
    """Advances that can be seen, each with the height that the base of its chain holds: as values, which take no join."""
    held = " ".join(f"WHEN '{chain}' THEN {base.height}" for chain, base in sorted(bases.items()))
    wanted = _of(table) + _above(bases) + _still_usable(table, bases)
    return f"SELECT a.*, CASE a.chain {held} ELSE -1 END AS low FROM ({_advances(namespace, wanted)}) a"


def _still_usable(table: Table, bases: Mapping[str, Commit]) -> str:
    """That no rollback went below a base, asked chain by chain."""
    below = (f"(chain = '{chain}' AND seq > {base.seq} AND height < {base.height})" for chain, base in sorted(bases.items()))
    return _unless_gone(table, f"({' OR '.join(below)})")


def _unless_gone(table: Table, below: str) -> str:
    """A query that found this view before a rollback below a base, and the ledger after it, fails: it would show rows that are
    gone. The condition on the stage is repeated, since Spark may ask for conditions in any order."""
    message = f"{table.name} went below a compacted block while this query began: run it again, or lake compact"
    return f"\n  AND CASE WHEN kind = 'rollback' AND {_of(table)} AND {below} THEN raise_error('{message}') ELSE true END"


def _number(table: Table) -> str:
    keys = ", ".join(f"t.`{name}`" for name in ("_chain", *table.state_key))
    return f"row_number() OVER (PARTITION BY {keys} ORDER BY t._height DESC) AS _newest"


def _same(table: Table) -> str:
    return " AND ".join(f"x.`{name}` = t.`{name}`" for name in ("_chain", *table.state_key))


def _stored(alias: str, table: Table) -> str:
    """All columns by name: the two tables of a state may have them in another order."""
    return ", ".join(f"{alias}.`{column.name}`" for column in table.stored if column.name != "_commit")


def _held(bases: Mapping[str, Commit]) -> str:
    """Rows of these bases, said so that Delta skips the files of older ones."""
    chains: dict[int, list[str]] = {}
    for chain, base in sorted(bases.items()):
        chains.setdefault(base.commit_id, []).append(f"'{chain}'")
    return " OR ".join(f"(x._commit = {commit} AND x._chain IN ({', '.join(of)}))" for commit, of in sorted(chains.items()))


def _rows(table: Table, bases: Mapping[str, Commit]) -> int:
    """Rows of the bases at most. One that does not tell may be large."""
    stored = f"{physical(table.name)}_base"
    return sum({base.commit_id: base.rows.get(stored, SMALL_BASE + 1) for base in bases.values()}.values())


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
    lowest = min(base.height for base in bases.values())
    return f" AND (kind = 'rollback' OR height > {lowest} OR chain NOT IN ({_chains(bases)}))"


def _pruned(bases: Mapping[str, Commit]) -> str:
    """Lets Delta skip files that hold only compacted heights. Chains that are not compacted are never skipped."""
    if not bases:
        return ""
    lowest = min(base.height for base in bases.values())
    return f"\n    AND (t._height > {lowest} OR t._chain NOT IN ({_chains(bases)}))"


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
