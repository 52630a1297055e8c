"""What may be deleted: exactly what no read can see."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import example, given

from chainlake.lake import gc
from chainlake.lake.clock import RANDOM_BITS, now
from chainlake.lake.gc import NOTHING, OLD_BASE, ORPHAN, ROLLED_BACK, Fate, Garbage, begun_by_writers, fates, is_of_writer
from chainlake.lake.lease import HELD, RELEASED
from chainlake.lake.visibility import ADVANCE, COMPACT, ROLLBACK, History
from tests.unit.ledger_model import FENCE, Block, Operation, Step, commit, first_heights, history, moment, operations, replay

Lease = dict[str, Any]
REORG: list[Operation] = [(ADVANCE, 4), (ADVANCE, 4), (ROLLBACK, 3), (FENCE, 0), (ADVANCE, 1), (COMPACT, 1), (COMPACT, 0)]


@given(first_heights(), operations())
@example(0, REORG)
def test_rows_above_the_limit_are_exactly_those_that_no_read_sees(first: int, wanted: list[Operation]) -> None:
    steps = replay(first, wanted)
    found = fates(history(steps))
    held = set(steps[-1].world.blocks) if steps else set()
    for step in steps:
        if step.commit.kind == ADVANCE:
            fate = found[step.commit.commit_id]
            for height in range(step.commit.base_height + 1, step.commit.height + 1):
                seen = Block(height, step.commit.commit_id) in held
                assert seen == (height <= fate.limit), f"{height} of seq {step.commit.seq}"
            assert fate.kind == ROLLED_BACK


@given(first_heights(), operations())
@example(0, REORG)
def test_the_newest_usable_base_is_kept_and_every_other_is_garbage(first: int, wanted: list[Operation]) -> None:
    steps = replay(first, wanted)
    found = fates(history(steps))
    newest = history(steps).base()
    for row in (step.commit for step in steps if step.commit.kind == COMPACT):
        fate = found[row.commit_id]
        if row == newest:
            assert fate.limit == row.height
        else:
            is_last = row == [step.commit for step in steps if step.commit.kind == COMPACT][-1]
            assert (fate.limit, fate.kind) == (NOTHING, ROLLED_BACK if is_last else OLD_BASE)
            assert fate.since is not None and fate.since > row.committed_at


@given(first_heights(), operations())
def test_every_commit_that_wrote_rows_has_a_fate_and_rollbacks_have_none(first: int, wanted: list[Operation]) -> None:
    steps = replay(first, wanted)
    assert set(fates(history(steps))) == {s.commit.commit_id for s in steps if s.commit.kind != ROLLBACK}


@given(first_heights(), operations())
@example(0, REORG)
def test_what_a_rollback_made_garbage_has_a_time_that_is_not_before_it(first: int, wanted: list[Operation]) -> None:
    steps = replay(first, wanted)
    found = fates(history(steps))
    for step in steps:
        cut = last_cut(steps, step)
        if cut is not None:
            since = found[step.commit.commit_id].since
            assert since is not None and since >= cut


@given(first_heights(), operations())
@example(0, [(ADVANCE, 4), (ROLLBACK, 3), (FENCE, 0)])
@example(0, [(ADVANCE, 4), (ROLLBACK, 3), (ADVANCE, 4), (ROLLBACK, 1)])
def test_a_rollback_no_lower_than_an_earlier_one_restarts_no_retention(first: int, wanted: list[Operation]) -> None:
    """Else garbage of a chain that forks every week would never be deleted."""
    steps = replay(first, wanted)
    for end in range(1, len(steps)):
        before, after = fates(history(steps[:end])), fates(history(steps[: end + 1]))
        new = steps[end].commit
        for step in steps[:end]:
            later = [s.commit.height for s in steps[:end] if s.commit.kind == ROLLBACK and s.commit.seq > step.commit.seq]
            if new.kind == ROLLBACK and later and new.height >= min(later) and step.commit.kind == ADVANCE:
                assert after[step.commit.commit_id] == before[step.commit.commit_id]


@given(first_heights(), operations())
def test_a_commit_that_is_still_seen_in_part_counts_from_the_last_rollback_that_cut_it(
    first: int, wanted: list[Operation]
) -> None:
    steps = replay(first, wanted)
    found = fates(history(steps))
    for step in steps:
        fate = found.get(step.commit.commit_id)
        if step.commit.kind == ADVANCE and fate is not None and NOTHING < fate.limit < step.commit.height:
            assert fate.since == last_cut(steps, step)


@given(first_heights(), operations())
@example(0, [(ADVANCE, 4), (COMPACT, 4), (COMPACT, 1), (ROLLBACK, 2)])
def test_a_base_that_was_garbage_once_is_never_read_again(first: int, wanted: list[Operation]) -> None:
    """Its rows may be deleted by then."""
    steps = replay(first, wanted)
    for end in range(1, len(steps) + 1):
        garbage = {commit_id for commit_id, fate in fates(history(steps[:end])).items() if fate.limit == NOTHING}
        base = history(steps).base()
        assert base is None or base.commit_id not in garbage


def test_a_rollback_into_the_middle_of_a_commit_keeps_its_lower_rows() -> None:
    rows = [commit(ADVANCE, 0, 10, 1), commit(ADVANCE, 10, 20, 2), commit(ROLLBACK, 20, 15, 3)]
    found = fates(History(rows))
    assert found[rows[0].commit_id].limit == 10
    assert found[rows[1].commit_id] == Fate(15, ROLLED_BACK, moment(3))


def test_an_older_base_is_garbage_since_the_newer_one() -> None:
    rows = [commit(ADVANCE, 0, 10, 1), commit(COMPACT, 4, 4, 2), commit(COMPACT, 8, 8, 3)]
    found = fates(History(rows))
    assert found[rows[1].commit_id] == Fate(NOTHING, OLD_BASE, moment(3))
    assert found[rows[2].commit_id].limit == 8


def test_without_a_retention_what_may_still_be_in_use_stays_for_its_grace() -> None:
    """A writer's rows, and a base that a reader or a run found before the newer one came."""
    none, hour = timedelta(0), timedelta(hours=1)
    for kind in (ORPHAN, OLD_BASE):
        young, old = (Fate(NOTHING, kind, now() - timedelta(minutes=minutes)) for minutes in (59, 61))
        assert (young.is_past(none, hour), old.is_past(none, hour)) == (False, True), kind
        assert young.is_past(none, none) and not old.is_past(timedelta(days=7), hour), kind
    assert Fate(NOTHING, ROLLED_BACK, now()).is_past(none, hour), "as the operator asked"


