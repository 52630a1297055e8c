"""Any order of arrival leads to the same state, and the folds of a batch agree with the plain replica at every delivery."""

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.errors import BrokenPromise
from chainlake.replica import row_fold, shard_fold
from chainlake.replica.columns import typed
from chainlake.replica.commands import MARKERS, command_text
from chainlake.replica.entries import Entry
from chainlake.replica.groups import GROUPS, META, SHARED, group_of
from chainlake.replica.history import MetaHistory
from chainlake.replica.leader import Leader
from chainlake.replica.meta import Refused
from chainlake.replica.migrate import unite
from chainlake.replica.replica import Replica, perfect
from chainlake.replica.resolver import Resolver
from chainlake.replica.row_fold import _shown
from chainlake.replica.rules import resolve, shown_key
from chainlake.replica.sequence import AGAIN, GAP
from chainlake.replica.shard_fold import fold_shards
from chainlake.replica.timeline import Progress, Timeline
from tests.unit.replica_batches import Tables, pieces, unpacked
from tests.unit.replica_making import (
    data_command,
    deliveries,
    history,
    history_with_snapshots,
    meta_command,
    opening,
    with_lower_stamps,
)

SEEDS = st.integers(0, 1 << 32)


def outcome(replica: Replica) -> tuple[object, ...]:
    """What replicas have to agree on when all logs are delivered."""
    results = {(one.group, one.log_index, one.type, one.result) for one in replica.results}
    return replica.visible_rows(), results, replica.meta.objects, replica.applied()


@settings(max_examples=60)
@given(SEEDS, st.sampled_from((0.05, 1.0, 20.0)))
def test_every_order_of_delivery_converges_to_the_perfect_replica(seed: int, meta_weight: float) -> None:
    rng = random.Random(seed)
    entries = history(rng, 120)
    replica = Replica()
    for delivery in deliveries(rng, entries, meta_weight):
        replica.deliver(delivery)
        for shard in replica.shards.values():
            assert all(one.watermark > replica.meta_index for one in shard.pending[:1]), "satisfied, and still waiting"
        required = {(entry.group, entry.log_index): entry.required for entry in entries}
        late = [one for one in replica.results if one.delivery == replica.delivery and one.group != META]
        assert all(required[one.group, one.log_index] <= replica.meta_index for one in late), "carried out before its Meta"
    assert replica.waiting() == {}
    assert outcome(replica) == outcome(perfect(entries))


@settings(max_examples=20)
@given(SEEDS, st.sampled_from((0.05, 1.0)))
def test_all_34_logs_converge_in_any_order(seed: int, meta_weight: float) -> None:
    rng, leader = random.Random(seed), Leader()
    everywhere = {group_of(f"user_{number}"): f"user_{number}" for number in range(400)}
    entries = opening(leader)
    entries += [leader.propose({"type": "CreateUser", "user_id": user, "role": "user"}) for user in everywhere.values()]
    for _ in range(3):
        for user in (*everywhere.values(), None):
            target = {"table_id": "a.x", **({} if user is None else {"user_id": user})}
            entries.append(leader.propose({"type": "Insert", **target, "rows": [{"id": rng.randrange(5)}]}))
            if rng.random() < 0.2:
                command = meta_command(rng)
                entries.append(leader.propose(command, META if command["type"] in MARKERS else None))
    assert {entry.group for entry in entries} == set(GROUPS)
    replica = Replica()
    for delivery in deliveries(rng, entries, meta_weight):
        replica.deliver(delivery)
    assert replica.waiting() == {} and outcome(replica) == outcome(perfect(entries))


