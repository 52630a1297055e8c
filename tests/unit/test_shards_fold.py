"""Folding stream by stream gives what the blocks give one after another, whatever conflicts they hold."""

import base64
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.demo import comet as demo
from chainlake.errors import BadInput
from chainlake.shards.build import set_last_miniblocks
from chainlake.shards.checks import check_tx
from chainlake.shards.codec import encode
from chainlake.shards.codes import Refused
from chainlake.shards.fold import (
    FinalizedBlock,
    OperationResult,
    StreamOperation,
    TxResult,
    assemble,
    finalize_block,
    fold_stream,
    split,
)
from chainlake.shards.registry import NodeRegistry, read_registry
from chainlake.shards.state import StreamState
from chainlake.shards.transactions import (
    CreateStreamTx,
    MiniblockUpdate,
    SetStreamLastMiniblockBatchTx,
    StreamMetadata,
    UpdateStreamNodesAndReplicationTx,
)
from tests.unit.shards_making import LATE, NODES, REGISTRY, STRANGER, Chain, advanced, created, hash_of, next_of, space

NAMES = ["a", "b", "c"]
X, Y = hash_of("x"), hash_of("y")
ids = st.sampled_from([*map(space, NAMES), space("a"), space("a"), b"\x11" * 32])
hashes = st.sampled_from([X, Y])
rarely = st.sampled_from([False] * 5 + [True])
good_nodes = st.lists(st.sampled_from([*NODES[:3], LATE]), min_size=1, max_size=3, unique=True)
nodes = (good_nodes | st.lists(st.sampled_from([*NODES[:2], STRANGER]), max_size=3)).map(tuple)
creates = st.builds(CreateStreamTx, st.builds(StreamMetadata, ids, hashes, st.integers(0, 1), nodes, st.integers(0, 2), rarely))
items = st.builds(MiniblockUpdate, ids, hashes, st.integers(1, 3), hashes, rarely)
batches = st.builds(SetStreamLastMiniblockBatchTx, st.lists(items, max_size=4).map(tuple))
moves = st.builds(UpdateStreamNodesAndReplicationTx, ids, nodes, st.integers(0, 3))
transactions = st.one_of(creates.map(encode), batches.map(encode), moves.map(encode), st.just(b"\xff"))
FIRST = [encode(CreateStreamTx(StreamMetadata(space(name), X, 0, tuple(NODES[:2]), 1))) for name in NAMES[:2]]
chains = st.lists(st.lists(transactions, max_size=5), min_size=1, max_size=6).map(lambda blocks: [FIRST, *blocks])


def fold_all(
    states: dict[bytes, StreamState], blocks: dict[int, list[bytes]], registry: NodeRegistry, rng: random.Random
) -> tuple[list[StreamState], list[TxResult]]:
    """What Spark does: all blocks taken apart, grouped by stream, folded in any order of streams, put together."""
    refused: list[TxResult] = []
    by_stream: dict[bytes, list[StreamOperation]] = defaultdict(list)
    for height, sent in blocks.items():
        for tx_index, data in enumerate(sent):
            found = split(height, tx_index, data)
            if isinstance(found, TxResult):
                refused.append(found)
                continue
            for one in found:
                by_stream[one.operation.stream_id].append(one)
    keys = list(by_stream)
    rng.shuffle(keys)
    folded = [fold_stream(states.get(key), by_stream[key], registry) for key in keys]
    results: list[OperationResult] = [result for one in folded for result in one.results]
    rng.shuffle(results)
    return [image for one in folded for image in one.images], assemble(refused, results)


def agree(blocks: list[FinalizedBlock], images: list[StreamState], results: list[TxResult]) -> None:
    assert results == [result for block in blocks for result in block.results]
    by_height = {(image.updated_height, image.stream_id): image for image in images}
    assert len(by_height) == len(images)
    assert by_height == {(block.height, key): state for block in blocks for key, state in block.changed.items()}


