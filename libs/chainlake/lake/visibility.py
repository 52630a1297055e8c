"""Which rows exist: pure rules over ledger rows. `views.py` says the same in SQL, and a test compares the two.

A data row is visible iff its commit is in the ledger and its height is at most the commit's limit:
`limit(c) = min(c.height, every rollback height with a later seq)`. The newest compact row is usable iff no later rollback went
below the height that its base holds.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from chainlake.errors import BadInput

ADVANCE, ROLLBACK, COMPACT = "advance", "rollback", "compact"


@dataclass(frozen=True)
class Commit:
    """One row of control.ledger."""

    stage: str
    lane: str
    chain: str
    seq: int
    commit_id: int
    kind: str
    base_height: int
    height: int
    epoch: int
    committed_at: datetime
    block_hash: bytes | None = None
    roots: Mapping[str, bytes] = field(default_factory=dict)
    inputs: Mapping[str, int] = field(default_factory=dict)
    delta_versions: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    checksums: Mapping[str, int] = field(default_factory=dict)
    run_id: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class Visible:
    """A commit of which heights in (base_height, limit] can be seen."""

    commit: Commit
    limit: int


@dataclass(frozen=True)
class Head:
    """Where a stage stands on a chain."""

    height: int
    block_hash: bytes | None
    seq: int
    roots: Mapping[str, bytes]


class History:
    """All ledger rows of one stage and chain, by seq."""

    def __init__(self, commits: Iterable[Commit]) -> None:
        self.commits: Sequence[Commit] = sorted(commits, key=lambda c: c.seq)

    def visible(self, up_to: int | None = None) -> list[Visible]:
        """Advance commits that can be seen, oldest first, optionally only heights up to `up_to`."""
        floor = up_to
        found = []
        for commit in reversed(self.commits):
            if commit.kind == ROLLBACK:
                floor = commit.height if floor is None else min(floor, commit.height)
            elif commit.kind == ADVANCE:
                limit = commit.height if floor is None else min(floor, commit.height)
                if limit > commit.base_height:
                    found.append(Visible(commit, limit))
        return found[::-1]

    def base(self, up_to: int | None = None) -> Commit | None:
        """The newest compact row, if no later rollback went below it and it holds no more than `up_to` asks for.

        Older ones do not count, even when the newest is unusable: garbage collection may have taken their rows.
        """
        floor = up_to
        for commit in reversed(self.commits):
            if commit.kind == ROLLBACK:
                floor = commit.height if floor is None else min(floor, commit.height)
            elif commit.kind == COMPACT:
                return commit if floor is None or floor >= commit.height else None
        return None

    def head(self) -> Head | None:
        """Where the stage stands; None before its first commit."""
        height: int | None = None
        block_hash: bytes | None = None
        roots: Mapping[str, bytes] = {}
        for commit in self.commits:
            if commit.kind == ADVANCE or (commit.kind == ROLLBACK and height is not None and commit.height < height):
                height, block_hash, roots = commit.height, commit.block_hash, commit.roots
        return None if height is None else Head(height, block_hash, self.seq(), roots)

    def first_height(self) -> int | None:
        """The height before the first block ever committed: nothing can be rolled back below it."""
        return next((commit.base_height for commit in self.commits if commit.kind == ADVANCE), None)

    def blocks(self) -> int:
        """How many blocks are held."""
        head, first = self.head(), self.first_height()
        return 0 if head is None or first is None else head.height - first

    def seq(self) -> int:
        return self.commits[-1].seq if self.commits else 0

    def epoch(self) -> int:
        return max((commit.epoch for commit in self.commits), default=0)

    def as_of_seq(self, seq: int) -> "History":
        return History(c for c in self.commits if c.seq <= seq)

    def as_of_time(self, at: datetime) -> "History":
        return History(c for c in self.commits if c.committed_at <= at)

    def consumed(self, input_stage: str) -> int:
        """The seq of an input that this stage has taken into account so far."""
        return max((c.inputs.get(input_stage, 0) for c in self.commits), default=0)

    def lowest_rollback_after(self, seq: int) -> int | None:
        """The lowest height that the stage went back to after `seq`; None if it did not."""
        return min((c.height for c in self.commits if c.kind == ROLLBACK and c.seq > seq), default=None)

    def boundary(self, height: int) -> int | None:
        """The highest commit boundary at or below `height` that is still visible."""
        edges = [edge for v in self.visible() for edge in (v.commit.base_height, v.limit) if edge <= height]
        return max(edges, default=None)


def problems(history: History) -> list[str]:
    """What is wrong with a ledger by itself: gaps, jumps, epochs that go back."""
    found: list[str] = []
    head: int | None = None
    epoch = 0
    for commit in history.commits:
        where = f"{commit.stage} {commit.chain} seq {commit.seq}"
        if commit.epoch < epoch:
            found.append(f"{where} has epoch {commit.epoch} after {epoch}: a fenced writer got in")
        epoch = max(epoch, commit.epoch)
        if commit.kind not in (ADVANCE, ROLLBACK, COMPACT):
            found.append(f"{where} has unknown kind {commit.kind!r}")
        elif commit.kind == ADVANCE:
            if commit.height <= commit.base_height or (head is not None and commit.base_height != head):
                found.append(f"{where} advances from {commit.base_height} to {commit.height}, but the head is {head}")
            head = commit.height
        elif commit.kind == ROLLBACK:
            if head is None or commit.height > head:
                found.append(f"{where} rolls back to {commit.height}, above the head {head}")
            else:
                head = commit.height
        elif head is None or commit.height > head:
            found.append(f"{where} compacts at {commit.height}, above the head {head}")
    seqs = [commit.seq for commit in history.commits]
    doubled = {seq for seq in seqs if seqs.count(seq) > 1} if len(set(seqs)) < len(seqs) else set()
    found.extend(f"{history.commits[0].stage} {history.commits[0].chain} has seq {seq} twice" for seq in sorted(doubled))
    return found


class LedgerView:
    """Ledger rows at one moment, by stage and chain. Every read through it sees the same world."""

    def __init__(self, commits: Iterable[Commit]) -> None:
        grouped: dict[tuple[str, str], list[Commit]] = defaultdict(list)
        self._lane_seqs: dict[tuple[str, str], int] = defaultdict(int)
        for commit in commits:
            grouped[commit.stage, commit.chain].append(commit)
            lane = (commit.stage, commit.lane)
            self._lane_seqs[lane] = max(commit.seq, self._lane_seqs[lane])
        self._histories = {key: History(rows) for key, rows in grouped.items()}

    def of(self, stage: str, chain: str) -> History:
        return self._histories.get((stage, chain)) or History(())

    def chains(self, stages: Iterable[str]) -> list[str]:
        wanted = set(stages)
        return sorted({chain for stage, chain in self._histories if stage in wanted})

    def stages(self, chain: str | None = None) -> list[str]:
        return sorted({stage for stage, of_chain in self._histories if chain in (None, of_chain)})

    def histories(self) -> Mapping[tuple[str, str], History]:
        return self._histories

    def commits(self) -> Iterable[Commit]:
        return (commit for history in self._histories.values() for commit in history.commits)

    def as_of_time(self, at: datetime) -> "LedgerView":
        return LedgerView(commit for commit in self.commits() if commit.committed_at <= at)

    def with_commits(self, commits: Iterable[Commit]) -> "LedgerView":
        """The same ledger with rows added."""
        return LedgerView((*self.commits(), *commits))

    def is_overtaken(self, stage: str, chain: str, source: str) -> bool:
        """Whether an input went back below what a stage has of it: until the stage's next run the two do not agree."""
        history = self.of(stage, chain)
        head, low = history.head(), self.of(source, chain).lowest_rollback_after(history.consumed(source))
        return head is not None and low is not None and low < head.height

    def lane_of(self, stage: str, chain: str) -> str:
        """The lane that a chain was last committed in; itself before that."""
        commits = self.of(stage, chain).commits
        return commits[-1].lane if commits else chain

    def lane_seq(self, stage: str, lane: str) -> int:
        """The last seq of a lane, over all of its chains. A commit asks it for each chain of the lane."""
        return self._lane_seqs.get((stage, lane), 0)


def check_columns(found: Iterable[str], wanted: Iterable[str]) -> None:
    """A ledger that lacks a column was written by another version of this software."""
    missing = [name for name in wanted if name not in set(found)]
    if missing:
        raise BadInput(
            f"control.ledger has no column {', '.join(missing)}: the lake was made by another version; use that one,"
            f" or another --home"
        )


def checked(commits: Iterable[Commit]) -> LedgerView:
    """The ledger of some commits; one that contradicts itself is refused."""
    view = LedgerView(commits)
    wrong = [text for history in view.histories().values() for text in problems(history)]
    if wrong:
        raise BadInput(f"control.ledger is corrupt: {wrong[0]}; see lake verify and docs/operations.md on repairing it")
    return view
