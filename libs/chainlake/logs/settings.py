"""How a log index reads: how much it keeps, how broad a query may be, how often it looks for new commits."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

MIB = 1 << 20
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
LEAST_LOG_BYTES, MEMORY_SHARE = 256 * MIB, 8


def usual_log_bytes() -> int:
    """An eighth of the memory that this machine, or this container, has: logs that were read once are answered from there."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.is_file() else ""
    return max(LEAST_LOG_BYTES, min(memory, int(limit) if limit.isdigit() else memory) // MEMORY_SHARE)


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
    broad_groups: int = 64
    """A query that needs more row groups of logs than this which are not at hand keeps those only that were read before."""
    few_candidates: int = 8
    """So few are fetched and compared at once, without asking the index about the filter's other clauses."""
    query_seconds: float | None = None
    """A query that takes longer ends with an error; None: it may take as long as it needs."""
    threads: int = 2
    """Row groups that a query reads at the same time."""
    footer_bytes: int = 128 * MIB
    log_bytes: int = field(default_factory=usual_log_bytes)
    block_bytes: int = 32 * MIB
    tail_bytes: int = 128 * MIB
    manifest_bytes: int = 32 * MIB
    chunk_group_bytes: int = 64 * MIB
    chunk_bytes: int = 128 * MIB
    posting_bytes: int = 32 * MIB
