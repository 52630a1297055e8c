"""A metadata shard with many streams beside PostgreSQL with the same rules and beside Go's tree, in one run on the same blocks.

The lake begins with a snapshot of all streams. Then blocks of 1,000 miniblocks go from a file to gold, with history, results,
events and a checked root for every block; PostgreSQL keeps no history and no roots, and once not even results and events.
"""

import hashlib
import json
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from chainlake.bench.go_smt import go_updates_per_second
from chainlake.bench.pg_shards import PostgresShard
from chainlake.bench.report import Result
from chainlake.bench.scratch import scratch, stage_seconds
from chainlake.bench.shards_floor import copy_seconds
from chainlake.bench.shards_roots import UPDATES, key_of, updates_per_second
from chainlake.cli.show import emit
from chainlake.demo import comet
from chainlake.errors import LakeError, Unavailable
from chainlake.lake import Lake, open_lake
from chainlake.shards.build import set_last_miniblocks
from chainlake.shards.importing import import_snapshot
from chainlake.shards.machine import Shard
from chainlake.shards.reader import ShardReader
from chainlake.shards.registry import NodeRecord, NodeRegistry
from chainlake.shards.snapshot import make
from chainlake.shards.state import StreamState
from chainlake.shards.transactions import MiniblockUpdate

CHAIN = "bench"
STREAMS, QUICK_STREAMS = 1_000_000, 20_000
BLOCKS, QUICK_BLOCKS = 1_000, 20
PER_TRANSACTION = 100
EACH_BLOCKS = 5
STAGES = ("raw.shards", "bronze.shards", "silver.shards", "gold.shards")
NODES = 8
PROOFS = 100

Block = list[MiniblockUpdate]


def run(home: str, quick: bool, size: int | None = None) -> Iterator[Result]:
    """All measurements, in a lake of its own that is removed afterwards."""
    streams, blocks = size or (QUICK_STREAMS if quick else STREAMS), QUICK_BLOCKS if quick else BLOCKS
    with scratch(home) as (prefix, directory):
        yield from _roots(streams, blocks)
        states = [_state(number) for number in range(streams)]
        updates = made_blocks(states, blocks + EACH_BLOCKS)
        peer = _postgres(states, updates)
        lake = open_lake(home, schema_prefix=prefix)
        yield from _pipeline(lake, directory, states, updates[:blocks], peer)
        yield from _proofs(Path(home), prefix, states)


def registry() -> NodeRegistry:
    return NodeRegistry(NodeRecord(bytes([index]) * 20, index, 1) for index in range(1, NODES + 1))


def _state(number: int) -> StreamState:
    name = key_of(number)
    nodes = tuple(1 + (number + place) % NODES for place in range(3))
    return StreamState(name, hashlib.sha256(name).digest(), 0, nodes, 2, False, 1, 1)


def made_blocks(states: list[StreamState], count: int) -> list[Block]:
    """Blocks of miniblocks of random streams, each on top of the one before."""
    rng = random.Random(1)
    last: dict[int, tuple[bytes, int]] = {}
    found = []
    for height in range(count):
        block = []
        for place in rng.sample(range(len(states)), UPDATES):
            name, (previous, number) = states[place].stream_id, last.get(place, (states[place].last_miniblock_hash, 0))
            last[place] = hashlib.sha256(previous + b"%d" % height).digest(), number + 1
            block.append(MiniblockUpdate(name, previous, number + 1, last[place][0]))
        found.append(block)
    return found


def _roots(streams: int, blocks: int) -> Iterator[Result]:
    ours = updates_per_second(streams, blocks)
    try:
        peer = go_updates_per_second(streams, blocks * UPDATES)
    except Unavailable as error:
        emit(f"beside nothing: {error}")
        peer = None
    metric = f"root updates, two processes, {streams:,} streams"
    yield Result(metric, ours, "updates/s", "celestiaorg/smt, one core", peer, higher_is_better=True)


