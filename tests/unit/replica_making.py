"""Histories of a leader, and the orders in which a replica may receive them."""

import random
from typing import Any

from chainlake.replica.commands import MARKERS
from chainlake.replica.entries import Entry
from chainlake.replica.groups import GROUPS, META
from chainlake.replica.leader import Leader
from chainlake.replica.meta import TABLE
from chainlake.replica.migrate import snapshot_entry
from chainlake.replica.replica import perfect

USERS = ("alice", "bob", "user1", "")
TABLES = ("a.x", "a.y", "b.x")


def meta_command(rng: random.Random) -> dict[str, Any]:
    user_id, table_id = rng.choice(USERS), rng.choice(TABLES)
    return rng.choice(
        [
            {"type": "CreateNamespace", "namespace_id": table_id[0]},
            {"type": "CreateNamespaceIfNotExists", "namespace_id": table_id[0]},
            {"type": "DeleteNamespace", "namespace_id": table_id[0]},
            {"type": "CreateTable", "table_id": table_id, "columns": ["id", "v"], "primary_key": "id"},
            {"type": "CreateTable", "table_id": table_id, "columns": ["id", "v", "w"], "primary_key": "v"},
            {"type": "AlterTable", "table_id": table_id, "add_columns": ["w"]},
            {"type": "DropTable", "table_id": table_id},
            {"type": "CreateUser", "user_id": user_id, "role": "user"},
            {"type": "UpdateUser", "user_id": user_id, "role": "dba"},
            {"type": "DeleteUser", "user_id": user_id},
            {"type": "RecordLogin", "user_id": user_id, "at": 5},
            {"type": "SetUserLocked", "user_id": user_id, "locked": rng.random() < 0.4},
            {"type": "RegisterStorage", "storage_id": "s"},
            {"type": "UnregisterStorage", "storage_id": "s"},
            {"type": "CreateJob", "job_id": "j", "what": "flush"},
            {"type": "ClaimJob", "job_id": "j", "node_id": "n1"},
            {"type": "CreateJobNode", "job_id": "j", "node_id": "n1"},
            {"type": "UpdateJobNodeStatus", "job_id": "j", "node_id": "n1", "status": "running"},
            {"type": "Membership", "nodes": [1, 2]},
            {"type": "Blank"},
        ]
    )


def data_command(rng: random.Random) -> dict[str, Any]:
    user = {} if rng.random() < 0.2 else {"user_id": rng.choice(USERS)}
    target = {**user, "table_id": rng.choice(TABLES)}
    key = rng.choice([1, 2, 3, "1", None, True])
    column = rng.choice(["v", "v", "w", "id", "other"])
    return rng.choice(
        [
            {"type": "Insert", **target, "rows": [{"id": rng.randrange(9), "v": rng.randrange(9)}]},
            {"type": "Insert", **target, "rows": [{"id": key, column: 1}, {"id": rng.randrange(4), "v": 2}]},
            {"type": "Update", **target, "filter": {"id": key}, "updates": {column: rng.randrange(3)}},
            {"type": "Delete", **target, "pk_values": [key, 4, 5]},
        ]
    )


def opening(leader: Leader) -> list[Entry]:
    """Enough Meta for most commands to succeed."""
    commands: list[dict[str, Any]] = [{"type": "CreateNamespace", "namespace_id": name} for name in "ab"]
    commands += [{"type": "CreateTable", "table_id": t, "columns": ["id", "v"], "primary_key": "id"} for t in TABLES]
    commands += [{"type": "CreateUser", "user_id": user_id, "role": "user"} for user_id in USERS]
    return [leader.propose(command) for command in commands]


def history(rng: random.Random, size: int, unified: bool = True) -> list[Entry]:
    """Entries as a leader appended them."""
    leader = Leader(unified=unified)
    entries = opening(leader)
    for _ in range(size):
        draw = rng.random()
        if draw < 0.05:
            leader.term += 1
            entries += [leader.propose({"type": "Blank"}, group) for group in list(leader.ends)]
        elif draw < 0.35:
            command = meta_command(rng)
            anywhere = command["type"] in ("Blank", "Membership")
            entries.append(leader.propose(command, rng.choice(GROUPS if unified else GROUPS[1:]) if anywhere else None))
        else:
            entries.append(leader.propose(data_command(rng)))
    return entries


def deliveries(rng: random.Random, entries: list[Entry], meta_weight: float = 1.0) -> list[list[Entry]]:
    """The entries in another order that keeps every log in order, in deliveries of any size, some entries twice."""
    logs: dict[str, list[Entry]] = {}
    for entry in entries:
        logs.setdefault(entry.group, []).append(entry)
    given: list[Entry] = []
    made: list[list[Entry]] = [[]]
    while logs:
        weights = [meta_weight if group.startswith("meta") else 1.0 for group in logs]
        group = rng.choices(list(logs), weights)[0]
        for _ in range(min(rng.choice((1, 1, 2, 5)), len(logs[group]))):
            given.append(logs[group].pop(0))
            made[-1].append(given[-1])
        if not logs[group]:
            del logs[group]
        while rng.random() < 0.1:
            made[-1].append(rng.choice(given))
        while rng.random() < 0.4:
            made.append([])
    return made


def with_lower_stamps(rng: random.Random, entries: list[Entry]) -> list[Entry]:
    """The same entries, some stamped by a leader that was behind in Meta: a log may hold lower stamps after higher ones."""
    made = []
    for entry in entries:
        if entry.required and rng.random() < 0.4:
            entry = entry._replace(command={**entry.command, "required_meta_index": rng.randrange(1, entry.required + 1)})
        made.append(entry)
    return made


def history_with_snapshots(rng: random.Random, size: int) -> list[Entry]:
    """Entries of a leader that now and then says anew what Meta holds: with other indexes of creation, without an object, with a
    table that was dropped."""
    leader, once = Leader(), {}
    entries = opening(leader)
    for _ in range(size):
        draw = rng.random()
        if draw < 0.06:
            held = perfect(entries).meta.objects
            once |= {key: one for key, one in held.items() if one.kind == TABLE}
            objects = [one._replace(created_index=max(1, one.created_index - rng.randrange(3))) for one in held.values()]
            brought_back = [one for key, one in once.items() if key not in held and rng.random() < 0.5]
            entries.append(leader.propose(snapshot_entry(objects[rng.randrange(2) :] + brought_back, 0, 1).command))
        elif draw < 0.35:
            command = meta_command(rng)
            entries.append(leader.propose(command, META if command["type"] in MARKERS else None))
        else:
            entries.append(leader.propose(data_command(rng)))
    return entries
