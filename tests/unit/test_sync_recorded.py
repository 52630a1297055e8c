"""Streams that were recorded first and are followed from nodes then: nothing is lost between the two."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from chainlake.demo.river import Miniblock
from chainlake.demo.river_node import StreamNode
from chainlake.sources import wire
from chainlake.sources.river import read_pass
from chainlake.sync import rules
from chainlake.sync.decode import TIME
from chainlake.sync.fetch import Head
from chainlake.sync.fetching import HEAD_COLUMNS, head_of
from chainlake.sync.messages import read_answer
from chainlake.sync.miniblock import open_miniblock
from chainlake.sync.recorded import head_after, recorded_heads
from tests.unit.sync_model import Synced

ID = b"\x20" + b"\x03" * 31
BEFORE = ("grow", "grow", "jump", "spoil", "mend", "backup", "restore", "recreate", "record", "record")
AFTER = ("grow", "jump", "mend", "backup", "restore", "sync", "sync")


@dataclass
class Followed(Synced):
    """A stream in the lake that was recorded for a while. Raw holds the hashes of recordings too."""

    recorded: set[bytes] = field(default_factory=set)
    unbroken: int = -1
    lost: bool = False

    def record(self, node: StreamNode) -> None:
        """One pass of a recording, taken on at once."""
        answer = read_answer(wire.message(node.answer(ID), 1))
        opened = [one.opened for one in answer.miniblocks]
        marks = tuple(
            rules.Mark(at, one.number, one.hash, one.prev_hash, one.has_snapshot, one.problem) for at, one in enumerate(opened)
        )
        outcome = rules.advance(self.state, rules.Delivery(marks, 0, answer.snapshot_index), self.history)
        for one in outcome.delivered:
            self.history.hashes.setdefault(one.mark.number, set()).add(one.mark.hash)
            for index, event in enumerate(opened[one.mark.place].events):
                self._note((one.mark.number, index, event.hash, one.historical, one.duplicate))
        if outcome.genesis is not None:
            self.history.hashes.setdefault(0, set()).add(outcome.genesis.hash)
        self.state, self.gaps = outcome.state or self.state, self.gaps + list(outcome.gaps)
        if self.state is not None and self.state.prev_miniblock_hash:
            self.unbroken = max(self.unbroken, self.state.first_miniblock)
        self.lost |= bool(opened[0].problem)  # what of it is ours, only the damaged miniblock could tell
        self.recorded |= {one.hash for one in opened}
        pool = frozenset(event.hash for event in answer.minipool)
        self.head = head_after([one.raw for one in answer.miniblocks], pool) or self.head
        if outcome.minipool:
            for index, event in enumerate(answer.minipool):
                self._note((answer.minipool_gen, index, event.hash, False, False))

    def _in_raw(self, hashes: object) -> set[bytes]:
        return super()._in_raw(hashes) | self.recorded


def spoil(node: StreamNode, rng: random.Random, damaged: dict[bytes, Miniblock]) -> None:
    blocks = node.streams[ID].miniblocks
    number = rng.randrange(len(blocks))
    good = damaged.setdefault(blocks[number].hash, blocks[number])
    blocks[number] = Miniblock(good.raw.replace(b"message", b"massage", 1), good.hash)


def do(node: StreamNode, operation: str, rng: random.Random, damaged: dict[bytes, Miniblock]) -> None:
    """Something that happens to a node. It never trims."""
    if operation in ("grow", "jump"):
        node.grow(ID, rng.randint(0, 3) if operation == "grow" else rng.randint(5, 15), rng.randint(1, 2), rng.randint(0, 1))
    elif operation == "recreate":
        node.create(ID)
    elif operation == "spoil":
        spoil(node, rng, damaged)
    elif operation == "mend":
        stream = node.streams[ID]
        stream.miniblocks = [damaged.get(one.hash, one) for one in stream.miniblocks]
    else:
        node.back_up() if operation == "backup" else node.restore()


def check(seed: int) -> None:
    rng = random.Random(seed)
    node = StreamNode(page_limit=rng.randint(1, 6), snapshot_every=rng.randint(2, 7), seed=seed)
    node.create(ID)
    node.grow(ID, rng.randint(0, 12))
    node.back_up()
    node.earlier = rng.choice((0, 0, 3))
    followed, damaged, budget = Followed(), dict[bytes, Miniblock](), rng.choice((5, 1000))
    for operation in ("record", *rng.choices(BEFORE, k=rng.randint(1, 8))):
        followed.record(node) if operation == "record" else do(node, operation, rng, damaged)
    do(node, "mend", rng, damaged)
    unbroken = followed.unbroken
    if followed.lost or unbroken < 0:
        return
    for operation in (*rng.choices(AFTER, k=rng.randint(0, 6)), "mend", "sync"):
        followed.sync(node, ID, budget) if operation == "sync" else do(node, operation, rng, damaged)
    assert not [gap for gap in followed.gaps if gap.reason == rules.TRIMMED], f"{seed}: nothing was trimmed"
    assert len(set(followed.events)) == len(followed.events), seed
    wanted = [e.hash for one in node.streams[ID].miniblocks[unbroken:] for e in open_miniblock(one.raw).events]
    came = set(followed.events)
    assert all(event in came for event in wanted), seed
    assert all(envelope[2:34] in came for envelope in node.streams[ID].minipool), seed
    assert followed.state is not None and followed.state.stopped is None, seed


@pytest.mark.parametrize("chunk", range(4))
def test_what_comes_between_recordings_and_nodes_is_never_lost(chunk: int) -> None:
    for seed in range(chunk * 250, chunk * 250 + 250):
        check(seed)


def grown(miniblocks: int) -> StreamNode:
    node = StreamNode()
    node.create(ID)
    node.grow(ID, miniblocks, minipool=1)
    return node


def test_a_recorded_pass_leaves_a_head_behind_what_can_be_delivered() -> None:
    stream = grown(8).streams[ID]
    raws, pool = [one.raw for one in stream.miniblocks], frozenset({b"p" * 32})
    after = [one.hash for one in stream.miniblocks]
    assert head_after(raws, pool) == Head(9, after[8], after[0], 9, after[8], pool)
    assert head_after([*raws[5:8], *raws[5:]], pool) == Head(9, after[8], None, 9, after[8], pool), "pages may overlap"
    bad = raws[6].replace(b"message", b"massage", 1)
    assert head_after([*raws[4:6], bad, raws[7]], pool) == Head(6, after[5], None, -1, b""), "to be asked for"
    assert head_after([bad, raws[7]], pool) is None and head_after([], pool) is None, "the head of before holds"


def test_heads_of_a_pass_are_those_of_its_streams(tmp_path: Path) -> None:
    node = StreamNode(3)
    for count, stream_id in enumerate(node.streams):
        node.grow(stream_id, 2 + count, minipool=count)
        (tmp_path / "4").mkdir(exist_ok=True)
        (tmp_path / "4" / f"{stream_id.hex()}.bin").write_bytes(node.answer(stream_id))
    found = read_pass(str(tmp_path), 4, bytes(32))
    came = [{"tx_index": one.index, "hash": one.hash, "payload": one.payload} for one in found.transactions]
    block = {"_chain": "c", "_height": 4, "payload": found.payload, "timestamp": None, "transactions": came}
    each = pa.struct({"tx_index": pa.int32(), "hash": pa.binary(), "payload": pa.binary()})
    fields = {"_chain": pa.string(), "_height": pa.int64(), "payload": pa.binary(), "timestamp": TIME}
    given = pa.RecordBatch.from_pylist([block], pa.schema({**fields, "transactions": pa.list_(each)}))
    (heads,) = recorded_heads([given])
    rows = {row["stream_id"]: row for row in heads.to_pylist()}
    assert set(rows) == set(node.streams) and {row["_height"] for row in rows.values()} == {4}
    for stream_id, stream in node.streams.items():
        head = head_of({name: rows[stream_id][name] for name in HEAD_COLUMNS})
        pool = frozenset(envelope[2:34] for envelope in stream.minipool)
        place = (len(stream.miniblocks), stream.last_hash)
        assert head == Head(*place, stream.miniblocks[0].hash if stream.snapshot == 0 else None, *place, pool)
