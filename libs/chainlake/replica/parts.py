"""How many partitions a batch deserves, judged by the ledger: entries come in few files, and are many."""

from chainlake.lake.names import physical
from chainlake.lake.stage import Batch

ROWS_PER_PART, MOST_PARTS = 25_000, 8


def parts(batch: Batch, stage: str, table: str, more: int = 0) -> int:
    """Partitions for the rows of an input table, and some more rows."""
    ((chain, (low, high)),) = batch.ranges.items()
    commits = [v.commit for v in batch.snapshot.ledger.of(stage, chain).visible(high) if v.limit > low]
    rows = sum(commit.rows.get(physical(table), 0) for commit in commits)
    return max(1, min(MOST_PARTS, (rows + more) // ROWS_PER_PART))
