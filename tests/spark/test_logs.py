"""The log index from files to answers: what the index finds is what a scan of the source finds, whatever happened on the way."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chainlake.bench.log_copy import copy_seconds
from chainlake.demo import evm
from chainlake.encoding import from_hex, to_hex
from chainlake.errors import BadInput, BrokenPromise, Degraded
from chainlake.lake import Lake
from chainlake.lake.home import Home
from chainlake.lake.names import physical
from chainlake.lake.sql import query
from chainlake.lake.verify import verify
from chainlake.logs import ingest_finalized_block
from chainlake.logs.checks import index_problems, numbering_problems
from chainlake.logs.filter import LogFilter, match
from chainlake.logs.functions import get_logs, where
from chainlake.logs.merging import MergeRun
from chainlake.logs.query import LogIndex
from chainlake.logs.rules import MergePolicy
from chainlake.serve.embedded import EmbeddedLake

STAGES = ("bronze.logs", "gold.logs")


@dataclass(frozen=True)
class Log:
    block_number: int
    block_hash: bytes
    index: int
    address: bytes
    topics: tuple[bytes, ...]
    data: bytes


def logs_of(lines: list[dict[str, Any]]) -> Iterator[Log]:
    for line in lines:
        for log in line["logs"] if "logs" in line else [log for receipt in line["receipts"] for log in receipt["logs"]]:
            yield Log(
                int(log["blockNumber"], 16),
                from_hex(log["blockHash"]),
                int(log["logIndex"], 16),
                from_hex(log["address"]),
                tuple(map(from_hex, log["topics"])),
                from_hex(log["data"]),
            )


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def random_filter(rng: random.Random, logs: list[Log], head: int) -> LogFilter:
    some = [rng.choice(logs) for _ in range(rng.choice((1, 1, 2, 5)))]
    addresses = tuple({log.address for log in some}) if rng.random() < 0.6 else ()
    topics = []
    for position in range(rng.randrange(4)):
        known = [log.topics[position] for log in some if len(log.topics) > position]
        topics.append(tuple(set(known)) if known and rng.random() < 0.6 else ())
    if rng.random() < 0.15:
        return LogFilter(addresses, tuple(topics), block_hash=rng.choice(logs).block_hash)
    first = rng.randrange(head + 1)
    return LogFilter(addresses, tuple(topics), first, min(head, first + rng.choice((0, 3, 20, head))))


def indexed_head(index: LogIndex) -> int | None:
    head = index.snapshot().head
    return None if head is None else head.number


def compare(index: LogIndex, lines: list[dict[str, Any]], seed: int, count: int = 60) -> None:
    """Random filters, answered by the index and by looking at every log."""
    rng, logs = random.Random(seed), list(logs_of(lines))
    head = int(lines[-1]["block"]["number"], 16)
    assert indexed_head(index) == head
    for _ in range(count):
        wanted = random_filter(rng, logs, head)
        found = index.query(wanted).logs
        expected = [log for log in logs if match(wanted, log, head)]
        assert list(zip(found["block_number"].to_pylist(), found["log_index"].to_pylist(), strict=True)) == [
            (log.block_number, log.index) for log in expected
        ], wanted
        assert found["data"].to_pylist() == [log.data for log in expected]


def run(lake: Lake, chain: str, max_blocks: int | None = None) -> None:
    for stage in STAGES:
        done = lake.run_stage(stage, chains=chain, max_blocks=max_blocks)
        assert list(done["status"]) == ["ok"], list(done["error"])


def test_the_index_finds_what_a_scan_finds_through_segments_merges_and_rollbacks(
    full_lake: Lake, home: Home, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list(evm.blocks(60, seed=11, logs_per_block=40, contracts=40, users=300))
    full_lake.ingest(chain, "evm", str(write(tmp_path / "a.jsonl", lines[:45])))
    run(full_lake, chain, max_blocks=15)
    index = LogIndex(home.path, chain, prefix=full_lake.namespace.prefix)
    before = index.snapshot()
    compare(index, lines[:45], 1)

    monkeypatch.setattr(MergeRun, "policy", MergePolicy(few=3))
    merged = full_lake.run_stage("gold.log_merges", chains=chain)
    assert merged["commits"][0] == 1 and merged["height"][0] == 44
    compare(LogIndex(home.path, chain, prefix=full_lake.namespace.prefix), lines[:45], 2)

    full_lake.rollback("bronze.logs", chain, 25, why="a test")
    shorter = LogIndex(home.path, chain, prefix=full_lake.namespace.prefix)
    at = indexed_head(shorter)
    assert at is not None and at <= 25, "the index goes back to the end of a segment"
    compare(shorter, lines[: at + 1], 3)

    full_lake.ingest(chain, "evm", str(write(tmp_path / "b.jsonl", lines)))
    run(full_lake, chain)
    full_lake.run_stage("gold.log_merges", chains=chain)
    again = LogIndex(home.path, chain, prefix=full_lake.namespace.prefix)
    compare(again, lines, 4)
    everything = LogFilter(from_block=0, to_block=44)
    assert index.query(everything, snapshot=before).logs == again.query(everything).logs, "an old snapshot keeps its answers"
    assert [f.what for stage in (*STAGES, "gold.log_merges") for f in verify(full_lake, stage) if chain in f.what] == []

    address = next(logs_of(lines)).address
    asked = {"address": to_hex(address), "fromBlock": "0x0", "toBlock": "latest"}
    expected = sum(log.address == address for log in logs_of(lines))
    assert get_logs(full_lake, chain, asked).count() == expected > 0
    rows = query(full_lake, f"SELECT count(*) FROM get_logs('{chain}', '{json.dumps(asked)}')").collect()
    assert rows[0][0] == expected
    held = full_lake.table("bronze.evm_logs", chain=chain)
    assert held.filter(where(LogFilter(addresses=(address,), from_block=0))).count() == expected
    with pytest.raises(BadInput, match="invalid argument 0"):
        get_logs(full_lake, chain, {"address": "0x12"})


def test_a_block_whose_bloom_is_wrong_stops_the_chain_there_and_the_blocks_before_stay(
    full_lake: Lake, chain: str, tmp_path: Path
) -> None:
    lines = list(evm.blocks(12, seed=3, logs_per_block=10))
    good = lines[8]["block"]["logsBloom"]
    lines[8]["block"]["logsBloom"] = "0x" + "00" * 256
    full_lake.ingest(chain, "evm", str(write(tmp_path / "a.jsonl", lines)))
    done = full_lake.run_stage("bronze.logs", chains=chain)
    assert done["status"][0] == "degraded" and "block 8: the logsBloom" in done["error"][0]
    assert "roll raw.logs back to 7, ingest again" in done["error"][0], "what is held is not taken again by itself"
    assert full_lake.table("bronze.evm_blocks", chain=chain).count() == 8
    lines[8]["block"]["logsBloom"] = good
    full_lake.rollback("raw.logs", chain, 7, why="its bloom was wrong")
    full_lake.ingest(chain, "evm", str(write(tmp_path / "b.jsonl", lines)))
    full_lake.health.resume("bronze.logs", chain, "the source was mended")
    assert full_lake.run_stage("bronze.logs", chains=chain)["height"][0] == 11


KILLED = """
import sys
from chainlake.lake import open_lake
lake = open_lake(sys.argv[1], schema_prefix=sys.argv[2])
for stage in sys.argv[4:]:
    lake.run_stage(stage, chains=sys.argv[3], max_blocks=8)
