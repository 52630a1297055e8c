"""A ledger on disk, written by delta-rs and without Spark."""

from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import write_deltalake

from chainlake.lake.ddl import load
from chainlake.paths import tables_dir
from tests.unit.logs_lake import LEDGER

AT = datetime(2026, 1, 31, tzinfo=timezone.utc)


def commit_row(seq: int, base: int, height: int) -> dict[str, Any]:
    """A row of control.ledger: an advance of raw.logs on chain c."""
    kernel = {"stage": "raw.logs", "lane": "c", "chain": "c", "seq": seq, "commit_id": seq, "kind": "advance", "epoch": 1}
    empty: dict[str, list[Any]] = {name: [] for name in ("roots", "inputs", "delta_versions", "rows", "checksums")}
    return {**kernel, **empty, "base_height": base, "height": height, "committed_at": AT}


def made_lake(home: Path, commits: list[dict[str, Any]], mode: Literal["error", "append"] = "error") -> Path:
    """A home whose ledger has these rows, or gets them too."""
    write_deltalake(str(home / "warehouse" / "control" / "ledger"), pa.Table.from_pylist(commits, LEDGER), mode=mode)
    return home


def with_control(home: Path) -> Path:
    """The home with the other control tables that a lake's records are in, empty and as declared."""
    types = {"STRING": pa.string(), "BIGINT": pa.int64(), "TIMESTAMP": pa.timestamp("us", "UTC")}
    types["MAP<STRING, STRING>"] = pa.map_(pa.string(), pa.string())
    for name in ("chains", "health", "leases", "orphans"):
        schema = pa.schema([(column.name, types[column.type]) for column in load(tables_dir())[f"control.{name}"].stored])
        write_deltalake(str(home / "warehouse" / "control" / name), schema.empty_table())
    return home
