"""The log index as a service: how soon a new process answers, and how many queries the gateway takes."""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from chainlake.bench.log_queries import COLUMNS, workload
from chainlake.bench.report import Result, percentile_ms
from chainlake.errors import LakeError
from chainlake.logs.filter import LogFilter

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


def answers_over_http(home: Path, prefix: str, chain: str, logs: Path) -> Iterator[Result]:
    """A new process each time, then one that serves."""
    yield _first_answer(home, prefix, chain, logs)
    yield from _gateway(home, prefix, chain, logs)


def _first_answer(home: Path, prefix: str, chain: str, logs: Path) -> Result:
    """Imports, opening the lake, one selective query."""
    values = pq.ParquetFile(logs).read_row_group(0, columns=["topic1"])["topic1"].to_pylist()
    topic = next(one for one in values if one)
    taken = []
    for _ in range(3):
        began = time.monotonic()
        command = [sys.executable, "-c", FIRST_ANSWER, str(home), chain, prefix, topic.hex()]
        subprocess.run(command, check=True, capture_output=True)
        taken.append(time.monotonic() - began)
    return Result("first answer of a new process", statistics.median(taken), "s", "target", 1.0)


def _gateway(home: Path, prefix: str, chain: str, logs: Path) -> Iterator[Result]:
    """Selective queries over HTTP from several clients at once."""
    kinds = [kind for kind in workload(pq.read_table(logs, columns=list(COLUMNS)), count=50) if kind.selective]
    bodies = [_request(one) for kind in kinds for one in kind.filters]
    with serving(home, prefix, chain) as url, ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda body: _post(url, body), bodies))
        until = time.monotonic() + SERVE_SECONDS
        parts = list(pool.map(lambda client: _load(url, bodies[client::CLIENTS], until), range(CLIENTS)))
    taken = [seconds for part in parts for seconds in part]
    yield Result("gateway, selective queries", len(taken) / SERVE_SECONDS, "queries/s", "target", 200, higher_is_better=True)
    for percent in (50, 95):
        yield Result(f"gateway: p{percent}", percentile_ms(taken, percent), "ms")
    yield Result("gateway: p99", percentile_ms(taken, 99), "ms", "target", 50)


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
def serving(home: Path, prefix: str, chain: str, *options: str) -> Iterator[str]:
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
