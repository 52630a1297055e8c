"""Blocks of a CometBFT node over JSON-RPC: the same as from files, with their results, through faults of the node."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from chainlake.errors import BadInput, Unavailable
from chainlake.sources import rpc_client
from chainlake.sources.base import BadBlock, Cursor, RawBlock
from chainlake.sources.comet import parse_block
from chainlake.sources.formats import check_options, format_of, left, network_of
from tests.unit.comet_node import FakeComet, running

QUICK = {"retries": "2"}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeComet]:
    monkeypatch.setattr(rpc_client, "FIRST_PAUSE", 0.001)
    with running(FakeComet()) as made:
        yield made


def read(node: FakeComet, cursor: Cursor | None = None, max_blocks: int = 1000, **options: str) -> list[RawBlock | BadBlock]:
    form, given = format_of("comet"), {**QUICK, **options}
    splits = form.plan(form.expand(node.url), cursor, max_blocks, 1 << 30, given)
    return [block for split in splits for block in form.read(split, given)]


def at(block: RawBlock) -> Cursor:
    return Cursor(block.source, block.position, block.height, block.hash)


def test_blocks_are_those_of_the_files_with_their_results_beside(node: FakeComet) -> None:
    found: list[Any] = read(node)
    assert [block.height for block in found] == list(range(1, 26))
    for block, line, results in zip(found, node.blocks, node.results, strict=True):
        plain = parse_block(line, "x", 0)
        assert (block.hash, block.parent_hash, block.transactions) == (plain.hash, plain.parent_hash, plain.transactions)
        payload = json.loads(block.payload)
        assert payload.pop("block_results") == results and payload == json.loads(plain.payload)
    assert [block.height for block in read(node, at(found[9]), max_blocks=4) if isinstance(block, RawBlock)] == [11, 12, 13, 14]
    assert read(node, at(found[-1])) == []
    assert left("comet", [node.url], at(found[9]), {}) == 15


def test_a_node_that_keeps_no_results_gives_blocks_alone(node: FakeComet) -> None:
    node.keeps_results = False
    found: list[Any] = read(node)
    assert len(found) == 25 and all(b"block_results" not in block.payload for block in found)


def test_results_that_were_pruned_are_not_waited_for_but_those_of_the_last_block_are(node: FakeComet) -> None:
    node.first_results, node.late_results = 18, 2
    found: list[Any] = read(node)
    assert [block.height for block in found] == list(range(1, 26))
    assert [block.height for block in found if b"block_results" in block.payload] == list(range(18, 26))
    assert node.late_results == 0
    node.late_results = 100
    with pytest.raises(Unavailable, match="no usable block 25: could not find results for height #25"):
        read(node)


def test_faults_that_pass_are_tried_again_and_others_are_told(node: FakeComet) -> None:
    node.busy = 2
    node.lies = {"block 7": node.blocks[3], "block_results 9": node.results[1], "block 11": {"nothing": 1}}
    found = [block for block in read(node) if isinstance(block, RawBlock)]
    assert [block.height for block in found] == list(range(1, 26))
    assert [json.loads(block.payload)["block_results"]["height"] for block in found] == [str(block.height) for block in found]
    form = format_of("comet")
    splits = form.plan([node.url], None, 1000, 1 << 30, QUICK)
    del node.blocks[20:]
    last = [block for split in splits for block in form.read(split, QUICK)][-1]
    assert isinstance(last, BadBlock) and last.unavailable and "height 21 must be less" in last.reason
    node.busy = 100
    with pytest.raises(Unavailable, match="HTTP 503"):
        read(node)


def test_a_node_that_has_pruned_what_comes_next_is_told_apart(node: FakeComet) -> None:
    found: list[Any] = read(node, max_blocks=5)
    node.earliest = 10
    with pytest.raises(Unavailable, match="has no block 6 any more, its first is 10"):
        read(node, at(found[-1]))
    assert isinstance(first := read(node)[0], RawBlock) and first.height == 10


def test_another_block_at_the_head_is_read_again(node: FakeComet) -> None:
    """CometBFT's blocks are final: what to make of it is for the raw stage, which must see it."""
    assert [block.height for block in read(node, Cursor(node.url, 9, 9, b"\x01" * 32), 3) if isinstance(block, RawBlock)] == [
        9,
        10,
        11,
    ]


def test_the_chain_id_is_remembered_and_another_refused(node: FakeComet) -> None:
    assert network_of("comet", [node.url], QUICK) == "metadata-shard-0000000000000003"
    with pytest.raises(BadInput, match="this chain has metadata-shard-x"):
        network_of("comet", [node.url], {**QUICK, "chain_id": "metadata-shard-x"})
    node.lies = {"status ": {"what": "is this"}}
    with pytest.raises(Unavailable, match="CometBFT node"):
        network_of("comet", [node.url], QUICK)


def test_options_of_a_node_are_checked() -> None:
    check_options("comet", {"chain_id": "metadata-shard-0000000000000003", "from_block": "7", "rate": "5"})
    with pytest.raises(BadInput, match="a block number is expected"):
        check_options("comet", {"from_block": "finalized-3"})
    with pytest.raises(BadInput, match="whole number"):
        check_options("evm", {"chain_id": "text"})
