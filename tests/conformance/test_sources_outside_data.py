"""Blocks of real chains, recorded outside this project: every one is read, and consecutive ones link."""

import base64
import hashlib
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import cbor2
import pytest

from chainlake.demo.evm import bloom
from chainlake.sources.base import ZERO_HASH, RawBlock
from chainlake.sources.formats import format_of

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the recorded chains are not at {DATA}")


def blocks(kind: str, *names: str) -> list[RawBlock]:
    paths = [path for name in names for path in format_of(kind).expand(str(DATA / name))]
    splits = format_of(kind).plan(paths, None, 1 << 40, 1 << 40, {})
    found = [block for split in splits for block in format_of(kind).read(split, {})]
    assert all(isinstance(block, RawBlock) for block in found), found[-1]
    return [block for block in found if isinstance(block, RawBlock)]


def pairs(found: list[RawBlock]) -> Iterator[tuple[RawBlock, RawBlock]]:
    return itertools.pairwise(found)


def linked(found: list[RawBlock]) -> int:
    """How many consecutive blocks there are; each must link."""
    consecutive = [(one, two) for one, two in pairs(found) if two.height == one.height + 1]
    assert all(two.parent_hash == one.hash for one, two in consecutive)
    return len(consecutive)


def test_the_execution_apis_chain_is_read_and_linked() -> None:
    found = blocks("evm", "evm/execution_apis_chain.jsonl.gz")
    assert (len(found), linked(found), found[0].parent_hash) == (55, 54, ZERO_HASH)
    assert sum(len(json.loads(one.payload)) for block in found for one in block.transactions) == 383


def test_mainnet_blocks_without_a_transaction_list_keep_all_logs_in_order() -> None:
    found = blocks("evm", "evm/mainnet_13_blocks.jsonl.gz")
    assert (len(found), linked(found)) == (13, 4)
    logs = [[log for one in block.transactions for log in json.loads(one.payload)] for block in found]
    assert sum(map(len, logs)) == 14_736
    assert all([int(log["logIndex"], 16) for log in block] == list(range(len(block))) for block in logs)


def test_the_demo_computes_blooms_as_mainnet_does() -> None:
    for block in blocks("evm", "evm/mainnet_13_blocks.jsonl.gz"):
        logs = [log for one in block.transactions for log in json.loads(one.payload)]
        assert bloom(logs) == json.loads(block.payload)["logsBloom"]


def test_recorded_cometbft_blocks_are_read_and_linked() -> None:
    found = blocks("comet", "cometbft/sample_md/blocks.json")
    assert [block.height for block in found] == list(range(115, 122))
    assert linked(found) == 6
    texts = [result["block"]["data"]["txs"] for result in json.loads((DATA / "cometbft/sample_md/blocks.json").read_text())]
    assert [[one.payload for one in block.transactions] for block in found] == [
        [base64.b64decode(text) for text in block] for block in texts
    ]


def test_preview_is_one_chain_from_genesis() -> None:
    found = blocks("cardano", *(f"cardano/preview_0000{number}.chunk" for number in range(3)))
    assert [block.height for block in found] == list(range(648))
    assert (found[0].parent_hash, linked(found)) == (ZERO_HASH, 647)


def test_preprod_is_read_fast_and_agrees_with_an_independent_decoder() -> None:
    began = time.perf_counter()
    found = blocks("cardano", "cardano/preprod_01285.chunk")
    seconds = time.perf_counter() - began
    assert (len(found), linked(found)) == (864, 863)
    assert len(found) / seconds > 1_000, f"{len(found) / seconds:.0f} blocks/s"
    for block in found:
        _, (header, bodies, *_) = cbor2.loads(block.payload)
        assert (header[0][0], header[0][2]) == (block.height, block.parent_hash)
        assert [cbor2.loads(one.payload) for one in block.transactions] == bodies


def test_single_blocks_of_babbage_and_conway_are_read() -> None:
    names = [f"cardano/{era}{number}.block" for era in ("babbage", "conway") for number in range(1, 5)]
    found = blocks("cardano", *names)
    assert len(found) == 8
    for block in found:
        assert block.transactions
        assert all(one.hash == hashlib.blake2b(one.payload, digest_size=32).digest() for one in block.transactions)
