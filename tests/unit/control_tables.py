"""A ledger on disk, written by delta-rs and without Spark."""

from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import write_deltalake

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
