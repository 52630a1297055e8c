"""What the log index is measured against: the same logs in DuckDB and in PostgreSQL, asked the same filters in plain SQL.

Peers are set up to do well: sorted files with statistics, indexes on every column that filters use, statements prepared, only
the clauses that a filter needs, no sorting where order comes for free. A peer that is not installed says what to install.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from chainlake.demo.evm_scale import COLUMNS, ROW_GROUP
from chainlake.errors import BadInput, Unavailable
from chainlake.logs.filter import LogFilter

DUCKDB_PIN = "duckdb==2.0.0"
ORDER = " ORDER BY block_number, log_index"


class Peer(Protocol):
    """A place where logs can be loaded and asked for."""

    name: str

    def load(self, tables: Iterable[pa.Table]) -> float:
        """Takes logs in block order; the seconds that it took."""
        ...

    def query(self, wanted: LogFilter, limit: int | None = None) -> int:
        """Fetches the logs of a filter with all their columns, in order, the first `limit` of them; how many there are."""
        ...

    def keys(self, wanted: LogFilter, limit: int | None = None) -> list[tuple[int, int]]:
        """(block number, log index) of the same logs, for comparing answers."""
        ...

    def bytes(self) -> int:
        """Size on disk, indexes included."""
        ...

    def close(self) -> None:
        """Leaves nothing behind."""
        ...


@dataclass(frozen=True)
class Dialect:
    """How two databases write the same thing."""

    one: str
    """A placeholder."""
    any_of: str
    """A test for one of several values; `{marks}` stands for a placeholder each."""
    array: bool
    """Whether several values are one parameter."""


DUCKDB = Dialect("?", "IN ({marks})", array=False)
POSTGRES = Dialect("%s", "= ANY(%s)", array=True)


def select(wanted: LogFilter, head: int, limit: int | None, dialect: Dialect, columns: str, order: str) -> tuple[str, list[Any]]:
    """The query of a filter and its parameters. Open ends of a range are the head."""
    clauses: list[str] = []
    parameters: list[Any] = []

    def add(column: str, values: Sequence[bytes]) -> None:
        if len(values) == 1:
            clauses.append(f"{column} = {dialect.one}")
            parameters.append(values[0])
        elif values:
            marks = ", ".join([dialect.one] * len(values))
            clauses.append(f"{column} {dialect.any_of.format(marks=marks)}")
            parameters.extend([list(values)] if dialect.array else values)

    add("address", wanted.addresses)
    for position, topics in enumerate(wanted.topics):
        add(f"topic{position}", topics)
    if wanted.topics and not wanted.topics[-1]:
        clauses.append(f"topic_count >= {len(wanted.topics)}")
    _add_blocks(wanted, head, dialect, clauses, parameters)
    text = f"SELECT {columns} FROM logs WHERE {' AND '.join(clauses)}{order}"
    return text + (f" LIMIT {limit}" if limit is not None else ""), parameters


def _add_blocks(wanted: LogFilter, head: int, dialect: Dialect, clauses: list[str], parameters: list[Any]) -> None:
    if wanted.block_hash is not None:
        clauses.append(f"block_number = (SELECT number FROM blocks WHERE hash = {dialect.one})")
        parameters.append(wanted.block_hash)
        return
    first = head if wanted.from_block is None else wanted.from_block
    last = head if wanted.to_block is None else wanted.to_block
    clauses.append(f"block_number BETWEEN {dialect.one} AND {dialect.one}")
    parameters.extend((first, last))


class DuckDb:
    """DuckDB on Parquet files that are sorted by log id, with a table of block hashes beside them."""

    name = "DuckDB"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: list[Path] = []
        self._connection = connect_duckdb()

    def load(self, tables: Iterable[pa.Table]) -> float:
        """Writes one Parquet file."""
        began = time.monotonic()
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / "logs.parquet"
        with pq.ParquetWriter(path, COLUMNS, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table, row_group_size=ROW_GROUP)
        self.open([path])
        return time.monotonic() - began

    def open(self, files: Sequence[Path]) -> None:
        """Uses Parquet files that exist; together they must be in order of block and log index."""
        if not files:
            raise BadInput("no Parquet files were given: write the logs first")
        self._files = list(files)
        names = ", ".join("'" + str(path).replace("'", "''") + "'" for path in files)
        run = self._connection.execute
        run("SET parquet_metadata_cache = true")
        self._view = f"CREATE OR REPLACE VIEW logs AS SELECT {', '.join(COLUMNS.names)} FROM read_parquet([{names}])"
        run(self._view)
        run("CREATE OR REPLACE TABLE blocks AS SELECT block_hash AS hash, any_value(block_number) AS number FROM logs GROUP BY 1")
        self._head = int(run("SELECT coalesce(max(block_number), -1) FROM logs").fetchall()[0][0])

    def fresh(self) -> "DuckDb":
        """The same files and block hashes in a connection that has answered nothing yet."""
        made = DuckDb(self._directory)
        made._files, made._view, made._head = self._files, self._view, self._head
        made._connection.register("hashes", self._connection.sql("FROM blocks").to_arrow_table())
        for text in ("SET parquet_metadata_cache = true", self._view, "CREATE TABLE blocks AS FROM hashes"):
            made._connection.execute(text)
        return made

    def query(self, wanted: LogFilter, limit: int | None = None) -> int:
        """Fetched as Arrow, which is how DuckDB is fastest."""
        text, parameters = self._select(wanted, limit, ", ".join(COLUMNS.names))
        return int(self._connection.sql(text, params=parameters).to_arrow_table().num_rows)

    def keys(self, wanted: LogFilter, limit: int | None = None) -> list[tuple[int, int]]:
        text, parameters = self._select(wanted, limit, "block_number, log_index")
        found: list[tuple[int, int]] = self._connection.execute(text, parameters).fetchall()
        return found

    def _select(self, wanted: LogFilter, limit: int | None, columns: str) -> tuple[str, list[Any]]:
        """DuckDB keeps the order of the files, but not through the joins that it makes of lists and subqueries."""
        joins = wanted.block_hash is not None or any(len(values) > 1 for values in (wanted.addresses, *wanted.topics))
        return select(wanted, self._head, limit, DUCKDB, columns, ORDER if joins else "")

    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self._files)

    def close(self) -> None:
        """The files stay: they belong to who gave the directory."""
        self._connection.close()


def connect_duckdb() -> Any:
    """A connection in memory."""
    try:
        import duckdb
    except ImportError:
        raise Unavailable(f"DuckDB is not installed: pip install {DUCKDB_PIN}") from None
    return duckdb.connect(":memory:")
