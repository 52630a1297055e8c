"""State tables of a lake directory without a JVM: the newest row per key that the ledger lets through, at the head or as of a
block."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chainlake.errors import BadInput
from chainlake.lake.visibility import History
from chainlake.serve.embedded import EmbeddedLake
from chainlake.serve.row_groups import undamaged
from chainlake.serve.visible import KERNEL, Limits, select

Row = dict[str, Any]


def state_rows(
    lake: EmbeddedLake,
    history: History,
    table: str,
    key: Sequence[str],
    columns: Sequence[str],
    equal: Mapping[str, str] | None = None,
    height: int | None = None,
) -> list[Row]:
    """Rows of a chain's state, as of one look at the ledger. `equal` keeps rows with these values; it may name columns of the key
    only, since other columns change from row to row."""
    if not set(equal or ()) <= set(key):
        raise BadInput(f"{table} can be narrowed by {', '.join(key)} only")
    newest: dict[tuple[Any, ...], Row] = {}
    for rows in _visible(lake, history, table, [*dict.fromkeys((*key, *columns)), "_deleted"], equal or {}, height):
        for row in rows.to_pylist():
            found = tuple(row[name] for name in key)
            if found not in newest or newest[found]["_height"] < row["_height"]:
                newest[found] = row
    return [{name: row[name] for name in columns} for row in newest.values() if not row["_deleted"]]


def _visible(
    lake: EmbeddedLake, history: History, table: str, columns: Sequence[str], equal: Mapping[str, str], height: int | None
) -> Iterator[pa.Table]:
    if not history.commits:
        return
    chain = history.commits[0].chain
    limits = Limits({v.commit.commit_id: v.limit for v in history.visible(height)})
    log = lake.log(table)
    log.refresh()
    for source in select(log.files, chain, limits, "_height").sources:
        wanted = list(dict.fromkeys((*columns, *KERNEL)))
        filters = [(name, "==", value) for name, value in equal.items()] or None
        with undamaged(source.path):
            rows = pq.read_table(source.path, columns=wanted, filters=filters, page_checksum_verification=True)
        yield source.seen(_narrowed(rows, equal))


def _narrowed(rows: pa.Table, equal: Mapping[str, str]) -> pa.Table:
    for name, value in equal.items():
        rows = rows.filter(pc.equal(rows[name], value))
    return rows
