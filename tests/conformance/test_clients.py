"""Clients that people use, unchanged, against the running gateway: web3.py, and ethers and viem through node."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.serve_memory import Caller, MemoryEngine, make_blocks, make_caller, serving

BLOCKS = make_blocks(30)
LOGS = [log.to_json() for one in BLOCKS for log in one.logs]
FIRST_ADDRESS = "0x" + "01" * 20
SECOND_TOPIC = "0x" + "02" * 32
BY_ADDRESS = [log for log in LOGS if log["address"] == FIRST_ADDRESS]
BY_TOPIC = [log for log in LOGS if len(log["topics"]) > 1 and log["topics"][1] == SECOND_TOPIC]
PACKAGES = {"ethers": "ethers@6.17.0", "viem": "viem@2.57.0"}

Place = tuple[int, int]


@pytest.fixture
def served() -> Iterator[tuple[Caller, str]]:
    caller = make_caller(MemoryEngine(BLOCKS[:20]), chain_id=77)
    with serving(caller) as (host, port):
        yield caller, f"http://{host}:{port}"


def places(logs: Any) -> list[Place]:
    return [(int(log["blockNumber"], 16), int(log["logIndex"], 16)) for log in logs]


def up_to(logs: Any, block: int) -> list[Place]:
    return [place for place in places(logs) if place[0] <= block]


def test_web3_py_reads_chain_logs_blocks_and_filters(served: tuple[Caller, str]) -> None:
    web3 = pytest.importorskip("web3", reason="web3 is not installed: pip install web3")
    caller, url = served
    w3 = web3.Web3(web3.HTTPProvider(url))
    assert w3.is_connected() and (w3.eth.chain_id, w3.eth.block_number, w3.net.version) == (77, 19, "77")
    assert w3.client_version.startswith("chainlake/v")

    def found(logs: Any) -> list[Place]:
        return [(log["blockNumber"], log["logIndex"]) for log in logs]

    everything = w3.eth.get_logs({"fromBlock": 0, "toBlock": "latest"})
    assert found(everything) == up_to(LOGS, 19)
    assert everything[0]["transactionHash"].to_0x_hex() == LOGS[0]["transactionHash"] and everything[0]["removed"] is False
    address = w3.to_checksum_address(FIRST_ADDRESS)
    assert found(w3.eth.get_logs({"fromBlock": 0, "address": address})) == up_to(BY_ADDRESS, 19)
    assert found(w3.eth.get_logs({"fromBlock": 0, "topics": [None, SECOND_TOPIC]})) == up_to(BY_TOPIC, 19)
    block = w3.eth.get_block("latest")
    assert (block["number"], block["hash"].to_0x_hex()) == (19, "0x" + BLOCKS[19].block.hash.hex())
    assert w3.eth.get_block(block["hash"])["parentHash"] == w3.eth.get_block(18)["hash"]
    with pytest.raises(web3.exceptions.BlockNotFound):
        w3.eth.get_block(99)
    with pytest.raises(web3.exceptions.Web3RPCError, match="block range extends beyond current head block"):
        w3.eth.get_logs({"fromBlock": 0, "toBlock": 99})

    logs, blocks = w3.eth.filter({"fromBlock": 5}), w3.eth.filter("latest")
    assert found(logs.get_all_entries()) == [place for place in up_to(LOGS, 19) if place[0] >= 5]
    caller.engine.advance(BLOCKS[20:25])
    assert found(logs.get_new_entries()) == [place for place in up_to(LOGS, 24) if place[0] >= 20]
    assert [one.to_0x_hex() for one in blocks.get_new_entries()] == ["0x" + one.block.hash.hex() for one in BLOCKS[20:25]]
    assert logs.get_new_entries() == [] and w3.eth.uninstall_filter(logs.filter_id)


def test_web3_py_sends_batches(served: tuple[Caller, str]) -> None:
    web3 = pytest.importorskip("web3", reason="web3 is not installed: pip install web3")
    w3 = web3.Web3(web3.HTTPProvider(served[1]))
    with w3.batch_requests() as batch:
        batch.add(w3.eth.get_block(3))
        for number in range(10):
            batch.add(w3.eth.get_logs({"fromBlock": number, "toBlock": number}))
        block, *logs = batch.execute()
    assert block["number"] == 3
    assert [[log["logIndex"] for log in one] for one in logs] == [[log.log_index for log in one.logs] for one in BLOCKS[:10]]


ETHERS = """
import { JsonRpcProvider, Interface } from "ethers";
const [url, address, topic] = process.argv.slice(2);
const provider = new JsonRpcProvider(url, undefined, { pollingInterval: 100 });
const place = (log) => [log.blockNumber, log.index];
const network = await provider.getNetwork();
const [head, all, byAddress, byTopic] = await Promise.all([
  provider.getBlockNumber(),
  provider.getLogs({ fromBlock: 0, toBlock: "latest" }),
  provider.getLogs({ fromBlock: 0, toBlock: "latest", address }),
  provider.getLogs({ fromBlock: 0, toBlock: "latest", topics: [null, topic] }),
]);
const block = await provider.getBlock(7);
let refused = "";
try { await provider.getLogs({ fromBlock: 0, toBlock: 99 }); } catch (error) { refused = error.error?.message ?? String(error); }
console.log(JSON.stringify({ chainId: Number(network.chainId), head, all: all.map(place), byAddress: byAddress.map(place),
  byTopic: byTopic.map(place), block: [block.number, block.hash, block.transactions.length], refused }));
