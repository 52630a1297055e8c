"""`lake abci` behind a real CometBFT node: transactions go in, app hashes are the state roots, and no crash loses a block."""

import base64
import json
import os
import shutil
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chainlake.errors import Unavailable
from chainlake.merkle.ics23 import CommitmentProof
from chainlake.merkle.smt import verify
from chainlake.shards.build import create_stream, update_placement
from chainlake.shards.compare import compare, parse_block_results
from chainlake.shards.machine import Shard
from chainlake.shards.submit import submit
from chainlake.sources.base import RawBlock
from chainlake.sources.formats import format_of
from tests.conformance.comet_process import COMETBFT, CometProcess
from tests.unit.shards_lake import ShardsLake
from tests.unit.shards_making import NODES, REGISTRY, advanced, created, hash_of, space
from tests.unit.test_serve_lake import add_chain

pytestmark = pytest.mark.skipif(not os.access(COMETBFT, os.X_OK), reason="no cometbft here: make cometbft installs one")


def registry_file(directory: Path) -> Path:
    registry = directory / "registry.jsonl"
    rows = [
        {"address": "0x" + one.address.hex(), "permanent_index": one.permanent_index, "from_height": one.from_height}
        for one in REGISTRY.records
    ]
    registry.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return registry


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CometProcess]:
    made = CometProcess(tmp_path, registry_file(tmp_path), tmp_path / "lake")
    try:
        made.start()
        yield made
    finally:
        made.kill()


def blocks_of(node: CometProcess) -> list[RawBlock]:
    form = format_of("comet")
    splits = form.plan([node.rpc], None, 1 << 40, 1 << 40, {})
    return [block for split in splits for block in form.read(split, {}) if isinstance(block, RawBlock)]


def check_chain(node: CometProcess) -> Shard:
    """The chain as its node tells it is the shard run in order: results, events, and the app hash in every header."""
    shard = Shard(REGISTRY)
    for block in blocks_of(node):
        payload = json.loads(block.payload)
        assert bytes.fromhex(payload["block"]["header"]["app_hash"]) == shard.app_hash
        done = shard.run(block.height, [one.payload for one in block.transactions])
        assert compare(done.block.results, parse_block_results(payload["block_results"]), done.app_hash) == []
    return shard


def query(node: CometProcess, path: str, **more: str) -> dict[str, Any]:
    answer: dict[str, Any] = node.call("abci_query", path=urllib.parse.quote(f'"{path}"'), **more)["response"]
    return answer


def test_a_shard_behind_cometbft_survives_kills_and_goes_on_from_the_lake(node: CometProcess, tmp_path: Path) -> None:
    assert node.send(created("a"))["tx_result"]["code"] == 0
    assert node.send(created("b", factor=2))["tx_result"]["code"] == 0
    assert node.send(advanced("a", 1))["tx_result"]["events"][0]["type"] == "mbok"
    assert node.send(advanced("a", 9))["tx_result"]["events"][0]["type"] == "mberr"
    assert node.send(create_stream(space("a"), hash_of("x"), NODES[:1], 1))["tx_result"]["code"] == 6
    refused = node.call("check_tx", tx="0xff")
    assert (refused["code"], refused["log"]) == (3, "unable to decode metadata tx")
    shard = check_chain(node)
    assert len(shard.streams) == 2

    node.kill()
    node.start()
    moved = submit(node.rpc, update_placement(space("a"), NODES[2:4], 1))
    assert (moved.result.code, moved.height, moved.result.log) == (0, blocks_of(node)[-1].height, "OK")
    with pytest.raises(Unavailable, match="already exists in cache"):
        submit(node.rpc, update_placement(space("a"), NODES[2:4], 1))
    before = check_chain(node)

    node.kill()
    sent = [[one.payload for one in block.transactions] for block in _replayed(node)]
    lake = ShardsLake(tmp_path / "lake", blocks=sent)
    lake.advance(4)
    add_chain(tmp_path / "lake", "shard", "comet")
    node.start()
    assert "at block 4" in (tmp_path / "abci.log").read_text().splitlines()[-1]
    assert node.send(advanced("a", 2))["tx_result"]["events"][0]["type"] == "mbok"
    shard = check_chain(node)
    assert shard.height is not None and before.height is not None and shard.height > before.height

    found = query(node, f"/stream/{space('a').hex()}", prove="true")
    value = json.loads(base64.b64decode(found["value"]))
    assert value["lastMiniblockNum"] == "2"
    (op,) = found["proofOps"]["ops"]
    proof = CommitmentProof.from_bytes(base64.b64decode(op["data"]))
    assert proof.exist is not None and verify(shard.state_root, space("a"), proof.exist.value, proof)
    assert json.loads(base64.b64decode(query(node, "/streams/count")["value"])) == {"count": 2}
    assert query(node, "/nowhere")["log"] == "unsupported query path"
    early = query(node, "/streams/count", height="%222%22")
    assert early["code"] == 0


