"""`lake abci` begins with what the lake holds of its chain: CometBFT is told that block, and replays those above."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from chainlake.abci.application import Application
from chainlake.abci.messages import Method
from chainlake.cli.abci import open_application
from chainlake.encoding import to_hex
from chainlake.errors import BadInput
from chainlake.sources.wire import field_bytes, field_int, message, messages, number
from tests.unit.shards_lake import ShardsLake
from tests.unit.shards_making import REGISTRY
from tests.unit.test_serve_lake import add_chain

HELD = 8


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> ShardsLake:
    made = ShardsLake(tmp_path_factory.mktemp("lake"), seed=6)
    for count in (5, 3):
        made.advance(count)
    add_chain(made.home, made.chain, "comet", registry=str(registry(made.home)), chain_id="metadata-shard-0000000000000000")
    add_chain(made.home, "main")
    return made


def registry(directory: Path, records: Any = REGISTRY.records) -> Path:
    path = directory / "nodes.jsonl"
    rows = [json.dumps({**asdict(one), "address": to_hex(one.address)}) for one in records]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def begun(home: Path, chain: str, registry: Path | None = None, height: str | None = None) -> Application:
    given = argparse.Namespace(home=str(home), chain=chain, registry=registry and str(registry), app_hash=None, height=height)
    return open_application(given, 0)


def test_it_tells_the_lakes_block_and_root_and_goes_on_from_there(lake: ShardsLake) -> None:
    application = begun(lake.home, lake.chain)
    info = application.answer(Method.INFO, b"")
    assert (number(info, 4), message(info, 5)) == (HELD, lake.finalized[HELD - 1].app_hash)
    for height in range(HELD + 1, len(lake.blocks) + 1):
        sent, done = lake.blocks[height - 1], lake.finalized[height - 1]
        request = b"".join(field_bytes(1, tx) for tx in sent) + field_int(5, height)
        answer = application.answer(Method.FINALIZE_BLOCK, request)
        assert message(answer, 5) == done.app_hash
        assert [number(one, 1) for one in messages(answer, 2)] == [int(one.code) for one in done.block.results]
        application.answer(Method.COMMIT, b"")
    assert application.shard.streams == lake.states[-1]
    for height, code in ((1, 0), (HELD, 0), (HELD + 1, 3), (-1, 3)):
        found = application.answer(Method.QUERY, field_bytes(2, b"/streams/count") + field_int(3, height))
        assert number(found, 1) == code, "the lake knows the blocks that it holds"
        assert code or json.loads(message(found, 7)) == {"count": len(lake.states[height])}


@pytest.mark.parametrize("height", [0, 1, HELD - 1])
def test_a_node_that_is_behind_the_lake_begins_with_an_earlier_block(lake: ShardsLake, height: int) -> None:
    application = begun(lake.home, lake.chain, height=str(height))
    info = application.answer(Method.INFO, b"")
    assert (number(info, 4), message(info, 5)) == (height, lake.finalized[height - 1].app_hash if height else b"")
    for above in range(height + 1, HELD + 1):
        request = b"".join(field_bytes(1, tx) for tx in lake.blocks[above - 1]) + field_int(5, above)
        assert message(application.answer(Method.FINALIZE_BLOCK, request), 5) == lake.finalized[above - 1].app_hash
        application.answer(Method.COMMIT, b"")
    assert application.shard.streams == lake.states[HELD]


def test_a_chain_that_the_lake_does_not_have_begins_empty(lake: ShardsLake, tmp_path: Path) -> None:
    for home in (lake.home, tmp_path):
        info = begun(home, "new", registry(tmp_path)).answer(Method.INFO, b"")
        assert (number(info, 4), message(info, 5)) == (0, b"")


def test_what_cannot_go_on_is_refused_at_the_start(lake: ShardsLake, tmp_path: Path) -> None:
    swapped = [*REGISTRY.records]
    first, second = swapped[:2]
    swapped[:2] = [type(first)(second.address, first.permanent_index, 1), type(first)(first.address, second.permanent_index, 1)]
    for records, why in ((REGISTRY.records[2:], "no node has permanent index"), (swapped, "do not have the root of block 8")):
        with pytest.raises(BadInput, match=why):
            begun(lake.home, lake.chain, registry(tmp_path, records))
    for chain, height, why in (
        (lake.chain, str(HELD + 1), f"there are 1 to {HELD}"),
        (lake.chain, "x", "a block number of 0 or more"),
        ("new", "3", "the lake has no block 3 of new"),
    ):
        with pytest.raises(BadInput, match=why):
            begun(lake.home, chain, registry(tmp_path), height)
    with pytest.raises(BadInput, match="kind evm"):
        begun(lake.home, "main")
    with pytest.raises(BadInput, match="has no registry"):
        begun(lake.home, "new")