@settings(max_examples=60)
@given(SEEDS, st.sampled_from((0.05, 0.3, 1.0)), st.booleans(), st.booleans())
def test_logs_with_lower_stamps_after_higher_ones_and_with_snapshots_converge_and_the_folds_agree(
    seed: int, meta_weight: float, at_once: bool, has_snapshots: bool
) -> None:
    rng = random.Random(seed)
    entries = history_with_snapshots(rng, 60) if has_snapshots else history(rng, 60)
    entries = with_lower_stamps(rng, entries)
    given_ = deliveries(rng, entries, meta_weight)
    replica, tables = Replica(), Tables(at_once=at_once)
    tables.fold(given_[: len(given_) // 2])
    tables.fold(given_[len(given_) // 2 :])
    for height, delivery in enumerate(given_, 1):
        replica.deliver(delivery)
        tables.compare(replica, height)
    assert replica.waiting() == {} and outcome(replica) == outcome(perfect(entries))


@settings(max_examples=40)
@given(SEEDS, st.sampled_from((0.05, 1.0)), st.booleans())
def test_batches_of_any_size_have_the_state_of_the_replica_at_every_delivery(
    seed: int, meta_weight: float, at_once: bool
) -> None:
    rng = random.Random(seed)
    given_ = deliveries(rng, history(rng, 60), meta_weight)
    tables, at = Tables(at_once=at_once), 0
    while at < len(given_):
        size = rng.choice((1, 2, 5, 40))
        tables.fold(given_[at : at + size])
        at += size
    replica = Replica()
    for height, delivery in enumerate(given_, 1):
        replica.deliver(delivery)
        tables.compare(replica, height)


KEYS = st.sampled_from(["k", "", '"]', '],"table_id":', "\u2028", "\\", "é", 1, True, 1.5, -0.0, 1 << 70, [1], {"id": "["}, None])


@given(
    st.lists(st.dictionaries(st.sampled_from(["id", "v", "], [", "other"]), KEYS, max_size=3), min_size=1, max_size=2),
    st.sampled_from(["alice", '"', "nobody", None]),
    st.dictionaries(st.sampled_from(["required_meta_index", "note", "zone"]), st.just(3), max_size=2),
)
def test_inserts_are_resolved_from_their_text_as_from_their_members(
    rows: list[Any], user: str | None, more: dict[str, Any]
) -> None:
    command = {"type": "Insert", "table_id": "a.t", "rows": rows, **more, **({} if user is None else {"user_id": user})}
    meta = MetaHistory()
    meta.add("table", "a.t", 1, 1, {"columns": ["id", "v", "], ["], "primary_key": "id"})
    meta.add("table", "a.t", 5, 1, None)
    for name in ("alice", '"'):
        meta.add("user", name, 2, 2, {"locked": False})
    try:
        expected: Any = resolve(command, 3, meta)
    except Refused as refused:
        expected = str(refused)
    texts = pa.array([command_text(command)] * 2)
    late, in_time = Resolver(meta).operations(texts, [3, 3], [5, 4])
    assert late == expected
    assert in_time == (expected if isinstance(expected, str) else expected._replace(dropped_index=None))
    for key in () if isinstance(expected, str) else expected.keys:
        assert _shown(key) == shown_key(key)


def test_a_drop_of_many_rows_is_written_in_parts_that_spark_can_hold() -> None:
    rows = [
        {"tag": row_fold.LIVE, "group_name": SHARED, "_height": 1, "table_id": "a.x", "row_key": f'[null,"{n}"]', "row": "{}"}
        for n in range(45_000)
    ]
    batch = pa.RecordBatch.from_pylist(rows, typed(*row_fold.INPUT))
    made = list(row_fold.fold_rows([batch], [row_fold.Drop(2, "a.x", 1)]))
    for kind in (row_fold.ROW, row_fold.ASIDE):
        sizes = [len(one) for part in made for one in part.column(kind).to_pylist() if one]
        assert sizes == [20_000, 20_000, 5_000]


def test_shards_give_back_what_is_not_the_next_entry_of_its_log() -> None:
    rows = [
        {"tag": shard_fold.ARRIVED, "group_name": "data:user:00", "log_index": index, "log_term": 1, "required_meta_index": 0}
        | {"received_height": 5, "tx_index": at, "type": "Blank", "command": "{}"}
        for at, index in enumerate((2, 3, 3, 7, 8, 2))
    ]
    before = {"data:user:00": Progress(applied_index=2, executed_index=2)}
    found = fold_shards(pieces(rows, typed(*shard_fold.INPUT)), before, Timeline(0), 4)
    given_back = unpacked(found, shard_fold.UNEXPECTED)
    assert [(row["tx_index"], row["log_index"], row["expected"], row["status"]) for row in given_back] == [
        (0, 2, 3, AGAIN),
        (2, 3, 4, AGAIN),
        (3, 7, 4, GAP),
        (5, 2, 9, AGAIN),
    ]


@settings(max_examples=20)
@given(SEEDS)
def test_commands_without_a_watermark_run_against_the_meta_at_hand(seed: int) -> None:
    rng = random.Random(seed)
    entries = [
        entry._replace(command={key: value for key, value in entry.command.items() if key != "required_meta_index"})
        if rng.random() < 0.5
        else entry
        for entry in history(rng, 60)
    ]
    given_ = deliveries(rng, entries, 0.1)
    replica, tables = Replica(), Tables()
    tables.fold(given_[: len(given_) // 2])
    tables.fold(given_[len(given_) // 2 :])
    for height, delivery in enumerate(given_, 1):
        replica.deliver(delivery)
        tables.compare(replica, height)


@settings(max_examples=20)
@given(SEEDS)
def test_three_meta_logs_are_followed_and_then_united_by_another_replicas_snapshot_that_comes_after_data(seed: int) -> None:
    rng = random.Random(seed)
    entries = history(rng, 50, unified=False)
    assert {entry.group for entry in entries} >= {"meta:system", "meta:users"}
    given_ = deliveries(rng, entries)
    old = Replica(unified=False)
    for delivery in deliveries(rng, entries):
        old.deliver(delivery)
    snapshot = unite(old)
    assert snapshot.log_index == old.meta_index + 1
    ends = {group: index for group, (index, _) in old.applied().items()}
    leader = Leader(9, ends, snapshot.log_index)
    given_ += [[leader.propose(data_command(rng)) for _ in range(3)], [snapshot]]
    given_ += [[leader.propose(data_command(rng))] for _ in range(10)]
    height_of_stamped = len(given_) - 11
    replica, tables = Replica(unified=False), Tables()
    tables.fold(given_[:-5])
    tables.fold(given_[-5:])
    for height, delivery in enumerate(given_, 1):
        replica.deliver(delivery)
        tables.compare(replica, height)
        assert bool(replica.waiting()) == (replica.delivery == height_of_stamped), "stamped data waits for the Snapshot"
    assert replica.unified and replica.meta_index == snapshot.log_index
    assert replica.meta.objects.keys() == old.meta.objects.keys()
    with pytest.raises(BrokenPromise, match="no way back"):
        replica.deliver([Entry("meta:users", ends.get("meta:users", 0) + 1, 9, {"type": "Blank"})])
