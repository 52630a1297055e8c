"""Blocks of many chains through one data source: each block is found under the feed that it came from, in order."""

import json
from pathlib import Path

from chainlake.demo import comet
from chainlake.sources.base import Cursor
from chainlake.sources.datasource import BlockReader, Feed, feed_of


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
