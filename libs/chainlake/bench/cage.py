"""The cage from blocks to tables, going back, proofs, and its trees by themselves.

`LAKE_BENCH_CARDANO` may name a chunk file of a real chain to be measured too.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

from chainlake.bench.cage_trees import trees
from chainlake.bench.report import Result, timed, timed_on_core
from chainlake.bench.scratch import scratch, stage_seconds
from chainlake.cage.decode import decode_block
from chainlake.cage.reader import CageReader
from chainlake.cage.settings import read_genesis
from chainlake.demo import cage, write_pieces
from chainlake.lake import Lake, open_lake
from chainlake.sources.cardano import items

STAGES = ("raw.cage", "bronze.cage", "silver.cage", "gold.cage")
DEPTHS = (1, 100, 2_160)
ROLLBACK_TARGET, DECODE_TARGET = 3.0, 3_000.0


def run(home: str, quick: bool, size: int | None = None) -> Iterator[Result]:
    """All measurements, in a lake of its own that is removed afterwards. `size` is how many blocks are there to go back over."""
    yield from trees(quick)
    with scratch(home) as (prefix, directory):
        bench = Bench(open_lake(home, schema_prefix=prefix), Path(home), prefix, directory)
        real = os.environ.get("LAKE_BENCH_CARDANO")
        if real:
            yield from bench.real(real)
        for operations, blocks in ((10, 60), (100, 20), (1_000, 4)) if quick else ((10, 1_000), (100, 200), (1_000, 40)):
            yield from bench.operations(operations, blocks)
        yield from bench.going_back(size or (300 if quick else max(DEPTHS) + 40))


class Bench:
    """Chains of different shapes in one lake."""

    def __init__(self, lake: Lake, home: Path, prefix: str, directory: Path) -> None:
        self.lake, self.home, self.prefix, self.directory = lake, home, prefix, directory

    def real(self, path: str) -> Iterator[Result]:
        """A file of a real chain: decoding alone, and all stages."""
        blocks = list(items(path, 0))
        seconds = timed_on_core(lambda: [decode_block(raw) for raw in blocks])
        yield Result("real chain, decoding, one core", len(blocks) / seconds, "blocks/s", "target", DECODE_TARGET, True)
        yield from self._stages("real chain", "bench-real", path, {}, len(blocks), None)

    def operations(self, operations: int, blocks: int) -> Iterator[Result]:
        """A demo chain with so many operations of the cage in every block."""
        name = f"bench-{operations}"
        source, options = self._written(name, blocks, operations)
        label = f"{operations:,} operations a block"
        yield from self._stages(label, name, source, options, blocks, operations * blocks)
        yield from self._proofs(label, name)

    def going_back(self, blocks: int) -> Iterator[Result]:
        """Rollbacks of some depths, and a block processed alone."""
        source, options = self._written("bench-back", blocks, 1)
        yield from self._stages("1 operation a block", "bench-back", source, options, blocks, blocks)
        head = blocks - 1
        for depth in (depth for depth in DEPTHS if depth < blocks):
            began = time.monotonic()
            self.lake.rollback("silver.cage", "bench-back", head - depth, why="a benchmark")
            yield Result(f"rollback of {depth:,} blocks", time.monotonic() - began, "s", "target", ROLLBACK_TARGET)
            stage_seconds(self.lake, "silver.cage", "bench-back")
            stage_seconds(self.lake, "gold.cage", "bench-back")

    def _stages(
        self, label: str, chain: str, source: str, options: dict[str, str], blocks: int, operations: int | None
    ) -> Iterator[Result]:
        self.lake.add_chain(chain, "cardano", source, options)
        total = 0.0
        for stage in STAGES:
            seconds = stage_seconds(self.lake, stage, chain)
            total += seconds
            yield Result(f"{label}, {stage}", blocks / seconds, "blocks/s", higher_is_better=True)
        yield Result(f"{label}, all stages", blocks / total, "blocks/s", higher_is_better=True)
        if operations:
            yield Result(f"{label}, operations", operations / total, "1/s", higher_is_better=True)

    def _proofs(self, label: str, chain: str) -> Iterator[Result]:
        """Proofs by the reader without Spark: the first one of a process, and the next ones."""
        reader = CageReader(self.home, chain, prefix=self.prefix)
        began = time.monotonic()
        token = reader.tokens()[0]["token_id"]
        facts = reader.facts(token)
        yield Result(f"{label}, first answer of a reader", 1000 * (time.monotonic() - began), "ms")
        keys = [row["key"] for row in random.Random(1).sample(facts, min(50, len(facts)))]
        seconds = timed(lambda: [reader.prove_fact(token, key) for key in keys]) / len(keys)
        yield Result(f"{label}, proof of a fact", 1000 * seconds, "ms")
        places = [place for place, _ in read_genesis(self.lake.chain(chain).options["genesis"])][:20]
        seconds = timed(lambda: [reader.prove_utxo(place) for place in places]) / len(places)
        yield Result(f"{label}, proof of an output", 1000 * seconds, "ms")

    def _written(self, name: str, blocks: int, operations: int) -> tuple[str, dict[str, str]]:
        made = (block.raw for block in cage.chain(blocks, operations=operations, forks={}))
        path = write_pieces(self.directory / name / "blocks.chunk", made)
        _, genesis = cage.write(self.directory / f"{name}-genesis", 1)
        return str(path), cage.options(genesis)
