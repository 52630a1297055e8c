"""The finalized log index as a program uses it, block by block: ingest, query, head, health.

Blocks given here are kept in a file of the home, which is the chain's source: the batch path reads the same. Whoever has many
blocks at once writes them to a file and uses `lake ingest` instead.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainlake.encoding import short
from chainlake.errors import BadInput, BrokenPromise, Degraded
from chainlake.lake.home import find_home
from chainlake.logs.filter import Bounds, Limits, LogFilter, RpcError, parse_filter
from chainlake.logs.query import Answer, LogIndex, NothingIndexed
from chainlake.serve import operations
from chainlake.serve.control import LakeControl
from chainlake.serve.embedded import EmbeddedLake
from chainlake.sources.base import RawBlock
from chainlake.sources.evm_line import parse_line

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

STAGES = ("raw.logs", "bronze.logs", "gold.logs")
_indexes: dict[tuple[Path, str], LogIndex] = {}


@dataclass(frozen=True)
class IngestOutcome:
    """Where the index stands after a block."""

    head: int
    logs: int
    known: bool
    """The block was there already; nothing was done."""


@dataclass(frozen=True)
class HealthReport:
    """How the index of a chain is."""

    head: int | None
    degraded: Mapping[str, str]
    """Reason by stage, of the stages that stopped at a broken promise."""

    @property
    def is_healthy(self) -> bool:
        return not self.degraded


def ingest_finalized_block(block: Mapping[str, Any], *, chain: str, lake: "Lake | None" = None) -> IngestOutcome:
    """Index the next finalized block: `{"block": …, "receipts": […]}` or with `"logs": […]`, as a node answers.

    A block that is there already changes nothing. One that would replace a finalized block, or does not follow the head, stops
    the chain until an operator resumes it.
    """
    from chainlake.lake import open_lake

    lake = lake or open_lake()
    line = json.dumps(block, separators=(",", ":")).encode()
    given = parse_line(line, "given", 0)
    if _is_known(lake, chain, given):
        return IngestOutcome(given.height, 0, known=True)
    _append(lake, chain, line)
    lake.ingest(chain, "evm", str(_file(lake, chain)))
    for stage in STAGES[1:]:
        lake.run_stage(stage, chains=chain)
    for stage in STAGES:
        lake.health.require(stage, [chain])
    rows = lake.table("gold.block_meta", chain=chain).filter(f"block_number = {given.height}").select("log_count").collect()
    return IngestOutcome(given.height, rows[0][0], known=False)


def query_finalized(filter: LogFilter | Mapping[str, Any], *, chain: str, max_results: int | None = None) -> Answer:
    """The logs that a filter asks for. The range is clipped to what is indexed; the answer says which range it is for."""
    return query_clipped(_index(chain), filter, max_results)


def query_clipped(index: LogIndex, filter: LogFilter | Mapping[str, Any], max_results: int | None) -> Answer:
    """The same, of a given index."""
    snapshot = index.snapshot()
    if not isinstance(filter, LogFilter):
        try:
            filter = parse_filter([filter], Bounds(snapshot.first, snapshot.head.number), Limits(range_rule="clip"))
        except RpcError as error:
            raise BadInput(f"the filter does not work: {error.message}") from None
    return index.query(filter, max_results=max_results, snapshot=snapshot)


def indexed_finalized_head(*, chain: str) -> int | None:
    """The last block that is indexed; None if there is none yet."""
    try:
        return _index(chain).snapshot().head.number
    except NothingIndexed:
        return None


def health(*, chain: str) -> HealthReport:
    """Where the index stands, and what stopped."""
    rows = LakeControl(EmbeddedLake(find_home().path)).rows("health")
    stopped = {stage: why for stage, why in operations.degraded(rows, chain).items() if stage in operations.STAGES}
    return HealthReport(indexed_finalized_head(chain=chain), stopped)


def _index(chain: str) -> LogIndex:
    key = (find_home().path, chain)
    if key not in _indexes:
        _indexes[key] = LogIndex(*key)
    return _indexes[key]


def _is_known(lake: "Lake", chain: str, given: RawBlock) -> bool:
    """Whether the block is held already; a block that contradicts what is held degrades the chain."""
    head = lake.ledger.read(["raw.logs"]).of("raw.logs", chain).head()
    if head is None:
        return False
    if ("raw.logs", chain) in lake.health.degraded():
        raise Degraded(f"raw.logs {chain} is degraded: see lake status, then lake resume raw.logs {chain} --why TEXT")
    if given.height > head.height + 1:
        raise BadInput(f"block {given.height} of {chain} came where {head.height + 1} is expected: give blocks in order")
    if given.height == head.height + 1:
        if given.parent_hash != head.block_hash:
            _degrade(lake, chain, f"block {given.height} does not follow block {head.height} that is held")
        return False
    held = lake.table("raw.blocks", chain=chain).filter(f"height = {given.height}").select("hash").collect()
    if held and bytes(held[0][0]) != given.hash:
        _degrade(lake, chain, f"block {given.height} {short(given.hash)} would replace the finalized {short(bytes(held[0][0]))}")
    return True


def _degrade(lake: "Lake", chain: str, reason: str) -> None:
    lake.health.degrade("raw.logs", chain, reason, "ingest_finalized_block")
    raise BrokenPromise(f"{chain}: {reason}")


def _append(lake: "Lake", chain: str, line: bytes) -> None:
    path = _file(lake, chain)
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(line + b"\n")


def _file(lake: "Lake", chain: str) -> Path:
    if lake.catalog.location is None:
        raise BadInput("blocks can be given one by one to a local lake only: write them to files and use lake ingest")
    return lake.catalog.location.parent / "given" / f"{chain}.jsonl"
