"""What the lake believed on a day: heads, rows, commits and rollbacks as the ledger stood then. No Spark, no data files."""

from collections.abc import Sequence
from datetime import datetime, time, timedelta, timezone
from typing import TYPE_CHECKING

from chainlake.errors import BadInput
from chainlake.lake.visibility import ADVANCE, ROLLBACK, Commit, History

if TYPE_CHECKING:
    import pandas as pd

    from chainlake.lake.records import Records

MOST_DAYS = 400
"""Periods that a picture can show; older ones are left out."""
STEPS = {"day": timedelta(days=1), "hour": timedelta(hours=1), "minute": timedelta(minutes=1), "second": timedelta(seconds=1)}
LOOKS = {"day": "%Y-%m-%d", "hour": "%Y-%m-%d %H:00", "minute": "%Y-%m-%d %H:%M", "second": "%H:%M:%S"}


def end_of(text: str) -> datetime:
    """The last moment of a day (`2026-01-31`), or a time as written (`2026-01-31T12:00:00Z`); UTC where nothing else is said."""
    try:
        at = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise BadInput(f"{text!r} is neither a day nor a time: write it like 2026-01-31 or 2026-01-31T12:00:00Z") from None
    if len(text.strip()) <= len("2026-01-31"):
        at = datetime.combine(at, time.max)
    return at if at.tzinfo else at.replace(tzinfo=timezone.utc)


def believed(lake: "Records", at: datetime) -> "pd.DataFrame":
    """Every stage and chain as it stood at a time, beside its head now."""
    import pandas as pd

    lines = []
    for (stage, chain), now in sorted(lake.ledger.read().histories().items()):
        then = now.as_of_time(at)
        heads = [one.height if (one := history.head()) else None for history in (then, now)]
        lines.append((stage, chain, heads[0], _rows(then), *_counts(then.commits), heads[1], now.seq() - then.seq()))
    columns = ["stage", "chain", "head", "rows", "commits", "rollbacks", "head_now", "changes_since"]
    return pd.DataFrame(lines, columns=columns).astype({"head": "Int64", "head_now": "Int64"})


def by_day(lake: "Records", stage: str, chain: str, step: str = "") -> "pd.DataFrame":
    """What a stage believed at the end of each day, and what happened on it. A history of less than two days goes by hours,
    minutes or seconds; `step` asks for one of them."""
    import pandas as pd

    lake.stages.get(stage)
    history = lake.ledger.read([stage]).of(stage, chain)
    if not history.commits:
        raise BadInput(f"{stage} has nothing of chain {chain!r}: see lake status")
    if step and step not in STEPS:
        raise BadInput(f"{step!r} is no length of time: choose one of {', '.join(STEPS)}")
    name = step or _fitting(history)
    lines = [_line(history, start, STEPS[name], LOOKS[name]) for start in _starts(history, STEPS[name])]
    columns = [name, "head", "rows", "commits", "rollbacks", "why"]
    return pd.DataFrame(lines, columns=columns).astype({"head": "Int64"})


def _fitting(history: History) -> str:
    """The longest step that tells the first commit from the last."""
    return next((name for name, step in STEPS.items() if len(_starts(history, step)) > 1), "second")


def _starts(history: History, step: timedelta) -> list[datetime]:
    """When the periods begin, from the first commit's to the last one's."""
    first, last = (_floor(commit.committed_at, step) for commit in (history.commits[0], history.commits[-1]))
    count = (last - first) // step + 1
    return [first + number * step for number in range(max(0, count - MOST_DAYS), count)]


def _floor(at: datetime, step: timedelta) -> datetime:
    zero = datetime(1970, 1, 1, tzinfo=timezone.utc)
    return zero + (at - zero) // step * step


def _line(history: History, start: datetime, step: timedelta, look: str) -> tuple[object, ...]:
    end = start + step
    then = History(commit for commit in history.commits if commit.committed_at < end)
    during = [commit for commit in then.commits if commit.committed_at >= start]
    head = then.head()
    reasons = "; ".join(dict.fromkeys(commit.why for commit in during if commit.why))
    return (f"{start:{look}}", head.height if head else None, _rows(then), *_counts(during), reasons)


def _counts(commits: Sequence[Commit]) -> tuple[int, int]:
    """Advances, and rollbacks that took blocks away."""
    backs = sum(1 for one in commits if one.kind == ROLLBACK and one.height < one.base_height)
    return sum(1 for one in commits if one.kind == ADVANCE), backs


def _rows(history: History) -> int:
    """Rows of the commits of which something was visible."""
    return sum(sum(one.commit.rows.values()) for one in history.visible())