def _postgres(states: list[StreamState], updates: list[Block]) -> dict[str, float]:
    """Updates a second by each way of updating: with results and events of the blocks, and with the last state alone."""
    found = {}
    for name, together, each in (
        ("", PostgresShard.set_based_with_events, PostgresShard.each_with_events),
        (", last state only", PostgresShard.set_based, PostgresShard.each),
    ):
        try:
            server = PostgresShard()
        except Unavailable as error:
            emit(f"beside nothing: {error}")
            return {}
        with closing(server):
            server.load(states)
            blocks = [batches(block) for block in updates]
            rate = (len(blocks) - EACH_BLOCKS) * UPDATES / together(server, blocks[:-EACH_BLOCKS])
            found[f"PostgreSQL, an UNNEST per block{name}"] = rate
            rate = EACH_BLOCKS * UPDATES / each(server, blocks[-EACH_BLOCKS:])
            found[f"PostgreSQL, a round trip per row{name}"] = rate
            held = server.hashes()
            wrong = sum(held[one.stream_id] != one.last_miniblock_hash for one in updates[-1])
            if wrong:
                raise LakeError(f"PostgreSQL refused {wrong} updates of the last block: the comparison is not fair")
    return found


def batches(block: Block) -> list[Block]:
    """The transactions of a block."""
    return [block[at : at + PER_TRANSACTION] for at in range(0, len(block), PER_TRANSACTION)]


def _pipeline(
    lake: Lake, directory: Path, states: list[StreamState], updates: list[Block], peers: dict[str, float]
) -> Iterator[Result]:
    """From a file of blocks to gold. The first block is that of the snapshot; the others are made on top of it."""
    shard = Shard(registry(), "tree", 1, states)
    first = next(comet.linked([[]], Shard(registry(), "tree"), 0, random.Random(1)))
    header, _ = make(shard, "metadata-shard-0000000000000000", first, [])
    nodes = directory / "registry.jsonl"
    rows = [
        {"address": f"0x{one.address.hex()}", "permanent_index": one.permanent_index, "from_height": 1} for one in header.registry
    ]
    nodes.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = directory / "blocks.jsonl"
    source.write_text(json.dumps(first) + "\n")
    began = time.monotonic()
    import_snapshot(lake, CHAIN, str(source), {"registry": str(nodes)}, header, shard)
    yield Result(f"import of a snapshot of {len(states):,} streams", time.monotonic() - began, "s")
    drafts = ([set_last_miniblocks(batch) for batch in batches(block)] for block in updates)
    with open(source, "a", encoding="utf-8") as out:
        for block in comet.linked(drafts, shard, 0, random.Random(1), first):
            out.write(json.dumps(block) + "\n")
    seconds = {stage: stage_seconds(lake, stage, CHAIN) for stage in STAGES}
    count = len(updates) * UPDATES
    rate = count / sum(seconds.values())
    for name, peer in peers.items() or [("", None)]:
        yield Result(f"file to gold, {count:,} updates", rate, "updates/s", name, peer, higher_is_better=True)
    floor = count / copy_seconds(lake, STAGES, header.height, directory)
    yield Result("  the same rows merely copied by Spark", floor, "updates/s", higher_is_better=True)
    yield Result("  transactions", rate / PER_TRANSACTION, "txs/s", higher_is_better=True)
    for stage, taken in seconds.items():
        yield Result(f"  {stage}", count / taken, "updates/s", higher_is_better=True)


def _proofs(home: Path, prefix: str, states: list[StreamState]) -> Iterator[Result]:
    """Of random streams by a reader that has just started, and by one that has been asked before."""
    rng, taken = random.Random(2), []
    reader = ShardReader(home, CHAIN, prefix=prefix)
    for one in rng.sample(states, PROOFS):
        began = time.monotonic()
        reader.prove(one.stream_id)
        taken.append(1000 * (time.monotonic() - began))
    yield Result("first proof of a new reader", taken[0], "ms", "target", 20.0)
    yield Result("proof, median", statistics.median(taken), "ms", "target", 20.0)