def test_a_node_that_is_behind_the_lake_starts_with_an_earlier_block(node: CometProcess, tmp_path: Path) -> None:
    """A node that was down while the lake read on from others, told here by its older files."""
    data, older = tmp_path / "comet" / "data", tmp_path / "older"
    assert node.send(created("a"))["tx_result"]["code"] == 0
    behind = blocks_of(node)[-1].height
    node.kill()
    shutil.copytree(data, older)
    node.start()
    assert node.send(created("b"))["tx_result"]["code"] == 0
    sent = [[one.payload for one in block.transactions] for block in blocks_of(node)]
    assert len(sent) > behind
    node.kill()
    ShardsLake(tmp_path / "lake", blocks=sent).advance(len(sent))
    add_chain(tmp_path / "lake", "shard", "comet")
    shutil.rmtree(data)
    shutil.copytree(older, data)

    with pytest.raises(AssertionError, match="is higher than core"):
        node.start()
    node.kill()
    node.start("--height", str(behind))
    assert node.send(created("c"))["tx_result"]["code"] == 0
    assert set(check_chain(node).streams) == {space("a"), space("c")}


def test_a_new_node_begins_with_a_snapshot_of_another_and_goes_on_alike(node: CometProcess, tmp_path: Path) -> None:
    node.kill()
    node.start("--snapshot-every", "2")
    for name in ("a", "b", "c"):
        assert node.send(created(name))["tx_result"]["code"] == 0
    (tmp_path / "joining").mkdir()
    joining = CometProcess(tmp_path / "joining", registry_file(tmp_path), tmp_path / "other-lake")
    try:
        joining.joins(node, trusted=2)
        joining.start()
        joining.wait(lambda: listed(joining) == listed(node))
        earliest = int(joining.call("status")["sync_info"]["earliest_block_height"])
        assert earliest > 2, "it has not read the chain from its first block"
        assert node.send(advanced("a", 1))["tx_result"]["events"][0]["type"] == "mbok"
        joining.wait(lambda: listed(joining) == listed(node))
        joining.kill()
        with pytest.raises(AssertionError, match="is too far below block store base"):
            joining.start()
        joining.kill()
        sent = [[one.payload for one in block.transactions] for block in blocks_of(node)]
        ShardsLake(tmp_path / "other-lake", blocks=sent).advance(earliest)
        add_chain(tmp_path / "other-lake", "shard", "comet")
        joining.start()
        joining.wait(lambda: listed(joining) == listed(node))
    finally:
        joining.kill()


def listed(node: CometProcess) -> list[Any]:
    """The last block that the application has committed, with all streams."""
    found = query(node, "/streams")
    return [found.get("height"), found["value"]]


def _replayed(node: CometProcess) -> list[RawBlock]:
    """The blocks that the stopped node holds, asked for by starting it once more."""
    node.start()
    found = blocks_of(node)
    node.kill()
    return found
