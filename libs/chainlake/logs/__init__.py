"""The finalized EVM log index: from blocks to chunks of log ids, and from filters of `eth_getLogs` to logs.

A program uses it by four names: `ingest_finalized_block`, `query_finalized`, `indexed_finalized_head` and `health`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chainlake.logs.finalized import health, indexed_finalized_head, ingest_finalized_block, query_finalized

__all__ = ["health", "indexed_finalized_head", "ingest_finalized_block", "query_finalized"]


def __getattr__(name: str) -> Any:
    """The four names, loaded when they are used: the modules behind them import others of this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from chainlake.logs import finalized

    return getattr(finalized, name)
