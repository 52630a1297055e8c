"""The logs of a replicated database as three replicas receive them: the same entries, in a different order.

The leader's history is made in windows: each window's entries reach every replica within the same ten deliveries, but
the order among groups is the replica's own. Replica a mostly hears of Meta first, replica b mostly last, so b has to
wait. Replica c is cut off from Meta in every third window, and hears in the next one, after its data, what it missed.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chainlake.demo import write_pieces
from chainlake.replica.groups import META, SHARED, group_of

WINDOW = 10
USERS = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "user123", "user_456")
COLUMNS = ("id", "name", "amount")

Json = dict[str, Any]


@dataclass
class Leader:
    """What the leader knows when it stamps and appends a command."""

    rng: random.Random
    ends: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    term: int = 1
    tables: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    keys: int = 0

    def append(self, group: str, command: Json) -> Json:
        """The next entry of a group's log."""
        self.ends[group] += 1
        return {"group": group, "log_index": self.ends[group], "log_term": self.term, "command": command}

    def data(self, kind: str, user_id: str | None, table_id: str, **fields: Any) -> Json:
        """A data command, stamped with the Meta index at which the leader saw it."""
        command = {"type": kind, "required_meta_index": self.ends[META], "table_id": table_id, **fields}
        if user_id is None:
            return self.append(SHARED, command)
        return self.append(group_of(user_id), {**command, "user_id": user_id})


def blocks(count: int, seed: int = 1, replica: str = "a", entries_per_delivery: int = 6) -> Iterator[Json]:
    """`count` deliveries to a replica, as lines of the raft format."""
    leader = Leader(random.Random(f"raft {seed}"))
    rng = random.Random(f"raft {seed} {replica}")
    missed: list[Json] = []
    for first in range(1, count + 1, WINDOW):
        size = min(WINDOW, count + 1 - first)
        history = list(_history(leader, size * entries_per_delivery, opening=first == 1))
        is_cut_off = replica == "c" and first // WINDOW % 3 == 1
        order = _interleave(rng, [entry for entry in history if not (is_cut_off and entry["group"] == META)], replica != "a")
        if is_cut_off:
            missed = [entry for entry in history if entry["group"] == META]
        elif missed:
            order = [*(entry for entry in order if entry["group"] != META), *missed, *(e for e in order if e["group"] == META)]
            missed = []
        for step in range(size):
            entries = order[step * len(order) // size : (step + 1) * len(order) // size]
            yield {"delivery": first + step, "entries": entries}


def write(directory: Path, count: int, seed: int = 1, replica: str = "a") -> list[Path]:
    """One file of JSON lines."""
    lines = (json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in blocks(count, seed, replica))
    return [write_pieces(directory / "deliveries.jsonl", lines)]


def _interleave(rng: random.Random, history: list[Json], meta_last: bool) -> list[Json]:
    """The entries in another order that keeps every log in order; now and then one is delivered twice."""
    logs: dict[str, list[Json]] = {}
    for entry in history:
        logs.setdefault(entry["group"], []).append(entry)
    order: list[Json] = []
    while logs:
        weights = [len(log) * (0.1 if meta_last and group == META else 1.0) for group, log in logs.items()]
        group = rng.choices(list(logs), weights)[0]
        order.append(logs[group].pop(0))
        if rng.random() < 0.02:
            order.append(order[-1])
        if not logs[group]:
            del logs[group]
    return order


def _history(leader: Leader, size: int, opening: bool) -> Iterator[Json]:
    """About `size` entries of the leader's history, in the order in which it appended them."""
    if opening:
        yield leader.append(META, {"type": "Membership", "nodes": ["a", "b"]})
        yield leader.append(META, {"type": "CreateNamespace", "namespace_id": "app"})
        yield _create_table(leader)
        yield _create_user(leader)
    elif leader.rng.random() < 0.2:
        leader.term += 1
        yield from [leader.append(group, {"type": "Blank"}) for group in sorted(leader.ends)]
    for _ in range(size):
        yield _meta(leader) if leader.rng.random() < 0.2 else _data(leader)


def _create_table(leader: Leader) -> Json:
    table_id = f"app.table_{len(leader.tables)}"
    leader.tables.append(table_id)
    return leader.append(META, {"type": "CreateTable", "table_id": table_id, "columns": list(COLUMNS), "primary_key": "id"})


def _create_user(leader: Leader) -> Json:
    known = len(leader.users)
    user_id = USERS[known] if known < len(USERS) else f"user_{known}"
    leader.users.append(user_id)
    return leader.append(META, {"type": "CreateUser", "user_id": user_id, "role": "user"})


def _meta(leader: Leader) -> Json:
    rng, user_id = leader.rng, leader.rng.choice(leader.users)
    draw = rng.random()
    if draw < 0.4:
        return _create_user(leader)
    if draw < 0.55:
        return _create_table(leader)
    if draw < 0.65:
        return leader.append(META, {"type": "SetUserLocked", "user_id": user_id, "locked": rng.random() < 0.3})
    if draw < 0.7:
        return leader.append(META, {"type": "DropTable", "table_id": rng.choice(leader.tables)})
    if draw < 0.8:
        command = {"type": "AlterTable", "table_id": rng.choice(leader.tables), "add_columns": [f"extra_{leader.keys}"]}
        return leader.append(META, command)
    return leader.append(META, {"type": "RecordLogin", "user_id": user_id, "at": 1_700_000_000_000 + leader.keys})


def _data(leader: Leader) -> Json:
    """Mostly inserts of new rows; some commands must fail (an old key, an unknown column, a dropped table)."""
    rng = leader.rng
    user_id = None if rng.random() < 0.15 else rng.choice(leader.users)
    table_id, draw = rng.choice(leader.tables), rng.random()
    old = f"k{rng.randrange(leader.keys + 1)}"
    if draw < 0.65:
        leader.keys += 1
        rows = [{"id": f"k{leader.keys}", "name": rng.choice(USERS), "amount": rng.randrange(1000)}]
        return leader.data("Insert", user_id, table_id, rows=rows)
    if draw < 0.72:
        return leader.data("Insert", user_id, table_id, rows=[{"id": old, "colour" if draw < 0.69 else "name": "red"}])
    if draw < 0.88:
        return leader.data("Update", user_id, table_id, filter={"id": old}, updates={"amount": rng.randrange(1000)})
    return leader.data("Delete", user_id, table_id, pk_values=[old])