@settings(max_examples=100)
@given(chains, st.integers(1, 6), st.randoms(use_true_random=False))
def test_folding_streams_equals_running_blocks_for_any_batch_size(
    chain: list[list[bytes]], size: int, rng: random.Random
) -> None:
    sequential, states = Chain(), dict[bytes, StreamState]()
    blocks = [sequential.block(*sent) for sent in chain]
    images: list[StreamState] = []
    results: list[TxResult] = []
    for start in range(0, len(chain), size):
        batch = {start + 1 + number: sent for number, sent in enumerate(chain[start : start + size])}
        some, answers = fold_all(states, batch, REGISTRY, rng)
        states.update({image.stream_id: image for image in sorted(some, key=lambda image: image.updated_height)})
        images, results = images + some, results + answers
    agree(blocks, images, results)
    assert states == sequential.streams


def model(chain: list[list[bytes]]) -> tuple[list[list[tuple[int, list[str]]]], dict[bytes, dict[str, Any]]]:
    """The rules once more, as the seed tells them, on dictionaries: codes and event types per transaction, and the end state."""
    known = {NODES[0]: 1, NODES[1]: 1, NODES[2]: 1, LATE: 5}
    committed: dict[bytes, dict[str, Any]] = {}
    answers = []
    for height, sent in enumerate(chain, start=1):
        new: dict[bytes, dict[str, Any]] = {}
        moved: dict[bytes, dict[str, Any]] = {}
        grown: dict[bytes, dict[str, Any]] = {}

        def bad(stream_id: bytes, wanted: tuple[bytes, ...], height: int = height) -> int:
            if stream_id[0] != 0x10:
                return 18
            for number, node in enumerate(wanted):
                if known.get(node, 1 << 60) > height:
                    return 46
                if node in wanted[:number]:
                    return 3
            return 0

        block = []
        for data in sent:
            try:
                op = check_tx(data)
            except Refused:
                block.append((3, list[str]()))
                continue
            if isinstance(op, CreateStreamTx):
                assert op.stream is not None
                key = op.stream.stream_id
                code = bad(key, op.stream.nodes) or (6 if key in committed or key in new else 0)
                if not code:
                    fields = ("last_miniblock_hash", "last_miniblock_num", "nodes", "replication_factor", "sealed")
                    new[key] = {field: getattr(op.stream, field) for field in fields}
                block.append((code, []))
            elif isinstance(op, UpdateStreamNodesAndReplicationTx):
                key = op.stream_id
                code = bad(key, op.nodes) or (5 if key not in committed else 9 if key in moved else 0)
                if not code:
                    change: dict[str, Any] = {"nodes": op.nodes or committed[key]["nodes"]}
                    change["replication_factor"] = op.replication_factor or committed[key]["replication_factor"]
                    code = 3 if change["replication_factor"] > len(change["nodes"]) else 0
                    if not code:
                        moved[key] = change
                block.append((code, []))
            else:
                events = []
                for item in op.miniblocks:
                    key, held = item.stream_id, committed.get(item.stream_id, {})
                    fits = held and not held["sealed"] and held["last_miniblock_hash"] == item.prev_miniblock_hash
                    if fits and key not in grown and held["last_miniblock_num"] + 1 == item.last_miniblock_num:
                        events.append("mbok")
                        grown[key] = {"last_miniblock_hash": item.last_miniblock_hash, "sealed": item.sealed}
                        grown[key]["last_miniblock_num"] = item.last_miniblock_num
                    else:
                        events.append("mberr")
                block.append((0, events))
        answers.append(block)
        for changes in (new, moved, grown):
            for key, change in changes.items():
                committed[key] = {**committed.get(key, {}), **change}
    return answers, committed


@settings(max_examples=100)
@given(chains)
def test_the_rules_equal_a_model_that_was_written_apart(chain: list[list[bytes]]) -> None:
    ours = Chain()
    codes = [[(int(one.code), [event.type for event in one.events]) for one in ours.block(*sent).results] for sent in chain]
    answers, committed = model(chain)
    assert codes == answers
    assert set(ours.streams) == set(committed)
    for key, state in ours.streams.items():
        found = {field: getattr(state, field) for field in committed[key]}
        assert {**found, "nodes": tuple(map(REGISTRY.address_of, state.nodes))} == committed[key]
        assert 1 <= state.created_height <= state.updated_height <= len(chain)


