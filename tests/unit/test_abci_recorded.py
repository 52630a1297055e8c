"""What real nodes of CometBFT 0.38 and 1.0 asked a shard (`tests.conformance.record_abci`), asked again: the same answers, which
those nodes accepted, also by an application that is killed and starts from its state after any block."""

import base64
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from chainlake.abci.application import Application
from chainlake.abci.messages import Method, read_request
from chainlake.shards.machine import Shard
from chainlake.sources.wire import message, messages, number
from tests.unit.shards_making import REGISTRY

RECORDED = sorted(Path(__file__).with_name("recorded").glob("abci_*.jsonl"))


class Said(NamedTuple):
    method: Method
    request: bytes
    response: bytes


def recorded(path: Path) -> list[Said]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = [(base64.b64decode(line["request"]), base64.b64decode(line["response"])) for line in lines]
    return [Said(*read_request(request), message(response, read_request(request)[0] + 1)) for request, response in found]


def check(application: Application, said: Said) -> None:
    """Info tells our version too, which may change."""
    answer = application.answer(said.method, said.request)
    if said.method == Method.INFO:
        assert (number(answer, 4), message(answer, 5)) == (number(said.response, 4), message(said.response, 5))
    else:
        assert answer == said.response, said.method


def restarted(application: Application) -> Application:
    """Another process with what the lake has of the chain."""
    shard = application.shard
    return Application(Shard(REGISTRY, "tree", shard.height, shard.streams.values()))


def test_there_are_recordings_of_both_versions() -> None:
    assert [path.stem for path in RECORDED] == ["abci_0.38", "abci_1.0"]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_conversation_goes_the_same_way(path: Path) -> None:
    said = recorded(path)
    asked = {one.method for one in said}
    assert asked >= {Method.INFO, Method.INIT_CHAIN, Method.CHECK_TX, Method.PREPARE_PROPOSAL, Method.PROCESS_PROPOSAL}
    assert asked >= {Method.FINALIZE_BLOCK, Method.COMMIT, Method.QUERY}
    application, twin = Application(Shard(REGISTRY)), Shard(REGISTRY)
    for one in said:
        check(application, one)
        if one.method == Method.FINALIZE_BLOCK:
            done = twin.run(number(one.request, 5), messages(one.request, 1))
            assert message(one.response, 5) == done.app_hash
    assert twin.height is not None and twin.height > 5 and len(twin.streams) == 2


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_an_application_that_is_killed_after_any_block_goes_on_the_same_way(path: Path) -> None:
    said = recorded(path)
    blocks = sum(one.method == Method.COMMIT for one in said)
    for kept in range(1, blocks + 1):
        application, committed = Application(Shard(REGISTRY)), 0
        for one in said:
            check(application, one)
            if one.method == Method.COMMIT:
                committed += 1
                application = restarted(application) if committed == kept else application
            elif one.method == Method.FINALIZE_BLOCK and committed == kept:
                application = restarted(application)  # killed before Commit: the node replays the block
                check(application, one)
