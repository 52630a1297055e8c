"""`lake audit`: which commits made what one sees, what was rolled back, by whom and why."""

from datetime import datetime
from typing import TYPE_CHECKING

from chainlake.errors import BadInput, some_of
from chainlake.lake.visibility import ADVANCE, History

if TYPE_CHECKING:
    import pandas as pd

    from chainlake.lake.records import Records

COLUMNS = ["seq", "kind", "from", "to", "visible_to", "commit_id", "epoch", "committed_at", "rows", "why"]


def audit(lake: "Records", stage: str, chain: str, height: int | None = None, at: datetime | None = None) -> "pd.DataFrame":
    """The commits of a stage and chain, oldest first; with a height, those that ever said something of that block."""
    import pandas as pd

    lake.stages.get(stage)
    view = lake.ledger.read([stage])
    history = view.of(stage, chain)
    if not history.commits:
        raise BadInput(f"{stage} has nothing of chain {chain!r}: it has {some_of(view.chains([stage]))}")
    history = history.as_of_time(at) if at else history
    top = max((c.height for c in history.commits), default=-1)
    if height is not None and not (history.first_height() or 0) < height <= top:
        held = f"its blocks are up to {top}" if history.commits else "it had none at that time"
        raise BadInput(f"{stage} {chain} never had height {height}: {held}")
    return pd.DataFrame(_lines(history, height), columns=COLUMNS).astype({"visible_to": "Int64"})


def _lines(history: History, height: int | None) -> list[dict[str, object]]:
    limits = {v.commit.seq: v.limit for v in history.visible()}
    lines: list[dict[str, object]] = []
    for commit in history.commits:
        low, high = sorted((commit.base_height, commit.height))
        if height is not None and not low < height <= high:
            continue
        limit = limits.get(commit.seq) if commit.kind == ADVANCE else None
        values = [
            commit.seq,
            commit.kind,
            commit.base_height,
            commit.height,
            limit,
            commit.commit_id,
            commit.epoch,
            commit.committed_at,
            sum(commit.rows.values()),
            commit.why or "",
        ]
        lines.append(dict(zip(COLUMNS, values, strict=True)))
    return lines
