"""Reads of a replica without Spark: fresh ones are refused while a shard waits, stale ones say what they lack."""

import asyncio
import json
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from chainlake.cli.main import main
from chainlake.errors import BadInput
from chainlake.lake.visibility import Commit
from chainlake.replica.entries import Entry
from chainlake.replica.leader import Leader
from chainlake.replica.query import NotFresh, ReplicaReader
from chainlake.replica.timeline import Progress
from chainlake.serve.pool import WorkPool
from chainlake.serve.replica import ReplicaRoutes
from chainlake.serve.router import Request, Response, Router
from tests.unit.logs_lake import LEDGER
from tests.unit.replica_batches import Tables
from tests.unit.test_replica_rules import SETUP, insert, proposed

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
CHAIN = "node"
KERNEL = {"_chain": pa.string(), "_height": pa.int64(), "_commit": pa.int64(), "_deleted": pa.bool_()}
APPLIED = pa.schema([*KERNEL.items(), ("group_name", pa.string()), *((name, pa.int64()) for name in Progress._fields)])
TEXTS = ("group_name", "table_id", "row_key", "user_id", "primary_key", "row")
ROWS = pa.schema([*KERNEL.items(), *((name, pa.string()) for name in TEXTS), ("log_index", pa.int64())])


class Written:
    """A lake directory of one replica, written by delta-rs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.tables = Tables()
        self.commits = 0
        chain = {"chain": CHAIN, "kind": "raft", "source": "x", "options": {}, "at": NOW}
        kinds = [("chain", pa.string()), ("kind", pa.string()), ("source", pa.string())]
        schema = pa.schema([*kinds, ("options", pa.map_(pa.string(), pa.string())), ("at", pa.timestamp("us", "UTC"))])
        self._write("control/chains", [chain], schema)

    def deliver(self, *deliveries: list[Entry]) -> None:
        """One commit of some deliveries."""
        low = self.tables.head
        self.tables.fold(deliveries)
        self.commits += 1
        for name, stored, schema in (("applied", "silver_applied", APPLIED), ("rows", "silver_data_rows", ROWS)):
            news = [row for row in self.tables.rows.get(name, []) if row["_height"] > low]
            made = [{**row, "_chain": CHAIN, "_commit": self.commits, "_deleted": bool(row.get("_deleted"))} for row in news]
            self._write(f"store/{stored}", [{column: row.get(column) for column in schema.names} for row in made], schema)
        self.ledger(Commit("silver.replica", CHAIN, CHAIN, self.commits, self.commits, "advance", low, self.tables.head, 1, NOW))

    def ledger(self, commit: Commit) -> None:
        self._write("control/ledger", [asdict(commit)], LEDGER)

    def roll_back(self, height: int) -> None:
        self.commits += 1
        row = Commit("silver.replica", CHAIN, CHAIN, self.commits, self.commits, "rollback", self.tables.head, height, 1, NOW)
        self.ledger(replace(row, why="a test"))

    def degrade(self, reason: str) -> None:
        names = ("stage", "chain", "status", "reason")
        schema = pa.schema([*((name, pa.string()) for name in names), ("at", pa.timestamp("us", "UTC"))])
        row = {"stage": "silver.replica", "chain": CHAIN, "status": "degraded", "reason": reason, "at": NOW}
        self._write("control/health", [row], schema)

    def _write(self, table: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
        place = str(self.home / "warehouse" / table)
        write_deltalake(place, pa.Table.from_pylist(rows, schema), mode="append")


@pytest.fixture
def written(tmp_path: Path) -> Written:
    leader = Leader()
    meta = proposed(*SETUP, leader=leader)
    data = proposed(insert("alice", 1, name="x"), insert("bob", 2), insert(None, 3), leader=leader)
    made = Written(tmp_path)
    made.deliver(data[:2])
    made.deliver(meta[:2], [*meta[2:], data[2]])
    return made


def test_reads_follow_the_ledger(written: Written) -> None:
    reader = ReplicaReader(written.home)
    health = reader.health(CHAIN)
    assert (health.status, health.delivery, health.meta_index, health.eligible_leader) == ("caught_up", 3, 4, True)
    assert reader.read(CHAIN, "app.t", "alice").rows == [{"id": 1, "name": "x"}]
    assert reader.read(CHAIN, "app.t", "carol").rows == [] and reader.read(CHAIN, "app.t").rows == [{"id": 3}]
    written.roll_back(2)
    health = reader.health(CHAIN)
    assert (health.status, health.delivery, health.meta_index, health.eligible_leader) == ("catching_up", 2, 2, False)
    assert {group.group: group.waits_for for group in health.groups if group.pending} == {"data:user:00": 4, "data:user:17": 4}
    with pytest.raises(NotFresh, match=r"data:user:00 of node waits for Meta index 4 since delivery 1, 1 entries are pending"):
        reader.read(CHAIN, "app.t", "alice")
    stale = reader.read(CHAIN, "app.t", "alice", stale=True)
    assert (stale.rows, stale.pending, stale.waits_for, stale.waiting_since) == ([], 1, 4, 1)
    assert reader.read(CHAIN, "app.t").rows == [], "other shards are fresh"


def test_a_degraded_replica_gives_no_fresh_reads_and_cannot_lead(written: Written) -> None:
    written.degrade("meta 9 came where 5 is expected")
    reader = ReplicaReader(written.home)
    health = reader.health(CHAIN)
    assert (health.status, health.eligible_leader, set(health.degraded)) == ("degraded", False, {"silver.replica"})
    assert not any(group.eligible_leader for group in health.groups)
    with pytest.raises(NotFresh, match="meta 9 came where 5 is expected"):
        reader.read(CHAIN, "app.t", "alice")
    assert len(reader.read(CHAIN, "app.t", "alice", stale=True).rows) == 1
    with pytest.raises(BadInput, match="unknown replica 'other': there are node"):
        reader.health("other")


def ask(router: Router, path: str, **query: str) -> tuple[int, Any]:
    found = router.find("GET", path)
    assert not isinstance(found, Response)
    handler, params = found
    response = asyncio.run(handler(Request("GET", path, params, query)))  # type: ignore[arg-type]
    return response.status, json.loads(response.body)


def test_over_http_a_replica_that_waits_is_not_available(written: Written) -> None:
    router = Router()
    ReplicaRoutes(ReplicaReader(written.home), WorkPool(2, 4), 20).add_to(router)
    assert ask(router, "/replica") == (200, [CHAIN])
    status, health = ask(router, f"/replica/{CHAIN}/health")
    assert status == 200 and health["eligible_leader"] and len(health["groups"]) == 4
    assert ask(router, f"/replica/{CHAIN}/rows/app.t", user="bob")[1]["rows"] == [{"id": 2}]
    written.roll_back(1)
    assert ask(router, f"/replica/{CHAIN}/health")[0] == 503
    status, answer = ask(router, f"/replica/{CHAIN}/rows/app.t", user="bob")
    assert status == 409 and "waits for Meta index 4" in answer["error"]
    assert ask(router, f"/replica/{CHAIN}/rows/app.t", user="bob", stale="true")[1]["pending"] == 1
    assert ask(router, "/replica/other/health")[0] == 404


def test_rows_are_read_in_the_pool_and_health_beside_it(written: Written) -> None:
    router, full = Router(), WorkPool(0, 0)
    ReplicaRoutes(ReplicaReader(written.home), full, 20).add_to(router)
    assert ask(router, f"/replica/{CHAIN}/rows/app.t", user="bob") == (503, {"error": "server busy, retry later"})
    assert ask(router, "/replica") == (200, [CHAIN]) and ask(router, f"/replica/{CHAIN}/health")[0] == 200


def test_a_replica_that_has_received_nothing_is_not_available(tmp_path: Path) -> None:
    written, router = Written(tmp_path), Router()
    written._write("control/ledger", [], LEDGER)
    ReplicaRoutes(ReplicaReader(written.home), WorkPool(2, 4), 20).add_to(router)
    status, health = ask(router, f"/replica/{CHAIN}/health")
    assert status == 503 and not health["eligible_leader"] and health["delivery"] == 0


def test_the_command_line_says_the_same(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    home = ["--home", str(written.home)]
    assert main(["replica", "read", CHAIN, "app.t", "--user", "alice", "--json", *home]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"id": 1, "name": "x"}]
    written.roll_back(2)
    assert main(["replica", "read", CHAIN, "app.t", "--user", "alice", *home]) == 1
    assert "waits for Meta index 4" in capsys.readouterr().err
    assert main(["replica", "read", CHAIN, "app.t", "--user", "alice", "--stale", *home]) == 0
    assert "stale: 1 entries" in capsys.readouterr().out
    assert main(["replica", "health", *home]) == 0
    said = capsys.readouterr().out
    assert "catching_up" in said and "data:user:17" in said
