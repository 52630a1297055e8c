"""All five pipelines, taken back to nothing, run again and killed at random moments, end where they were.

It takes minutes, so only `make soak` runs it. Whatever catches up is taken back to a random block, so that there is always
something to kill.
"""

import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chainlake.lake import Lake, open_lake
from chainlake.lake.stage import Stage
from chainlake.lake.verify import verify

SECONDS = float(os.environ.get("LAKE_SOAK_SECONDS", "0"))
LONGEST = 15.0
"""Seconds that a run may live at most before it is killed."""
KINDS = ("evm", "comet", "cardano", "raft", "river")
CONTENTS = (
    *("bronze.evm_logs", "gold.decoded_events", "silver.streams", "silver.shard_events", "silver.utxos", "silver.trie_facts"),
    *("silver.data_rows", "silver.pending_commands", "gold.notifications", "gold.stream_sync_state"),
)
"""Tables that say the same however the blocks came in batches."""
RUN = """
import sys
from chainlake.lake import open_lake

home, chains, max_blocks, *stages = sys.argv[1:]
lake = open_lake(home)
print("ready", flush=True)
for stage in stages:
    lake.run_stage(stage, chains=chains.split(), max_blocks=int(max_blocks))
"""


class Pipeline:
    """The stages of one kind of chain, run by processes of their own."""

    def __init__(self, lake: Lake, home: Path, stages: list[Stage], seed: str) -> None:
        self.lake, self.home, self.stages = lake, home, stages
        self.chains = demo_chains(lake, stages[0])
        self.random = random.Random(seed)
        self.kills = 0

    def start(self) -> "subprocess.Popen[str]":
        """A run, once it is about to begin its work."""
        batch = str(self.random.choice((5, 50, 500)))
        names = (stage.name for stage in self.stages)
        command = [sys.executable, "-c", RUN, str(self.home), " ".join(self.chains), batch, *names]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n", process.communicate()
        return process

    def disturb(self, until: float) -> None:
        """Kill runs at random moments, at least one and until it is late; the last run is left alone."""
        while not self.kills or time.monotonic() < until:
            process = self.start()
            try:
                _, errors = process.communicate(timeout=self.random.uniform(0, LONGEST))
                assert process.returncode == 0, errors[-2000:]
                self.take_back(everything=False)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                self.kills += 1
        process = self.start()
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors[-2000:]

    def take_back(self, everything: bool) -> None:
        """Its chains to before their first block, or one of them to any block."""
        raw, view = self.stages[0], self.lake.ledger.read()
        for chain in self.chains if everything else [self.random.choice(self.chains)]:
            history = view.of(raw.name, chain)
            first = history.first_height() or 0
            height = first if everything else self.random.randint(first, first + history.blocks())
            with LOCK:
                self.lake.rollback(raw.name, chain, height, why="to run it again, disturbed", force=True)


LOCK = threading.Lock()


def demo_chains(lake: Lake, stage: Stage) -> list[str]:
    """The chains that `lake up` made; other tests may have added some."""
    return [chain for chain in lake.chains_of(stage) if chain.startswith("demo-")]


def heads(lake: Lake) -> dict[tuple[str, str], Any]:
    """Height, block hash and roots of every stage and chain."""
    view = lake.ledger.read()
    wanted = [(stage, chain) for stage in lake.stages.all() if not stage.as_needed for chain in demo_chains(lake, stage)]
    found = {(stage.name, chain): view.of(stage.name, chain).head() for stage, chain in wanted}
    return {key: head and (head.height, head.block_hash, dict(head.roots)) for key, head in found.items()}


def contents(lake: Lake) -> dict[str, tuple[int, int]]:
    """Rows of tables, and a sum over them in which their order does not count."""
    same = ("count(*)", "bit_xor(xxhash64(to_json(struct(*))))")
    demo = {name: lake.table(name).filter("chain LIKE 'demo-%'") for name in CONTENTS}
    return {name: tuple(rows.selectExpr(*same).collect()[0]) for name, rows in demo.items()}


@pytest.mark.skipif(not SECONDS, reason="takes minutes: make soak runs it")
def test_pipelines_killed_at_random_moments_end_in_the_roots_of_an_undisturbed_run(demo_home: Path) -> None:
    lake = open_lake(demo_home)
    before = heads(lake), contents(lake)
    assert all(before[0].values()) and any(head[2] for head in before[0].values())
    assert [name for name, (rows, _) in before[1].items() if not rows] in ([], ["silver.pending_commands"])
    seed = os.environ.get("LAKE_SOAK_SEED") or str(random.randrange(10**6))
    pipelines = [
        Pipeline(lake, demo_home, [stage for stage in lake.stages.all() if stage.kind == kind], f"{seed} {kind}")
        for kind in KINDS
    ]
    for pipeline in pipelines:
        pipeline.take_back(everything=True)
    assert lake.table("raw.blocks").filter("chain LIKE 'demo-%'").isEmpty(), "nothing is left"
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(len(pipelines)) as pool:
        list(pool.map(lambda one: one.disturb(until), pipelines))
    print(f"seed {seed}, killed {[one.kills for one in pipelines]} times")
    after = open_lake(demo_home)
    assert (heads(after), contents(after)) == before, f"seed {seed}"
    assert [finding.what for finding in verify(after)] == [], f"seed {seed}"
