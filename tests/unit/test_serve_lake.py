"""The gateway over a lake directory: its answers are the naive scan's, it follows commits, and `lake serve` is a process."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from datetime import datetime, timezone
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from chainlake.cli.main import main
from chainlake.cli.serve import NUMBERS, open_gateway
from chainlake.errors import BadInput
from chainlake.logs.filter import LogFilter
from chainlake.logs.query import LogIndex
from chainlake.logs.settings import Settings as IndexSettings
from chainlake.serve.access_log import AccessLog
from chainlake.serve.control import LakeControl, chain_id_of, choose_chain
from chainlake.serve.embedded import EmbeddedLake
from chainlake.serve.gateway import Gateway
from chainlake.serve.log_engine import IndexEngine
from chainlake.serve.settings import Settings
from tests.unit.logs_lake import LogsLake
from tests.unit.serve_memory import Caller, MemoryEngine, post
from tests.unit.test_serve_metrics import ask, health

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
CHAINS = pa.schema(
    [
        *(("chain", pa.string()), ("kind", pa.string()), ("source", pa.string())),
        *(("options", pa.map_(pa.string(), pa.string())), ("at", pa.timestamp("us", "UTC"))),
    ]
)
HEALTH = pa.schema(
    [*((name, pa.string()) for name in ("stage", "chain", "status", "reason", "actor")), ("at", pa.timestamp("us", "UTC"))]
)


def add_chain(home: Path, name: str, kind: str = "evm", **options: str) -> None:
    row = {"chain": name, "kind": kind, "source": "x", "options": list(options.items()), "at": AT}
    write_deltalake(home / "warehouse/control/chains", pa.Table.from_pylist([row], CHAINS), mode="append")


def degrade(home: Path, stage: str, chain: str, reason: str) -> None:
    row = {"stage": stage, "chain": chain, "status": "degraded", "reason": reason, "actor": "x", "at": AT}
    write_deltalake(home / "warehouse/control/health", pa.Table.from_pylist([row], HEALTH), mode="append")


@pytest.fixture
def lake(tmp_path: Path) -> LogsLake:
    lake = LogsLake(tmp_path)
    for blocks in (10, 5, 1):
        lake.advance(blocks)
    add_chain(tmp_path, "main", chain_id="77")
    return lake


@pytest.fixture
def caller(lake: LogsLake) -> Iterator[Caller]:
    log = StringIO()
    index = LogIndex(lake.home, lake.chain, settings=IndexSettings(follow_seconds=0, max_or_terms=4))
    control = LakeControl(EmbeddedLake(lake.home))
    gateway = Gateway(lake.chain, IndexEngine(index), control, Settings(chain_id=77), AccessLog(True, log))
    yield Caller(gateway, MemoryEngine([]), log)
    gateway.close()


def random_filter(lake: LogsLake, rng: random.Random) -> LogFilter:
    numbers = sorted(rng.choice(lake.blocks).number for _ in range(2))
    addresses = tuple(lake.values.address() for _ in range(rng.randrange(3)))
    topics = tuple(tuple(lake.values.topic(p) for _ in range(rng.randrange(3))) for p in range(rng.randrange(4)))
    return LogFilter(addresses, topics, *numbers)


def as_json(wanted: LogFilter) -> dict[str, Any]:
    assert wanted.from_block is not None and wanted.to_block is not None
    return {
        "fromBlock": hex(wanted.from_block),
        "toBlock": hex(wanted.to_block),
        "address": ["0x" + address.hex() for address in wanted.addresses],
        "topics": [["0x" + topic.hex() for topic in position] for position in wanted.topics],
    }


def places(logs: Any) -> list[tuple[int, int]]:
    return [(int(log["blockNumber"], 16), int(log["logIndex"], 16)) for log in logs]


def test_answers_are_those_of_a_scan_and_pages_too(lake: LogsLake, caller: Caller) -> None:
    rng = random.Random(7)
    head = lake.blocks[-1].number
    for _ in range(40):
        wanted = random_filter(lake, rng)
        expected = [log.place for log in lake.expected(wanted, head)]
        assert places(caller.result("eth_getLogs", as_json(wanted))) == expected
        for order in ("asc", "desc"):
            found: list[tuple[int, int]] = []
            cursor = None
            while True:
                page = caller.result("lake_getLogsPage", as_json(wanted), {"limit": 6, "order": order, "cursor": cursor})
                found += places(page["logs"])
                cursor = page["nextCursor"]
                if cursor is None:
                    break
            assert found == (expected if order == "asc" else expected[::-1])


def test_a_log_is_printed_in_full(lake: LogsLake, caller: Caller) -> None:
    log = next(log for log in lake.visible(lake.blocks[-1].number) if len(log.topics) == 3)
    answer = caller.result("eth_getLogs", {"blockHash": "0x" + log.block_hash.hex()})[log.log_index]
    assert answer == {
        "address": "0x" + log.address.hex(),
        "topics": ["0x" + topic.hex() for topic in log.topics],
        "data": "0x" + (b"%d" % log.log_id).hex(),
        "blockNumber": hex(log.block_number),
        "transactionHash": "0x" + log.block_hash[::-1].hex(),
        "transactionIndex": hex(log.log_index // 2),
        "blockHash": "0x" + log.block_hash.hex(),
        "blockTimestamp": hex(int(AT.timestamp()) + 12 * log.block_number),
        "logIndex": hex(log.log_index),
        "removed": False,
    }


def test_commits_and_rollbacks_are_followed(lake: LogsLake, caller: Caller) -> None:
    name = caller.result("eth_newFilter", {})
    before = lake.blocks[-1].number
    lake.advance(4)
    assert caller.result("eth_blockNumber") == hex(before + 4)
    assert places(caller.result("eth_getFilterChanges", name)) == [
        log.place for log in lake.visible(before + 4) if log.block_number > before
    ]
    lake.rollback(before - 1)
    assert int(caller.result("eth_blockNumber"), 16) < before
    assert caller.error("eth_getFilterChanges", name) == (-32000, "filter not found")


def test_errors_of_the_index_have_their_codes(lake: LogsLake, caller: Caller) -> None:
    assert caller.error("eth_getLogs", {"blockHash": "0x" + "ab" * 32}) == (-32000, "Block not found.")
    many = [f"0x{number:040x}" for number in range(5)]
    answer = caller.call("eth_getLogs", {"fromBlock": "earliest", "address": many})
    assert (answer["error"]["code"], answer["error"]["message"]) == (-32000, "query too broad") and answer["error"]["data"]
    assert caller.error("eth_getLogs", {"fromBlock": "0x0"})[0] == 4444
    assert caller.error("eth_getLogs", {"fromBlock": hex(lake.blocks[-1].number), "toBlock": "0xffff"})[0] == -32602


def test_a_plan_says_how_clauses_were_used(lake: LogsLake, caller: Caller) -> None:
    log = lake.visible(lake.blocks[-1].number)[0]
    answer = caller.result("lake_explain", {"fromBlock": "earliest", "address": "0x" + log.address.hex()})
    assert answer["plan"]["clauses"][0]["field"] == "address" and answer["plan"]["results"] == answer["logs"] > 0
    line = caller.lines()[-1]
    assert line["plan"] in ("index", "scan") and line["logs"] == answer["logs"]


def test_health_and_metrics_come_from_the_lake(lake: LogsLake, caller: Caller) -> None:
    caller.result("eth_getLogs", {"fromBlock": "earliest"})
    status, report = health(caller)
    assert status == 200 and report["head"]["number"] == lake.blocks[-1].number and report["firstBlock"] == lake.first + 1
    assert [stage["stage"] for stage in report["stages"]] == ["raw.logs", "bronze.logs", "gold.logs"]
    page = ask(caller, "/metrics").body.decode()
    assert "lake_control_readable 1" in page and 'lake_cache_hits_total{cache="logs"}' in page
    assert 'lake_ledger_commits_total{stage="gold.logs",kind="advance"} 3' in page and "lake_index_queries_total 1" in page


def test_a_degraded_stage_makes_health_503(lake: LogsLake, caller: Caller) -> None:
    degrade(lake.home, "bronze.logs", "main", "the bloom of block 9 does not match")
    degrade(lake.home, "bronze.logs", "other", "something else")
    status, report = health(caller)
    assert (status, report["reasons"]) == (503, ["bronze.logs main is degraded: the bloom of block 9 does not match"])


def test_a_damaged_file_is_named_and_makes_health_503(lake: LogsLake, caller: Caller) -> None:
    assert health(caller)[0] == 200
    for path in (lake.home / "warehouse" / "store" / "bronze_evm_logs").glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:100])
    code, message = caller.error("eth_getLogs", {"fromBlock": "earliest"})
    assert code == -32000 and message.startswith("bronze_evm_logs/") and message.endswith("run lake verify, then lake restore")
    status, report = health(caller)
    assert (status, report["reasons"]) == (503, [message])


def test_a_chain_without_blocks_is_served_and_not_healthy(lake: LogsLake) -> None:
    add_chain(lake.home, "empty")
    control = LakeControl(EmbeddedLake(lake.home))
    gateway = Gateway("empty", IndexEngine(LogIndex(lake.home, "empty")), control, Settings(), AccessLog(True, StringIO()))
    caller = Caller(gateway, MemoryEngine([]), StringIO())
    assert caller.error("eth_blockNumber")[0] == -32000 and health(caller)[0] == 503
    assert caller.result("eth_chainId") == "0x539"


def test_the_chain_is_the_only_evm_chain_or_the_one_named(lake: LogsLake) -> None:
    control = LakeControl(EmbeddedLake(lake.home))
    add_chain(lake.home, "a-shard", "comet")
    assert choose_chain(control.chains(), None)["chain"] == "main" and chain_id_of(choose_chain(control.chains(), "main")) == 77
    with pytest.raises(BadInput, match="unknown evm chain 'a-shard': there are main"):
        choose_chain(control.chains(), "a-shard")
    add_chain(lake.home, "other")
    with pytest.raises(BadInput, match="there are main, other: choose one with --chain"):
        choose_chain(control.chains(), None)
    assert chain_id_of(choose_chain(control.chains(), "other")) == 1337
    with pytest.raises(BadInput, match="there is none: lake ingest takes one in"):
        choose_chain({}, None)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--port", "http"], "--port 'http': a number from 0 to 65535 is expected"),
        (["--port", "70000"], "--port '70000'"),
        (["--max-results", "0"], "--max-results '0': a number from 1 to 1000000 is expected"),
        (["--threads", "-1"], "--threads '-1'"),
        (["--chain-id", "main"], "--chain-id 'main': a number like 1 or 0x1 is expected"),
        (["--chain", "mars"], "unknown evm chain 'mars': there are main"),
    ],
)
def test_bad_options_are_one_line(lake: LogsLake, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--home", str(lake.home), *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("lake: ") and shown.err.count("\n") == 1 and text in shown.err


def test_a_home_without_a_lake_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--home", str(tmp_path)]) == 2
    assert f"there is no lake in {tmp_path}" in capsys.readouterr().err


def test_options_reach_the_gateway(lake: LogsLake) -> None:
    given = Namespace(host="::1", chain=None, cors=["*"], allow_host=["Lake.Example"], no_access_log=True)
    given.topic_rule, given.range_rule, given.too_broad = "loose", "clip", "scan"
    numbers = {number.option: number.default for number in NUMBERS} | {"max-results": 5, "timeout": 7, "cache": 300}
    gateway = open_gateway(lake.home, given, numbers, None)
    assert gateway.engine.caches()["logs"]["max_bytes"] == 300 << 20
    settings = gateway.settings
    gateway.close()
    assert (settings.host, settings.chain_id, settings.max_results, settings.request_seconds) == ("::1", 77, 5, 7.0)
    assert (settings.filters.topic_rule, settings.filters.range_rule, settings.access_log) == ("loose", "clip", False)
    assert (settings.cors, settings.allowed_hosts) == (("*",), ("lake.example",))


def test_the_defaults_of_the_command_are_those_of_the_settings() -> None:
    defaults = Settings()
    assert {number.option: number.default for number in NUMBERS}["cache"] == 0, "0 stands for a share of the machine's memory"
    for number in (one for one in NUMBERS if one.option != "cache"):
        name = {"timeout": "request_seconds"}.get(number.option, number.option.replace("-", "_"))
        assert number.default == getattr(IndexSettings() if name == "max_or_terms" else defaults, name), number.option


def start(home: Path, *arguments: str) -> tuple["subprocess.Popen[str]", tuple[str, int]]:
    command = [sys.executable, "-m", "chainlake.cli.main", "serve", "--home", str(home), "--port", "0", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "LAKE_PREFIX": ""}
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://(127\.0\.0\.1):(\d+)", line)
    assert found, (line, process.stderr and process.stderr.read())
    return process, (found[1], int(found[2]))


def test_lake_serve_answers_and_ends(lake: LogsLake) -> None:
    process, address = start(lake.home)
    try:
        call = {"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber"}
        assert post(address, {**call, "method": "eth_chainId"})["result"] == hex(77)
        assert post(address, call)["result"] == hex(lake.blocks[-1].number)
        answer = post(address, {**call, "method": "eth_getLogs", "params": [{"fromBlock": "earliest"}]})
        assert places(answer["result"]) == [log.place for log in lake.visible(lake.blocks[-1].number)]
        busy = subprocess.run(
            [sys.executable, "-m", "chainlake.cli.main", "serve", "--home", str(lake.home), "--port", str(address[1])],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert busy.returncode == 2 and busy.stderr.startswith(f"lake: cannot listen on 127.0.0.1 port {address[1]}")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0
    lines = [json.loads(line) for line in errors.splitlines()]
    assert [line["method"] for line in lines] == ["eth_chainId", "eth_blockNumber", "eth_getLogs"]
