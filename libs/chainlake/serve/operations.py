"""What the control tables say about the writing side, as health and as metrics: pure functions over their rows.

The tables are read by whoever calls; a scrape reads each of them once.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chainlake.lake.names import physical
from chainlake.lake.visibility import ADVANCE, LedgerView
from chainlake.serve.metrics import Family, Histogram, Values

Row = Mapping[str, Any]

STAGES = ("raw.logs", "bronze.logs", "gold.logs", "gold.log_merges")
AS_NEEDED = ("gold.log_merges",)
"""Stages that commit only when there is something to do, and are never behind."""
CHUNK_TABLES = ("gold.log_chunks", "gold.log_chunks_merged")
CHUNK_BYTES = (256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
DEGRADED = "degraded"
RELEASED = "released"


@dataclass(frozen=True)
class StageState:
    """Where one stage of the chain stands."""

    stage: str
    head: int
    seq: int
    committed_at: Any


def stopped(health: Iterable[Row]) -> dict[tuple[str, str], str]:
    """Reason by stage and chain, of those that stopped. The latest row holds."""
    latest = {(row["stage"], row["chain"]): row for row in sorted(health, key=lambda row: row["at"])}
    return {key: str(row["reason"]) for key, row in latest.items() if row["status"] == DEGRADED}


def degraded(health: Iterable[Row], chain: str) -> dict[str, str]:
    """Reason by stage, of the chain's stages that stopped."""
    return {stage: reason for (stage, of_chain), reason in stopped(health).items() if of_chain == chain}


def stage_states(ledger: LedgerView, chain: str) -> list[StageState]:
    """Heads of the chain's log stages."""
    found = []
    for stage in STAGES:
        history = ledger.of(stage, chain)
        head = history.head()
        if head is not None:
            found.append(StageState(stage, head.height, head.seq, history.commits[-1].committed_at))
    return found


def ledger_metrics(ledger: LedgerView, chain: str) -> list[Family]:
    """Commits, heads, lags and sealed chunks."""
    commits = Values("lake_ledger_commits_total", "counter", "Ledger rows by stage and kind.")
    heads = Values("lake_stage_head_block", "gauge", "Block that a stage has reached.")
    lags = Values("lake_stage_lag_blocks", "gauge", "Blocks that a stage is behind the stage before it.")
    sealed = Values("lake_chunks_sealed_total", "counter", "Index chunks written.")
    for stage in STAGES:
        for commit in ledger.of(stage, chain).commits:
            commits.add(stage=stage, kind=commit.kind)
            if commit.kind == ADVANCE:
                sealed.add(sum(commit.rows.get(physical(table), 0) for table in CHUNK_TABLES), stage=stage)
    states = stage_states(ledger, chain)
    for before, state in zip([None, *states], states, strict=False):
        heads.set(state.head, stage=state.stage)
        if state.stage not in AS_NEEDED:
            lags.set(max(0, before.head - state.head) if before else 0, stage=state.stage)
    return [commits, heads, lags, sealed]


def chunk_metrics(files: Iterable[tuple[int, int]]) -> list[Family]:
    """Sizes of index chunks, from (rows, bytes) of the files that hold them; within a file all count as its average."""
    found = Histogram("lake_chunk_bytes", "Bytes of an index chunk on disk, as the average of its file.", CHUNK_BYTES)
    for rows, size in files:
        if rows:
            found.observe(size / rows, rows)
    return [found]


def of_chain(rows: Iterable[Row], ledger: LedgerView, chain: str) -> list[Row]:
    """Rows of control.runs or control.leases that belong to the chain's log stages."""
    lanes = {(stage, ledger.lane_of(stage, chain)) for stage in STAGES}
    return [row for row in rows if (row["stage"], row["lane"]) in lanes]


def run_metrics(runs: Iterable[Row]) -> list[Family]:
    """What batches took: time per block and phase, repeated appends, failures."""
    latency = Values("lake_ingest_seconds_per_block", "gauge", "Seconds per block of the last batch of a stage.")
    phases = Values("lake_ingest_phase_seconds_total", "counter", "Seconds that batches spent, by phase.")
    blocks = Values("lake_ingest_blocks_total", "counter", "Blocks that batches took on.")
    written = Values("lake_ingest_bytes_total", "counter", "Bytes that batches wrote.")
    retries = Values("lake_cas_retries_total", "counter", "Appends that had to be repeated.")
    failures = Values("lake_ingest_failures_total", "counter", "Batches that failed.")
    for row in sorted(runs, key=lambda row: row["started_at"]):
        stage, seconds = row["stage"], dict(row["seconds"] or ())
        blocks.add(row["blocks"], stage=stage)
        written.add(row["bytes"], stage=stage)
        retries.add(row["retries"], stage=stage)
        failures.add(row["kind"] == "failed", stage=stage)
        for phase, spent in seconds.items():
            phases.add(spent, stage=stage, phase=phase)
        if row["blocks"] and row["kind"] == ADVANCE:
            latency.set(sum(seconds.values()) / row["blocks"], stage=stage)
    return [latency, phases, blocks, written, retries, failures]


def lease_metrics(leases: Iterable[Row]) -> list[Family]:
    """A lease that was taken over without having been released was lost by its writer."""
    lost = Values("lake_lease_losses_total", "counter", "Leases that another writer took over.")
    epochs: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in leases:
        epochs[row["stage"]][row["epoch"]].add(row["state"])
    for stage, by_epoch in epochs.items():
        newest = max(by_epoch)
        lost.add(sum(1 for epoch, states in by_epoch.items() if epoch < newest and RELEASED not in states), stage=stage)
    return [lost]


def orphan_metrics(orphans: Sequence[Row]) -> list[Family]:
    """What garbage collection has to do, at its last measurement."""
    rows = Values("lake_gc_backlog_rows", "gauge", "Invisible rows at the last lake gc, by table and kind.")
    size = Values("lake_gc_backlog_bytes", "gauge", "Their estimated bytes.")
    removable = Values("lake_gc_removable_rows", "gauge", "Those past the retention.")
    last = max((row["at"] for row in orphans), default=None)
    for row in (row for row in orphans if row["at"] == last):
        labels = {"table": row["table_name"], "kind": row["kind"]}
        rows.set(row["rows"], **labels)
        size.set(row["bytes"], **labels)
        removable.set(row["removable"], **labels)
    return [rows, size, removable]
