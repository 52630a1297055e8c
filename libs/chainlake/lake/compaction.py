"""Keeping reads flat as history grows: the state at a finalized height goes to a base table, and small files become few.

Current state is then the base plus the tail above it. The history itself stays, readable by height.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from chainlake.errors import BadInput, Fenced, LeaseHeld, some_of
from chainlake.lake.clock import actor, new_commit_id, now
from chainlake.lake.commit import append
from chainlake.lake.ddl import Table
from chainlake.lake.deltalog import writes_since_packed
from chainlake.lake.failpoint import failpoint
from chainlake.lake.lease import Lease
from chainlake.lake.maintenance import Maintenance
from chainlake.lake.names import physical
from chainlake.lake.progress import Progress, side_by_side
from chainlake.lake.reader import Snapshot
from chainlake.lake.session import settings
from chainlake.lake.stage import Stage
from chainlake.lake.visibility import COMPACT, Commit, LedgerView
from chainlake.sources.formats import FORMATS, rollback_window

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake


@dataclass(frozen=True)
class Compacted:
    """What compaction did to one chain of a stage."""

    stage: str
    chain: str
    height: int | None
    rows: int
    note: str = ""


def compact(lake: "Lake", stage: str | None = None, chain: str | None = None) -> list[Compacted]:
    """Compact the state tables of one stage or all, at each chain's finalized height, then pack small files."""
    done: list[Compacted] = []
    stages = [lake.stages.get(stage)] if stage else lake.stages.all()
    lanes = [(one, lane, chains) for one in stages for lane, chains in _lanes(lake, one, chain).items()]
    for one, lane, chains in Progress("compact", len(lanes), unit="lanes").over(lanes):
        try:
            with lake.lease(one.name, lane) as lease:
                done += _compact_lane(lake, one, chains, lease)
        except (LeaseHeld, Fenced) as busy:  # a writer, or a rollback at this moment: the other lanes are compacted
            done += [Compacted(one.name, name, None, 0, f"skipped: {busy}") for name in chains]
    _renew_other_views(lake, stages, done)
    _pack(lake, stages)
    return done


def _renew_other_views(lake: "Lake", stages: Sequence[Stage], done: Sequence[Compacted]) -> None:
    """On a workspace a rollback that was killed may have left views that are to be made again."""
    renewed = {one.stage for one in done if one.height is not None}
    others = [stage.name for stage in stages if stage.name not in renewed]
    lake.catalog.renew_views(table for name in others for table in lake.catalog.of_stage(name) if table.kind == "state")


def rebuild(lake: "Lake", stage: str, chain: str, held: Lease) -> list[Compacted]:
    """Make the base of a chain again from its history, after the one it had was lost. `held` may be the lane's lease."""
    one = lake.stages.get(stage)
    lane = lake.ledger.read([stage]).lane_of(stage, chain)
    if (held.stage, held.lane) == (stage, lane):
        return _compact_lane(lake, one, [chain], held, from_history=True)
    with lake.lease(stage, lane) as lease:
        return _compact_lane(lake, one, [chain], lease, from_history=True)


def finalized_height(lake: "Lake", view: LedgerView, stage: Stage, chain: str) -> int | None:
    """The highest block of a chain that can no longer be replaced; None if there is none yet."""
    head = view.of(stage.name, chain).head()
    first = view.of(stage.name, chain).first_height()
    if head is None or first is None:
        return None
    info = lake.chain(chain)
    height = head.height - (rollback_window(info.kind, info.options) if info.kind in FORMATS else 0)
    return height if height > first else None


def _lanes(lake: "Lake", stage: Stage, chain: str | None) -> dict[str, list[str]]:
    tables = [table for table in lake.catalog.of_stage(stage.name) if table.kind == "state"]
    if not tables:
        return {}
    view = lake.ledger.read([stage.name])
    chains = view.chains([stage.name])
    if chain is not None and chain not in chains:
        raise BadInput(f"{stage.name} has nothing of chain {chain!r}: it has {some_of(chains)}")
    lanes: dict[str, list[str]] = {}
    for name in chains:
        if chain in (None, name):
            lanes.setdefault(view.lane_of(stage.name, name), []).append(name)
    return lanes


def _compact_lane(lake: "Lake", stage: Stage, chains: list[str], lease: Lease, from_history: bool = False) -> list[Compacted]:
    view = lake.ledger.read([stage.name])
    targets = {}
    for chain in chains:
        height, base = finalized_height(lake, view, stage, chain), view.of(stage.name, chain).base()
        if height is not None and (from_history or base is None or base.height < height):
            targets[chain] = height
    if not targets:
        return []
    commit_id = new_commit_id()
    tables = [table for table in lake.catalog.of_stage(stage.name) if table.kind == "state"]
    write = partial(_write_base, lake, view, targets, commit_id, from_history)
    with settings(lake.spark, stage.write_settings):
        bases = side_by_side(write, tables, stage.name, "bases")
    written = {f"{physical(table.name)}_base": base for table, base in zip(tables, bases, strict=True)}
    failpoint("compact_before_ledger")
    rows = [_row(view, stage, chain, height, commit_id, lease, written) for chain, height in targets.items()]
    lake.ledger.append(rows, lease.confirm)
    failpoint("compact_after_ledger")
    lake.catalog.renew_views(tables)
    total = sum(count for _, count, _ in written.values())
    return [Compacted(stage.name, chain, height, total) for chain, height in targets.items()]


def _write_base(
    lake: "Lake", view: LedgerView, targets: dict[str, int], commit_id: int, from_history: bool, table: Table
) -> tuple[int, int, int]:
    known = LedgerView(c for c in view.commits() if c.kind != COMPACT) if from_history else view
    state = Snapshot(lake.spark, lake.catalog, known).state(table.name, targets)
    ranges = {chain: (-2, height) for chain, height in targets.items()}
    done = append(lake.catalog, table, f"{physical(table.name)}_base", state, commit_id, ranges)
    failpoint("compact_after_base")
    return done.version, done.rows, done.checksum


def _row(
    view: LedgerView,
    stage: Stage,
    chain: str,
    height: int,
    commit_id: int,
    lease: Lease,
    written: dict[str, tuple[int, int, int]],
) -> Commit:
    last = view.of(stage.name, chain).commits[-1]
    return replace(
        last,
        kind=COMPACT,
        seq=view.lane_seq(stage.name, lease.lane) + 1,
        commit_id=commit_id,
        base_height=height,
        height=height,
        block_hash=None,
        roots={},
        delta_versions={**last.delta_versions, **{name: one[0] for name, one in written.items()}},
        rows={name: one[1] for name, one in written.items()},
        checksums={name: one[2] for name, one in written.items()},
        epoch=lease.epoch,
        run_id=None,
        why=f"state at {height} ({actor()})",
        committed_at=now(),
    )


def _pack(lake: "Lake", stages: list[Stage]) -> None:
    """OPTIMIZE the tables of the stages that were written more than once since they were packed last.

    (Control tables pack themselves; the sorted runs of an index must not be mixed.)
    """
    maintenance = Maintenance(lake)
    written: dict[str, Stage] = {}
    for stage in stages:
        tables = [table for table in lake.catalog.of_stage(stage.name) if table.kind != "index"]
        for stored in (name for table in tables for name in lake.catalog.physical_tables(table)):
            if stored not in written and writes_since_packed(lake.catalog.log(stored).all()) > 1:
                written[stored] = stage
    for stored, stage in Progress("pack", len(written), unit="tables").over(written.items()):
        with settings(lake.spark, stage.write_settings):
            maintenance.optimize(lake.catalog.full_name(stored), stored)
