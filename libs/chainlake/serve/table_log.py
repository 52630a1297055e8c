"""Which Parquet files a Delta table consists of, read from its log: JSON commits on top of the newest checkpoint.

A reader that follows a table looks at its log all the time, so this must cost microseconds: asking for news is one attempt to
open the next commit. (delta-rs gives the same answer, and a test compares the two; it takes tens of milliseconds per table and
look, and a process that starts opens ten tables.)
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from chainlake.errors import BadInput, Unavailable, first_line

READER_FEATURES = {"timestampNtz", "vacuumProtocolCheck"}
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
ADD_FIELDS = ("path", "size", "stats", "deletionVector.storageType")


@dataclass(frozen=True)
class DataFile:
    """One file of a table, with the least and greatest value of the columns that were asked for. A missing one is unknown."""

    path: str
    size: int
    rows: int
    low: Mapping[str, Any]
    high: Mapping[str, Any]


class TableLog:
    """The log of one table. `refresh` belongs to one thread at a time; `files` may be read by all."""

    def __init__(self, directory: Path, columns: Iterable[str] = ()) -> None:
        self.directory = directory
        self._log = directory / "_delta_log"
        self._columns = tuple(columns)
        self._hint = (0, -1)
        self._by_path: dict[str, DataFile] = {}
        self.version = -1
        self.files: tuple[DataFile, ...] = ()

    def refresh(self) -> bool:
        """Take in what was committed since the last look; False if there is nothing new. A table that is not there is empty."""
        before, hinted = self.version, self._hinted_version()
        if before < 0 or hinted > before:
            self._load_checkpoint()
        while self._load_commit(self.version + 1):
            self.version += 1
        if self.version < hinted:
            raise BadInput(f"{self._log} has no checkpoint that can be read here, and not all commits: make a classic checkpoint")
        if self.version == before:
            return False
        self.files = tuple(self._by_path.values())
        return True

    def has_news(self) -> bool:
        """Whether a refresh would find a commit. Commits are cleaned up only once a checkpoint holds them."""
        return os.path.exists(self._commit_path(self.version + 1)) or self._hinted_version() > self.version

    def _commit_path(self, version: int) -> str:
        return f"{self._log}/{version:020d}.json"

    def _load_commit(self, version: int) -> bool:
        try:
            with open(self._commit_path(version), "rb") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return False
        for line in lines:
            action = self._parsed(line, version) if line else {}
            if "protocol" in action:
                self._check_protocol(action["protocol"])
            elif "remove" in action:
                self._by_path.pop(action["remove"]["path"], None)
            elif "add" in action:
                self._add(action["add"])
        return True

    def _parsed(self, line: bytes, version: int) -> dict[str, Any]:
        try:
            action: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise Unavailable(
                f"{self._commit_path(version)} cannot be read ({error}): see Repairing in docs/operations.md"
            ) from None
        return action

    def _load_checkpoint(self) -> None:
        """Start from the newest checkpoint; without one, from nothing."""
        version, paths = self._newest_checkpoint()
        if version <= self.version:
            return
        self._by_path = {}
        for path in paths:
            for protocol in _rows(path, "protocol", ("minReaderVersion", "readerFeatures")):
                self._check_protocol(protocol)
            for add in _rows(path, "add", ADD_FIELDS):
                self._add(add)
        self.version = version

    def _newest_checkpoint(self) -> tuple[int, list[Path]]:
        """The newest checkpoint all of whose parts are there."""
        found: dict[tuple[int, int], list[Path]] = defaultdict(list)
        for name in os.listdir(self._log) if self._log.is_dir() else ():
            match = CHECKPOINT.fullmatch(name)
            if match:
                found[int(match[1]), int(match[2] or 1)].append(self._log / name)
        whole = {version: paths for (version, parts), paths in found.items() if len(paths) == parts}
        newest = max(whole, default=-1)
        return newest, whole.get(newest, [])

    def _hinted_version(self) -> int:
        """The version of the newest checkpoint, as the log says; -1 if it says nothing."""
        hint = f"{self._log}/_last_checkpoint"
        try:
            changed = os.stat(hint).st_mtime_ns
            if changed != self._hint[0]:
                with open(hint, "rb") as file:
                    self._hint = (changed, int(json.load(file)["version"]))
        except (OSError, ValueError, KeyError):
            return -1
        return self._hint[1]

    def _add(self, add: Mapping[str, Any]) -> None:
        if (add.get("deletionVector") or {}).get("storageType"):
            raise BadInput(
                f"{self.directory} has deletion vectors, which readers without Spark cannot apply:"
                f" set delta.enableDeletionVectors to false and run REORG TABLE … APPLY (PURGE)"
            )
        known = json.loads(add.get("stats") or "{}")
        low, high = known.get("minValues") or {}, known.get("maxValues") or {}
        self._by_path[add["path"]] = DataFile(
            path=self._absolute(add["path"]),
            size=int(add["size"]),
            rows=int(known.get("numRecords", 0)),
            low={name: low[name] for name in self._columns if low.get(name) is not None},
            high={name: high[name] for name in self._columns if high.get(name) is not None},
        )

    def _absolute(self, path: str) -> str:
        plain = unquote(path)
        return plain.removeprefix("file://") if plain.startswith(("/", "file:///")) else f"{self.directory}/{plain}"

    def _check_protocol(self, protocol: Mapping[str, Any]) -> None:
        version = protocol.get("minReaderVersion") or 1
        features = set(protocol.get("readerFeatures") or ()) or ({"columnMapping"} if version == 2 else set())
        unknown = sorted(features - READER_FEATURES)
        if unknown or version > 3:
            what = ", ".join(unknown) or f"reader version {version}"
            raise BadInput(f"{self.directory} needs {what}, which readers without Spark do not have: read it with Spark")


def _rows(path: Path, action: str, fields: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The actions of one kind in a checkpoint."""
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        leaves = [file.schema.column(index).path for index in range(len(file.schema))]
        wanted = [f"{action}.{field}" for field in fields]
        columns = [leaf for leaf in leaves if any(leaf == name or leaf.startswith(f"{name}.") for name in wanted)]
        table = file.read(columns=columns)
    except (pa.ArrowInvalid, OSError) as error:
        raise Unavailable(f"{path} cannot be read ({first_line(error)}): see Repairing in docs/operations.md") from None
    return (row for row in table.column(action).to_pylist() if row is not None) if columns else iter(())
