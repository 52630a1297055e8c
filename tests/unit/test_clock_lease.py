"""Ids that grow with time, processes that are certainly gone, and who holds a lane."""

import socket
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from chainlake.errors import Fenced, LeaseHeld, Unavailable
from chainlake.lake.clock import commit_time, new_commit_id, now, process_id, process_is_dead
from chainlake.lake.control import ControlTables
from chainlake.lake.deltalog import DeltaLog
from chainlake.lake.lease import HELD, RELEASED, Lease, LeaseRow, newest_leases
from chainlake.lake.ledger import Ledger
from chainlake.lake.names import Namespace
from tests.unit.control_tables import commit_row, made_lake, with_control

STRANGER = "elsewhere:1:1:abcd"


def test_commit_ids_grow_with_time_and_fit_a_signed_long() -> None:
    ids = []
    for _ in range(5):
        ids.append(new_commit_id())
        time.sleep(0.002)
    assert ids == sorted(ids) and len(set(ids)) == 5
    assert all(0 < one < 2**63 for one in ids)


def test_a_commit_id_fits_for_a_century(monkeypatch: pytest.MonkeyPatch) -> None:
    late = datetime(2100, 1, 1, tzinfo=timezone.utc)
    monkeypatch.setattr("chainlake.lake.clock.time.time_ns", lambda: int(late.timestamp() * 1_000_000_000))
    one = new_commit_id()
    assert 0 < one < 2**63 and commit_time(one) == late


def test_ids_made_in_the_same_instant_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainlake.lake.clock.time.time_ns", lambda: 1_800_000_000_000_000_000)
    assert len({new_commit_id() for _ in range(50)}) > 45, "21 random bits are not used"


def test_a_commit_id_tells_when_it_was_made() -> None:
    before = now()
    made = commit_time(new_commit_id())
    assert before - timedelta(milliseconds=1) <= made <= now()
    assert made.utcoffset() == timedelta(0)


def test_this_process_is_not_dead() -> None:
    assert not process_is_dead(process_id())
    assert not process_is_dead(f"{process_id()}:{'ab' * 4}"), "owners of a lease have a random part too"


def test_a_process_that_ended_is_dead() -> None:
    code = "from chainlake.lake.clock import process_id; print(process_id())"
    owner = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert owner.startswith(f"{socket.gethostname()}:")
    assert process_is_dead(owner)


def test_a_process_that_runs_is_not_dead_until_it_ends() -> None:
    code = "from chainlake.lake.clock import process_id; print(process_id(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        owner = child.stdout.readline().strip()
        assert not process_is_dead(owner)
        child.stdin.write("\n")
        child.stdin.flush()
        child.wait(10)
    assert process_is_dead(owner)


def test_a_pid_that_was_used_again_is_another_process() -> None:
    host, pid, started = process_id().split(":")
    assert process_is_dead(f"{host}:{pid}:{int(started) - 1}")


def test_nothing_is_known_of_other_hosts_and_of_strange_owners() -> None:
    dead_pid = 2**22 + 1
    assert not process_is_dead(f"elsewhere:{dead_pid}:1")
    for owner in ("", "x", socket.gethostname(), f"{socket.gethostname()}:x:1", f"{socket.gethostname()}:-1:1"):
        assert not process_is_dead(owner)


def lease(epoch: int, state: str, at: int, owner: str = STRANGER, lane: str = "a") -> dict[str, Any]:
    moment = now() + timedelta(seconds=at)
    return {
        "stage": "s",
        "lane": lane,
        "epoch": epoch,
        "owner": owner,
        "state": state,
        "at": moment,
        "expires_at": moment + timedelta(seconds=60),
    }


def test_the_highest_epoch_holds_the_lane_whatever_its_time() -> None:
    rows = [lease(2, HELD, at=0, owner="two"), lease(1, HELD, at=30, owner="one"), lease(1, RELEASED, at=40, owner="one")]
    assert newest_leases(rows)["s", "a"].owner == "two"


def test_within_an_epoch_the_latest_renewal_counts() -> None:
    rows = [lease(1, HELD, at=20), lease(1, HELD, at=0), lease(1, HELD, at=10)]
    assert newest_leases(rows)["s", "a"].expires_at == rows[0]["expires_at"]


def test_a_renewal_that_arrives_after_the_release_does_not_hold_the_lane_again() -> None:
    rows = [lease(1, HELD, at=0), lease(1, RELEASED, at=10), lease(1, HELD, at=11)]
    assert newest_leases(rows)["s", "a"].state == RELEASED


def test_lanes_do_not_share_leases() -> None:
    found = newest_leases([lease(3, HELD, at=0), lease(1, RELEASED, at=0, lane="b")])
    assert {key: row.epoch for key, row in found.items()} == {("s", "a"): 3, ("s", "b"): 1}
    assert newest_leases([]) == {}


def row(state: str, seconds: float, owner: str) -> LeaseRow:
    return LeaseRow(1, owner, state, now() + timedelta(seconds=seconds))


def test_a_lease_is_free_once_released_or_expired_or_its_owner_is_gone() -> None:
    assert not row(HELD, 60, STRANGER).is_free()
    assert not row(HELD, 60, f"{process_id()}:ab").is_free()
    assert row(RELEASED, 60, STRANGER).is_free()
    assert row(HELD, -1, STRANGER).is_free()
    assert row(HELD, -1, f"{process_id()}:ab").is_free(), "an expired lease is free even if its owner lives"
    host, pid, started = process_id().split(":")
    assert row(HELD, 60, f"{host}:{pid}:{int(started) - 1}:ab").is_free()


def lease_on(home: Path, ttl: float = 60.0) -> Lease:
    """The lease of a lane on disk."""
    place = home / "warehouse"
    namespace = Namespace()
    control = ControlTables(None, namespace, place)
    ledger = Ledger(namespace, control, DeltaLog(None, "ledger", place / "control" / "ledger"))
    return Lease(control, ledger, DeltaLog(None, "leases", place / "control" / "leases"), "raw.logs", "c", ttl)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return with_control(made_lake(tmp_path, [commit_row(1, 0, 1)]))


def test_a_lease_that_is_taken_again_renews_itself_again(home: Path) -> None:
    """It would run out under a long piece of work otherwise."""
    held = lease_on(home, ttl=1.2)
    for epoch in (1, 2):
        with held:
            assert held.epoch == epoch
            time.sleep(1.5)
            held.check()


def test_a_lease_that_cannot_be_renewed_runs_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lease_on(home, ttl=0.9) as held:
        held.check()

        def refuse(*_: object, **__: object) -> None:
            raise Unavailable("the disk is full")

        monkeypatch.setattr(ControlTables, "append", refuse)
        time.sleep(1.2)
        with pytest.raises(Fenced, match="the lease ran out"):
            held.check()


def test_a_writer_that_a_rollback_stopped_may_run_again_at_once(home: Path) -> None:
    with pytest.raises(Fenced), lease_on(home):
        raise Fenced("seq 2 was taken by another writer")
    with lease_on(home) as held:
        assert held.epoch == 2


def test_an_earlier_lease_does_not_confirm_one_that_another_writer_took(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = lease_on(home)
    with mine:
        pass
    before = LeaseRow(1, "me", RELEASED, now())
    with lease_on(home), monkeypatch.context() as stale:
        stale.setattr("chainlake.lake.lease.read_lease", lambda *_: before)
        with pytest.raises(LeaseHeld, match="another writer took the lease at the same moment"):
            mine.__enter__()
