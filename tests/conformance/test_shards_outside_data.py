"""Metadata transactions that a real CometBFT node recorded: all of them are read, written and run."""

import json
from pathlib import Path

import pytest

from chainlake.shards.checks import check_tx, process_proposal
from chainlake.shards.codec import encode
from chainlake.shards.codes import Refused
from chainlake.shards.compare import compare, parse_block_results
from chainlake.shards.fold import FinalizedBlock, finalize_block
from chainlake.shards.registry import NodeRecord, NodeRegistry
from chainlake.shards.state import StreamState, placeholder_app_hash
from chainlake.shards.submit import read_submitted
from chainlake.sources.base import RawBlock
from chainlake.sources.formats import format_of

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "cometbft" / "sample_md"
REGISTRY = NodeRegistry([NodeRecord(b"\x01" * 20, 1, 115)])

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the recorded blocks are not at {DATA}")


def recorded() -> list[RawBlock]:
    form = format_of("comet")
    splits = form.plan([str(DATA / "blocks.json")], None, 1 << 40, 1 << 40, {})
    return [block for split in splits for block in form.read(split, {}) if isinstance(block, RawBlock)]


def run() -> tuple[list[FinalizedBlock], dict[bytes, StreamState]]:
    streams: dict[bytes, StreamState] = {}
    found, last = [], None
    for block in recorded():
        found.append(finalize_block(streams, last, block.height, [one.payload for one in block.transactions], REGISTRY))
        streams.update(found[-1].changed)
        last = block.height
    return found, streams


def test_recorded_transactions_are_canonical_and_valid() -> None:
    payloads = [one.payload for block in recorded() for one in block.transactions]
    assert len(payloads) == 7
    assert [encode(check_tx(payload)) for payload in payloads] == payloads
    assert process_proposal(payloads)


def test_recorded_blocks_run_from_their_base() -> None:
    """Six streams are created, one in each block; the last block gives the first one a miniblock."""
    found, streams = run()
    assert [(block.height, [int(one.code) for one in block.results]) for block in found] == [(h, [0]) for h in range(115, 122)]
    assert [event.type for event in found[-1].results[0].events] == ["mbok"]
    heights = sorted((one.created_height, one.updated_height, one.last_miniblock_num) for one in streams.values())
    assert heights == [(115, 121, 1), *((height, height, 0) for height in range(116, 121))]


def test_headers_carry_the_placeholder_of_the_height_before() -> None:
    for block in recorded():
        header = json.loads(block.payload)["block"]["header"]
        assert bytes.fromhex(header["app_hash"]) == placeholder_app_hash(block.height - 1)


def test_the_recording_app_differs_in_its_one_event_only() -> None:
    """Its results are those of a minimal app, which takes the miniblock for an error; the comparison must find just that."""
    answers = json.loads((DATA / "block_results.json").read_text())
    found, _ = run()
    differences = [
        one
        for block, answer in zip(found, answers, strict=True)
        for one in compare(block.results, parse_block_results(answer), placeholder_app_hash(block.height))
    ]
    assert [(one.height, one.tx_index, one.event_index, one.what) for one in differences] == [(121, 0, 0, "event")]
    assert differences[0].theirs and differences[0].theirs.startswith("mberr sid=10f5b165")


def test_what_the_node_said_of_transactions_that_were_submitted_is_read() -> None:
    *answers, refused = (one["result"] for one in json.loads((DATA / "broadcast.json").read_text()) if "result" in one)
    told = list(map(read_submitted, answers))
    sent = [(block.height, one.hash) for block in recorded() for one in block.transactions]
    assert [(one.height, one.hash) for one in told] == sent
    assert [[event.type for event in one.result.events] for one in told] == [[]] * 6 + [["mberr"]]
    with pytest.raises(Refused) as error:
        read_submitted(refused)
    assert error.value.code == refused["check_tx"]["code"]