def test_random_chains_reach_every_code() -> None:
    """The strategies above are worth their time only if they make what they are to prove."""
    seen: set[int] = set()

    @settings(max_examples=60, database=None, derandomize=True)
    @given(chains)
    def look(chain: list[list[bytes]]) -> None:
        ours = Chain()
        for result in (one for sent in chain for one in ours.block(*sent).results):
            seen.add(int(result.code))
            seen.update(int(dict(event.attributes).get("code", 0)) for event in result.events)

    look()
    assert seen == {0, 3, 5, 6, 9, 18, 24, 40, 46}


def test_images_of_a_stream_are_one_per_block_that_changed_it() -> None:
    sent = [[created("a")], [], [advanced("a", 9)], [advanced("a", 1), advanced("a", 2)], [advanced("a", 2)]]
    images, results = fold_all({}, dict(enumerate(sent, start=1)), REGISTRY, random.Random(1))
    assert [(image.updated_height, image.created_height, image.last_miniblock_num) for image in images] == [
        (1, 1, 0),
        (4, 1, 1),
        (5, 1, 2),
    ]
    assert [(one.height, one.tx_index) for one in results] == [(1, 0), (3, 0), (4, 0), (4, 1), (5, 0)]


def test_events_of_a_batch_keep_the_order_of_its_items() -> None:
    sent = {1: [created(name) for name in NAMES], 2: [set_last_miniblocks([next_of(name, 1) for name in reversed(NAMES)])]}
    _, results = fold_all({}, sent, REGISTRY, random.Random(4))
    assert [dict(event.attributes)["sid"] for event in results[-1].events] == [space(name).hex() for name in reversed(NAMES)]


def test_operations_out_of_order_are_refused() -> None:
    ahead, behind = split(2, 0, created("a")), split(1, 0, created("a"))
    assert isinstance(ahead, list) and isinstance(behind, list)
    for wrong in ([*ahead, *behind], [*ahead, *ahead]):
        with pytest.raises(BadInput, match=r"came after \(2, 0, 0\): sort by height, tx_index and item"):
            fold_stream(None, wrong, REGISTRY)


def test_finalizing_a_block_leaves_the_committed_streams_alone() -> None:
    chain = Chain()
    chain.block(created("a"))
    before = dict(chain.streams)
    first, again = (_finalize_again(chain) for _ in range(2))
    assert chain.streams == before and first == again


def _finalize_again(chain: Chain) -> FinalizedBlock:
    return finalize_block(chain.streams, 1, 2, [advanced("a", 1), created("b")], REGISTRY)


def test_the_demo_chain_does_what_it_means_to_do(tmp_path: Path) -> None:
    """Streams of the generator's own view end as ours, and about one transaction in ten fails."""
    blocks_path, registry_path = demo.write(tmp_path, 60)
    chain = Chain(read_registry(str(registry_path)))
    codes: list[int] = []
    kinds: list[str] = []
    blocks: dict[int, list[bytes]] = {}
    finalized = []
    for text in blocks_path.read_text().splitlines():
        sent = [base64.b64decode(one) for one in json.loads(text)["block"]["data"]["txs"]]
        blocks[chain.height + 1] = sent
        finalized.append(chain.block(*sent))
        codes += [int(result.code) for result in finalized[-1].results]
        kinds += [event.type for result in finalized[-1].results for event in result.events]
    assert set(codes) == {0, 3, 5, 6, 46}
    assert 0.05 < sum(code != 0 for code in codes) / len(codes) < 0.2
    assert kinds.count("mbok") > 10 * kinds.count("mberr") > 0
    agree(finalized, *fold_all({}, blocks, chain.registry, random.Random(2)))
