"""Replicas from files to state: whatever the order of arrival, the batches, crashes and rollbacks, every delivery shows what the
plain rules give, and all replicas end alike."""

import base64
import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.bench.replica_floor import copy_seconds
from chainlake.errors import BadInput
from chainlake.lake import Lake
from chainlake.lake.failpoint import run_and_die
from chainlake.lake.home import Home
from chainlake.lake.reader import Snapshot
from chainlake.lake.verify import verify
from chainlake.replica import silver
from chainlake.replica.entries import Entry
from chainlake.replica.envelope import encode
from chainlake.replica.groups import group_of
from chainlake.replica.invariants import replica_problems
from chainlake.replica.leader import Leader
from chainlake.replica.migrate import unite
from chainlake.replica.query import NotFresh, ReplicaReader
from chainlake.replica.replica import Replica, perfect
from tests.unit.replica_batches import Tables
from tests.unit.replica_making import data_command, deliveries, history
from tests.unit.test_replica_folds import outcome
from tests.unit.test_replica_rules import SETUP, insert, proposed, with_an_index_that_a_snapshot_gives_again

STAGES = ("bronze.replica", "silver.replica", "gold.replica")
NAMES = {
    "objects": "silver.meta_objects",
    "rows": "silver.data_rows",
    "pending": "silver.pending_commands",
    "applied": "silver.applied",
    "results": "silver.command_results",
}

Given = Sequence[Sequence[Entry]]


def line(number: int, entries: Iterable[Entry]) -> dict[str, Any]:
    """A delivery; every third entry is given as bytes."""
    made = []
    for entry in entries:
        place = {"group": entry.group, "log_index": entry.log_index, "log_term": entry.log_term}
        if entry.log_index % 3:
            made.append({**place, "command": entry.command})
        else:
            made.append({**place, "command_bytes": base64.b64encode(encode(entry.command)).decode()})
    return {"delivery": number, "entries": made}


def write(path: Path, given: Given) -> str:
    path.write_text("".join(json.dumps(line(number, one)) + "\n" for number, one in enumerate(given, 1)), encoding="utf-8")
    return str(path)


def ingest(lake: Lake, chain: str, path: Path, given: Given, **options: str) -> None:
    lake.ingest(chain, "raft", write(path / f"{chain}.jsonl", given), options)


def run(lake: Lake, chain: str, max_blocks: int | None = None, stages: Sequence[str] = STAGES) -> None:
    for stage in stages:
        done = lake.run_stage(stage, chains=chain, max_blocks=max_blocks)
        assert list(done["status"]) == ["ok"], list(done["error"])


def compare(lake: Lake, chain: str, given: Given, unified: bool = True) -> Replica:
    """Every delivery, in all tables, beside the plain replica."""
    held = {name: [row.asDict() for row in lake.history(table, chain=chain).collect()] for name, table in NAMES.items()}
    tables, replica = Tables(held), Replica(unified)
    for height, delivery in enumerate(given, 1):
        replica.deliver(delivery)
        tables.compare(replica, height)
    return replica


def findings(lake: Lake, chain: str) -> list[str]:
    return [f.what for f in verify(lake, "silver.replica") if chain in f.what]


def kill(lake: Lake, home: Home, chain: str, failpoint: str, max_blocks: int) -> None:
    """Run silver in a process of its own, which is killed at a failpoint."""
    opened = f"open_lake({str(home.path)!r}, schema_prefix={lake.namespace.prefix!r})"
    work = f"{opened}.run_stage('silver.replica', chains={chain!r}, max_blocks={max_blocks})"
    assert run_and_die(f"from chainlake.lake import open_lake; {work}", failpoint)[0] == -9


