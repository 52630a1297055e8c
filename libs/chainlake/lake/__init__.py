"""The kernel: the ledger decides what exists. Start with `open_lake()`."""

from chainlake.lake.lake import Lake, open_lake
from chainlake.lake.stage import Batch, Output, Stage

__all__ = ["Batch", "Lake", "Output", "Stage", "open_lake"]
