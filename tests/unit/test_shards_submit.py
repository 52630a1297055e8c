"""Transactions handed to a node: what is told of the block that they are in, of refusals, and of nodes that say nothing."""

import base64
import hashlib
from typing import Any

import pytest

from chainlake.errors import BadInput, Unavailable
from chainlake.shards.codes import Code, Refused
from chainlake.shards.rules import Event
from chainlake.shards.submit import Submitted, read_submitted, submit
from tests.unit.comet_node import FakeComet, running
from tests.unit.shards_making import advanced

TX = advanced("a", 1)
HASH = hashlib.sha256(TX).digest()
OK: dict[str, Any] = {
    "check_tx": {"code": 0, "log": "", "events": []},
    "tx_result": {
        "code": 0,
        "log": "OK",
        "codespace": "towns",
        "events": [{"type": "mberr", "attributes": [{"key": "code", "value": "5", "index": True}]}],
    },
    "hash": HASH.hex().upper(),
    "height": "115",
}


def answered(said: dict[str, Any]) -> Submitted:
    node = FakeComet(2)
    node.lies[f"broadcast_tx_commit {base64.b64encode(TX).decode()}"] = said
    with running(node):
        return submit(node.url, TX)


def test_a_transaction_is_sent_as_it_is_and_its_block_and_events_are_told() -> None:
    done = answered(OK)
    assert (done.height, done.hash, done.result.code, done.result.log) == (115, HASH, 0, "OK")
    assert done.result.events == (Event("mberr", (("code", "5"),)),)


@pytest.mark.parametrize(("code", "known"), [(3, Code.INVALID_ARGUMENT), (77, Code.UNKNOWN)])
def test_what_checktx_refuses_is_refused_here_with_its_reason(code: int, known: Code) -> None:
    with pytest.raises(Refused, match="missing op") as refused:
        answered({**OK, "check_tx": {"code": code, "log": "missing op"}, "height": "0"})
    assert refused.value.code == known


def test_what_no_shard_takes_is_not_sent() -> None:
    node = FakeComet(2)
    with running(node), pytest.raises(Refused, match="unable to decode metadata tx"):
        submit(node.url, b"\xff")
    assert node.requests == 0


def test_a_node_that_does_not_tell_may_have_taken_it_all_the_same() -> None:
    node = FakeComet(2)
    with running(node):
        node.busy = 1
        with pytest.raises(Unavailable, match=r"HTTP 503.*may be in a block all the same"):
            submit(node.url, TX)
        assert node.requests == 1, "it is not sent twice"
        with pytest.raises(Unavailable, match="says: tx already exists in cache"):
            submit(node.url, TX)
    with pytest.raises(Unavailable, match=r"height is None.*may be in a block all the same"):
        answered({**OK, "height": None})
    with pytest.raises(Unavailable, match="may be in a block"):
        submit(node.url, TX)


@pytest.mark.parametrize(
    "wrong",
    [
        *({**OK, "height": height} for height in ("0", 115, "x", "-1", None)),
        *({**OK, "hash": digest} for digest in ("", "0x12", None)),
        *({**OK, name: None} for name in ("check_tx", "tx_result")),
        [],
        None,
    ],
)
def test_answers_that_do_not_fit_are_named(wrong: Any) -> None:
    with pytest.raises(BadInput):
        read_submitted(wrong)