def test_every_delivery_is_exact_through_batches_kills_and_rollbacks(
    full_lake: Lake, home: Home, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(7)
    entries = history(rng, 150)
    given = deliveries(rng, entries, meta_weight=0.2)
    ingest(full_lake, chain, tmp_path, given)
    run(full_lake, chain, stages=STAGES[:1])
    kill(full_lake, home, chain, "before_ledger:2", 25)
    compare(full_lake, chain, given[:25])
    full_lake.run_stage("silver.replica", chains=chain, to_height=60)
    replica = compare(full_lake, chain, given[:60])
    waiting = replica.waiting()
    assert waiting and any(one.result.error for one in replica.results), "a test that proves nothing"
    full_lake.rollback("silver.replica", chain, 44, why="a test")
    compare(full_lake, chain, given[:44])
    kill(full_lake, home, chain, "after_append", 1000)
    full_lake.run_stage("silver.replica", chains=chain, to_height=len(given) - 1)
    last = compare(full_lake, chain, given[:-1]).waiting()
    monkeypatch.setattr(silver, "FEW_ROWS", 0)  # as in a large replica, what the last delivery touches is looked for
    held = sum(full_lake.history(table, chain=chain).count() for table in silver.HELD)
    assert held > len(given[-1]) + sum(map(len, last.values())), "no more rows than entries are read whole"
    run(full_lake, chain)
    assert outcome(compare(full_lake, chain, given)) == outcome(perfect(entries))
    assert findings(full_lake, chain) == []
    health = {row.group_name: row for row in full_lake.table("gold.replica_health", chain=chain, height=60).collect()}
    assert {group for group, row in health.items() if row.status == "catching_up"} == set(waiting)
    assert {group: row.pending for group, row in health.items() if group in waiting} == {g: len(o) for g, o in waiting.items()}
    assert all(row.fresh == row.eligible_leader == (group not in waiting) for group, row in health.items())


def test_three_replicas_one_isolated_and_killed_while_entries_wait(
    full_lake: Lake, home: Home, chain: str, tmp_path: Path
) -> None:
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    data = proposed(insert("alice", 1), insert("bob", 1), insert("alice", 2), insert(None, 1), leader=leader)
    assert group_of("alice") != group_of("bob")
    prompt = [[entry] for entry in (*meta, *data)]
    rejoined = [data, *([entry] for entry in meta)]
    late_by_one = [meta[:3], data, meta[3:]]
    names = [f"{chain}-{which}" for which in "abc"]
    for name, given in zip(names, (prompt, late_by_one, rejoined), strict=True):
        ingest(full_lake, name, tmp_path, given)
    full_lake.run_stage("bronze.replica", chains=names)
    full_lake.run_stage("silver.replica", chains=names[:2])
    kill(full_lake, home, names[2], "after_ledger:1", 1)
    held = full_lake.table("silver.pending_commands", chain=names[2])
    assert held.count() == 4, "what waits survived the kill"
    reader = ReplicaReader(home.path, full_lake.namespace.prefix)
    behind = reader.health(names[2])
    assert (behind.status, behind.meta_index, behind.eligible_leader) == ("catching_up", 0, False)
    assert {(group.pending, group.waits_for, group.waiting_since) for group in behind.groups} == {(2, 4, 1), (1, 4, 1)}
    with pytest.raises(NotFresh, match="waits for Meta index 4 since delivery 1, 2 entries are pending"):
        reader.read(names[2], "app.t", "alice")
    stale = reader.read(names[2], "app.t", "alice", stale=True)
    assert (stale.rows, stale.pending, stale.waits_for) == ([], 2, 4)
    run(full_lake, names[2], stages=STAGES[1:2])
    assert reader.health(names[2]).eligible_leader and reader.health(names[2], height=4).status == "catching_up"
    assert reader.read(names[2], "app.t", "alice").rows == [{"id": 1}, {"id": 2}]
    assert reader.read(names[2], "app.t").rows == [{"id": 1}], "shared rows"
    ends = [compare(full_lake, name, given) for name, given in zip(names, (prompt, late_by_one, rejoined), strict=True)]
    assert ends[0].visible_rows() == ends[1].visible_rows() == ends[2].visible_rows() and len(ends[0].visible_rows()) == 4
    assert not any(one.result.error for end in ends for one in end.results), "no provider not found"
    applied = full_lake.table("silver.command_results", chain=names[2]).filter("type = 'Insert'").collect()
    assert {row.height for row in applied} == {5} and {row.received_height for row in applied} == {1}
    assert full_lake.table("silver.data_rows", chain=names[2], height=4).count() == 0, "visible only with the Meta it needs"


@pytest.mark.parametrize("fault", ["gap", "term", "command", "unknown"])
def test_logs_that_contradict_themselves_stop_the_replica_before_them(
    full_lake: Lake, chain: str, tmp_path: Path, fault: str
) -> None:
    leader = Leader()
    meta, data = proposed(*SETUP, leader=leader), leader.propose(insert("alice", 1))
    wrong, stage, message = {
        "gap": (meta[3]._replace(log_index=9), "silver.replica", "delivery 3: meta 9 came where 4 is expected"),
        "term": (data._replace(log_term=2), "silver.replica", "delivery 3: data:user:00 1 came again with term 2 in place of 1"),
        "command": (data._replace(command={**data.command, "rows": []}), "silver.replica", "1 came again with another command"),
        "unknown": (meta[3]._replace(command={"type": "Fly"}), "bronze.replica", "entry 0 of delivery 3: 'Fly' is not a kind"),
    }[fault]
    given = [[*meta[:2], data], [meta[0], data, meta[2]], [wrong], [meta[3]]]
    ingest(full_lake, chain, tmp_path, given)
    done = [full_lake.run_stage(name, chains=chain) for name in STAGES[:2]]
    said = done[STAGES.index(stage)]
    assert said["status"][0] == "degraded" and message in said["error"][0], said["error"][0]
    assert f"then lake rollback raw.replica {chain} 2 --why TEXT" in said["error"][0]
    compare(full_lake, chain, given[:2])
    full_lake.run_stage("gold.replica", chains=chain)
    health = full_lake.spark.sql(
        f"SELECT * FROM {full_lake.namespace.view('gold.replica_health')} WHERE chain = '{chain}'"
    ).collect()
    assert {(row.status, row.fresh, row.eligible_leader) for row in health} == {("degraded", False, False)}
    with pytest.raises(BadInput):
        full_lake.table("silver.applied", chain=chain, height=3)
    if fault in ("gap", "unknown"):  # what docs/replica.md says to do
        mended = [*given[:2], [meta[3]]]
        write(tmp_path / f"{chain}.jsonl", mended)
        full_lake.rollback("raw.replica", chain, 2, why="delivery 3 was mended")
        full_lake.health.resume(stage, chain, "the same")
        run(full_lake, chain, stages=("raw.replica", *STAGES))
        assert not compare(full_lake, chain, mended).waiting()


def test_a_late_write_is_kept_where_the_first_rows_of_a_replica_are_those_of_a_dropped_table(
    full_lake: Lake, chain: str, tmp_path: Path
) -> None:
    leader = Leader()
    meta, data = proposed(*SETUP, leader=leader), leader.propose(insert("alice", 1))
    given = [[*meta, leader.propose({"type": "DropTable", "table_id": data.command["table_id"]})], [data]]
    ingest(full_lake, chain, tmp_path, given)
    run(full_lake, chain, max_blocks=1, stages=STAGES[:2])
    compare(full_lake, chain, given)
    assert full_lake.table("silver.data_rows", chain=chain).count() == 0
    (row,) = full_lake.table("silver.dropped_rows", chain=chain).collect()
    assert (row.group_name, row.log_index) == (data.group, data.log_index)


@pytest.mark.parametrize("few", [0, silver.FEW_ROWS])
def test_a_drop_that_comes_alone_takes_its_rows_and_late_writes_find_them(
    full_lake: Lake, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(silver, "FEW_ROWS", few)
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    data = proposed(insert("alice", 1), insert("alice", 2), insert("bob", 1), leader=leader)
    late = proposed(insert("alice", 1), insert("alice", 3), leader=leader)
    given = [[*meta, *data], [leader.propose({"type": "DropTable", "table_id": data[0].command["table_id"]})], late]
    ingest(full_lake, chain, tmp_path, given)
    run(full_lake, chain, max_blocks=1, stages=STAGES[:2])
    assert [one.result.error for one in compare(full_lake, chain, given).results][-2:] == ["primary key exists", None]
    assert full_lake.table("silver.data_rows", chain=chain, height=1).count() == 3
    assert full_lake.table("silver.data_rows", chain=chain).count() == 0
    assert full_lake.table("silver.dropped_rows", chain=chain).count() == 4


@pytest.mark.parametrize("few", [0, silver.FEW_ROWS])
def test_late_writes_do_not_find_rows_of_a_life_that_ended_before_the_logs_were_united(
    full_lake: Lake, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(silver, "FEW_ROWS", few)
    given = with_an_index_that_a_snapshot_gives_again()
    ingest(full_lake, chain, tmp_path, given, unified_meta="false")
    run(full_lake, chain, max_blocks=1, stages=STAGES[:2])
    assert compare(full_lake, chain, given, unified=False).results[-1].result == (1, None)


def test_a_rollout_is_rehearsed_with_three_logs_and_there_is_no_way_back(full_lake: Lake, chain: str, tmp_path: Path) -> None:
    rng = random.Random(3)
    given: list[list[Entry]] = deliveries(rng, history(rng, 25, unified=False))
    old = Replica(unified=False)
    for delivery in given:
        old.deliver(delivery)
    snapshot = unite(old)
    leader = Leader(9, {group: index for group, (index, _) in old.applied().items()}, snapshot.log_index)
    given += [[leader.propose(data_command(rng))], [leader.propose(data_command(rng)), snapshot]]
    given += [[leader.propose(data_command(rng)) for _ in range(5)]]
    back = Entry("meta:users", leader.ends["meta:users"] + 1, 9, {"type": "Blank"})
    ingest(full_lake, chain, tmp_path, [*given, [back]], unified_meta="false")
    full_lake.run_stage("bronze.replica", chains=chain)
    full_lake.run_stage("silver.replica", chains=chain, to_height=len(given) // 2)
    ingest(full_lake, chain, tmp_path, [*given, [back]])  # who forgets the option does not unite the logs
    done = full_lake.run_stage("silver.replica", chains=chain)
    assert done["status"][0] == "degraded" and "there is no way back" in done["error"][0]
    compare(full_lake, chain, given, unified=False)
    assert replica_problems(full_lake, chain) == []


def test_verify_finds_what_is_early_lost_miscounted_homeless_or_against_the_rules(
    full_lake: Lake, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    ingest(full_lake, chain, tmp_path, [[*meta, *proposed(insert("alice", 1), insert("bob", 1), leader=leader)]])
    run(full_lake, chain, stages=STAGES[:2])
    assert replica_problems(full_lake, chain) == []
    damage: dict[str, Callable[[DataFrame], DataFrame]] = {
        "silver.command_results": lambda frame: frame.filter("group_name = 'data:user:17'").withColumn(
            "required_meta_index", F.lit(9)
        ),
        "silver.meta_objects": lambda frame: frame.filter("kind <> 'table'"),
        "silver.data_rows": lambda frame: frame.withColumn("row", F.lit("{}")),
        "silver.applied": lambda frame: frame.withColumn("executed_index", F.col("executed_index") - 1),
    }
    table = Snapshot.table

    def damaged(now: Snapshot, name: str, **given: Any) -> DataFrame:
        frame = table(now, name, **given)
        return damage[name](frame) if name in damage else frame

    monkeypatch.setattr(Snapshot, "table", damaged)
    said = "\n".join(replica_problems(full_lake, chain))
    assert f"delivery 1 of {chain} carried out a command that needs Meta 9, Meta was at 4" in said
    assert f"data:user:00 1 of {chain} has no result and does not wait" in said
    assert f"data:user:00 of {chain}: 0 entries wait, its counters say otherwise" in said
    assert f"{chain} shows 2 rows of app.t, which is not there" in said
    assert f"silver.data_rows of {chain} lacks" in said and "against the rules" in said


def test_the_floor_under_a_follower_is_a_copy_of_all_rows_that_it_wrote(full_lake: Lake, chain: str, tmp_path: Path) -> None:
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    data = proposed(insert("alice", 1), insert("bob", 1), insert("alice", 2), leader=leader)
    ingest(full_lake, chain, tmp_path, [[*meta, *data]])
    run(full_lake, chain, stages=STAGES[:2])
    tables = ("bronze.commands", "silver.data_rows", "silver.pending_commands")
    assert copy_seconds(full_lake, chain, tables, tmp_path) > 0
    copied = {table: full_lake.spark.read.format("delta").load(str(tmp_path / "copied" / table)) for table in tables}
    assert {table: frame.count() for table, frame in copied.items()} == dict(zip(tables, (len(SETUP) + 3, 3, 0), strict=True))
    keys = {row["row_key"] for row in full_lake.history("silver.data_rows", chain=chain).collect()}
    assert {row["row_key"] for row in copied["silver.data_rows"].collect()} == keys