def test_a_retention_longer_than_history_keeps_all() -> None:
    assert not Fate(NOTHING, ORPHAN, now() - timedelta(days=400)).is_past(timedelta(days=999_999_999), timedelta(hours=1))


def test_what_a_writer_appended_since_it_took_its_lease_is_in_use_however_long_ago() -> None:
    def row(stage: str, lane: str, epoch: int, minutes: int, state: str = HELD, owner: str = "elsewhere:1:1:ab") -> Lease:
        at = now() - timedelta(minutes=minutes)
        return {"stage": stage, "lane": lane, "epoch": epoch, "owner": owner, "state": state, "at": at, "expires_at": soon}

    soon = now() + timedelta(minutes=5)
    rows = [row("raw.a", "x", 6, 300), row("raw.a", "x", 7, 200), row("raw.a", "x", 7, 1), row("raw.a", "y", 1, 90)]
    rows += [row("raw.b", "x", 1, 50), row("raw.b", "x", 1, 40, RELEASED)]
    rows += [row("raw.c", "x", 1, 50) | {"expires_at": now() - timedelta(minutes=1)}]
    begun = begun_by_writers(rows)
    assert begun == {"raw.a": rows[1]["at"]}, "those that gave the lease back, or let it run out, cannot commit"
    attempts = [new_commit_id_at(rows[n]["at"]) for n in (0, 1, 2)]
    assert [is_of_writer(one, begun["raw.a"]) for one in attempts] == [False, True, True]
    assert not is_of_writer(attempts[2], None)


def test_rows_of_a_refused_attempt_can_be_deleted_whatever_it_calls_its_chain() -> None:
    one = Garbage("raw_blocks", ORPHAN, 7, r"o'neil\s", -2, 1, 1, 1, True)
    assert gc._rows_of(one) == r"(_commit = 7 AND _chain = 'o\'neil\\s' AND _height > -2)"


def new_commit_id_at(at: datetime) -> int:
    return int(at.timestamp() * 1000) << RANDOM_BITS


def last_cut(steps: list[Step], of: Step) -> datetime | None:
    """When a rollback last took something from a commit: blocks, or the use of its base."""
    cut = None
    for before, after in pairwise(steps):
        blocks = {b for b in before.world.blocks if b.commit_id == of.commit.commit_id} - set(after.world.blocks)
        if blocks or (of.commit in before.world.bases and of.commit not in after.world.bases):
            cut = after.commit.committed_at
    return cut
