"""The log index beside PostgreSQL with its indexes and DuckDB on the same Parquet files: loading, size, and queries of each kind.

Everything is measured in one run on the same logs. Answers are compared before anything is timed.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from chainlake.bench.log_queries import COLUMNS, QueryClass, workload
from chainlake.bench.peers import DuckDb, Peer
from chainlake.bench.report import Result
from chainlake.bench.scratch import scratch, stage_seconds
from chainlake.cli.show import emit
from chainlake.demo import evm_scale
from chainlake.errors import LakeError
from chainlake.lake import Lake, open_lake
from chainlake.logs.filter import LogFilter
from chainlake.logs.query import LogIndex
from chainlake.serve.embedded import EmbeddedLake

CHAIN = "bench"
LOGS, QUICK_LOGS = 2_000_000, 100_000
STAGES = ("raw.logs", "bronze.logs", "gold.logs")
SERVE_SECONDS, CLIENTS = 8, 4
FIRST_ANSWER = """
import sys
from pathlib import Path
from chainlake.logs.filter import LogFilter
from chainlake.logs.query import LogIndex
from chainlake.serve.embedded import EmbeddedLake

index = LogIndex(Path(sys.argv[1]), sys.argv[2], prefix=sys.argv[3])
index.query(LogFilter(topics=((), (bytes.fromhex(sys.argv[4]),)), from_block=0, to_block=1 << 40))
"""


def run(home: str, quick: bool, size: int | None = None) -> Iterator[Result]:
    """All measurements, in a lake of its own that is removed afterwards."""
    logs = size or (QUICK_LOGS if quick else LOGS)
    with scratch(home) as (prefix, directory):
        lake = open_lake(home, schema_prefix=prefix)
        yield from _other_shapes(lake, directory, logs // 10)
        written = evm_scale.write(directory / CHAIN, evm_scale.Scale(logs=logs))
        yield from Bench(lake, Path(home), prefix, directory, written).all()


def _other_shapes(lake: Lake, directory: Path, logs: int) -> Iterator[Result]:
    """Blocks with few and with many logs. Comes first, and so also warms up what is measured next."""
    for per_block in (10, 1000):
        name = f"bench-{per_block}"
        evm_scale.write(directory / name, evm_scale.Scale(logs=logs, logs_per_block=per_block), parquet=False)
        seconds = _ingest(lake, name, directory / name)
        rate = logs / (seconds["bronze.logs"] + seconds["gold.logs"])
        yield Result(f"raw to gold, {per_block:,} logs per block", rate, "logs/s", "target", 50_000, higher_is_better=True)


def _ingest(lake: Lake, chain: str, source: Path) -> dict[str, float]:
    """Seconds of each stage."""
    lake.add_chain(chain, "evm", str(source))
    return {stage: stage_seconds(lake, stage, chain) for stage in STAGES}


class Bench:
    """One chain, loaded everywhere."""

    def __init__(self, lake: Lake, home: Path, prefix: str, directory: Path, written: evm_scale.Written) -> None:
        self.lake, self.home, self.prefix = lake, home, prefix
        self.directory, self.written = directory, written

    def all(self) -> Iterator[Result]:
        with _postgres() as postgres:
            yield from self.loading(postgres)
            yield from self.sizes(postgres)
            duck = DuckDb(self.directory / "duck")
            duck.open(self.files("bronze.evm_logs"))
            yield from self.queries(duck, postgres)
            duck.close()
        yield from self.first_answer()
        yield from self.gateway()

    def loading(self, postgres: Peer | None) -> Iterator[Result]:
        """From files to what can be asked for."""
        seconds = _ingest(self.lake, CHAIN, self.directory / CHAIN)
        logs = self.written.logs
        assert self.written.parquet is not None
        peer = None
        if postgres is not None:
            batches = pq.ParquetFile(self.written.parquet).iter_batches(100_000)
            peer = logs / postgres.load(pa.Table.from_batches([batch]) for batch in batches)
        for name, stages in (("raw to gold", STAGES[1:]), ("files to gold", STAGES)):
            rate = logs / sum(seconds[stage] for stage in stages)
            yield Result(f"{name}, {logs:,} logs", rate, "logs/s", "PostgreSQL, a COPY per block", peer, higher_is_better=True)
        for stage in STAGES:
            yield Result(f"  {stage}", logs / seconds[stage], "logs/s", higher_is_better=True)

    def sizes(self, postgres: Peer | None) -> Iterator[Result]:
        """Bytes on disk of the logs and everything needed to find them."""
        tables = ("bronze.evm_logs", "gold.log_chunks", "gold.log_manifests", "gold.log_tails", "gold.block_meta")
        sizes = {name: sum(path.stat().st_size for path in self.files(name)) / self.written.logs for name in tables}
        peer = postgres.bytes() / self.written.logs if postgres is not None else None
        yield Result("logs and index on disk", sum(sizes.values()), "bytes/log", "PostgreSQL", peer)
        yield Result("  index alone", sum(sizes.values()) - sizes["bronze.evm_logs"], "bytes/log")

    def files(self, table: str) -> list[Path]:
        """The Parquet files of a table that hold this chain: whole files, since a commit writes files of its own."""
        commits = {c.commit_id for c in self.lake.ledger.read().commits() if c.chain == CHAIN}
        log = EmbeddedLake(self.home, self.prefix).log(table)
        log.refresh()
        return [Path(file.path) for file in log.files if file.low.get("_commit") in commits]

    def index(self) -> LogIndex:
        return LogIndex(self.home, CHAIN, prefix=self.prefix)

    def queries(self, duck: Peer, postgres: Peer | None) -> Iterator[Result]:
        """Each class cold (nothing cached by us) and warm, at p50, p95 and p99."""
        assert self.written.parquet is not None
        for kind in workload(pq.read_table(self.written.parquet, columns=list(COLUMNS))):
            self._compare(kind, [duck, *([postgres] if postgres is not None else [])])
            cold = [_timed(self._ask(self.index(), kind), one) for one in kind.filters[:5]]
            index = self.index()
            ours = _all(self._ask(index, kind), kind.filters)
            theirs = {peer.name: _all(_asking(peer, kind), kind.filters) for peer in (duck, postgres) if peer is not None}
            yield Result(f"{kind.name}: cold p50", _ms(cold, 50), "ms")
            for name, taken in theirs.items():
                for percent in (50, 95, 99):
                    yield Result(f"{kind.name}: p{percent}", _ms(ours, percent), "ms", name, _ms(taken, percent))

    def _compare(self, kind: QueryClass, peers: Sequence[Peer]) -> None:
        index = self.index()
        for one in kind.filters[:5]:
            logs = index.query(one, max_results=kind.max_results).logs
            ours = list(zip(logs["block_number"].to_pylist(), logs["log_index"].to_pylist(), strict=True))
            for peer in peers:
                if [tuple(key) for key in peer.keys(one, kind.max_results)] != ours:
                    raise LakeError(f"{kind.name}: {peer.name} and the index give different answers to {one}")

    def _ask(self, index: LogIndex, kind: QueryClass) -> Callable[[LogFilter], object]:
        return lambda one: index.query(one, max_results=kind.max_results).logs.to_pylist()

    def first_answer(self) -> Iterator[Result]:
        """A new process: imports, opening the lake, one selective query."""
        assert self.written.parquet is not None
        value = pq.ParquetFile(self.written.parquet).read_row_group(0, columns=["transaction_hash", "topic1"])["topic1"]
        topic = next(one for one in value.to_pylist() if one)
        taken = []
        for _ in range(3):
            began = time.monotonic()
            subprocess.run(
                [sys.executable, "-c", FIRST_ANSWER, self.home, CHAIN, self.prefix, topic.hex()], check=True, capture_output=True
            )
            taken.append(time.monotonic() - began)
        yield Result("first answer of a new process", statistics.median(taken), "s", "target", 1.0)

    def gateway(self) -> Iterator[Result]:
        """Selective queries over HTTP from several clients at once."""
        assert self.written.parquet is not None
        kinds = [k for k in workload(pq.read_table(self.written.parquet, columns=list(COLUMNS)), count=50) if k.selective]
        bodies = [_request(one) for kind in kinds for one in kind.filters]
        with serving(self.home, self.prefix) as url, ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda body: _post(url, body), bodies))
            until = time.monotonic() + SERVE_SECONDS
            parts = list(pool.map(lambda client: _load(url, bodies[client::CLIENTS], until), range(CLIENTS)))
        taken = [seconds for part in parts for seconds in part]
        yield Result("gateway, selective queries", len(taken) / SERVE_SECONDS, "queries/s", "target", 200, higher_is_better=True)
        yield Result("gateway, p99", _ms(taken, 99), "ms", "target", 50)


@contextmanager
def _postgres() -> Iterator[Peer | None]:
    """PostgreSQL, or None with a reason where it is not installed."""
    from chainlake.bench.postgres import Postgres

    try:
        peer = Postgres()
    except LakeError as error:
        emit(f"without PostgreSQL: {error}")
        yield None
        return
    try:
        yield peer
    finally:
        peer.close()


def _asking(peer: Peer, kind: QueryClass) -> Callable[[LogFilter], object]:
    return lambda one: peer.query(one, kind.max_results)


def _all(ask: Callable[[LogFilter], object], filters: Sequence[LogFilter]) -> list[float]:
    """Seconds of each filter, the second time that it is asked."""
    for one in filters:
        ask(one)
    return [_timed(ask, one) for one in filters for _ in range(3)]


def _timed(ask: Callable[[LogFilter], object], one: LogFilter) -> float:
    began = time.perf_counter()
    ask(one)
    return time.perf_counter() - began


def _ms(seconds: Sequence[float], percent: int) -> float:
    ordered = sorted(seconds)
    return 1000 * ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _request(one: LogFilter) -> bytes:
    asked: dict[str, object] = {"topics": [[f"0x{t.hex()}" for t in values] or None for values in one.topics]}
    if one.addresses:
        asked["address"] = [f"0x{address.hex()}" for address in one.addresses]
    if one.block_hash is not None:
        asked["blockHash"] = f"0x{one.block_hash.hex()}"
    else:
        asked |= {"fromBlock": hex(one.from_block or 0), "toBlock": "latest" if one.to_block is None else hex(one.to_block)}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [asked]}).encode()


def _post(url: str, body: bytes) -> float:
    began = time.perf_counter()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = json.loads(answer.read())
    if "error" in found:
        raise LakeError(f"the gateway answered {found['error']} to {body.decode()}")
    return time.perf_counter() - began


def _load(url: str, bodies: Sequence[bytes], until: float) -> list[float]:
    taken: list[float] = []
    while time.monotonic() < until:
        taken.append(_post(url, bodies[len(taken) % len(bodies)]))
    return taken


@contextmanager
def serving(home: Path, prefix: str, chain: str = CHAIN, *options: str) -> Iterator[str]:
    """`lake serve` as a process of its own, on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "chainlake.cli.main", "serve", "--home", str(home), "--chain", chain]
    command += ["--port", str(port), "--no-access-log", *options]
    process = subprocess.Popen(command, env={**os.environ, "LAKE_PREFIX": prefix}, stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(30)
