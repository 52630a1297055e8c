"""A chain that is really cut on rollback, beside the ledger that only says so: tests compare the two.

`replay` turns random operations into ledger rows and, after each of them, a `World`: the blocks that a naive store would hold.
Commit ids are out of order and seqs have gaps, as in a lane of many chains, so that nothing may rely on either.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from chainlake.lake.visibility import ADVANCE, COMPACT, ROLLBACK, Commit, History

STAGE, CHAIN = "silver.test", "one"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
FENCE = "fence"

Operation = tuple[str, int]


@dataclass(frozen=True)
class Block:
    """A block of the naive store, and the commit that wrote it."""

    height: int
    commit_id: int

    @property
    def hash(self) -> bytes:
        return f"{self.height} of {self.commit_id}".encode()


@dataclass(frozen=True)
class World:
    """What a naive store holds after an operation. `bases` are the compactions that no rollback has gone below."""

    first: int
    blocks: tuple[Block, ...] = ()
    bases: tuple[Commit, ...] = ()

    @property
    def head(self) -> int:
        return self.blocks[-1].height if self.blocks else self.first

    @property
    def hash(self) -> bytes | None:
        return self.blocks[-1].hash if self.blocks else None

    def up_to(self, height: int | None) -> dict[int, int]:
        """Commit by height."""
        return {b.height: b.commit_id for b in self.blocks if height is None or b.height <= height}

    def cut(self, height: int) -> "World":
        blocks = tuple(block for block in self.blocks if block.height <= height)
        return World(self.first, blocks, tuple(base for base in self.bases if base.height <= height))


@dataclass(frozen=True)
class Step:
    """A ledger row, and the world once it is written."""

    commit: Commit
    world: World


def commit(kind: str, base: int, height: int, seq: int, **more: Any) -> Commit:
    """A ledger row; whatever is not given is plain."""
    given = {"stage": STAGE, "lane": CHAIN, "chain": CHAIN, "epoch": 1, "committed_at": moment(seq), **more}
    given.setdefault("commit_id", seq * 7919 % 100_003)
    return Commit(kind=kind, base_height=base, height=height, seq=seq, **given)


def moment(seq: int) -> datetime:
    """When the row of a seq was committed."""
    return START + timedelta(minutes=seq)


def operations(max_size: int = 20) -> st.SearchStrategy[list[Operation]]:
    """Advances, rollbacks, compactions and fences (a rollback to where one stands already)."""
    kind = st.sampled_from([ADVANCE, ADVANCE, ROLLBACK, COMPACT, FENCE])
    return st.lists(st.tuples(kind, st.integers(0, 12)), max_size=max_size)


def first_heights() -> st.SearchStrategy[int]:
    """The height before the first block."""
    return st.sampled_from([-1, 0, 6, 1_000_000])


def replay(first: int, wanted: Iterable[Operation], only_boundaries: bool = False) -> list[Step]:
    """The steps of a valid history. With `only_boundaries`, rollbacks end where a commit does, as index stages demand."""
    steps: list[Step] = []
    world = World(first)
    for kind, number in wanted:
        seq = (steps[-1].commit.seq if steps else 0) + 1 + number % 2
        if kind == ADVANCE:
            steps.append(_advance(world, seq, 1 + number % 5))
        elif steps and kind in (ROLLBACK, FENCE):
            depth = 0 if kind == FENCE else number % (world.head - first + 1)
            steps.append(_rollback(world, seq, _edge(world, world.head - depth) if only_boundaries else world.head - depth))
        elif kind == COMPACT and world.blocks:
            steps.append(_compact(world, seq, world.blocks[-1 - number % len(world.blocks)].height))
        world = steps[-1].world if steps else world
    return steps


def commits(steps: Sequence[Step]) -> list[Commit]:
    return [step.commit for step in steps]


def history(steps: Sequence[Step]) -> History:
    """The history, from rows in no order, as a table gives them."""
    rows = commits(steps)
    return History(rows[1::2] + rows[::2])


def shown(found: History, up_to: int | None = None) -> dict[int, int]:
    """Commit by height, as `visible` says; fails if it says two things of one height."""
    by_height: dict[int, int] = {}
    for visible in found.visible(up_to):
        for height in range(visible.commit.base_height + 1, visible.limit + 1):
            assert height not in by_height, f"height {height} is visible in two commits"
            by_height[height] = visible.commit.commit_id
    return by_height


def _advance(world: World, seq: int, count: int) -> Step:
    row = commit(ADVANCE, world.head, world.head + count, seq)
    added = tuple(Block(world.head + i, row.commit_id) for i in range(1, count + 1))
    return _with_hash(row, World(world.first, world.blocks + added, world.bases))


def _rollback(world: World, seq: int, height: int) -> Step:
    return _with_hash(commit(ROLLBACK, world.head, height, seq), world.cut(height))


def _compact(world: World, seq: int, height: int) -> Step:
    row = commit(COMPACT, height, height, seq)
    return Step(row, World(world.first, world.blocks, (row,)))


def _with_hash(row: Commit, world: World) -> Step:
    roots = {"root": world.hash} if world.hash else {}
    return Step(commit(row.kind, row.base_height, row.height, row.seq, block_hash=world.hash, roots=roots), world)


def _edge(world: World, height: int) -> int:
    """The end of the last commit that is whole at or below a height."""
    while any(one.height == height and two.commit_id == one.commit_id for one, two in pairwise(world.blocks)):
        height -= 1
    return height
