"""How a log index reads: how much it keeps, how broad a query may be, how often it looks for new commits."""

from dataclasses import dataclass
from typing import Literal

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """Every cache has a bound of its own, in bytes."""

    follow_seconds: float = 0.5
    """A new commit is seen after at most so long."""
    max_or_terms: int = 128
    """Values that one clause may list."""
    too_broad: Literal["error", "scan"] = "error"
    """What happens to a longer list: the query is refused, or its blocks are looked through."""
    group_rows: int = 2000
    """Logs that a row group of bronze.evm_logs usually has: what the planner's estimates rest on."""
    query_seconds: float | None = None
    """A query that takes longer ends with an error; None: it may take as long as it needs."""
    threads: int = 2
    """Row groups that a query reads at the same time."""
    footer_bytes: int = 128 * MIB
    log_bytes: int = 512 * MIB
    block_bytes: int = 32 * MIB
    tail_bytes: int = 128 * MIB
    manifest_bytes: int = 32 * MIB
    chunk_group_bytes: int = 64 * MIB
    chunk_bytes: int = 128 * MIB
