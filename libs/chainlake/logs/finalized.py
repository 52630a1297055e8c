"""The finalized log index as a program uses it, block by block: ingest, query, head, health.

Blocks given here are kept in a file of the home, which is the chain's source: the batch path reads the same. Whoever has many
blocks at once writes them to a file and uses `lake ingest` instead.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from chainlake.encoding import short
from chainlake.errors import BadInput, BrokenPromise, Degraded
from chainlake.lake.chains import check_name
from chainlake.lake.home import home_path
from chainlake.logs.block_rows import wrong_with
from chainlake.logs.filter import Bounds, Limits, LogFilter, RpcError, parse_filter
from chainlake.logs.query import Answer, LogIndex, NothingIndexed
from chainlake.serve import operations
from chainlake.serve.control import LakeControl, chain_of_kind
from chainlake.serve.embedded import EmbeddedLake
from chainlake.sources.base import RawBlock
from chainlake.sources.evm_line import parse_line

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

STAGES = ("raw.logs", "bronze.logs", "gold.logs")
_indexes: dict[tuple[Path, str, str], LogIndex] = {}


@dataclass(frozen=True)
class IngestOutcome:
    """Where the index stands after a block."""

    head: int
    logs: int
    known: bool
    """The block was there already, and is not taken again."""


@dataclass(frozen=True)
class HealthReport:
    """How the index of a chain is."""

    head: int | None
    degraded: Mapping[str, str]
    """Reason by stage, of the stages that stopped at a broken promise."""

    @property
    def is_healthy(self) -> bool:
        return not self.degraded


def ingest_finalized_block(block: Mapping[str, Any], *, chain: str | None = None, lake: "Lake | None" = None) -> IngestOutcome:
    """Index the next finalized block: `{"block": …, "receipts": […]}` or with `"logs": […]`, as a node answers. `chain` may be
    left out where there is one evm chain.

    A block that is there already changes nothing, but is indexed now if a crash came before that. One that would replace a
    finalized block, does not follow the head, or whose logs contradict its header stops the chain until an operator resumes it.
    Nothing of it is kept: the right block may follow.
    """
    from chainlake.lake import open_lake

    lake = lake or open_lake()
    chain = chain or _only_chain({name: {"kind": one.kind} for name, one in lake.chains.all().items()})
    check_name(chain)  # before it names a file
    line = json.dumps(block, separators=(",", ":")).encode()
    given = parse_line(line, "given", 0)
    known = _is_known(lake, chain, given)
    if not known:
        wrong = wrong_with(given)
        if wrong is not None:
            _degrade(lake, chain, wrong)
        _append(lake, chain, line)
        lake.ingest(chain, "evm", str(_file(lake, chain)))
    for stage in STAGES[1:]:
        lake.run_stage(stage, chains=chain)
    for stage in STAGES:
        lake.health.require(stage, [chain])
    if known:
        head = lake.ledger.read(["gold.logs"]).of("gold.logs", chain).head()
        return IngestOutcome(head.height if head else given.height, 0, known=True)
    rows = lake.table("gold.block_meta", chain=chain).filter(f"block_number = {given.height}").select("log_count").collect()
    return IngestOutcome(given.height, rows[0][0], known=False)


def query_finalized(filter: LogFilter | Mapping[str, Any], *, chain: str | None = None, max_results: int | None = None) -> Answer:
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


def indexed_finalized_head(*, chain: str | None = None) -> int | None:
    """The last block that is indexed; None if there is none yet."""
    try:
        return _index(chain).snapshot().head.number
    except NothingIndexed:
        return None


def health(*, chain: str | None = None) -> HealthReport:
    """Where the index stands, and what stopped."""
    control = _control()
    chain = chain or _only_chain(control.chains())
    stopped = operations.degraded(control.rows("health"), chain)
    return HealthReport(
        indexed_finalized_head(chain=chain), {stage: why for stage, why in stopped.items() if stage in operations.STAGES}
    )


def _control() -> LakeControl:
    return LakeControl(EmbeddedLake(home_path(), _prefix()))


def _prefix() -> str:
    return os.environ.get("LAKE_PREFIX", "")


def _only_chain(chains: Mapping[str, Mapping[str, Any]]) -> str:
    return chain_of_kind(chains, "evm", None, "say which with chain=NAME")


def _index(chain: str | None) -> LogIndex:
    home, prefix = home_path(), _prefix()
    key = (home, prefix, chain or _only_chain(_control().chains()))
    if key not in _indexes:
        _indexes[key] = LogIndex(home, key[2], prefix=prefix)
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
    if not held:
        raise BadInput(f"block {given.height} of {chain} is before the first one that is held: a chain only goes on")
    if bytes(held[0][0]) != given.hash:
        _degrade(lake, chain, f"block {given.height} {short(given.hash)} would replace the finalized {short(bytes(held[0][0]))}")
    return True


def _degrade(lake: "Lake", chain: str, reason: str) -> None:
    lake.health.degrade("raw.logs", chain, reason, "ingest_finalized_block")
    raise BrokenPromise(f"{chain}: {reason}")


def _append(lake: "Lake", chain: str, line: bytes) -> None:
    """Keep a block as the one after the head. What the file holds behind that was never taken, or was taken back: half a line
    that a crash left, or blocks that an operator rolled back."""
    path = _file(lake, chain)
    path.parent.mkdir(exist_ok=True)
    with path.open("r+b" if path.exists() else "x+b") as file:
        file.truncate(_end_of_head(lake, chain, path, file))
        file.seek(0, os.SEEK_END)
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _end_of_head(lake: "Lake", chain: str, path: Path, file: IO[bytes]) -> int:
    """Where the line of the head ends; where the last whole line does if the head was read from another source."""
    head = lake.ledger.read(["raw.logs"]).of("raw.logs", chain).head()
    if head is None:
        return 0
    rows = lake.table("raw.blocks", chain=chain).filter(f"height = {head.height}").select("source", "position").collect()
    if rows and rows[0][0] == os.path.abspath(path):
        file.seek(rows[0][1])
        file.readline()
        return file.tell()
    return file.read().rfind(b"\n") + 1 if rows else 0


def _file(lake: "Lake", chain: str) -> Path:
    if lake.catalog.location is None:
        raise BadInput("blocks can be given one by one to a local lake only: write them to files and use lake ingest")
    return lake.catalog.location.parent / "given" / f"{chain}.jsonl"
