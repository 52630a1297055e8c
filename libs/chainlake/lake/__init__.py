"""The kernel: the ledger decides what exists. Start with `open_lake()`.

Names are loaded when they are first used: readers without Spark import the pure rules of this package and nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake, open_lake
    from chainlake.lake.stage import Batch, Output, Stage

__all__ = ["Batch", "Lake", "Output", "Stage", "open_lake"]


def __getattr__(name: str) -> Any:
    """The kernel's own names."""
    if name in ("Lake", "open_lake"):
        from chainlake.lake import lake

        return getattr(lake, name)
    if name in ("Batch", "Output", "Stage"):
        from chainlake.lake import stage

        return getattr(stage, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
