"""The SQL of the reader's views. The ledger comes first in every join, so that its snapshot is never newer than the data's."""

from collections.abc import Mapping

from chainlake.lake.ddl import Table
from chainlake.lake.names import Namespace

MOST_CHAINS = 64


def visible_view(namespace: Namespace) -> str:
    """control.visible: commits that can be seen, each with the highest height that can."""
    return f"""
CREATE OR REPLACE VIEW {namespace.control("visible")}
COMMENT 'Commits that can be seen: heights in (base_height, limit_height] of each'
AS SELECT stage, lane, chain, seq, commit_id, kind, base_height, height, least(height, coalesce(floor, height)) AS limit_height
FROM (
  SELECT stage, lane, chain, seq, commit_id, kind, base_height, height,
    min(CASE WHEN kind = 'rollback' THEN height END) OVER (
      PARTITION BY stage, chain ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS floor,
    max(CASE WHEN kind = 'compact' THEN seq END) OVER (PARTITION BY stage, chain) AS newest_base
  FROM {namespace.control("ledger")})
WHERE (kind = 'advance' AND least(height, coalesce(floor, height)) > base_height)
   OR (kind = 'compact' AND seq = newest_base AND coalesce(floor, height) >= height)"""


def reader_view(namespace: Namespace, table: Table, compacted: Mapping[str, int] | None = None) -> str:
    """The view that people query. `compacted` gives the height of each chain's base: rows up to it need not be read."""
    body = _state(namespace, table, compacted or {}) if table.kind == "state" else _events(namespace, table)
    comments = ", ".join(f"`{name}` COMMENT '{_quoted(text)}'" for name, text in shown_columns(table).items())
    return f"CREATE OR REPLACE VIEW {namespace.view(table.name)} ({comments})\nCOMMENT '{_quoted(table.description)}'\nAS {body}"


def shown_columns(table: Table) -> Mapping[str, str]:
    """Columns of the reader's view, with their comments."""
    kernel = {"chain": "Chain that the row belongs to"}
    if table.kind != "state":
        kernel["height"] = "Block that the row describes"
    return {**kernel, **{column.name: column.comment for column in table.columns}}


def _events(namespace: Namespace, table: Table) -> str:
    return f"""SELECT {_shown("t", table)}
FROM {_visible(namespace, table)} v
JOIN {namespace.store(table.name)} t ON t._commit = v.commit_id AND t._chain = v.chain AND t._height <= v.limit_height
WHERE v.kind = 'advance'"""


def _state(namespace: Namespace, table: Table, compacted: Mapping[str, int]) -> str:
    keys = ", ".join(f"t.`{name}`" for name in ("_chain", *table.state_key))
    tail = f"""SELECT t.*, row_number() OVER (PARTITION BY {keys} ORDER BY t._height DESC) AS _newest
  FROM v JOIN {namespace.store(table.name)} t
    ON t._commit = v.commit_id AND t._chain = v.chain AND t._height <= v.limit_height"""
    if not compacted:
        return f"""WITH v AS (SELECT * FROM {_visible(namespace, table)})
SELECT {_shown("t", table)} FROM (
  {tail}
  WHERE v.kind = 'advance') t
WHERE t._newest = 1 AND NOT t._deleted"""
    same = " AND ".join(f"x.`{name}` = t.`{name}`" for name in ("_chain", *table.state_key))
    return f"""WITH v AS (SELECT * FROM {_visible(namespace, table)}),
b AS (SELECT chain, commit_id AS base_commit, height AS base_height FROM v WHERE kind = 'compact'),
t AS (SELECT * FROM ({tail}
  LEFT JOIN b ON b.chain = t._chain
  WHERE v.kind = 'advance' AND t._height > coalesce(b.base_height, -1){_pruned(compacted)}) WHERE _newest = 1)
SELECT {_shown("x", table)} FROM b JOIN {namespace.base(table.name)} x ON x._commit = b.base_commit AND x._chain = b.chain
  LEFT ANTI JOIN t ON {same}
UNION ALL SELECT {_shown("t", table)} FROM t WHERE NOT t._deleted"""


def _pruned(compacted: Mapping[str, int]) -> str:
    """Lets Delta skip files that hold only compacted heights. Chains that are not compacted are never skipped."""
    if len(compacted) > MOST_CHAINS:
        return ""
    others = " AND ".join(f"t._chain <> '{chain}'" for chain in sorted(compacted))
    return f"\n    AND (t._height > {min(compacted.values())} OR ({others}))"


def _visible(namespace: Namespace, table: Table) -> str:
    stages = ", ".join(f"'{stage}'" for stage in table.stages)
    return f"(SELECT * FROM {namespace.control('visible')} WHERE stage IN ({stages}))"


def _shown(alias: str, table: Table) -> str:
    kernel = [f"{alias}._chain AS chain"]
    if table.kind != "state":
        kernel.append(f"{alias}._height AS height")
    return ", ".join(kernel + [f"{alias}.`{column.name}`" for column in table.columns])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
