"""A lake directory read without a JVM: where its tables are, what its ledger says, what its control tables hold."""

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chainlake.errors import BadInput
from chainlake.lake.names import physical, split
from chainlake.lake.visibility import Commit, LedgerView, check_columns, checked
from chainlake.serve.arrays import to_arrow_binary
from chainlake.serve.row_groups import REMADE, opened, undamaged
from chainlake.serve.table_log import DataFile, TableLog
from chainlake.serve.visible import KERNEL

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
COMMIT_COLUMNS = [
    *("stage", "lane", "chain", "seq", "commit_id", "kind", "base_height", "height", "epoch", "committed_at", "block_hash"),
    *("roots", "inputs"),
]


class EmbeddedLake:
    """The tables of one home directory. Several lakes share a home by their prefix."""

    def __init__(self, home: Path, prefix: str = "") -> None:
        self.home = Path(home)
        self._prefix = prefix
        if not (self.directory("control.ledger") / "_delta_log").is_dir():
            raise BadInput(f"there is no lake in {self.home}: give another --home, or make one with lake up or lake ingest")

    def directory(self, table: str) -> Path:
        """Where `layer.name` is stored."""
        layer, name = split(table)
        schema, folder = ("control", name) if layer == "control" else ("store", physical(table))
        return self.home / "warehouse" / f"{self._prefix}{schema}" / folder

    def log(self, table: str, *columns: str) -> TableLog:
        """The log of a data table, with statistics of the kernel's columns and of some more."""
        return TableLog(self.directory(table), (*KERNEL, *columns))


class LedgerReader:
    """The ledger of one chain and some stages. A file of it is read once. For many threads."""

    def __init__(self, lake: EmbeddedLake, chain: str, stages: Iterable[str]) -> None:
        self._log = TableLog(lake.directory("control.ledger"), ("stage", "chain"))
        self._chain = chain
        self._stages = tuple(stages)
        self._by_file: dict[str, list[Commit]] = {}
        self._lock = Lock()
        self._read_version = -1
        self.revision = -1
        """The version of the ledger in which commits of ours last came; -1 before the first."""
        self.view = LedgerView(())

    def has_news(self) -> bool:
        """Whether a refresh has something to do."""
        return self._read_version != self._log.version or self._log.has_news()

    def refresh(self) -> None:
        """Take in new commits. What fails is tried again the next time."""
        with self._lock:
            self._log.refresh()
            if self._read_version != self._log.version:
                self._take_in()

    def _take_in(self) -> None:
        known = self._by_file
        by_file = {file.path: known[file.path] if file.path in known else self._read(file) for file in self._log.files}
        if [commits for commits in by_file.values() if commits] != [commits for commits in known.values() if commits]:
            self.view = checked(commit for commits in by_file.values() for commit in commits)
            self.revision = self._log.version
        self._by_file, self._read_version = by_file, self._log.version

    def _read(self, file: DataFile) -> list[Commit]:
        if not self._may_hold(file):
            return []
        with undamaged(file.path, REMADE):
            data = opened(file.path)
            check_columns(data.schema_arrow.names, COMMIT_COLUMNS)
            rows = _aware(data.read(columns=COMMIT_COLUMNS, use_threads=False))
        rows = rows.filter(pc.and_(_is_one_of(rows["chain"], [self._chain]), _is_one_of(rows["stage"], self._stages)))
        times = rows["committed_at"].cast(pa.int64()).to_pylist()
        return [_commit(row, time) for row, time in zip(rows.drop_columns("committed_at").to_pylist(), times, strict=True)]

    def _may_hold(self, file: DataFile) -> bool:
        wanted = {"chain": (self._chain,), "stage": self._stages}
        return all(_between(file, name, values) for name, values in wanted.items())


def _between(file: DataFile, name: str, values: Iterable[str]) -> bool:
    low, high = file.low.get(name, ""), file.high.get(name)
    return any(low <= value and (high is None or value[: len(high)] <= high) for value in values)


def _is_one_of(texts: pa.ChunkedArray, values: Iterable[str]) -> pa.ChunkedArray:
    return pc.is_in(texts, to_arrow_binary([value.encode() for value in values], pa.string()))


def _commit(row: dict[str, Any], microseconds: int) -> Commit:
    row["roots"], row["inputs"] = dict(row["roots"] or ()), dict(row["inputs"] or ())
    return Commit(**row, committed_at=EPOCH + timedelta(microseconds=microseconds))


def _aware(rows: pa.Table) -> pa.Table:
    """Times in UTC: Spark writes them so, in a form that does not say it."""
    fields = [pa.field(f.name, pa.timestamp("us", "UTC")) if pa.types.is_timestamp(f.type) else f for f in rows.schema]
    return rows.cast(pa.schema(fields))
