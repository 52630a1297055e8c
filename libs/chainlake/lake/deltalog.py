"""What Delta's own log says about a table: versions, who wrote them, how much.

Local tables are read from their log directory, which costs microseconds; elsewhere DESCRIBE HISTORY answers the same.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

CLUSTERING = "delta.clustering"
LOOK_BACK = (20, 2000)
HARMLESS = {
    "CREATE TABLE",
    "SET TBLPROPERTIES",
    "ADD CONSTRAINT",
    "CLUSTER BY",
    "UPGRADE PROTOCOL",
    "OPTIMIZE",
    "VACUUM START",
    "VACUUM END",
}
"""Operations that neither add nor take away rows."""


@dataclass(frozen=True)
class Version:
    """One Delta commit of a table."""

    version: int
    operation: str
    mark: dict[str, Any]
    rows: int
    bytes: int
    timestamp_ms: int


class DeltaLog:
    """The log of one table."""

    def __init__(self, spark: SparkSession | None, table: str, location: Path | None) -> None:
        self._spark = spark
        self._table = table
        self._log = location / "_delta_log" if location else None

    def latest(self) -> int:
        """The newest version."""
        if self._log is None:
            return self.newest(1)[0].version
        version = self._checkpoint()
        while self._file(version + 1).exists():
            version += 1
        if version >= 0:
            return version
        return max(int(path.name[:20]) for path in self._log.glob("*.json") if path.name[:20].isdigit())

    def _checkpoint(self) -> int:
        """The version of the newest checkpoint, from which on the log has every version; -1 if there is none. Listing the
        directory would take longer with every commit."""
        assert self._log is not None
        try:
            return int(json.loads((self._log / "_last_checkpoint").read_text(encoding="utf-8"))["version"])
        except (OSError, ValueError, KeyError, TypeError):
            return -1

    def _file(self, version: int) -> Path:
        assert self._log is not None
        return self._log / f"{version:020d}.json"

    def newest(self, count: int) -> list[Version]:
        """The newest versions, newest first."""
        if self._log is None:
            return self._describe(f" LIMIT {count}")
        top = self.latest()
        versions = (self._read(version) for version in range(top, max(-1, top - count), -1))
        return [version for version in versions if version is not None]

    def all(self) -> list[Version]:
        """Every version that the log still has, newest first."""
        return self._describe("") if self._log is None else self.newest(self.latest() + 1)

    def clustering(self) -> tuple[str, ...]:
        """The columns that the table is clustered by: the newest action that tells, in the newest checkpoint or after it."""
        if self._log is None:
            assert self._spark is not None, "only Spark knows where the table is"
            return tuple(self._spark.sql(f"DESCRIBE DETAIL {self._table}").select("clusteringColumns").collect()[0][0])
        start = self._checkpoint()
        for version in range(self.latest(), start, -1):
            for line in self._file(version).read_bytes().splitlines():
                if CLUSTERING.encode() in line:
                    return _clustered(json.loads(line)["domainMetadata"])
        for part in self._log.glob(f"{start:020d}.checkpoint*.parquet"):
            for action in pq.read_table(part, columns=["domainMetadata"]).to_pylist():
                if (told := action["domainMetadata"]) and told["domain"] == CLUSTERING:
                    return _clustered(told)
        return ()

    def version_of(self, mark: str, value: int | str) -> Version | None:
        """The version that carries `value` under `mark` in its metadata, among the newest."""
        for count in LOOK_BACK:
            found = next((v for v in self.newest(count) if v.mark.get(mark) == value), None)
            if found is not None:
                return found
        return None

    def _read(self, version: int) -> Version | None:
        try:
            lines = self._file(version).read_bytes().splitlines()  # of bytes: texts have more ends of lines than JSON lines
        except FileNotFoundError:
            return None
        info: dict[str, Any] = next((action["commitInfo"] for line in lines if "commitInfo" in (action := json.loads(line))), {})
        metrics = info.get("operationMetrics", {})
        return _version(version, info.get("operation", "?"), info.get("userMetadata"), metrics, info.get("timestamp", 0))

    def _describe(self, limit: str) -> list[Version]:
        assert self._spark is not None, "only Spark knows where the table is"
        history = self._spark.sql(f"DESCRIBE HISTORY {self._table}{limit}")
        rows = history.selectExpr(
            "version", "operation", "userMetadata", "operationMetrics", "unix_millis(timestamp) AS at"
        ).collect()
        return [_version(row[0], row[1], row[2], row[3] or {}, row[4]) for row in rows]


def _clustered(action: Mapping[str, Any]) -> tuple[str, ...]:
    columns = [] if action.get("removed") else json.loads(action["configuration"])["clusteringColumns"]
    return tuple(".".join(column) for column in columns)


def never_written(versions: Sequence[Version]) -> bool:
    """Whether a table with this whole history never had a row."""
    return versions[-1].version == 0 and all(version.operation in HARMLESS for version in versions)


def writes_since_packed(versions: Sequence[Version]) -> int:
    """How many commits changed the table since it was packed last, of its history with the newest first."""
    since = itertools.takewhile(lambda version: version.operation != "OPTIMIZE", versions)
    return sum(version.operation not in HARMLESS for version in since)


def _version(version: int, operation: str, metadata: str | None, metrics: dict[str, str], at: int) -> Version:
    try:
        mark = json.loads(metadata) if metadata else {}
    except ValueError:
        mark = {}
    return Version(
        version=version,
        operation=operation,
        mark=mark if isinstance(mark, dict) else {},
        rows=int(metrics.get("numOutputRows", 0)),
        bytes=int(metrics.get("numOutputBytes", 0)),
        timestamp_ms=at,
    )
