"""Peers of the log index: their SQL, and that they answer like a plain scan. Those not installed are skipped."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chainlake.bench import log_queries, peers, pg_cluster, pg_copy, run_benchmark
from chainlake.bench import logs as bench_logs
from chainlake.bench.peers import DUCKDB, POSTGRES, DuckDb, Peer, select
from chainlake.bench.postgres import Postgres
from chainlake.bench.report import Result
from chainlake.demo.evm_scale import COLUMNS, Scale, tables, write
from chainlake.errors import BadInput, Unavailable
from chainlake.logs.filter import LogFilter

A, B, T, U = b"\xaa" * 20, b"\xbb" * 20, b"\x01" * 32, b"\x02" * 32
SCALE = Scale(logs=20_000, logs_per_block=50, seed=5, users=3_000)


@cache
def logs() -> pa.Table:
    return pa.concat_tables(tables(SCALE))


@cache
def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = logs().to_pylist()
    return found


def scan(wanted: LogFilter, head: int) -> list[tuple[int, int]]:
    """Every log is looked at."""
    first = head if wanted.from_block is None else wanted.from_block
    last = head if wanted.to_block is None else wanted.to_block
    return [
        (row["block_number"], row["log_index"])
        for row in rows()
        if (row["block_hash"] == wanted.block_hash if wanted.block_hash else first <= row["block_number"] <= last)
        and (not wanted.addresses or row["address"] in wanted.addresses)
        and row["topic_count"] >= len(wanted.topics)
        and all(not any_of or row[f"topic{at}"] in any_of for at, any_of in enumerate(wanted.topics))
    ]


@pytest.mark.parametrize(
    ("wanted", "where", "parameters"),
    [
        (LogFilter(), "block_number BETWEEN ? AND ?", [9, 9]),
        (LogFilter((A,), (), 1, 2), "address = ? AND block_number BETWEEN ? AND ?", [A, 1, 2]),
        (LogFilter((A, B), (), 1, 2), "address IN (?, ?) AND block_number BETWEEN ? AND ?", [A, B, 1, 2]),
        (
            LogFilter((), ((T,), (), (T, U)), 1, 2),
            "topic0 = ? AND topic2 IN (?, ?) AND block_number BETWEEN ? AND ?",
            [T, T, U, 1, 2],
        ),
        (
            LogFilter((), ((T,), ()), None, None),
            "topic0 = ? AND topic_count >= 2 AND block_number BETWEEN ? AND ?",
            [T, 9, 9],
        ),
        (LogFilter(block_hash=T), "block_number = (SELECT number FROM blocks WHERE hash = ?)", [T]),
    ],
)
def test_a_filter_becomes_only_the_clauses_that_it_needs(wanted: LogFilter, where: str, parameters: list[Any]) -> None:
    assert select(wanted, 9, None, DUCKDB, "*", "") == (f"SELECT * FROM logs WHERE {where}", parameters)


def test_postgres_takes_several_values_as_one_array_so_that_the_statement_stays_the_same() -> None:
    text, parameters = select(LogFilter((A, B), ((T, U),), 1, 2), 9, 100, POSTGRES, "data", " ORDER BY log_id")
    assert text == (
        "SELECT data FROM logs WHERE address = ANY(%s) AND topic0 = ANY(%s) AND block_number BETWEEN %s AND %s"
        " ORDER BY log_id LIMIT 100"
    )
    assert parameters == [[A, B], [T, U], 1, 2]


def test_a_peer_that_is_not_installed_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("duckdb", "psycopg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Unavailable, match=r"^DuckDB is not installed: pip install duckdb==[\d.]+$"):
        peers.connect_duckdb()
    with pytest.raises(Unavailable, match=r"^the PostgreSQL driver is not installed: pip install 'psycopg\[binary\]==[\d.]+'$"):
        Postgres()
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    with pytest.raises(Unavailable, match="PostgreSQL is not installed"):
        pg_cluster.programs()


def test_the_copy_stream_holds_every_field_of_every_row() -> None:
    part = logs().slice(100, 300)
    found = [row for stream in pg_copy.blocks(part) for row in _read_copy(stream)]
    assert len(list(pg_copy.blocks(part))) == len(set(part["block_number"].to_pylist()))
    expected = [tuple(row.values()) for row in part.to_pylist()]
    assert [row[:3] + row[4:] for row in found] == [row[:3] + row[4:] for row in expected]
    assert [row[3] + pg_copy.EPOCH_2000_US for row in found] == [int(row[3].timestamp()) * 1_000_000 for row in expected]
    assert list(pg_copy.blocks(part.slice(0, 0))) == []


def test_a_block_that_is_spread_over_tables_is_copied_at_once() -> None:
    cut = [logs().slice(0, 130), logs().slice(130, 1), logs().slice(131, 0), logs().slice(131, 400)]
    whole = list(pg_copy.whole_blocks(cut))
    assert pa.concat_tables(whole).equals(logs().slice(0, 531))
    streams = [stream for table in whole for stream in pg_copy.blocks(table)]
    assert len(streams) == len(set(logs().slice(0, 531)["block_number"].to_pylist()))
    assert list(pg_copy.whole_blocks([])) == []


def _read_copy(stream: bytes) -> Iterator[tuple[Any, ...]]:
    assert stream.startswith(pg_copy.HEADER) and stream.endswith(pg_copy.TRAILER)
    at, end = len(pg_copy.HEADER), len(stream) - len(pg_copy.TRAILER)
    while at < end:
        count, at = int.from_bytes(stream[at : at + 2], "big"), at + 2
        row = []
        for field in list(COLUMNS)[:count]:
            size, at = int.from_bytes(stream[at : at + 4], "big", signed=True), at + 4
            content, at = stream[at : at + max(size, 0)], at + max(size, 0)
            number = not pa.types.is_binary(field.type)
            row.append(None if size < 0 else int.from_bytes(content, "big", signed=True) if number else content)
        yield tuple(row)


def test_the_workload_is_the_same_each_time_and_asks_for_what_its_classes_say() -> None:
    made = log_queries.workload(logs().select(list(log_queries.COLUMNS)), count=10, seed=2)
    assert made == log_queries.workload(logs(), count=10, seed=2)
    assert made != log_queries.workload(logs(), count=10, seed=3)
    assert [one.name for one in made] == [
        "rare topic",
        "address + topic",
        "hot address + signature, 1,000 blocks",
        "OR of 4 topics",
        "OR of 16 topics",
        "OR of 64 topics",
        "wildcards",
        "blockHash",
        "broad range, first 10,000",
    ]
    head = rows()[-1]["block_number"]
    sizes = {one.name: [len(scan(wanted, head)) for wanted in one.filters] for one in made}
    assert all(0 < size <= log_queries.RARE for size in sizes["rare topic"])
    assert all(size > 0 for found in sizes.values() for size in found)
    assert {len(wanted.topics[1]) for wanted in made[5].filters} == {64}
    assert min(sizes["broad range, first 10,000"]) > 5_000
    assert all(one.block_hash for one in made[7].filters)


def test_a_workload_of_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="there are no logs to ask for"):
        log_queries.workload(logs().slice(0, 0))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Peer]]:
    """A peer with the logs in it; skips the test where it is not installed."""
    with ExitStack() as stack:

        @cache
        def peer(name: str) -> Peer:
            try:
                made: Peer = DuckDb(tmp_path_factory.mktemp("duckdb")) if name == "duckdb" else Postgres()
            except Unavailable as error:
                pytest.skip(str(error))
            stack.callback(made.close)
            assert made.load([logs().slice(0, 9_010), logs().slice(9_010)]) > 0
            return made

        yield peer


@pytest.mark.parametrize("name", ["duckdb", "postgres"])
def test_a_peer_answers_like_a_scan(name: str, loaded: Callable[[str], Peer]) -> None:
    peer, head = loaded(name), rows()[-1]["block_number"]
    more = (
        LogFilter(),
        LogFilter((A,), (), 0, head),
        LogFilter((), ((), (), (), ()), 0, head),
        LogFilter((), ((),), 10, 12),
        LogFilter(block_hash=T),
        LogFilter((), (), 5, 4),
    )
    classes = log_queries.workload(logs(), count=4)
    for wanted in [*more, *(wanted for one in classes for wanted in one.filters)]:
        expected = scan(wanted, head)
        assert peer.keys(wanted) == expected, wanted
        assert peer.query(wanted) == len(expected)
        assert peer.keys(wanted, 7) == expected[:7]
        assert peer.query(wanted, 7) == len(expected[:7])
    assert peer.bytes() > 20_000 * 30


def test_postgres_takes_the_same_logs_from_json_as_from_ready_streams(tmp_path: Path, loaded: Callable[[str], Peer]) -> None:
    ready = loaded("postgres")
    written = write(tmp_path, SCALE, parquet=False)
    with closing(Postgres()) as server:
        assert server.load_lines(bench_logs._lines(written)) > 0
        text = f"SELECT {', '.join(COLUMNS.names)} FROM logs ORDER BY log_id"
        assert isinstance(ready, Postgres)
        assert server._connection.execute(text).fetchall() == ready._connection.execute(text).fetchall()
        assert server.keys(LogFilter()) == ready.keys(LogFilter()) != []


def test_duckdb_takes_files_that_exist_and_refuses_none(tmp_path: Path, loaded: Callable[[str], Peer]) -> None:
    loaded("duckdb")
    made, again = DuckDb(tmp_path / "it's"), DuckDb(tmp_path)
    made.load([logs()])
    again.open([tmp_path / "it's" / "logs.parquet"])
    assert again.query(LogFilter((), (), 0, 10)) == made.query(LogFilter((), (), 0, 10)) > 0
    for wanted in (LogFilter((), (), 0, 10), LogFilter(), LogFilter(block_hash=logs()["block_hash"][0].as_py())):
        assert again.fresh().keys(wanted) == made.keys(wanted) != []
    with pytest.raises(BadInput, match="no Parquet files were given"):
        again.open([])


def test_a_slow_class_of_queries_is_measured_with_the_filters_that_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    filters = tuple(LogFilter((), (), number, number) for number in range(9))
    now = iter(range(1000))
    asked: list[LogFilter] = []
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    assert list(bench_logs._in_time(filters, seconds=3)) == list(filters[:4])
    assert list(bench_logs._in_time(filters, seconds=0)) == list(filters[:1])
    assert list(bench_logs._in_time(filters, seconds=50)) == list(filters)
    assert len(bench_logs._all(asked.append, filters)) == 3 * 5
    assert asked == [*filters[:5], *(one for one in filters[:5] for _ in range(3))]


def test_without_a_peer_a_benchmark_says_so_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> Peer:
        raise Unavailable("not here: install it")

    with bench_logs._if_installed("Oracle", missing) as peer:
        assert peer is None
    assert "without Oracle: not here: install it" in capsys.readouterr().out
    kind = log_queries.QueryClass("some", (LogFilter(),), selective=True)
    alone = list(bench_logs._beside(kind, "some", lambda one: None, None))
    assert [(one.metric, one.peer, one.ratio) for one in alone] == [(f"some: p{percent}", "", None) for percent in (50, 95, 99)]


def test_what_was_found_before_a_run_ended_early_is_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(home: str, quick: bool, size: int | None) -> Iterator[Result]:
        yield Result("first", 2.0, "ms", "peer", 4.0)
        raise BadInput("ended early")

    monkeypatch.setattr(bench_logs, "run", run)
    with pytest.raises(BadInput, match="ended early"):
        run_benchmark("logs", quick=True, home=str(tmp_path / "home"), json_file=str(tmp_path / "found.json"))
    assert [(row["metric"], row["ratio"]) for row in json.loads((tmp_path / "found.json").read_text())] == [("first", 2.0)]


ORPHAN = """
import json, os, signal
from chainlake.bench.postgres import Postgres
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
peer = Postgres()
print(json.dumps(peer._connection.execute("SHOW data_directory").fetchone()), flush=True)
os.kill(os.getpid(), signal.{signal})
"""


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_no_server_and_no_directory_outlive_a_benchmark_that_is_stopped(signal: str, loaded: Callable[[str], Peer]) -> None:
    loaded("postgres")
    done = subprocess.run([sys.executable, "-c", ORPHAN.format(signal=signal)], capture_output=True, text=True, check=False)
    (directory,) = json.loads(done.stdout.splitlines()[0])
    until = time.monotonic() + 20
    while Path(directory).parent.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert done.returncode != 0
    assert not Path(directory).parent.exists()
