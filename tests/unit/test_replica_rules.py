"""The rules one by one: each failure of the original, the order of checks and errors, logs that contradict themselves."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.errors import BadInput, BrokenPromise
from chainlake.replica.checks import Arrived
from chainlake.replica.entries import Entry, read_entry
from chainlake.replica.groups import GROUP_IDS, GROUPS, META, SHARED, group_of
from chainlake.replica.leader import Leader, route
from chainlake.replica.migrate import check_flag, snapshot_entry, starts_unified, unite
from chainlake.replica.replica import Replica, perfect
from chainlake.replica.rules import row_key
from chainlake.replica.silver import SilverBatch
from chainlake.replica.timeline import Progress
from tests.unit.replica_batches import Tables

COLUMNS = ["id", "name"]


def create_table(table_id: str = "app.t", columns: list[str] = COLUMNS) -> dict[str, Any]:
    return {"type": "CreateTable", "table_id": table_id, "columns": columns, "primary_key": "id"}


def insert(user_id: str | None, *ids: Any, table_id: str = "app.t", **more: Any) -> dict[str, Any]:
    user = {} if user_id is None else {"user_id": user_id}
    return {"type": "Insert", "table_id": table_id, **user, "rows": [{"id": one, **more} for one in ids]}


NAMESPACE = {"type": "CreateNamespace", "namespace_id": "app"}
ALICE = {"type": "CreateUser", "user_id": "alice", "role": "user"}
BOB = {"type": "CreateUser", "user_id": "bob", "role": "user"}
SETUP = [NAMESPACE, create_table(), ALICE, BOB]
JOB = {"type": "CreateJob", "job_id": "j", "what": "flush"}
JOB_NODE = {"type": "CreateJobNode", "job_id": "j", "node_id": "n"}
STORAGE = {"type": "RegisterStorage", "storage_id": "s", "url": "s3://x"}


def proposed(*commands: dict[str, Any], leader: Leader | None = None) -> list[Entry]:
    leader = leader or Leader()
    return [leader.propose(command) for command in commands]


def result_of(replica: Replica, entry: Entry) -> tuple[int, str | None]:
    (found,) = [tuple(one.result) for one in replica.results if (one.group, one.log_index) == entry[:2]]
    return found  # type: ignore[return-value]


def after(*commands: dict[str, Any]) -> tuple[int, str | None]:
    """The result of the last command."""
    entries = proposed(*commands)
    replica = Replica()
    for entry in entries:
        replica.deliver([entry])
    return result_of(replica, entries[-1])


# What the original got wrong


def test_the_leader_stamps_every_data_command_with_its_meta_index() -> None:
    leader = Leader()
    proposed(*SETUP, leader=leader)
    commands = [insert("alice", 1), insert(None, 1), {"type": "Delete", "table_id": "app.t", "user_id": "bob", "pk_values": [1]}]
    assert [entry.required for entry in proposed(*commands, leader=leader)] == [4, 4, 4]
    leader.propose({"type": "Blank"}, META)
    assert leader.propose(insert("alice", 2)).required == 5
    stamps = [leader.propose({**insert("alice", 3), "required_meta_index": stamp}).required for stamp in (0, 4, 7)]
    assert stamps == [5, 5, 7], "a stamp may ask for more, never for less"


def test_a_later_entry_never_overtakes_one_that_waits() -> None:
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    first = leader.propose(insert("alice", 1, name="old"))
    second = Entry(first.group, 2, 1, {**insert("alice", 1, name="new"), "required_meta_index": 3})
    replica = Replica()
    replica.deliver([first, second])
    replica.deliver(meta[:3])
    assert replica.waiting() == {first.group: [1, 2]}, "index 3 would satisfy the second, but it stands behind the first"
    replica.deliver(meta[3:])
    assert replica.visible_rows() == {(first.group, "app.t", row_key("alice", 1)): '{"id":1,"name":"old"}'}
    assert result_of(replica, second) == (0, "primary key exists")


def test_shards_wait_and_drain_independently_of_each_other() -> None:
    leader = Leader()
    meta = proposed(*SETUP[:3], leader=leader)
    of_alice = leader.propose(insert("alice", 1))
    meta.append(leader.propose(BOB))
    of_bob = leader.propose(insert("bob", 1))
    replica = Replica()
    replica.deliver([of_bob, of_alice])
    replica.deliver(meta[:3])
    assert replica.waiting() == {of_bob.group: [1]} and [group for group, *_ in replica.visible_rows()] == [of_alice.group]
    replica.deliver(meta[3:])
    assert replica.waiting() == {} and len(replica.visible_rows()) == 2


def test_meta_alone_drains_what_waits() -> None:
    leader = Leader()
    meta, data = proposed(*SETUP, leader=leader), [leader.propose(insert("alice", 1))]
    replica = Replica()
    replica.deliver(data)
    assert replica.visible_rows() == {} and replica.applied() == {data[0].group: (1, 1)}, "buffered is applied, in Raft's words"
    replica.deliver(meta)
    assert len(replica.visible_rows()) == 1 and replica.waiting() == {}


@pytest.mark.parametrize(
    "marker", [{"type": "Blank"}, {"type": "Membership", "nodes": ["a"]}, {"type": "Snapshot", "objects": []}]
)
def test_entries_that_change_nothing_advance_the_meta_index(marker: dict[str, Any]) -> None:
    marker_entry = Entry(META, 1, 1, marker)
    waiting = Entry(SHARED, 1, 1, {**insert(None, 1), "required_meta_index": 1})
    replica = Replica()
    replica.deliver([waiting])
    replica.deliver([marker_entry])
    assert replica.meta_index == 1 and replica.waiting() == {}
    assert result_of(replica, waiting) == (0, "table not found"), "a real error, recorded: never a drop"


def test_an_error_while_draining_loses_none_of_the_others() -> None:
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    data = proposed(insert("alice", 1), insert("alice", 1), insert("alice", 2), leader=leader)
    replica = Replica()
    replica.deliver(data)
    replica.deliver(meta)
    assert [result_of(replica, entry) for entry in data] == [(1, None), (0, "primary key exists"), (1, None)]


def test_a_meta_command_that_fails_advances_the_index() -> None:
    entries = proposed(NAMESPACE, NAMESPACE)
    replica = perfect(entries)
    assert replica.meta_index == 2 and result_of(replica, entries[1]) == (0, "namespace exists")


# Determinism: Meta as of the watermark


def test_a_command_stamped_before_a_drop_has_the_same_result_after_it() -> None:
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    early, late = proposed(insert("alice", 1), insert("alice", 1), leader=leader)
    meta += proposed({"type": "DropTable", "table_id": "app.t"}, create_table(), leader=leader)
    anew = leader.propose(insert("alice", 1, name="anew"))
    prompt, tardy = Replica(), Replica()
    for delivery in (meta[:4], [early], [late], meta[4:], [anew]):
        prompt.deliver(delivery)
    for delivery in (meta[:4], [early], meta[4:], [late], [anew]):
        tardy.deliver(delivery)
    for replica in (prompt, tardy):
        assert [result_of(replica, one) for one in (early, late, anew)] == [(1, None), (0, "primary key exists"), (1, None)]
        assert list(replica.visible_rows().values()) == ['{"id":1,"name":"anew"}']


def test_a_lock_counts_from_its_index_on_whenever_the_command_arrives() -> None:
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    before = leader.propose(insert("alice", 1))
    meta.append(leader.propose({"type": "SetUserLocked", "user_id": "alice", "locked": True}))
    behind = leader.propose(insert("alice", 2))
    replica = Replica()
    replica.deliver(meta)
    replica.deliver([before, behind])
    assert [result_of(replica, one) for one in (before, behind)] == [(1, None), (0, "user locked")]


def test_a_command_runs_against_the_highest_watermark_that_its_log_had_before_it() -> None:
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    meta.append(leader.propose({"type": "SetUserLocked", "user_id": "alice", "locked": True}))
    first = leader.propose(insert("alice", 1))
    lower = Entry(first.group, 2, 1, {**insert("alice", 2), "required_meta_index": 4})
    for given in ([*meta, first, lower], [first, lower, *meta]):
        replica, tables = Replica(), Tables()
        for height, entry in enumerate(given, 1):
            replica.deliver([entry])
            tables.fold([[entry]])
            tables.compare(replica, height)
        assert [result_of(replica, one) for one in (first, lower)] == [(0, "user locked")] * 2


# Members that are not declared

OWN = {"required_meta_index": 9, "table_id": 5, "user_id": [1]}


def test_members_that_are_not_declared_neither_stamp_nor_route_a_command() -> None:
    leader = Leader()
    job = leader.propose({"type": "CreateJob", "job_id": "j", **OWN})
    blank = Entry(SHARED, 1, 1, {"type": "Blank", **OWN})
    data = Entry(SHARED, 2, 1, {**insert(None, 1), "required_meta_index": 1})
    assert (job.group, job.required, blank.required, data.required) == (META, 0, 0, 1)
    replica = Replica()
    replica.deliver([job, blank, data])
    assert replica.waiting() == {} and replica.meta.get("job", "j").definition == {"status": "new", **OWN}


@pytest.mark.parametrize("kind", ["CreateUser", "UpdateUser"])
def test_a_lock_that_is_no_flag_is_refused_wherever_it_is_said(kind: str) -> None:
    place = {"group": "meta", "log_index": 1, "log_term": 1}
    with pytest.raises(BadInput, match=f"{kind} has locked 'yes': true or false is expected"):
        read_entry({**place, "command": {"type": kind, "user_id": "alice", "role": "user", "locked": "yes"}})
    assert read_entry({**place, "command": {"type": kind, "user_id": "alice", "role": "user", "locked": True}})


# Snapshots


def test_a_command_stamped_before_the_snapshot_that_a_log_starts_with_finds_what_was_there() -> None:
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    early = leader.propose(insert("alice", 1))
    meta += proposed({"type": "RecordLogin", "user_id": "alice", "at": 1}, create_table("app.later"), leader=leader)
    whole = Replica()
    whole.deliver([*meta, early])
    too_early = Entry(SHARED, 1, 1, {**insert(None, 1, table_id="app.later"), "required_meta_index": 4})
    snapshot = snapshot_entry(list(whole.meta.objects.values()), leader.meta_index, 1)
    for given in ([[snapshot], [early, too_early]], [[early, too_early], [snapshot]]):
        installed = Replica()
        for delivery in given:
            installed.deliver(delivery)
        assert result_of(installed, early) == (1, None) and installed.visible_rows() == whole.visible_rows()
        assert result_of(installed, too_early) == (0, "table not found"), "it was created later"


def test_entries_that_stand_before_the_snapshot_that_a_log_starts_with_are_passed_over() -> None:
    meta = proposed(*SETUP)
    whole = perfect(meta)
    given = [[snapshot_entry(list(whole.meta.objects.values()), 5, 1)], [meta[0], Entry(META, 6, 1, ALICE)]]
    installed, tables = Replica(), Tables()
    for delivery in given:
        installed.deliver(delivery)
    assert installed.meta_index == 6 and installed.meta.objects == whole.meta.objects
    tables.fold(given)
    tables.compare(installed, 2)


def test_a_replica_of_the_old_logs_keeps_stamped_commands_until_the_snapshot_comes() -> None:
    leader = Leader(unified=False)
    meta = proposed(*SETUP, leader=leader)
    old = perfect(meta, unified=False)
    snapshot = unite(old)
    stamped = Leader(2, dict(leader.ends), snapshot.log_index).propose(insert("alice", 1))
    replica = Replica(unified=False)
    for delivery in (meta[:3], [stamped], meta[3:]):
        replica.deliver(delivery)
    assert replica.waiting() == {stamped.group: [1]} and not replica.unified
    replica.deliver([snapshot])
    assert result_of(replica, stamped) == (1, None)


def test_rows_survive_a_snapshot_of_a_replica_that_counted_the_old_logs_in_another_order() -> None:
    leader = Leader(unified=False)
    namespace, table, alice, bob = proposed(*SETUP, leader=leader)
    data = leader.propose(insert("alice", 1))
    replica, other = Replica(unified=False), Replica(unified=False)
    replica.deliver([alice, bob, namespace, table, data])
    other.deliver([namespace, table, alice, bob])
    snapshot = unite(other)
    assert replica.meta.get("table", "app.t").created_index != other.meta.get("table", "app.t").created_index
    replica.deliver([snapshot])
    assert len(replica.visible_rows()) == 1 and replica.meta.objects == other.meta.objects


def test_a_command_stamped_before_a_snapshot_that_counts_its_table_anew_writes_to_that_table() -> None:
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    early, late = proposed(insert("alice", 1), insert("alice", 1), leader=leader)
    objects = [one._replace(created_index=1) for one in perfect(meta).meta.objects.values()]
    counted = leader.propose(snapshot_entry(objects, 0, 1).command)
    drop, anew = proposed({"type": "DropTable", "table_id": "app.t"}, create_table(), leader=leader)
    prompt = [meta, [early, late], [counted], [drop, anew]]
    for given in (prompt, [meta, [early], [counted], [late], [drop, anew]], [meta, [early], [counted], [drop, anew], [late]]):
        replica, tables = Replica(), Tables()
        for height, delivery in enumerate(given, 1):
            replica.deliver(delivery)
            tables.fold([delivery])
            tables.compare(replica, height)
        assert [result_of(replica, one) for one in (early, late)] == [(1, None), (0, "primary key exists")]
        assert replica.visible_rows() == {}


def with_an_index_that_a_snapshot_gives_again() -> list[list[Entry]]:
    """Deliveries to a replica that counts an ended life of a table as the leader, whose snapshot unites the logs, counts the next
    one. The last delivery is a command that was stamped before a drop and comes after it."""
    leader, drop = Leader(unified=False), {"type": "DropTable", "table_id": "app.t"}
    system = proposed(NAMESPACE, create_table(), leader=leader)
    ended = leader.propose(insert("alice", 1))
    system += proposed(drop, create_table(), leader=leader)
    users = proposed(ALICE, BOB, leader=leader)
    snapshot = unite(perfect([*system, *users], unified=False))
    assert [one["created_index"] for one in snapshot.command["objects"] if one["kind"] == "table"] == [4]
    stamper = Leader(1, {**leader.ends, META: snapshot.log_index}, snapshot.log_index)
    late, dropped = stamper.propose(insert("alice", 1)), stamper.propose(drop)
    return [[*users, *system[:2], ended], system[2:], [snapshot], [dropped], [late]]


@pytest.mark.parametrize("at_once", [True, False])
def test_rows_of_an_ended_life_stay_gone_when_a_snapshot_gives_its_index_to_the_table_that_is_there(at_once: bool) -> None:
    given = with_an_index_that_a_snapshot_gives_again()
    replica, tables = Replica(unified=False), Tables(at_once=at_once)
    for height, delivery in enumerate(given, 1):
        replica.deliver(delivery)
        tables.fold([delivery])
        tables.compare(replica, height)
        assert bool(replica.visible_rows()) == (height == 1)
    assert replica.history.table("app.t", 4) != replica.history.table("app.t", 6), "two lives"
    assert [result_of(replica, delivery[-1]) for delivery in (given[0], given[-1])] == [(1, None), (1, None)]


def test_a_table_that_a_snapshot_brings_back_begins_anew_whenever_its_late_commands_arrive() -> None:
    leader, drop = Leader(), {"type": "DropTable", "table_id": "app.t"}
    meta = proposed(*SETUP, leader=leader)
    early, late = proposed(insert("alice", 1), insert("alice", 1), leader=leader)
    dropped = leader.propose(drop)
    back = leader.propose(snapshot_entry(list(perfect(meta).meta.objects.values()), 0, 1).command)
    anew, again = leader.propose(insert("alice", 2)), leader.propose(drop)
    for given in (
        [meta, [early, late], [dropped], [back], [anew], [again]],
        [meta, [early], [dropped], [late], [back], [anew], [again]],
        [meta, [early], [dropped], [back], [again], [late, anew]],
        [[early, late, anew], [*meta, dropped, back, again]],
    ):
        replica, tables = Replica(), Tables()
        for height, delivery in enumerate(given, 1):
            replica.deliver(delivery)
            tables.fold([delivery])
            tables.compare(replica, height)
        results = [result_of(replica, one) for one in (early, late, anew)]
        assert results == [(1, None), (0, "primary key exists"), (1, None)]
        assert replica.visible_rows() == {}


# Results


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ([{"type": "DeleteNamespace", "namespace_id": "app"}], "namespace not found"),
        ([create_table()], "namespace not found"),
        ([*SETUP, {"type": "DeleteNamespace", "namespace_id": "app"}], "namespace not empty"),
        ([*SETUP, {"type": "CreateNamespaceIfNotExists", "namespace_id": "app"}], None),
        ([*SETUP, create_table()], "table exists"),
        ([{"type": "DropTable", "table_id": "app.t"}], "table not found"),
        ([{"type": "AlterTable", "table_id": "app.t", "add_columns": []}], "table not found"),
        ([ALICE, ALICE], "user exists"),
        ([{"type": "RecordLogin", "user_id": "alice", "at": 1}], "user not found"),
        ([{"type": "SetUserLocked", "user_id": "alice", "locked": True}], "user not found"),
        ([{"type": "CompleteJob", "job_id": "j"}], "job not found"),
        ([JOB, JOB], "job exists"),
        ([JOB_NODE], "job not found"),
        ([JOB, {**JOB_NODE, "type": "ClaimJobNode"}], "job node not found"),
        ([JOB, JOB_NODE, JOB_NODE], "job node exists"),
        ([STORAGE, STORAGE], "storage exists"),
        ([{**STORAGE, "type": "UnregisterStorage"}], "storage not found"),
        ([ALICE, {"type": "DeleteUser", "user_id": "bob"}], "user not found"),
        ([NAMESPACE, insert("nobody", None, table_id="app.none", colour=1)], "table not found"),
        ([*SETUP, insert("nobody", None, colour=1)], "user not found"),
        ([*SETUP, {"type": "SetUserLocked", "user_id": "bob", "locked": True}, insert("bob", None, colour=1)], "user locked"),
        ([*SETUP, insert("alice", None, colour=1)], "unknown column"),
        ([*SETUP, insert("alice", None)], "primary key missing"),
        ([*SETUP, {"type": "Insert", "table_id": "app.t", "user_id": "bob", "rows": [{"name": 1}]}], "primary key missing"),
        ([*SETUP, insert("alice", 1, 1)], "primary key exists"),
        (
            [*SETUP, {"type": "Update", "table_id": "app.t", "user_id": "bob", "filter": {"name": 1}, "updates": {}}],
            "primary key missing",
        ),
    ],
)
def test_errors_in_the_order_of_the_checks(commands: list[dict[str, Any]], expected: str | None) -> None:
    assert after(*commands) == (0, expected)


@pytest.mark.parametrize(
    ("kind", "name", "commands", "expected"),
    [
        ("job", "j", [JOB], {"status": "new", "what": "flush"}),
        ("job", "j", [JOB, {"type": "ClaimJob", "job_id": "j", "node_id": "n"}], {"status": "claimed", "node_id": "n"}),
        ("job", "j", [JOB, {"type": "UpdateJobStatus", "job_id": "j", "status": "half"}], {"status": "half"}),
        ("job", "j", [JOB, {"type": "CompleteJob", "job_id": "j"}], {"status": "completed"}),
        ("job", "j", [JOB, {"type": "FailJob", "job_id": "j", "why": "x"}], {"status": "failed", "why": "x"}),
        ("job", "j", [JOB, {"type": "ClaimJob", "job_id": "j"}, {"type": "ReleaseJob", "job_id": "j"}], {"status": "new"}),
        ("job", "j", [JOB, {"type": "CancelJob", "job_id": "j"}], {"status": "cancelled"}),
        ("job_node", "j/n", [JOB, JOB_NODE, {**JOB_NODE, "type": "ClaimJobNode"}], {"status": "claimed"}),
        ("job_node", "j/n", [JOB, JOB_NODE, {**JOB_NODE, "type": "UpdateJobNodeStatus", "status": "up"}], {"status": "up"}),
        ("storage", "s", [STORAGE], {"url": "s3://x"}),
        ("storage", "s", [STORAGE, {**STORAGE, "type": "UnregisterStorage"}], None),
        ("user", "alice", [ALICE, {**ALICE, "type": "UpdateUser", "role": "dba"}], {"role": "dba", "locked": False}),
        ("user", "alice", [ALICE, {"type": "RecordLogin", "user_id": "alice", "at": 7}], {"role": "user", "last_login": 7}),
        ("user", "alice", [ALICE, {"type": "SetUserLocked", "user_id": "alice", "locked": True}], {"locked": True}),
        ("user", "alice", [ALICE, {"type": "DeleteUser", "user_id": "alice"}], None),
        ("namespace", "app", [NAMESPACE, {"type": "DeleteNamespace", "namespace_id": "app"}], None),
    ],
)
def test_what_meta_commands_make_of_their_objects(
    kind: str, name: str, commands: list[dict[str, Any]], expected: dict[str, Any] | None
) -> None:
    found = perfect(proposed(*commands)).meta.objects.get((kind, name))
    if expected is None:
        assert found is None
        return
    assert found is not None and expected.items() <= found.definition.items()
    assert (found.created_index, found.updated_index) == (2 if kind == "job_node" else 1, len(commands))


def test_rows_changed() -> None:
    held = [*SETUP, insert("alice", 1, 2, "1")]
    change = {"table_id": "app.t", "user_id": "alice"}
    assert after(*held) == (3, None)
    assert after(*held, insert("bob", 1)) == (1, None), "rows of users are separate"
    assert after(*held, {"type": "Update", **change, "filter": {"id": 1}, "updates": {"name": "x"}}) == (1, None)
    assert after(*held, {"type": "Update", **change, "filter": {"id": 9}, "updates": {"name": "x"}}) == (0, None)
    other = {"id": 1, "name": "other"}
    assert after(*held, {"type": "Update", **change, "filter": other, "updates": {"name": "x"}}) == (0, None)
    assert after(*held, {"type": "Update", **change, "filter": {"id": 1}, "updates": {"id": 2}}) == (0, "primary key exists")
    assert after(*held, {"type": "Delete", **change, "pk_values": [1, "1", 7]}) == (2, None)
    altered = {"type": "AlterTable", "table_id": "app.t", "add_columns": ["colour"]}
    assert after(*held, altered, insert("alice", 5, colour="red")) == (1, None)


# Logs that contradict themselves


def test_gaps_and_changed_terms_break_the_promise_and_the_same_again_does_not() -> None:
    entries = proposed(*SETUP)
    replica = Replica()
    replica.deliver(entries[:2])
    replica.deliver([entries[0], entries[1], entries[0]])
    assert replica.meta_index == 2
    with pytest.raises(BrokenPromise, match="meta 4 came where 3 is expected"):
        replica.deliver([entries[3]])
    with pytest.raises(BrokenPromise, match="meta 1 came again and is another entry"):
        replica.deliver([entries[0]._replace(log_term=2)])
    with pytest.raises(BrokenPromise, match="meta 2 came again"):
        replica.deliver([entries[1]._replace(command={"type": "Blank"})])


# Groups, routes, migration


@pytest.mark.parametrize(
    ("user", "shard"), [("alice", 0), ("bob", 17), ("user123", 21), ("user1", 11), ("user2", 30), ("user_456", 8), ("", 15)]
)
def test_users_are_routed_by_siphash(user: str, shard: int) -> None:
    assert group_of(user) == f"data:user:{shard:02d}" and GROUP_IDS[group_of(user)] == 100 + shard
    assert len(GROUPS) == len(GROUP_IDS) == 34 and GROUP_IDS[META] == 10 and GROUP_IDS[SHARED] == 200


def test_commands_have_one_place() -> None:
    assert route(insert(None, 1)) == SHARED and route(ALICE) == META and route(ALICE, unified=False) == "meta:users"
    with pytest.raises(BadInput, match="goes to data:user:00, not to data:user:01"):
        route(insert("alice", 1), group="data:user:01")
    with pytest.raises(BadInput, match="say in which group"):
        Leader().propose({"type": "Blank"})


@pytest.mark.parametrize(
    ("command", "group", "unified", "message"),
    [
        ({"type": "Snapshot", "objects": []}, None, False, "lake replica migrate unites"),
        ({"type": "Blank"}, META, False, "lake replica migrate unites"),
        ({"type": "Blank"}, "meta:users", True, "meta:users is not in use"),
    ],
)
def test_a_leader_appends_to_no_log_that_would_stop_the_replicas(
    command: dict[str, Any], group: str | None, unified: bool, message: str
) -> None:
    leader = Leader(unified=unified)
    with pytest.raises(BadInput, match=message):
        leader.propose(command, group)
    assert leader.ends == {}


def test_the_flag_goes_one_way() -> None:
    check_flag("c", was=False, wanted=True)
    with pytest.raises(BrokenPromise, match="c: unified_meta cannot go back to false"):
        check_flag("c", was=True, wanted=False)
    with pytest.raises(BadInput, match="united already"):
        unite(Replica())
    with pytest.raises(BadInput, match="empty"):
        unite(Replica(unified=False))


@pytest.mark.parametrize("group", [META, "meta:users"])
def test_the_stage_refuses_to_go_back_where_the_logs_were_never_three(group: str) -> None:
    batch = SimpleNamespace(options={"c": {"unified_meta": "false"}})
    arrived = Arrived(0, 0, has_meta=True, has_old_meta=False, has_snapshot=False, deletes_namespaces=False)
    stage = SilverBatch(batch, "c", 1, 2, {META: Progress(3), group: Progress(3)}, frozenset())  # type: ignore[arg-type]
    with nullcontext() if group != META else pytest.raises(BrokenPromise, match="cannot go back to false"):
        stage.check_meta_logs(None, arrived)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flag", "groups", "expected"),
    [
        (True, (), True),
        (True, ("data:user:00", META), True),
        (False, (), False),
        (False, ("data:user:00",), False),
        (True, ("meta:users",), False),
        (True, ("meta:users", META), False),
    ],
)
def test_the_logs_of_a_replica_decide_how_it_started_and_the_option_for_a_new_one(
    flag: bool, groups: tuple[str, ...], expected: bool
) -> None:
    assert starts_unified(flag, groups) is expected


def test_a_leader_without_meta_has_nothing_to_stamp_with() -> None:
    with pytest.raises(BadInput, match="Insert needs a Meta index, and Meta is empty"):
        Leader().propose(insert("alice", 1))
    assert Leader(unified=False).propose(insert("alice", 1)).required == 0, "before the logs are united nothing is stamped"


@pytest.mark.parametrize(
    ("kind", "definition", "more", "message"),
    [
        ("table", {"columns": ["id"]}, {}, "defines table 'x' as .* an object with columns, primary_key is expected"),
        ("user", {"locked": "no"}, {}, "an object with locked is expected"),
        ("user", [], {}, "an object with locked is expected"),
        ("galaxy", {}, {}, "an object of kind 'galaxy'"),
        ("job", {}, {"created_index": 1 << 70}, "created_index, updated_index are expected"),
        ("job", {}, {"updated_index": -1}, "created_index, updated_index are expected"),
    ],
)
def test_a_snapshot_that_commands_could_not_use_is_refused(kind: str, definition: Any, more: Any, message: str) -> None:
    one = {"kind": kind, "id": "x", "definition": definition, "created_index": 1, "updated_index": 1, **more}
    with pytest.raises(BadInput, match=message):
        read_entry({"group": "meta", "log_index": 1, "log_term": 1, "command": {"type": "Snapshot", "objects": [one]}})


def test_without_the_united_log_data_before_meta_fails_as_it_used_to() -> None:
    leader = Leader(unified=False)
    meta, data = proposed(*SETUP, leader=leader), [leader.propose(insert("alice", 1))]
    replica = Replica(unified=False)
    replica.deliver(data)
    assert result_of(replica, data[0]) == (0, "table not found")
    replica.deliver(meta)
    assert replica.visible_rows() == {}
    with pytest.raises(BrokenPromise, match="has a watermark"):
        replica.deliver([data[0]._replace(log_index=2, command={**data[0].command, "required_meta_index": 1})])
    with pytest.raises(BrokenPromise, match="united by a Snapshot first"):
        replica.deliver([Entry(META, 1, 1, ALICE)])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "an object is expected"),
        ({"group": "meta", "log_index": 0, "log_term": 1, "command": {"type": "Blank"}}, "logs count from 1"),
        ({"group": "meta", "log_index": (1 << 63) - 1, "log_term": 1, "command": {"type": "Blank"}}, "no entry could follow it"),
        ({"group": "meta", "log_index": True, "log_term": 1, "command": {"type": "Blank"}}, "log_index is True"),
        ({"group": "meta", "log_index": 1, "log_term": -1, "command": {"type": "Blank"}}, "log_term is -1"),
        ({"group": "meta", "log_index": 1, "log_term": 1}, "one of command and command_bytes"),
        ({"group": "meta", "log_index": 1, "log_term": 1, "command_bytes": "*"}, "base64 is expected"),
        ({"group": "data:user:32", "log_index": 1, "log_term": 1, "command": {"type": "Blank"}}, "is not a group"),
        ({"group": ["meta"], "log_index": 1, "log_term": 1, "command": {"type": "Blank"}}, "is not a group"),
        ({"group": "data:user:00", "log_index": 1, "log_term": 1, "command": ALICE}, "belongs to meta:users"),
        ({"group": "meta", "log_index": 1, "log_term": 1, "command": insert(None, 1)}, "belongs to a data group"),
        ({"group": "data:user:00", "log_index": 1, "log_term": 1, "command": insert(None, 1)}, "has no user_id"),
        ({"group": SHARED, "log_index": 1, "log_term": 1, "command": insert("alice", 1)}, "has a user_id"),
        (
            {"group": "data:user:01", "log_index": 1, "log_term": 1, "command": insert("alice", 1)},
            "user 'alice' stands in the log of data:user:01: it belongs to data:user:00",
        ),
        ({"group": "meta", "log_index": 1, "log_term": 1, "command": {"type": "Fly"}}, "'Fly' is not a kind of command"),
        ({"group": "meta", "log_index": 1, "log_term": 1, "command": {"type": ["Blank"]}}, "is not a kind of command"),
        ({"group": "meta", "log_index": 1, "log_term": 1, "command": {"type": "RegisterLiveQuery"}}, "is retired"),
        ({"group": "meta", "log_index": 1, "log_term": 1, "command": {"type": "CreateUser"}}, "has no user_id"),
        ({"group": "meta", "log_index": 1, "log_term": 1, "command": create_table("t")}, "namespace.table is expected"),
        ({"group": SHARED, "log_index": 1, "log_term": 1, "command": {**insert(None), "rows": [1]}}, "an object is expected"),
        (
            {"group": SHARED, "log_index": 1, "log_term": 1, "command": {**insert(None), "required_meta_index": "7"}},
            "a number from 0 is expected",
        ),
    ],
)
def test_entries_that_cannot_be_understood_say_why(given: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_entry(given)
