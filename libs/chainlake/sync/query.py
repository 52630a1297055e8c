"""Reading notifications: a consumer keeps the offset of the last one it has dealt with, and goes on after it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainlake.errors import BadInput

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

COLUMNS = (
    "offset",
    "stream_id",
    "miniblock_num",
    "event_index",
    "event_hash",
    "payload",
    "historical",
    "duplicate",
    "minipool",
)
MOST = 10_000
MOST_BYTES = 32 << 20
"""Of payloads in one page. As JSON it is twice as much, and has to go out beside those of others."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One event of a stream, as delivered."""

    offset: int
    stream_id: bytes
    miniblock_num: int | None
    event_index: int
    event_hash: bytes
    payload: bytes
    historical: bool
    duplicate: bool
    minipool: bool

    def to_json(self) -> dict[str, Any]:
        """With bytes as 0x hex."""
        values = {name: getattr(self, name) for name in COLUMNS}
        return {name: "0x" + value.hex() if isinstance(value, bytes) else value for name, value in values.items()}


def notifications(lake: "Lake", from_offset: int = 1, limit: int = 1_000, chain: str = "") -> list[Notification]:
    """Notifications from an offset on, in order; fewer than `limit` when there are no more yet or they are large, but one at
    least if there is one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    check_range(from_offset, limit)
    chain = only_chain({name: {"kind": one.kind} for name, one in lake.chains.all().items()}, chain)
    if chain not in lake.ledger.read(["gold.sync"]).chains(["gold.sync"]):
        return []
    rows = lake.table("gold.notifications", chain=chain).filter(f"offset BETWEEN {from_offset} AND {from_offset + limit - 1}")
    size = F.sum(F.length("payload")).over(Window.orderBy("offset").rowsBetween(Window.unboundedPreceding, Window.currentRow))
    fitting = rows.withColumn("size", size).filter((F.col("size") <= MOST_BYTES) | (F.col("size") == F.length("payload")))
    return [read(row.asDict()) for row in fitting.orderBy("offset").select(*COLUMNS).collect()]


def read(row: Mapping[str, Any]) -> Notification:
    """A row of gold.notifications."""
    values: dict[str, Any] = {name: bytes(row[name]) if isinstance(row[name], bytearray) else row[name] for name in COLUMNS}
    return Notification(**values)


def check_range(from_offset: int, limit: int) -> None:
    """Refuse what cannot be asked for."""
    if not 0 <= from_offset < 1 << 62:
        raise BadInput(f"offset {from_offset}: a number of 0 or more is expected")
    if not 1 <= limit <= MOST:
        raise BadInput(f"limit {limit}: a number from 1 to {MOST} is expected")


def only_chain(chains: Mapping[str, Mapping[str, Any]], given: str) -> str:
    """The chain of streams that is named, else the only one."""
    rivers: Iterable[str] = sorted(name for name, row in chains.items() if row["kind"] == "river")
    known = list(rivers)
    if given and given not in known:
        raise BadInput(f"unknown chain of streams {given!r}: there are {', '.join(known) or 'none yet'}")
    if not given and len(known) != 1:
        raise BadInput(f"which chain of streams? there are {', '.join(known)}" if known else "there is no chain of streams yet")
    return given or known[0]
