"""A range of blocks again: take a stage back, and bring it and all that consume it up to a height."""

from typing import TYPE_CHECKING

from chainlake.errors import BadInput
from chainlake.lake.rollback import check
from chainlake.lake.visibility import History

if TYPE_CHECKING:
    import pandas as pd

    from chainlake.lake.lake import Lake


def backfill(
    lake: "Lake", stage: str, chain: str = "", from_height: int = -1, to_height: int = -1, why: str = "", force: bool = False
) -> "pd.DataFrame":
    """Do blocks from `from_height` on again, up to `to_height`; -1 leaves that end open. One row per stage and chain.

    Without `from_height` nothing is taken back: the stages only go on. If one chain cannot go back that far, none does.
    """
    import pandas as pd

    if 0 <= to_height < from_height:
        raise BadInput(f"from_height {from_height} is above to_height {to_height}: give the lower one first")
    first = lake.stages.get(stage)
    chains = [chain] if chain else lake.chains_of(first)
    if from_height >= 0:
        view = lake.ledger.read([stage])
        higher = [name for name in chains if not _is_below(view.of(stage, name), from_height - 1)]
        for name in higher:
            check(lake, view, first, name, from_height - 1, why, force)
        for name in higher:
            lake.rollback(stage, name, from_height - 1, why=why, force=force)
    stages = reversed(lake.stages.downstream(stage))
    last = to_height if to_height >= 0 else None
    done = [lake.run_stage(one.name, chains=chains, to_height=last) for one in stages]
    return pd.concat(done, ignore_index=True)


def _is_below(history: History, height: int) -> bool:
    """Whether a stage has been taken back further already, as one with an index is by an attempt that then failed."""
    head = history.head()
    return head is not None and head.height < height <= max(commit.height for commit in history.commits)
