"""A replica as a process: it follows its source, may be killed at the worst moment, and goes on where its last commit left it."""

from typing import TYPE_CHECKING

from chainlake.errors import BadInput, CheckFailed, Degraded
from chainlake.lake.failpoint import run_and_die

if TYPE_CHECKING:
    from chainlake.lake import Lake

STAGES = ("raw.replica", "bronze.replica", "silver.replica", "gold.replica")
KILLED = -9


def follow(lake: "Lake", *chains: str, to: str = STAGES[-1]) -> None:
    """Take in all that the source has, up to a stage. This is all that a restart does: nothing is kept but what is committed."""
    for stage in STAGES[: STAGES.index(to) + 1]:
        for done in lake.run_stage(stage, chains=chains).itertuples():
            if done.status != "ok":
                raise Degraded(f"{done.chain} stopped in {stage}: {done.error}")


def crash(lake: "Lake", chain: str, opening: str = "from chainlake.lake import open_lake; lake = open_lake()") -> None:
    """Follow in a process of its own that is killed when all rows of the new state are written and none is committed. `opening`
    is the code that opens the same lake."""
    follow(lake, chain, to="bronze.replica")
    code, said = run_and_die(f"{opening}; lake.run_stage('silver.replica', chains={chain!r})", "before_ledger")
    if code == 0:
        raise BadInput(f"{chain} has nothing new to carry out, so it cannot die of it: propose and deliver first")
    if code != KILLED:
        raise CheckFailed(f"{chain} ended by itself before it could be killed: {said}")