provider.destroy();
"""

VIEM = """
import { createPublicClient, http } from "viem";
const [url, address, topic] = process.argv.slice(2);
const client = createPublicClient({ transport: http(url, { batch: true }) });
const place = (log) => [Number(log.blockNumber), log.logIndex];
const [chainId, head, all, byAddress] = await Promise.all([
  client.getChainId(),
  client.getBlockNumber(),
  client.getLogs({ fromBlock: 0n, toBlock: "latest" }),
  client.getLogs({ fromBlock: 0n, toBlock: "latest", address }),
]);
const byTopic = (await client.request({ method: "eth_getLogs", params: [{ fromBlock: "0x0", topics: [null, topic] }] }))
  .map((log) => [Number(log.blockNumber), Number(log.logIndex)]);
const filter = await client.createEventFilter({ fromBlock: 0n });
const filtered = (await client.getFilterLogs({ filter })).map(place);
const fresh = await client.getFilterChanges({ filter });
const gone = await client.uninstallFilter({ filter });
const block = await client.getBlock({ blockNumber: 7n });
let refused = "";
try { await client.getLogs({ fromBlock: 0n, toBlock: 99n }); } catch (error) { refused = error.details; }
console.log(JSON.stringify({ chainId, head: Number(head), all: all.map(place), byAddress: byAddress.map(place), byTopic,
  filtered, fresh: fresh.length, gone, block: [Number(block.number), block.hash, block.transactions.length], refused }));
"""


def installed(package: str, place: Path) -> None:
    """Install a package of the npm registry, or skip the test with the reason why not."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--loglevel=error", "--prefix", str(place), package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, cwd=place, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the npm registry did not give {package} within 90 seconds")
    if done.returncode:
        pytest.skip(f"the npm registry does not give {package}: {done.stderr.strip()[-200:]}")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "program"), [("ethers", ETHERS), ("viem", VIEM)], ids=["ethers", "viem"])
def test_javascript_clients_read_chain_logs_blocks_and_filters(
    tmp_path: Path, served: tuple[Caller, str], name: str, program: str
) -> None:
    installed(PACKAGES[name], tmp_path)
    script = tmp_path / f"{name}.mjs"
    script.write_text(program)
    command = ["node", str(script), served[1], FIRST_ADDRESS, SECOND_TOPIC]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    expected = {"chainId": 77, "head": 19}
    expected |= {
        key: [list(place) for place in up_to(logs, 19)]
        for key, logs in (("all", LOGS), ("byAddress", BY_ADDRESS), ("byTopic", BY_TOPIC))
    }
    transactions = len({log.transaction_hash for log in BLOCKS[7].logs})
    expected |= {
        "block": [7, "0x" + BLOCKS[7].block.hash.hex(), transactions],
        "refused": "block range extends beyond current head block",
    }
    if name == "viem":
        expected |= {"filtered": expected["all"], "fresh": 0, "gone": True}
    assert found == expected
