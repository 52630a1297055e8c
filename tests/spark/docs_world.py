"""What the examples in the documents speak of: files where one stands, nodes that answer, streams and tokens that exist."""

import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from chainlake.cage.reader import CageReader
from chainlake.demo import cage, comet, raft
from chainlake.demo.river_server import serve
from chainlake.lake.records import Records, open_records
from chainlake.shards.reader import ShardReader
from tests.unit.comet_node import FakeComet, running
from tests.unit.docs_commands import Shown
from tests.unit.evm_node import FakeNode, serving

HEIGHTS = {"120": "3", "40": "5", "5000": "5"}
"""Blocks of the examples, as chains of the size `tiny` have them."""
BLOCKS = 6


@dataclass(frozen=True)
class World:
    """A directory to stand in, a lake, and what to put in place of names that stand for something."""

    home: Path
    words: dict[str, str]

    def arguments(self, shown: Shown) -> list[str]:
        """The command as a reader would type it here."""
        words = [self.words.get(word, HEIGHTS.get(word, word)) for word in shown.arguments]
        texts = [re.sub(r"^(from_height)=120$", r"\1=3", word) for word in words]
        if shown.arguments[0] == "restore":
            texts[-1] = str(self._records().ledger.read(["raw.logs"]).of("raw.logs", "demo-evm").seq())
        if shown.arguments[0] == "audit":
            texts = [datetime.now(timezone.utc).isoformat() if word == "2026-01-31T12:00:00Z" else word for word in texts]
        return [*texts, "--home", str(self.home)]

    def prepare(self, shown: Shown) -> None:
        """What an example takes for granted: one that resumes a stage, that the stage has stopped."""
        if shown.arguments[0] == "resume":
            self._records().health.degrade(shown.arguments[1], shown.arguments[2], "a file was damaged", "the example")

    def _records(self) -> Records:
        found = open_records(self.home)
        assert found is not None
        return found


@contextmanager
def world(home: Path, directory: Path) -> Iterator[World]:
    """The working directory of the examples, which run on the lake of `home`."""
    (directory / ".lake").symlink_to(home)
    with ExitStack() as stack:
        node = stack.enter_context(serving(FakeNode(BLOCKS)))
        shard = stack.enter_context(running(FakeComet(BLOCKS, shard=3)))
        river = serve(3, "127.0.0.1", 0, home / "demo" / "river-streams.txt")
        threading.Thread(target=river.serve_forever, daemon=True).start()
        stack.callback(river.shutdown)
        _write_files(directory, node)
        yield World(home, {**_found(home), **_urls(node.url, shard.url, river.url)})


def _write_files(directory: Path, node: FakeNode) -> None:
    lines = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in node.lines)
    (directory / "blocks").mkdir()
    for path in ("blocks.jsonl", "blocks/1.jsonl"):
        (directory / path).write_text(lines)
    chunk, _ = cage.write(directory / "cardano", BLOCKS)
    chunk.rename(directory / "01285.chunk")
    (deliveries,) = raft.write(directory / "raft", BLOCKS)
    deliveries.rename(directory / "deliveries.jsonl")
    other = FakeComet(BLOCKS, shard=4)
    _, registry = comet.write(directory / "comet", 1, shard=4)
    registry.rename(directory / "nodes.jsonl")
    with gzip.open(directory / "blocks.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps(block) + "\n" for block in other.blocks)
    (directory / "results.jsonl").write_text("".join(json.dumps(one) + "\n" for one in other.results))


def _found(home: Path) -> dict[str, str]:
    """A stream, a token, a key and an output that the demo lake has."""
    stream = ShardReader(home, "demo-shard-1").streams()[0]
    reader = CageReader(home, "demo-cardano")
    token = reader.tokens()[0]["token_id"]
    facts = [fact["key"] for one in reader.tokens() for fact in reader.facts(one["token_id"])]
    return {
        "STREAM": "0x" + stream.stream_id.hex(),
        "<token>": "0x" + bytes(token).hex(),
        "<key>": "0x" + bytes(facts[0] if facts else b"key").hex(),
        "txid#index": f"{'00' * 32}#0",
        "NAME": "demo-evm",
        "chain=NAME": "chain=demo-evm",
    }


def _urls(node: str, shard: str, river: str) -> dict[str, str]:
    return {
        "http://127.0.0.1:8545": node,
        "http://node:8545": node,
        "https://eth.example/v3/${NODE_KEY}": node + "/v3/${NODE_KEY}",
        "http://127.0.0.1:26657": shard,
        "http://127.0.0.1:8600": river,
    }
