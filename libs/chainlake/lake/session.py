"""The one way to a Spark session: the active one (Databricks), a remote one, or the local server of this home."""

import importlib.util
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from chainlake.errors import Unavailable, first_line
from chainlake.lake import server
from chainlake.lake.home import Home, find_home

_ours: dict[str, SparkSession] = {}
_creating = threading.Lock()

for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # they repeat every error that we raise anyway
    PySparkLogger.getLogger(_name).setLevel(logging.CRITICAL + 1)


def get_spark(home: Home | None = None) -> SparkSession:
    """The active session, else `SPARK_REMOTE`, else databricks-connect where installed, else the local server.

    A local server that is gone does not come back, so its clients give up after seconds, not after Spark's ten minutes.
    """
    active = foreign_session()
    if active is not None:
        return active
    if "SPARK_REMOTE" in os.environ:
        return _remote(os.environ["SPARK_REMOTE"])
    if _has_databricks_connect():
        return _databricks_connect()
    home = home or find_home()
    running = server.ensure(home)
    server.register_client(home)
    return _impatient(_remote(running.url))


def foreign_session() -> SparkSession | None:
    """An active session that somebody else opened, as in a Databricks notebook."""
    active = SparkSession.getActiveSession()
    return None if active is None or any(active is ours for ours in _ours.values()) else active


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Session settings for a while. They tune and never change results, so where a platform refuses one, work goes on without.
    Afterwards they are what they were: to unset one would give Spark's own default, not what the server was started with."""
    former: dict[str, str | None] = {}
    for key, value in wanted.items():
        with suppress(PySparkException):
            before = spark.conf.get(key, None)
            spark.conf.set(key, value)
            former[key] = before
    try:
        yield
    finally:
        for key, before in former.items():
            if before is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, before)


def is_local() -> bool:
    """The session will be the local server's, so tables live under the home."""
    return foreign_session() is None and "SPARK_REMOTE" not in os.environ and not _has_databricks_connect()


def _remote(url: str) -> SparkSession:
    with _creating:  # of two sessions that threads make at once, one would pass for somebody else's
        if url not in _ours:
            _ours[url] = SparkSession.builder.remote(url).create()
        return _ours[url]


def _impatient(session: Any) -> SparkSession:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=8, max_backoff=2000)])
    found: SparkSession = session
    return found


def _has_databricks_connect() -> bool:
    return importlib.util.find_spec("databricks") is not None and importlib.util.find_spec("databricks.connect") is not None


def _databricks_connect() -> SparkSession:
    from databricks.connect import DatabricksSession

    try:
        session: SparkSession = DatabricksSession.builder.getOrCreate()
    except Exception as error:  # whatever is wrong with credentials, network or workspace
        why = first_line(error).rstrip(".")
        raise Unavailable(f"no session of a Databricks workspace: {why}; lake doctor says what is missing") from None
    return session
