"""A real node and a real gateway side by side: blocks come over JSON-RPC, and both give the same answers."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chainlake.bench.log_serving import serving
from chainlake.lake import Lake
from chainlake.lake.home import Home
from chainlake.sources.endpoint import endpoint
from chainlake.sources.rpc_client import Limits, RpcClient, RpcFailure
from tests.conformance.anvil import Anvil, install, running

FIELDS = ("address", "topics", "data", "blockNumber", "transactionHash", "transactionIndex", "blockHash", "logIndex", "removed")
TOPICS = ["0x" + f"{number:064x}" for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anvil]:
    program = install(tmp_path_factory.mktemp("anvil"))
    if isinstance(program, str):
        pytest.skip(program)
    with running(program) as anvil:
        yield anvil


def random_filter(rng: random.Random, contracts: list[str], head: int) -> dict[str, Any]:
    first = rng.randrange(head + 1)
    asked: dict[str, Any] = {"fromBlock": hex(first), "toBlock": hex(rng.randrange(first, head + 1))}
    if rng.random() < 0.6:
        asked["address"] = rng.sample(contracts, rng.randrange(1, len(contracts) + 1))
    if rng.random() < 0.7:
        asked["topics"] = [rng.choice([None, rng.choice(TOPICS), rng.sample(TOPICS, 2)]) for _ in range(rng.randrange(3))]
    return asked


def test_the_gateway_answers_as_the_node_that_the_blocks_came_from(full_lake: Lake, home: Home, chain: str, node: Anvil) -> None:
    contracts = [node.deploy() for _ in range(3)]
    for number in range(12):
        node.log(contracts[number % 3], bytes([number]) * number)
    full_lake.ingest(chain, "evm", node.url, {"finality": "latest:0"})
    for stage in ("bronze.logs", "gold.logs"):
        assert list(full_lake.run_stage(stage, chains=chain)["status"]) == ["ok"]
    head, rng, compared = int(node.call("eth_blockNumber"), 16), random.Random(5), 0
    loose = ("--topic-rule", "loose")  # anvil, like reth, ignores wildcards at the end
    with serving(Path(home.path), full_lake.namespace.prefix, chain, *loose) as url:
        ours = RpcClient(endpoint(url, {}), Limits(retries=3))
        assert ours.call("eth_chainId") == node.call("eth_chainId")
        assert ours.call("eth_blockNumber") == node.call("eth_blockNumber")
        for _ in range(60):
            asked = random_filter(rng, contracts, head)
            expected, found = node.call("eth_getLogs", asked), ours.call("eth_getLogs", asked)
            assert not isinstance(found, RpcFailure), (asked, found)
            assert [{k: log[k] for k in FIELDS} for log in found] == [{k: log[k] for k in FIELDS} for log in expected], asked
            compared += len(expected)
        ours.close()
    assert compared > 100
