"""How blocks link: pure rules of the raw layer.

A block is taken if it follows the head, skipped if we hold it already, and followed onto another branch if its parent is one of
ours within the rollback window. Anything else breaks the chain's promise and stops it there; what came before is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chainlake.encoding import short


@dataclass(frozen=True)
class Header:
    """What linking needs to know of a block. `place` orders the blocks of a batch; `error` is set if it could not be read."""

    place: int
    height: int
    hash: bytes
    parent_hash: bytes
    source: str
    position: int
    error: str | None = None


@dataclass(frozen=True)
class Advance:
    """Take the blocks with places in [first, last]: heights (base, height]."""

    first: int
    last: int
    base: int
    height: int
    hash: bytes


@dataclass(frozen=True)
class GoBack:
    """The input went another way: roll back to this height."""

    height: int
    why: str


@dataclass(frozen=True)
class Broken:
    """The input contradicts what we hold, or cannot be read."""

    reason: str


Action = Advance | GoBack | Broken


def link(
    headers: Sequence[Header],
    head: tuple[int, bytes] | None,
    held: Callable[[int], bytes | None],
    window: int,
    final: int = -1,
) -> list[Action]:
    """What to do with a batch of blocks, in the order in which they came. `held` gives our hash at a height up to the head.

    Blocks up to `final` are never replaced, so that forks upon forks cannot go deeper than the window. The highest head that
    this batch reaches moves it up.
    """
    actions: list[Action] = []
    taken: dict[int, bytes] = {}
    follows = False
    top = head[0] if head else -1

    def ours(height: int) -> bytes | None:
        return taken[height] if height in taken else held(height)

    for header in headers:
        fault = _unreadable(header) or _gap(header, head)
        if fault:
            return [*actions, Broken(fault)]
        if head is not None and header.height <= head[0]:
            if ours(header.height) == header.hash:
                follows = False
                continue
            final = max(final, top - window)
            refusal = _refuse_fork(header, head, ours(header.height - 1), window, final)
            if refusal:
                return [*actions, Broken(refusal)]
            actions.append(GoBack(header.height - 1, _fork_text(header, head)))
            head = (header.height - 1, header.parent_hash)
            follows = False
        if follows and isinstance(actions[-1], Advance):
            last = actions[-1]
            actions[-1] = Advance(last.first, header.place, last.base, header.height, header.hash)
        else:
            actions.append(Advance(header.place, header.place, header.height - 1, header.height, header.hash))
        head = (header.height, header.hash)
        top = max(top, header.height)
        taken[header.height] = header.hash
        follows = True
    return actions


def _unreadable(header: Header) -> str | None:
    """Why a block could not be read, and where it is."""
    return f"{header.source} at {header.position}: {header.error}" if header.error else None


def _gap(header: Header, head: tuple[int, bytes] | None) -> str | None:
    """Why a block above the head cannot follow it."""
    if head is None or header.height <= head[0]:
        return None
    if header.height > head[0] + 1:
        return (
            f"block {header.height} ({short(header.hash)}) does not follow head {head[0]}: blocks {head[0] + 1} to"
            f" {header.height - 1} are missing in {header.source}; fetch them, then resume"
        )
    if header.parent_hash != head[1]:
        return (
            f"block {header.height} has parent {short(header.parent_hash)}, expected {short(head[1])} (head {head[0]}):"
            f" re-fetch from the source ({header.source}) or roll back"
        )
    return None


def _refuse_fork(header: Header, head: tuple[int, bytes], parent: bytes | None, window: int, final: int) -> str | None:
    if parent is None or parent != header.parent_hash:
        return (
            f"block {header.height} ({short(header.hash)}) replaces ours, but its parent {short(header.parent_hash)} is not"
            f" our block {header.height - 1}: re-fetch from the source ({header.source}) or roll back"
        )
    depth = head[0] - header.height + 1
    if window == 0:
        return f"finalized block {header.height} was replaced by {short(header.hash)}: this must not happen; ask the source"
    if depth > window or header.height <= final:
        depth = max(depth, final + window - header.height + 1)
        return f"block {header.height} ({short(header.hash)}) forks {depth} blocks back, more than the window of {window}"
    return None


def _fork_text(header: Header, head: tuple[int, bytes]) -> str:
    return f"the source went another way at {header.height}: {short(header.hash)} (head was {head[0]} {short(head[1])})"
