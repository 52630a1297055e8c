"""Taking a chain back to a height: one ledger row per stage, furthest downstream first, nothing rewritten.

A stage further down may be written meanwhile, by a run that began between two of these rows or of a stage that had nothing to go
back yet. So a second look follows: what such runs have committed goes back too, and what they are about to commit is refused.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chainlake.errors import BadInput, Fenced, some_of
from chainlake.lake.clock import actor
from chainlake.lake.failpoint import failpoint
from chainlake.lake.going_back import reachable, rollback_row, wide_views
from chainlake.lake.lease import newest_leases
from chainlake.lake.stage import Stage
from chainlake.lake.visibility import Commit, LedgerView
from chainlake.sources.formats import FORMATS, rollback_window

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

ATTEMPTS = 5


def rollback(lake: "Lake", stage: str, chain: str, height: int, why: str, force: bool = False) -> list[Commit]:
    """Take a stage and every stage that consumed it back to a height. A writer at work is fenced and stops."""
    view = lake.ledger.read(s.name for s in lake.stages.all())
    check(lake, view, lake.stages.get(stage), chain, height, why, force)
    reason = f"{why} ({actor()})"
    done: list[Commit] = []
    targets = _targets(lake, view, stage, chain, height)
    while moved := _cascade(lake, view, stage, chain, targets, reason):
        done += moved
        writers = _writers(lake)  # before the ledger: who begins after this reads all that was done
        view = lake.ledger.read(s.name for s in lake.stages.all())
        targets = _overlooked(lake, view, stage, chain, done, writers)
    return done


def _cascade(lake: "Lake", view: LedgerView, stage: str, chain: str, targets: Mapping[str, int], why: str) -> list[Commit]:
    """One row per stage that has a target; given back are those that took blocks away."""
    stages = [one for one in lake.stages.downstream(stage) if one.name in targets]
    rows = [_append(lake, view, one, chain, targets[one.name], why) for one in stages]
    return [row for row in rows if row is not None and row.height < row.base_height]


def _targets(lake: "Lake", view: LedgerView, stage: str, chain: str, height: int) -> dict[str, int]:
    """Where each stage goes: an index stage only to a commit boundary, and nothing stays above what it consumed."""
    targets: dict[str, int] = {}
    for one in reversed(lake.stages.downstream(stage)):
        history = view.of(one.name, chain)
        head = history.head()
        lowest = min([height, *(targets[name] for name in one.inputs if name in targets)])
        if head is not None and head.height > lowest:
            targets[one.name] = reachable(lake, one, history, lowest)
    return targets


def _overlooked(
    lake: "Lake", view: LedgerView, stage: str, chain: str, done: Sequence[Commit], writers: set[tuple[str, str]]
) -> dict[str, int]:
    """Where consumers go that committed blocks which were gone by then. One that is being written, perhaps from such blocks, goes
    to where it is, which takes the seq of that commit."""
    back: dict[str, int] = {}
    at_work: dict[str, int] = {}
    for one in reversed(lake.stages.downstream(stage)):
        history = view.of(one.name, chain)
        head = history.head()
        gone = [row.height for row in done if row.stage in one.inputs and history.consumed(row.stage) < row.seq]
        gone += [back[name] for name in one.inputs if name in back]
        if head is None or not gone:
            continue
        if min(gone) < head.height:
            back[one.name] = reachable(lake, one, history, min(gone))
        elif (one.name, view.lane_of(one.name, chain)) in writers:
            at_work[one.name] = head.height
    return {**at_work, **back}


def _writers(lake: "Lake") -> set[tuple[str, str]]:
    """Stages and lanes that are being written."""
    return {lane for lane, lease in newest_leases(lake.control.read("leases")).items() if not lease.is_free()}


def _append(lake: "Lake", view: LedgerView, stage: Stage, chain: str, height: int, why: str) -> Commit | None:
    """The ledger row of one stage. Retried if a writer commits at the same moment; None if it is there already, since another
    rollback went as low meanwhile."""
    for attempt in range(ATTEMPTS):
        history = view.of(stage.name, chain)
        head = history.head()
        if head is None or head.height < height or (head.height == height and attempt):
            return None
        height = reachable(lake, stage, history, height)
        inputs = {name: history.consumed(name) for name in stage.inputs}  # what they did since is for the next run to follow
        row = rollback_row(view, lake, stage, chain, height, why, history.epoch(), None, inputs)
        try:
            with wide_views(lake, view, [row]):
                failpoint("rollback_before_ledger")
                lake.ledger.append([row])
                failpoint("rollback_after_ledger")
            return row
        except Fenced:
            if attempt + 1 == ATTEMPTS:
                raise
            view = lake.ledger.read(s.name for s in lake.stages.all())
    raise AssertionError("unreachable")


def check(lake: "Lake", view: LedgerView, stage: Stage, chain: str, height: int, why: str, force: bool) -> None:
    """Refuse a rollback that an operator cannot mean, or that nothing is there for."""
    if not why.strip():
        raise BadInput("a rollback needs a reason: --why TEXT")
    history = view.of(stage.name, chain)
    head, first = history.head(), history.first_height()
    if head is None or first is None:
        raise BadInput(f"{stage.name} has nothing of chain {chain!r}: it has {some_of(view.chains([stage.name]))}")
    if height > head.height:
        raise BadInput(f"cannot roll {stage.name} {chain} back to {height}: the head is {head.height}")
    if height < first:
        raise BadInput(f"cannot roll {stage.name} {chain} back to {height}: it starts after {first}: give {first} or more")
    kind = lake.chain(chain).kind
    window = rollback_window(kind, lake.chain(chain).options) if kind in FORMATS else 0
    if window and head.height - height > window and not force:
        raise BadInput(
            f"rolling {chain} back {head.height - height} blocks is more than its window of {window}: use --force if you mean it"
        )
