"""The conformance cases of ethereum/execution-apis and 200 random filters, all with geth 1.17.5's answers, through JSON-RPC:
against a plain list of logs, and against an index of several segments, one of them merged."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chainlake.logs.query import LogIndex
from chainlake.logs.seal import Sealing
from chainlake.logs.settings import Settings
from chainlake.serve.log_engine import IndexEngine
from tests.unit.logs_from_lines import LinesLake
from tests.unit.serve_memory import Caller, MemoryEngine, make_caller, post, read_line, serving

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "evm"
CASES, CHAIN = DATA / "execution_apis_cases.json", DATA / "execution_apis_chain.jsonl.gz"

pytestmark = pytest.mark.skipif(not CASES.is_file(), reason=f"the recorded cases are not at {CASES}")

ON_PURPOSE = {"unknown block": "Block not found."}
"""Where we differ from geth on purpose: an unknown blockHash is refused in the words of the log index's own specification."""

Json = dict[str, Any]


@cache
def recorded() -> Json:
    found: Json = json.loads(CASES.read_text())
    return found


def cases() -> list[Json]:
    return recorded()["cases"] if CASES.is_file() else []


def short_cases() -> list[Json]:
    """Those with a few logs: some of the chain's logs have 190 kB of data."""
    return [case for case in cases() if len(case["response"].get("result_refs", ())) <= 25]


@pytest.fixture(scope="module", params=["list", "index"])
def caller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    with gzip.open(CHAIN, "rt") as lines:
        engine = MemoryEngine([read_line(line) for line in lines])
    asked = engine if request.param == "list" else index_of(tmp_path_factory.mktemp("lake"))
    caller = replace(make_caller(asked, chain_id=int(recorded()["chainId"], 16)), engine=engine)  # type: ignore[arg-type]
    yield caller
    caller.gateway.close()


def index_of(home: Path) -> IndexEngine:
    """The chain as the index holds it, with a planner that takes looking through logs for expensive: so few would never be
    looked up otherwise."""
    lake = LinesLake(home, sealing=Sealing(entries=3))
    with gzip.open(CHAIN, "rb") as file:
        lines = list(file)
    for at in range(0, len(lines), 12):
        lake.take(lines[at : at + 12])
    lake.merge(2)
    return IndexEngine(LogIndex(home, lake.chain, settings=Settings(group_rows=1, few_candidates=0)))


def expected(caller: Caller, response: Json) -> Json:
    """The JSON that geth answered, with the texts that differ on purpose put in place."""
    if "error" in response:
        error = response["error"]
        return {"error": {**error, "message": ON_PURPOSE.get(error["message"], error["message"])}}
    by_place = {(log.block_number, log.log_index): log.to_json() for log in caller.engine.logs()}
    return {"result": [by_place[block, index] for block, index in response["result_refs"]]}


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"].removeprefix("tests/eth_getLogs/"))
def test_the_answer_is_that_of_geth(caller: Caller, case: Json) -> None:
    answer = caller.call("eth_getLogs", *case["request"])
    assert answer == {"jsonrpc": "2.0", "id": 1, **expected(caller, case["response"])}


def test_there_are_all_cases() -> None:
    names = [case["name"] for case in cases()]
    assert len([name for name in names if name.startswith("tests/")]) == 10
    assert len([name for name in names if name.startswith("random-")]) == 200


def test_the_index_is_used_where_it_is_asked(caller: Caller) -> None:
    if isinstance(caller.gateway.engine, MemoryEngine):
        pytest.skip("a list has no index")
    plans = [caller.call("lake_explain", *case["request"]).get("result", {}).get("plan", {}) for case in cases()]
    assert sum(plan.get("plan") in ("index", "empty") for plan in plans) > 100
    chunks = caller.gateway.engine.caches()["chunks"]
    assert chunks["hits"] + chunks["misses"] > 100


def test_only_unknown_blocks_differ_from_geth() -> None:
    errors = {case["response"]["error"]["message"] for case in cases() if "error" in case["response"]}
    assert errors & set(ON_PURPOSE) == {"unknown block"}


def test_logs_are_printed_with_the_members_and_in_the_order_of_geth(caller: Caller) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [{"fromBlock": "0x4", "toBlock": "0x4"}]})
    with gzip.open(CHAIN, "rt") as lines:
        printed = [log for line in lines for log in json.loads(line)["logs"] if log["blockNumber"] == "0x4"]
    compact = json.dumps(printed, separators=(",", ":"))
    assert caller.raw(body.encode()) == f'{{"jsonrpc":"2.0","id":1,"result":{compact}}}'.encode()


def test_the_chain_id_and_head_are_those_of_the_chain(caller: Caller) -> None:
    assert caller.result("eth_chainId") == recorded()["chainId"]
    assert caller.result("eth_blockNumber") == hex(recorded()["head"])
    assert caller.result("net_version") == str(int(recorded()["chainId"], 16))


def test_blocks_are_those_of_the_source(caller: Caller) -> None:
    with gzip.open(CHAIN, "rt") as lines:
        headers = [json.loads(line)["block"] for line in lines]
    for header in headers:
        stated = {name: value for name, value in header.items() if value is not None}
        assert stated.items() <= caller.result("eth_getBlockByNumber", header["number"], False).items()
        assert caller.result("eth_getBlockByHash", header["hash"], True)["transactions"] == header["transactions"]


def test_paging_brings_every_answer_in_pieces(caller: Caller) -> None:
    for case in short_cases():
        if "error" in case["response"]:
            continue
        for order in ("asc", "desc"):
            found: list[Json] = []
            cursor = None
            while True:
                page = caller.result("lake_getLogsPage", case["request"][0], {"limit": 4, "order": order, "cursor": cursor})
                found += page["logs"]
                cursor = page["nextCursor"]
                if cursor is None:
                    break
            answer = expected(caller, case["response"])["result"]
            assert found == (answer if order == "asc" else answer[::-1]), case["name"]


def test_cases_in_batches_over_http(caller: Caller) -> None:
    wanted = short_cases()
    messages = [
        {"jsonrpc": "2.0", "id": number, "method": "eth_getLogs", "params": case["request"]} for number, case in enumerate(wanted)
    ]
    with serving(make_caller(caller.gateway.engine)) as address:  # type: ignore[arg-type]
        answers = post(address, messages[:100]) + post(address, messages[100:])
    assert [answer["id"] for answer in answers] == list(range(len(wanted)))
    for answer, case in zip(answers, wanted, strict=True):
        assert {name: answer[name] for name in answer if name in ("result", "error")} == expected(caller, case["response"])
