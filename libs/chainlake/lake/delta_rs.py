"""Local Delta tables read and appended to without Spark, by delta-rs. (Its class shares its name with the one of delta-spark,
which nothing here may use since it does not speak Spark Connect: so it has this room to itself.)

An append takes some 20 ms where Spark takes half a second. All of a table's appends go this way and hold the table's lock, since
Delta on a local disk is safe between the threads of one engine only.
"""

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from chainlake.errors import Unavailable, first_line

DeltaRs = DeltaTable
PACK_AFTER = 10
"""Readers open each small file, which costs them more than the rows in it: Spark some 5 to 10 ms, one file after the other where
it reads the ledger for a view. To pack costs a writer a few milliseconds an append."""
PACKED_BYTES = 256 << 10
"""Files of this size are left alone, so that packing takes no longer, and leaves no more old files behind, as a table grows."""
LOCK_SECONDS = 60.0
KEEP_THE_LOG = PostCommitHookProperties(cleanup_expired_logs=False)
"""To look for versions that are past their retention takes longer the more there are: once per packing is enough."""


@dataclass(frozen=True)
class Turn:
    """The number that a write takes in a series of its own. It is written only if no such number, or a higher one, was taken."""

    series: str
    number: int


_opened: dict[Path, tuple[tuple[int, int, int], DeltaRs]] = {}


def open_table(path: Path) -> DeltaRs:
    """The table as it is now."""
    return DeltaRs(str(path))


def _opened_once(path: Path) -> DeltaRs:
    """The table as it is now, for one who holds its lock.

    A table that this process has written to is only brought up to date: to open it means to read the log since the last
    checkpoint, most of what an append costs. Should it not see what another wrote, Delta refuses the version that is there
    already. The first version in the log tells whether another table lies there now; where that is cleaned up, nothing is kept.
    """
    identity = _first_version(path)
    kept = _opened.pop(path, None)
    table = kept[1] if kept is not None and kept[0] == identity and _is_up_to_date(kept[1]) else open_table(path)
    if identity is not None:
        _opened[path] = identity, table
    return table


def _is_up_to_date(table: DeltaRs) -> bool:
    """Whether the table could take in what was written since; if its log no longer has all of it, it is opened anew."""
    try:
        table.update_incremental()
    except DeltaError:
        return False
    return True


def _first_version(path: Path) -> tuple[int, int, int] | None:
    """Which file the first version is: it is written once, with the table."""
    try:
        found = (path / "_delta_log" / f"{0:020d}.json").stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def physical_of(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The table's columns and properties, as Delta's log has them."""
    try:
        table = open_table(path)
        columns: dict[str, Any] = json.loads(table.schema().to_json())
        return columns, dict(table.metadata().configuration)
    except (DeltaError, OSError) as error:
        raise _unreadable(path, error) from None


def read(path: Path) -> pa.Table:
    """All rows as they are now.

    Files are opened by Arrow itself. By delta-rs' own way its threads need Python to close them, and abort a process that ends
    meanwhile ("terminate called without an active exception").
    """
    try:
        return open_table(path).to_pyarrow_table(filesystem=SubTreeFileSystem(str(path), LocalFileSystem()))
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> Unavailable:
    return Unavailable(f"{path} cannot be read ({first_line(error)}): see Repairing in docs/operations.md")


def append(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    mark: str | None = None,
    turn: Turn | None = None,
    confirm: Callable[[], None] | None = None,
) -> None:
    """Add rows; columns that a row does not give are NULL. With a turn that is taken, nothing is written, as Delta does it.
    Where `confirm` raises, asked while nobody else can write, nothing is written either."""
    with alone(path):
        if confirm is not None:
            confirm()
        try:
            _append(path, rows, mark, turn)
        except (DeltaError, OSError) as error:
            _opened.pop(path, None)
            raise Unavailable(f"{path} cannot be written: {first_line(error)}") from None


def _append(path: Path, rows: Sequence[Mapping[str, Any]], mark: str | None, turn: Turn | None) -> None:
    table = _opened_once(path)
    if turn is not None and (table.transaction_version(turn.series) or 0) >= turn.number:
        return
    schema = pa.schema(table.schema().to_arrow())
    values = {field.name: [row.get(field.name) for row in rows] for field in schema}
    properties = CommitProperties(
        custom_metadata={"userMetadata": mark} if mark else None,
        app_transactions=[Transaction(turn.series, turn.number)] if turn else None,
        max_commit_retries=0,
    )
    rows_as_table = pa.table(values, schema)
    write_deltalake(table, rows_as_table, mode="append", commit_properties=properties, post_commithook_properties=KEEP_THE_LOG)
    if (table.version() + 1) % PACK_AFTER == 0:
        with suppress(DeltaError):  # the rows are there; the next time will do as well
            table.optimize.compact(target_size=PACKED_BYTES)


def vacuum(path: Path) -> None:
    """Delete the files that no version within the table's retention needs: packing leaves all that it replaced."""
    with alone(path):
        _opened.pop(path, None)
        try:
            open_table(path).vacuum(dry_run=False, full=True)  # of the files there: checkpoints forget which were replaced
        except (DeltaError, OSError) as error:
            raise Unavailable(f"{path} cannot be vacuumed: {first_line(error)}") from None


@contextmanager
def alone(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Nobody else appends to the table meanwhile."""
    deadline = time.monotonic() + seconds
    with (path.parent / f".{path.name}.lock").open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unavailable(f"another process has been writing to {path} for {seconds:.0f} s: stop it") from None
                time.sleep(0.005)
        yield
