"""PostgreSQL as a peer: one table with B-tree indexes, filled block by block, asked by prepared statements."""

import time
import weakref
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from chainlake.bench import pg_copy
from chainlake.bench.peers import ORDER, POSTGRES, select
from chainlake.bench.pg_cluster import SETTINGS, cluster
from chainlake.demo.evm_scale import COLUMNS
from chainlake.errors import Unavailable
from chainlake.logs.filter import LogFilter

PSYCOPG_PIN = "psycopg[binary]==3.3.8"
TABLES = """
CREATE TABLE logs (
  log_id bigint NOT NULL,
  block_number bigint NOT NULL,
  block_hash bytea NOT NULL,
  block_timestamp timestamptz NOT NULL,
  transaction_hash bytea NOT NULL,
  transaction_index int NOT NULL,
  log_index int NOT NULL,
  address bytea NOT NULL,
  topic0 bytea,
  topic1 bytea,
  topic2 bytea,
  topic3 bytea,
  topic_count int NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (block_number, log_index)
);
CREATE INDEX ON logs (address);
CREATE INDEX ON logs (topic0);
CREATE INDEX ON logs (topic1);
CREATE INDEX ON logs (topic2);
CREATE INDEX ON logs (topic3);
CREATE TABLE blocks (hash bytea PRIMARY KEY, number bigint NOT NULL);
"""
COPY = f"COPY logs ({', '.join(COLUMNS.names)}) FROM STDIN (FORMAT BINARY)"
BLOCKS = "INSERT INTO blocks SELECT block_hash, max(block_number) FROM logs GROUP BY block_hash ON CONFLICT DO NOTHING"


class Postgres:
    """A server of its own, with indexes in place before anything is loaded."""

    name = "PostgreSQL"

    def __init__(self, settings: Mapping[str, str] = SETTINGS) -> None:
        psycopg = psycopg_driver()
        with ExitStack() as stack:
            socket = stack.enter_context(cluster(settings))
            self._connection = stack.enter_context(
                psycopg.connect(host=str(socket), user="bench", dbname="postgres", autocommit=True)
            )
            self._connection.execute(TABLES)
            self._close = weakref.finalize(self, stack.pop_all().close)
        self._head = -1

    def load(self, tables: Iterable[pa.Table]) -> float:
        """One COPY and one commit per block, from streams that are made beforehand, untimed."""
        seconds = 0.0
        for table in pg_copy.whole_blocks(tables):
            streams = list(pg_copy.blocks(table))
            began = time.monotonic()
            with self._connection.cursor() as cursor:
                for stream in streams:
                    with cursor.copy(COPY) as copy:
                        copy.write(stream)
            seconds += time.monotonic() - began
        return seconds + self._loaded()

    def load_lines(self, lines: Iterable[bytes]) -> float:
        """The same from blocks as a node gives them, JSON and hex: what a loader in Python does, but for any check of them."""
        began, first = time.monotonic(), 0
        with self._connection.cursor() as cursor:
            for line in lines:
                rows = pg_copy.rows_of_line(line, first)
                first += len(rows)
                with cursor.copy(COPY) as copy:
                    copy.set_types(pg_copy.TYPES)
                    for row in rows:
                        copy.write_row(row)
        return time.monotonic() - began + self._loaded()

    def _loaded(self) -> float:
        """Seconds to gather the hashes of blocks. Statistics are gathered too, untimed."""
        began = time.monotonic()
        self._connection.execute(BLOCKS)
        seconds = time.monotonic() - began
        self._connection.execute("VACUUM ANALYZE")
        self._head = self._value("SELECT coalesce(max(block_number), -1) FROM logs")
        return seconds

    def query(self, wanted: LogFilter, limit: int | None = None) -> int:
        return len(self._fetch(wanted, limit, ", ".join(COLUMNS.names)))

    def keys(self, wanted: LogFilter, limit: int | None = None) -> list[tuple[int, int]]:
        return self._fetch(wanted, limit, "block_number, log_index")

    def bytes(self) -> int:
        return self._value("SELECT pg_total_relation_size('logs') + pg_total_relation_size('blocks')")

    def close(self) -> None:
        """Stops the server and removes its directory. Happens by itself at the end of the program at the latest."""
        self._close()

    def _fetch(self, wanted: LogFilter, limit: int | None, columns: str) -> list[Any]:
        text, parameters = select(wanted, self._head, limit, POSTGRES, columns, ORDER)
        with self._connection.cursor(binary=True) as cursor:
            found: list[Any] = cursor.execute(text, parameters, prepare=True).fetchall()
        return found

    def _value(self, text: str) -> int:
        return int(self._connection.execute(text).fetchone()[0])


def psycopg_driver() -> Any:
    """The driver, if it is installed."""
    try:
        import psycopg
    except ImportError:
        raise Unavailable(f"the PostgreSQL driver is not installed: pip install '{PSYCOPG_PIN}'") from None
    return psycopg
