"""Blocks of many chains through one data source: each block is found under the feed that it came from, in order."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

from chainlake.demo import comet
from chainlake.errors import BadInput, BrokenPromise, Unavailable
from chainlake.lake.chains import Chain
from chainlake.lake.runner import ChainSummary, Timings
from chainlake.lake.visibility import Commit, LedgerView
from chainlake.raw import many
from chainlake.raw.many import ManyRawRun
from chainlake.raw.rules import Advance
from chainlake.raw.stages import raw_stages
from chainlake.sources.base import Cursor
from chainlake.sources.datasource import MOST_TASKS, BlockReader, Feed, feed_of

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def test_feeds_are_read_side_by_side_and_told_apart(tmp_path: Path) -> None:
    counts = (5, 0, 40)
    feeds = []
    for number, count in enumerate(counts):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(json.dumps(block) + "\n" for block in comet.blocks(count, shard=number)))
        feeds.append(Feed([str(path)], None, 1000, 1 << 20, {}))
    blocks = list(comet.blocks(40, shard=2))
    half = (tmp_path / "2.jsonl").read_bytes().splitlines(keepends=True)[:25]
    held = bytes.fromhex(blocks[24]["block_id"]["hash"])
    feeds.append(
        Feed([str(tmp_path / "2.jsonl")], Cursor(str(tmp_path / "2.jsonl"), sum(map(len, half[:24])), 25, held), 10, 1 << 20, {})
    )
    reader = BlockReader({"kind": "comet", "feeds": json.dumps([feed.described("comet") for feed in feeds])})
    found: dict[int, list[int]] = {}
    for partition in reader.partitions():
        for batch in reader.read(partition):
            for place, height in zip(batch["place"].to_pylist(), batch["height"].to_pylist(), strict=True):
                found.setdefault(feed_of(place), []).append(height)
    assert found == {0: list(range(1, 6)), 2: list(range(1, 41)), 3: list(range(26, 36))}


@pytest.mark.parametrize("count", [1, 5, 31, 33, 100])
def test_a_thousand_chains_are_read_by_few_tasks_each_block_once_and_in_order(tmp_path: Path, count: int) -> None:
    feeds = []
    for number in range(count):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(json.dumps(block) + "\n" for block in comet.blocks(2 + number % 3, shard=number % 7)))
        feeds.append(Feed([str(path)], None, 1000, 1 << 20, {}).described("comet"))
    reader = BlockReader({"kind": "comet", "feeds": json.dumps(feeds)})
    partitions = cloudpickle.loads(cloudpickle.dumps(reader.partitions()))
    assert len(partitions) == min(count, MOST_TASKS)
    each = [[place for batch in reader.read(one) for place in batch["place"].to_pylist()] for one in partitions]
    places = [place for some in each for place in some]
    assert places == sorted(set(places)), "what is read together lies together"
    assert [sum(feed_of(place) == number for place in places) for number in range(count)] == [2 + n % 3 for n in range(count)]
    assert max(map(len, each)) <= 4 * -(-count // MOST_TASKS)


class Frame:
    """What the data source would give Spark, read at once."""

    def __init__(self, kind: str, feeds: Sequence[Mapping[str, str]]) -> None:
        reader = BlockReader({"kind": kind, "feeds": json.dumps(feeds)})
        batches = [batch for one in reader.partitions() for batch in reader.read(one)]
        self.rows = [row for batch in batches for row in batch.to_pylist()]

    def persist(self) -> "Frame":
        return self

    def unpersist(self) -> None:
        """Nothing is kept."""

    def select(self, *names: str) -> "Frame":
        self.names = names
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in self.names) for row in self.rows]


class Run(ManyRawRun):
    """A run whose commits are kept in memory."""

    def __init__(self, chains: dict[str, Chain], max_blocks: int) -> None:
        (self.stage,) = [stage for stage in raw_stages() if stage.kind == "comet"]
        lake = SimpleNamespace(chain=chains.__getitem__, spark=None)
        self.lake, self.lease, self.max_blocks, self.max_rows, self.to_height = lake, None, max_blocks, 0, None  # type: ignore[assignment]
        self.summaries = {name: ChainSummary(self.stage.name, name) for name in chains}
        self.options = {name: chain.options for name, chain in chains.items()}
        self.view = LedgerView(())
        self.commits: list[dict[str, tuple[int, int]]] = []
        self.cursors: dict[str, Cursor] = {}

    def _cursors(self) -> dict[str, Cursor]:
        return self.cursors

    def _advance(self, frame: Any, taken: dict[str, list[Advance]], timings: Timings) -> None:
        ranges = {chain: (some[0].base, some[-1].height) for chain, some in taken.items()}
        self.commits.append(ranges)
        number, name = len(self.commits), self.stage.name
        rows = [
            Commit(name, "shards", chain, number, number, "advance", low, high, 1, AT, taken[chain][-1].hash)
            for chain, (low, high) in ranges.items()
        ]
        self.view = self.view.with_commits(rows)
        for chain, (low, high) in ranges.items():
            self.summaries[chain].blocks += high - low

    def degrade(self, error: BrokenPromise, chains: Sequence[str], timings: Timings) -> None:
        for chain in chains:
            self.summaries[chain].status, self.summaries[chain].error = "degraded", str(error)

    def to_the_end(self) -> None:
        self.prepare()
        while self.step():
            pass


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    monkeypatch.setattr(many, "register", lambda spark: None)
    monkeypatch.setattr(many, "read_feeds", lambda spark, kind, feeds: Frame(kind, feeds))

    def make(max_blocks: int = 1000, **lines: list[Any] | str) -> Run:
        chains = {}
        for name, blocks in lines.items():
            path = tmp_path / f"{name}.jsonl"
            source = blocks if isinstance(blocks, str) else str(path)
            if not isinstance(blocks, str):
                path.write_text("".join(json.dumps(block) + "\n" for block in blocks))
            chains[name] = Chain(name, "comet", source, {"retries": "0"})
        return Run(chains, max_blocks)

    return make


def test_all_chains_are_taken_together_as_far_as_each_goes(made: Callable[..., Run]) -> None:
    run = made(max_blocks=4, a=list(comet.blocks(10)), b=list(comet.blocks(3, shard=1)))
    run.to_the_end()
    assert run.commits == [{"a": (0, 4), "b": (0, 3)}, {"a": (4, 8)}, {"a": (8, 10)}]
    assert [one.status for one in run.summaries.values()] == ["ok"] * 2


def test_a_chain_that_breaks_a_promise_stops_alone(made: Callable[..., Run]) -> None:
    good, gap = list(comet.blocks(6)), list(comet.blocks(6, shard=1))
    run = made(a=good, b=gap[:2] + gap[3:], c=[*good[:3], {"not": "a block"}])
    run.to_the_end()
    assert run.commits == [{"a": (0, 6), "b": (0, 2), "c": (0, 3)}]
    assert [one.status for one in run.summaries.values()] == ["ok", "degraded", "degraded"]
    assert "blocks 3 to 3 are missing" in run.summaries["b"].error and "block.header is missing" in run.summaries["c"].error


def test_a_node_that_does_not_answer_is_told_after_the_others_went_on(made: Callable[..., Run]) -> None:
    run = made(a=list(comet.blocks(3)), b="http://127.0.0.1:9")
    with pytest.raises(Unavailable, match=r"b: http://127\.0\.0\.1:9"):
        run.to_the_end()
    assert run.commits == [{"a": (0, 3)}] and run.summaries["b"].status == "ok"
    run = made(a=list(comet.blocks(3)), b=[])
    with pytest.raises(BadInput, match=r"b: .* is empty"):
        run.to_the_end()
    assert run.commits == [{"a": (0, 3)}]


def test_a_file_that_is_still_being_written_stops_no_chain(made: Callable[..., Run], tmp_path: Path) -> None:
    run = made(a=list(comet.blocks(3)), b=list(comet.blocks(5, shard=1)))
    path = tmp_path / "b.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Unavailable, match=rf"b: {path} at \d+: not JSON"):
        run.to_the_end()
    assert run.commits == [{"a": (0, 3), "b": (0, 4)}] and run.summaries["b"].status == "ok"


def test_blocks_that_are_held_are_not_taken_again(made: Callable[..., Run]) -> None:
    blocks = list(comet.blocks(6))
    run = made(a=[*blocks[:3], *blocks[1:6]])
    run.to_the_end()
    assert run.commits == [{"a": (0, 6)}]
