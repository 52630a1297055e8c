"""Straightforward followers as peers: every entry is one durable transaction that writes its row and advances the applied
index."""

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from chainlake.bench.pg_cluster import cluster
from chainlake.bench.postgres import psycopg_driver

TABLES = (
    "CREATE TABLE applied (group_name text PRIMARY KEY, log_index bigint NOT NULL)",
    "CREATE TABLE data_rows (table_id text, user_id text, primary_key text, row_text text,"
    " PRIMARY KEY (table_id, user_id, primary_key))",
)
PIPELINE = 500


class Write(NamedTuple):
    """An entry as a follower sees it when it is parsed."""

    group: str
    log_index: int
    table_id: str
    user_id: str
    key: str
    row: str


def sqlite_rate(directory: Path, entries: Sequence[Write]) -> float:
    """Entries a second through SQLite: write-ahead log, every commit on the disk."""
    connection = sqlite3.connect(directory / "follower.db", isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        for statement in TABLES:
            connection.execute(statement)
        began = time.monotonic()
        for group, log_index, *row in entries:
            connection.execute("BEGIN")
            connection.execute("INSERT INTO data_rows VALUES (?, ?, ?, ?)", row)
            connection.execute("INSERT OR REPLACE INTO applied VALUES (?, ?)", (group, log_index))
            connection.execute("COMMIT")
        return len(entries) / (time.monotonic() - began)
    finally:
        connection.close()


def postgres_rate(entries: Sequence[Write]) -> float:
    """Entries a second through PostgreSQL: a transaction each, sent in a pipeline, every commit on the disk."""
    psycopg = psycopg_driver()
    applied = "INSERT INTO applied VALUES (%s, %s) ON CONFLICT (group_name) DO UPDATE SET log_index = excluded.log_index"
    with (
        cluster() as socket,
        psycopg.connect(host=str(socket), user="bench", dbname="postgres", autocommit=True) as connection,
    ):
        connection.execute("SET synchronous_commit = on")
        for statement in TABLES:
            connection.execute(statement)
        began = time.monotonic()
        for start in range(0, len(entries), PIPELINE):
            with connection.pipeline():
                for group, log_index, *row in entries[start : start + PIPELINE]:
                    connection.execute("BEGIN")
                    connection.execute("INSERT INTO data_rows VALUES (%s, %s, %s, %s)", row, prepare=True)
                    connection.execute(applied, (group, log_index), prepare=True)
                    connection.execute("COMMIT")
        return len(entries) / (time.monotonic() - began)