"""


PHASES = (
    *("before_appends", "after_append_bronze_evm_logs", "after_append_bronze_evm_blocks", "before_ledger", "after_ledger"),
    *("after_append_gold_block_meta", "after_append_gold_log_chunks", "after_append_gold_log_manifests"),
    *("after_append_gold_log_tails", "after_appends", "before_ledger", "after_ledger"),
)
"""Logs, blocks, the commit that shows them; block numbers by hash, chunks, manifests, tails, the commit that shows those."""


def test_killed_in_every_phase_of_indexing_then_run_again(full_lake: Lake, home: Home, chain: str, tmp_path: Path) -> None:
    lines = list(evm.blocks(24, seed=21, logs_per_block=500))
    full_lake.ingest(chain, "evm", str(write(tmp_path / "a.jsonl", lines)))
    for failpoint in PHASES:
        environment = {**os.environ, "LAKE_FAILPOINT": failpoint}
        command = [sys.executable, "-c", KILLED, str(home.path), full_lake.namespace.prefix, chain, *STAGES]
        assert subprocess.run(command, env=environment, capture_output=True, timeout=180, check=False).returncode == -9, failpoint
    run(full_lake, chain)
    compare(LogIndex(home.path, chain, prefix=full_lake.namespace.prefix), lines, 5)
    assert [f.what for stage in STAGES for f in verify(full_lake, stage) if chain in f.what] == []


def test_damaged_chunks_and_entries_and_logs_that_are_gone_are_found_by_verify_and_stop_what_builds_on_them(
    full_lake: Lake, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_lake.ingest(chain, "evm", str(write(tmp_path / "a.jsonl", list(evm.blocks(12, seed=13, logs_per_block=500)))))
    run(full_lake, chain)
    assert full_lake.table("gold.log_chunks", chain=chain).count() > 0
    assert numbering_problems(full_lake, chain) == index_problems(full_lake, chain) == []
    store = full_lake.namespace.store
    monkeypatch.setattr(MergeRun, "policy", MergePolicy(few=1))
    full_lake.spark.sql(f"DELETE FROM {store('gold.log_tails')} WHERE _chain = '{chain}' AND shiftright(stream, 60) = 6")
    assert "gold.log_tails should have" in unmerged(full_lake, chain)
    (lost,) = index_problems(full_lake, chain)
    assert f"gold.logs of {chain}: streams of topic0_block hold 0 entries, expected" in lost
    other = "concat(substring(chunk, 1, length(chunk) - 2), X'5A5A')"
    full_lake.spark.sql(f"UPDATE {store('gold.log_chunks')} SET chunk = {other} WHERE _chain = '{chain}'")
    *damaged, last = index_problems(full_lake, chain)
    assert damaged and all(": checksum is 0x" in one for one in damaged) and last == lost
    assert "is damaged: checksum is 0x" in unmerged(full_lake, chain)
    full_lake.spark.sql(f"DELETE FROM {store('gold.log_chunks')} WHERE _chain = '{chain}'")
    gone = "\n".join(index_problems(full_lake, chain))
    assert "is listed but not there" in gone and "streams of topic0 hold" in gone
    full_lake.spark.sql(f"DELETE FROM {store('bronze.evm_logs')} WHERE _chain = '{chain}' AND block_number = 3 AND log_index = 0")
    (short,) = numbering_problems(full_lake, chain)
    assert short.startswith(f"block 3 of {chain}: it should have ")
    full_lake.rollback("gold.logs", chain, -1, why="to be indexed again")
    done = full_lake.run_stage("gold.logs", chains=chain)
    assert done["status"][0] == "degraded" and "which should have" in done["error"][0], "an index that lacks a log would hide it"


def unmerged(lake: Lake, chain: str) -> str:
    """Why a merge of damaged segments stops. It is resumed for the next try."""
    done = lake.run_stage("gold.log_merges", chains=chain)
    assert done["status"][0] == "degraded" and done["commits"][0] == done["rollbacks"][0] == 0
    lake.health.resume("gold.log_merges", chain, "to try again")
    return str(done["error"][0])


def test_blocks_given_one_by_one(full_lake: Lake, home: Home, chain: str) -> None:
    lines = list(evm.blocks(4, seed=8, logs_per_block=6))
    for line in lines[:2]:
        assert not ingest_finalized_block(line, chain=chain, lake=full_lake).known
    assert ingest_finalized_block(lines[1], chain=chain, lake=full_lake).known, "twice is no harm"
    with pytest.raises(BadInput, match=r"block 3 of .* came where 2 is expected"):
        ingest_finalized_block(lines[3], chain=chain, lake=full_lake)
    with pytest.raises(BrokenPromise, match="block 2: the logsBloom of its header"):
        ingest_finalized_block(
            {**lines[2], "block": {**lines[2]["block"], "logsBloom": "0x" + "ff" * 256}}, chain=chain, lake=full_lake
        )
    with pytest.raises(Degraded):
        ingest_finalized_block(lines[2], chain=chain, lake=full_lake)
    full_lake.health.resume("raw.logs", chain, "the right block is at hand")
    given = home.path / "given" / f"{chain}.jsonl"
    given.write_bytes(given.read_bytes() + b'{"block": {"num')
    assert ingest_finalized_block(lines[2], chain=chain, lake=full_lake).logs, "what a crash left of a line is dropped"
    compare(LogIndex(home.path, chain, prefix=full_lake.namespace.prefix), lines[:3], 6, count=10)
    with given.open("ab") as file:
        file.write(json.dumps(lines[3]).encode() + b"\n")
    full_lake.ingest(chain, "evm", str(given))
    again = ingest_finalized_block(lines[3], chain=chain, lake=full_lake)
    assert (again.known, again.head) == (True, 3), "a crash came after the block was kept and before it was indexed"
    compare(LogIndex(home.path, chain, prefix=full_lake.namespace.prefix), lines, 7, count=10)
    assert ingest_finalized_block(lines[1], chain=chain, lake=full_lake).head == 3
    other = list(evm.blocks(4, seed=9, logs_per_block=6))
    with pytest.raises(BrokenPromise, match="would replace the finalized"):
        ingest_finalized_block(other[1], chain=chain, lake=full_lake)


def test_events_are_decoded_as_columns_and_the_rest_says_why_not(full_lake: Lake, chain: str, tmp_path: Path) -> None:
    lines = list(evm.blocks(10, seed=4, logs_per_block=20))
    full_lake.ingest(chain, "evm", str(write(tmp_path / "a.jsonl", lines)))
    full_lake.run_stage("bronze.logs", chains=chain)
    full_lake.run_stage("gold.decoded", chains=chain)
    rows = full_lake.table("gold.decoded_events", chain=chain)
    assert rows.count() == len(list(logs_of(lines)))
    assert rows.filter("event IS NULL AND reason IS NULL OR event IS NOT NULL AND reason IS NOT NULL").count() == 0
    transfers = (
        rows.filter("event = 'Transfer' AND value IS NOT NULL").select("args", "from_address", "to_address", "value").collect()
    )
    assert transfers
    for args, sender, receiver, value in transfers:
        assert (to_hex(bytes(sender)), to_hex(bytes(receiver)), str(value)) == (args["from"], args["to"], args["value"])


def test_the_copy_that_stages_are_measured_beside_has_all_that_a_stage_wrote(
    full_lake: Lake, home: Home, chain: str, tmp_path: Path
) -> None:
    full_lake.ingest(chain, "evm", str(write(tmp_path / "a.jsonl", list(evm.blocks(5, seed=2, logs_per_block=20)))))
    full_lake.run_stage("bronze.logs", chains=chain)
    (commit,) = full_lake.ledger.read(["bronze.logs"]).of("bronze.logs", chain).commits
    embedded = EmbeddedLake(home.path, full_lake.namespace.prefix)
    files = {}
    for table in (stage := full_lake.stages.get("bronze.logs")).tables:
        log = embedded.log(table)
        log.refresh()
        files[table] = [Path(file.path) for file in log.files if file.low.get("_commit") == commit.commit_id]
    assert copy_seconds(full_lake.spark, stage, files, tmp_path / "copy") > 0
    for table in stage.tables:
        stored = physical(table)
        copied = full_lake.spark.read.format("delta").load(str(tmp_path / "copy" / stored))
        written = full_lake.spark.table(full_lake.catalog.full_name(stored)).filter(f"_commit = {commit.commit_id}")
        assert copied.columns == written.columns
        assert copied.count() == written.count() == commit.rows[stored] > 0
        assert copied.exceptAll(written).count() == 0
