"""Blocks, receipts and logs of a real node, read as the raw stage reads them (without Spark)."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chainlake.demo.evm import bloom
from chainlake.errors import BadInput
from chainlake.sources import evm_rpc
from chainlake.sources.base import Cursor, RawBlock
from chainlake.sources.formats import format_of, left, network_of
from chainlake.sources.rpc_client import RpcClient
from tests.conformance.anvil import Anvil, install, running

OPTIONS = {"finality": "latest:0"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = install(tmp_path_factory.mktemp("anvil"))
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def anvil(program: Path) -> Iterator[Anvil]:
    """A chain with a contract, logs, empty blocks, and several transactions in one block."""
    with running(program) as node:
        contract = node.deploy()
        for number in range(5):
            node.log(contract, bytes([number]) * number)
        node.call("anvil_mine", "0x20")
        node.call("evm_setAutomine", False)
        sender = node.call("eth_accounts")[0]
        for number in range(4):
            node.call("eth_sendTransaction", {"from": sender, "to": contract, "gas": "0x100000", "data": f"0x0{number}"})
        node.call("anvil_mine", "0x1")
        node.call("evm_setAutomine", True)
        node.log(contract, b"the last")
        yield node


def read(url: str, cursor: Cursor | None = None, max_blocks: int = 1 << 40, **options: str) -> list[RawBlock]:
    given = {**OPTIONS, **options}
    splits = format_of("evm").plan([url], cursor, max_blocks, 1 << 40, given)
    found = [block for split in splits for block in format_of("evm").read(split, given)]
    assert all(isinstance(block, RawBlock) for block in found), found[-1]
    return [block for block in found if isinstance(block, RawBlock)]


def logs_of(block: RawBlock) -> list[dict[str, object]]:
    payloads = [json.loads(one.payload) for one in block.transactions]
    return [log for payload in payloads for log in (payload if isinstance(payload, list) else payload["logs"])]


def test_every_block_comes_linked_with_the_logs_that_the_node_itself_finds(anvil: Anvil) -> None:
    found = read(anvil.url)
    assert [block.height for block in found] == list(range(int(anvil.call("eth_blockNumber"), 16) + 1))
    assert all(two.parent_hash == one.hash for one, two in itertools.pairwise(found))
    asked = anvil.call("eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest"})
    assert [log for block in found for log in logs_of(block)] == asked
    assert len(asked) == 20 and len({log["blockNumber"] for log in asked}) == 7


def test_blocks_and_receipts_are_kept_as_the_node_gives_them(anvil: Anvil) -> None:
    for block in read(anvil.url):
        assert json.loads(block.payload) == anvil.call("eth_getBlockByNumber", hex(block.height), False)
        assert [json.loads(one.payload) for one in block.transactions] == anvil.call("eth_getBlockReceipts", hex(block.height))
        assert json.loads(block.payload)["logsBloom"] == bloom(logs_of(block))  # type: ignore[arg-type]


def test_logs_by_block_hash_give_the_same_where_a_node_has_no_receipts(anvil: Anvil, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [(block.hash, logs_of(block)) for block in read(anvil.url)]
    exchange = RpcClient._exchange

    def forgetful(client: RpcClient, calls: object) -> list[object]:
        renamed = [type(call)(call.method.replace("eth_getBlockReceipts", "eth_getNothing"), call.params) for call in calls]  # type: ignore[attr-defined]
        return exchange(client, renamed)

    monkeypatch.setattr(RpcClient, "_exchange", forgetful)
    found = read(anvil.url)
    assert [(block.hash, logs_of(block)) for block in found] == expected
    assert all(isinstance(json.loads(one.payload), list) for block in found for one in block.transactions)


def test_reading_goes_on_where_it_stopped_and_ends_at_what_is_final(anvil: Anvil) -> None:
    whole = read(anvil.url)
    pieces: list[RawBlock] = []
    while batch := read(
        anvil.url, Cursor("", 0, pieces[-1].height, pieces[-1].hash) if pieces else None, max_blocks=9, batch="4"
    ):
        pieces += batch
    assert pieces == whole
    assert read(anvil.url, finality="latest:10") == whole[:-10]
    assert left("evm", [anvil.url], None, OPTIONS) == len(whole)
    final = int(anvil.call("eth_getBlockByNumber", "finalized", False)["number"], 16)
    assert read(anvil.url, finality="finalized") == whole[: final + 1]


def test_a_reorganised_chain_is_read_again_from_before_the_fork(anvil: Anvil) -> None:
    before = read(anvil.url)
    snapshot = anvil.call("evm_snapshot")
    anvil.call("anvil_mine", "0x3", "0x7")
    cursor = read(anvil.url)[-1]
    anvil.call("evm_revert", snapshot)
    anvil.call("anvil_mine", "0x5", "0x11")
    again = read(anvil.url, Cursor("", 0, cursor.height, cursor.hash), finalized="false", window="6")
    assert [block.height for block in again] == list(range(cursor.height - 6, cursor.height + 3))
    assert again[0] in before and (again[6].height, again[6].hash) != (cursor.height, cursor.hash)
    assert all(two.parent_hash == one.hash for one, two in itertools.pairwise(again))


def test_the_network_is_told_and_checked(anvil: Anvil) -> None:
    assert network_of("evm", [anvil.url], OPTIONS) == "31337"
    with pytest.raises(BadInput, match="has chain id 31337, this chain has 1"):
        evm_rpc.network(anvil.url, {**OPTIONS, "chain_id": "1"})
