"""The control tables of a lake, for health, metrics and the choice of a chain. They only grow, so each file is read once."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from chainlake.errors import BadInput
from chainlake.lake.visibility import Commit, LedgerView
from chainlake.serve.embedded import EmbeddedLake
from chainlake.serve.row_groups import REMADE, opened, undamaged
from chainlake.serve.table_log import TableLog

Row = Mapping[str, Any]

COMMIT_FIELDS = {field.name for field in fields(Commit)}
DEFAULT_CHAIN_ID = 1337
SERVED_KINDS = ("comet", "cardano", "raft", "river")
"""Kinds of chains beside evm that are answered for over HTTP."""


class LakeControl:
    """Control tables of one lake, followed file by file."""

    def __init__(self, lake: EmbeddedLake) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._logs: dict[str, TableLog] = {}
        self._files: dict[str, dict[str, list[Row]]] = {}

    def rows(self, name: str) -> Sequence[Row]:
        """All rows of control.`name`; none if there is no such table."""
        with self._lock:
            log = self._log(f"control.{name}")
            known = self._files.get(name, {})
            files = {file.path: known.get(file.path) or _read(file.path) for file in log.files}
            self._files[name] = files
            return [row for rows in files.values() for row in rows]

    def files(self, table: str) -> Sequence[tuple[int, int]]:
        """Rows and bytes of each file of a table, whether they can be seen or not."""
        with self._lock:
            log = self._log(table)
            return [(file.rows, file.size) for file in log.files]

    def ledger(self) -> LedgerView:
        """control.ledger now."""
        return LedgerView(Commit(**{name: row[name] for name in row if name in COMMIT_FIELDS}) for row in self.rows("ledger"))

    def _log(self, table: str) -> TableLog:
        if table not in self._logs:
            self._logs[table] = TableLog(self._lake.directory(table))
        self._logs[table].refresh()
        return self._logs[table]

    def chains(self) -> dict[str, Row]:
        """The latest row of each chain."""
        return {row["chain"]: row for row in sorted(self.rows("chains"), key=lambda row: row["at"])}


def without_logs(chains: Mapping[str, Row], given: str | None) -> str | None:
    """The chain to serve without an index of logs: one of another kind that is named, or the first if there is no evm chain."""
    others = sorted(name for name, row in chains.items() if row["kind"] in SERVED_KINDS)
    if given is not None:
        return given if given in others else None
    return others[0] if others and not any(row["kind"] == "evm" for row in chains.values()) else None


def chain_of_kind(chains: Mapping[str, Row], kind: str, given: str | None, how: str) -> str:
    """The chain of a kind that a question is about: the one that is named, else the only one. `how` says how one is named."""
    known = sorted(name for name, row in chains.items() if row["kind"] == kind)
    if given is None and len(known) == 1:
        return known[0]
    there = f"there are {', '.join(known[:10])}" if known else "there is none yet"
    if given is None:
        raise BadInput(f"which {kind} chain: {there}: {how}")
    if given not in known:
        raise BadInput(f"unknown {kind} chain {given[:100]!r}: {there}")
    return given


def chain_of_home(home: Path, prefix: str, kind: str, given: str | None, how: str) -> str:
    """The same, of the chains that a lake follows: of one that it does not, a reader would say that it has no blocks yet."""
    return chain_of_kind(LakeControl(EmbeddedLake(home, prefix)).chains(), kind, given, how)


def choose_chain(chains: Mapping[str, Row], given: str | None) -> Row:
    """The chain to serve: the one that is named, else the only one of kind evm."""
    evm = {name: row for name, row in chains.items() if row["kind"] == "evm"}
    if given is not None:
        if given not in evm:
            raise BadInput(f"unknown evm chain {given!r}: there are {', '.join(sorted(evm)) or 'none yet'}")
        return evm[given]
    if len(evm) != 1:
        there_are = (
            f"there are {', '.join(sorted(evm))}: choose one with --chain" if evm else "there is none: lake ingest takes one in"
        )
        raise BadInput(f"one evm chain is served, and {there_are}")
    return next(iter(evm.values()))


def chain_id_of(chain: Row) -> int:
    """The chain's own id, from its options."""
    return int(chain["options"].get("chain_id", DEFAULT_CHAIN_ID))


def _read(path: str) -> list[Row]:
    """The rows of one file, maps as dictionaries and times aware."""
    with undamaged(path, REMADE):
        rows = opened(path).read().to_pylist(maps_as_pydicts="strict")
    return [{name: _aware(value) for name, value in row.items()} for row in rows]


def _aware(value: Any) -> Any:
    """Spark writes times in UTC, in a form that does not say it."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=timezone.utc)
    return value
