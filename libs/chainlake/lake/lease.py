"""Who may write a lane. A lease has an epoch that only grows; a commit with an old epoch is refused by the ledger.

Taking a lease is a compare-and-swap on its epoch. Taking it over from a writer that did not release it also uses up the seq at
which that writer would commit (see `Ledger.fence`), so that its append is refused even if it wakes up much later.
"""

import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.errors import PySparkException

from chainlake.errors import Fenced, LeaseHeld, Unavailable
from chainlake.lake.clock import now, process_id, process_is_dead
from chainlake.lake.control import ControlTables
from chainlake.lake.delta_rs import Turn
from chainlake.lake.deltalog import DeltaLog
from chainlake.lake.failpoint import failpoint
from chainlake.lake.ledger import Ledger

TTL_SECONDS = 300.0
HELD, RELEASED = "held", "released"
RECENT = 100


@dataclass(frozen=True)
class LeaseRow:
    """The state of a lane's lease."""

    epoch: int
    owner: str
    state: str
    expires_at: datetime

    def is_free(self) -> bool:
        return self.state == RELEASED or self.expires_at <= now() or process_is_dead(self.owner)


class Lease:
    """A held lease. Use as a context manager; renews itself while the work goes on."""

    def __init__(
        self, control: ControlTables, ledger: Ledger, log: DeltaLog, stage: str, lane: str, ttl: float = TTL_SECONDS
    ) -> None:
        self._control = control
        self._ledger = ledger
        self._log = log
        self.stage = stage
        self.lane = lane
        self._ttl = ttl
        self._owner = ""
        self._stop = threading.Event()
        self._renewed = 0.0
        self._lost: str | None = None
        self.epoch = 0

    def __enter__(self) -> "Lease":
        current = read_lease(self._control, self._log, self.stage, self.lane)
        if current and not current.is_free():
            raise LeaseHeld(
                f"{self.stage} {self.lane} is being written by {current.owner} (epoch {current.epoch}, until"
                f" {current.expires_at:%H:%M:%S} UTC): wait, or stop that process"
            )
        self.epoch = current.epoch + 1 if current else 1
        self._owner = f"{process_id()}:{secrets.token_hex(4)}"  # another each time: an older mark must not confirm this one
        self._write(HELD, Turn(f"lease:{self.stage}@{self.lane}", self.epoch))
        failpoint("after_lease")
        if self._log.version_of("lease", self._owner) is None:
            raise LeaseHeld(f"{self.stage} {self.lane}: another writer took the lease at the same moment; run again")
        if current and current.state != RELEASED:
            why = f"lease taken over from {current.owner} (epoch {current.epoch})"
            self._ledger.fence(self.stage, self.lane, self.epoch, why)
        self._stop = threading.Event()  # a lease may be taken again after it was given back
        threading.Thread(target=self._renew, args=[self._stop], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the lease back, also after a rollback took the seq: who is told to run again need not wait until it runs out."""
        self._stop.set()
        if self._lost is None:
            self._write(RELEASED)

    def check(self) -> None:
        """Raise Fenced if the lease is known to be lost, or ran out while this process slept."""
        if self._lost is None and time.monotonic() - self._renewed > self._ttl:
            self._lost = f"{self.stage} {self.lane}: the lease ran out (epoch {self.epoch}); run again"
        if self._lost:
            raise Fenced(self._lost)

    def confirm(self) -> None:
        """Raise Fenced if another writer took the lease. Asked with the ledger locked, so that none can do so unseen."""
        row = read_lease(self._control, self._log, self.stage, self.lane)
        if row and row.epoch > self.epoch:
            self._lost = f"{self.stage} {self.lane}: {row.owner} took the lease (epoch {row.epoch}); run again"
        self.check()

    def _renew(self, stop: threading.Event) -> None:
        while not stop.wait(self._ttl / 6):
            if time.monotonic() - self._renewed < self._ttl / 3:
                continue
            try:
                self.confirm()
                if not stop.is_set():
                    self._write(HELD)
            except Fenced:
                return
            except (PySparkException, Unavailable):
                continue

    def _write(self, state: str, turn: Turn | None = None) -> None:
        asked, at = time.monotonic(), now()
        expires = at + timedelta(seconds=self._ttl)
        row = {"stage": self.stage, "lane": self.lane, "epoch": self.epoch, "owner": self._owner, "state": state}
        mark = {"lease": self._owner, **row, "expires_at": expires.isoformat()}
        self._control.append("leases", [{**row, "expires_at": expires, "at": at}], mark, turn)
        self._renewed = asked


def read_lease(control: ControlTables, log: DeltaLog, stage: str, lane: str) -> LeaseRow | None:
    """The lane's newest lease row: from Delta's log, where each row is repeated, or from the table if it is long ago."""
    recent = [
        {**v.mark, "expires_at": datetime.fromisoformat(v.mark["expires_at"]), "at": v.version}
        for v in log.newest(RECENT)
        if (v.mark.get("stage"), v.mark.get("lane")) == (stage, lane)
    ]
    return newest_leases(recent or control.read("leases")).get((stage, lane))


def newest_leases(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], LeaseRow]:
    """The state of each lane, from rows of control.leases."""
    newest: dict[tuple[str, str], LeaseRow] = {}
    for row in sorted(rows, key=lambda row: (row["epoch"], row["state"] == RELEASED, row["at"])):
        newest[row["stage"], row["lane"]] = LeaseRow(row["epoch"], row["owner"], row["state"], row["expires_at"])
    return newest
