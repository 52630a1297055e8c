"""The ledger row that takes a stage back, and what has to be known and done before it is written."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from chainlake.lake.clock import new_commit_id, now
from chainlake.lake.reader import Snapshot
from chainlake.lake.stage import Stage
from chainlake.lake.visibility import ROLLBACK, Commit, History, LedgerView

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake


def reachable(lake: "Lake", stage: Stage, history: History, height: int) -> int:
    """Rows that span blocks cannot be cut: a stage with index tables goes back to a commit boundary."""
    if not any(table.kind == "index" for table in lake.catalog.of_stage(stage.name)):
        return height
    boundary = history.boundary(height)
    return height if boundary is None else boundary


@contextmanager
def wide_views(lake: "Lake", view: LedgerView, rows: Sequence[Commit]) -> Iterator[None]:
    """While a rollback below a compacted height is written, the SQL views read the whole history: their pruning would hide rows.

    A base that came after `view` was read has taken the seq of the rollback, which then has to look again.
    """
    bases = [(row, view.of(row.stage, row.chain).base()) for row in rows]
    stages = {row.stage for row, base in bases if base is not None and row.height < base.height}
    tables = [table for stage in sorted(stages) for table in lake.catalog.of_stage(stage) if table.kind == "state"]
    with lake.catalog.widened_views(tables) if tables else nullcontext():
        yield


def hash_at(view: LedgerView, lake: "Lake", stage: Stage, chain: str, height: int) -> bytes | None:
    """The hash of a block, where it is known."""
    return hashes_at(view, lake, stage, {chain: height}).get(chain)


def hashes_at(view: LedgerView, lake: "Lake", stage: Stage, heights: Mapping[str, int]) -> dict[str, bytes]:
    """The hashes of a block of each chain: from the ledger at commit boundaries, else from the blocks of the source stage, all of
    them at once, since there may be a thousand chains."""
    lineage = (stage, *lake.stages.upstream(stage.name))
    at_boundaries = {chain: _hash_at_boundary(view, lineage, chain, height) for chain, height in heights.items()}
    found = {chain: digest for chain, digest in at_boundaries.items() if digest is not None}
    inside = {chain: (height - 1, height) for chain, height in heights.items() if chain not in found}
    if inside:
        blocks = Snapshot(lake.spark, lake.catalog, view).between(lineage[-1].tables[0], inside)
        found |= {chain: bytes(digest) for chain, digest in blocks.select("_chain", "hash").collect()}
    return found


def _hash_at_boundary(view: LedgerView, lineage: Sequence[Stage], chain: str, height: int) -> bytes | None:
    for name in (s.name for s in lineage):
        for v in view.of(name, chain).visible():
            if v.commit.height == height == v.limit and v.commit.block_hash:
                return v.commit.block_hash
    return None


def rollback_row(
    view: LedgerView,
    lake: "Lake",
    stage: Stage,
    chain: str,
    height: int,
    why: str,
    epoch: int,
    run_id: str | None,
    inputs: Mapping[str, int],
) -> Commit:
    """The ledger row that takes one stage of one chain back to a height (or to the commit boundary below it)."""
    history = view.of(stage.name, chain)
    head = history.head()
    assert head is not None
    height = reachable(lake, stage, history, height)
    at = next((v.commit for v in history.visible() if v.commit.height == height == v.limit), None)
    return replace(
        history.commits[-1],
        kind=ROLLBACK,
        seq=view.lane_seq(stage.name, history.commits[-1].lane) + 1,
        commit_id=new_commit_id(),
        base_height=head.height,
        height=height,
        block_hash=at.block_hash if at else hash_at(view, lake, stage, chain, height),
        roots=at.roots if at else {},
        inputs=dict(inputs),
        delta_versions=history.commits[-1].delta_versions,
        rows={},
        checksums={},
        epoch=epoch,
        run_id=run_id,
        why=why,
        committed_at=now(),
    )
