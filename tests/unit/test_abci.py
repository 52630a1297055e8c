"""The ABCI application over its socket: framing, order, the block's life, queries, and a snapshot carried from one to another."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.abci.application import Application, MemoryView
from chainlake.abci.messages import Method
from chainlake.abci.server import MAX_MESSAGE, AbciServer, read_message
from chainlake.errors import BrokenPromise
from chainlake.merkle.ics23 import CommitmentProof
from chainlake.merkle.smt import verify
from chainlake.shards.machine import Shard
from chainlake.shards.query import View
from chainlake.shards.registry import NodeRecord, NodeRegistry
from chainlake.shards.snapshot import parse_header
from chainlake.sources.wire import field_bytes, field_int, fields, message, messages, number, to_varint
from tests.unit.shards_making import REGISTRY, advanced, conflicting_blocks, created, space


class Client:
    """One of CometBFT's connections."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, method: int, body: bytes = b"") -> None:
        data = field_bytes(method, body)
        self.writer.write(to_varint(len(data)) + data)

    async def receive(self) -> tuple[int, bytes]:
        data = await asyncio.wait_for(read_message(self.reader), 10)
        assert data is not None
        (one,) = fields(data)
        return one.number, one.data

    async def call(self, method: Method, body: bytes = b"") -> bytes:
        """A question, a Flush, and both answers."""
        self.send(method, body)
        self.send(Method.FLUSH)
        found, flushed = await self.receive(), await self.receive()
        assert (found[0], flushed[0]) == (method + 1, Method.FLUSH + 1)
        return found[1]


def talk(application: Application, conversation: Callable[[list[Client], AbciServer], Awaitable[None]]) -> None:
    """A conversation over four connections."""

    async def run() -> None:
        server = AbciServer(application)
        host, port = await server.start("127.0.0.1", 0)
        clients = [Client(*await asyncio.open_connection(host, port)) for _ in range(4)]
        try:
            await conversation(clients, server)
        finally:
            for client in clients:
                client.writer.close()
            await server.stop()

    asyncio.run(run())


def finalize(height: int, sent: list[bytes]) -> bytes:
    return b"".join(field_bytes(1, tx) for tx in sent) + field_bytes(2, b"") + field_bytes(4, b"h" * 32) + field_int(5, height)


def test_a_block_from_check_to_commit_is_that_of_the_shard() -> None:
    chain = conflicting_blocks(8, 6)
    twin, application = Shard(REGISTRY), Application(Shard(REGISTRY))

    async def conversation(clients: list[Client], server: AbciServer) -> None:
        consensus, mempool, query, _ = clients
        assert message(await consensus.call(Method.ECHO, field_bytes(1, b"hello")), 1) == b"hello"
        info = await query.call(Method.INFO)
        assert (number(info, 4), message(info, 5)) == (0, b"")
        await consensus.call(Method.INIT_CHAIN, field_bytes(2, b"metadata-shard-0000000000000000"))
        for height, sent in enumerate(chain, start=1):
            done = twin.run(height, sent)
            answer = await consensus.call(Method.FINALIZE_BLOCK, finalize(height, sent))
            assert message(answer, 5) == done.app_hash
            results = messages(answer, 2)
            assert [number(one, 1) for one in results] == [int(one.code) for one in done.block.results]
            assert [message(one, 3).decode() for one in results] == [one.log for one in done.block.results]
            events = [[message(event, 1).decode() for event in messages(one, 7)] for one in results]
            assert events == [[event.type for event in one.events] for one in done.block.results]
            assert number(await query.call(Method.INFO), 4) == height - 1, "nothing counts before Commit"
            await consensus.call(Method.COMMIT)
            info = await query.call(Method.INFO)
            assert (number(info, 4), message(info, 5)) == (height, done.app_hash)
        refused = await mempool.call(Method.CHECK_TX, field_bytes(1, b"\xff"))
        assert (number(refused, 1), message(refused, 3)) == (3, b"unable to decode metadata tx")
        assert number(await mempool.call(Method.CHECK_TX, field_bytes(1, created("x"))), 1) == 0

    talk(application, conversation)


def test_proposals_keep_what_is_valid_and_fits_in_order() -> None:
    good, other = created("a"), advanced("b", 1)
    sent = b"".join(field_bytes(2, tx) for tx in (good, b"\xff", other))

    async def conversation(clients: list[Client], server: AbciServer) -> None:
        consensus = clients[0]
        assert messages(await consensus.call(Method.PREPARE_PROPOSAL, field_int(1, 10_000) + sent), 1) == [good, other]
        assert messages(await consensus.call(Method.PREPARE_PROPOSAL, field_int(1, len(good)) + sent), 1) == [good]
        assert number(await consensus.call(Method.PROCESS_PROPOSAL, field_bytes(1, good)), 1) == 1
        assert number(await consensus.call(Method.PROCESS_PROPOSAL, field_bytes(1, b"\xff")), 1) == 2

    talk(Application(Shard(REGISTRY)), conversation)


def test_answers_come_in_order_and_wait_for_the_flush() -> None:
    async def conversation(clients: list[Client], server: AbciServer) -> None:
        one = clients[1]
        for count in range(50):
            one.send(Method.CHECK_TX, field_bytes(1, b"\xff" if count % 2 else created(str(count))))
        one.send(Method.FLUSH)
        found = [await one.receive() for _ in range(51)]
        assert [number(body, 1) for _, body in found[:50]] == [0, 3] * 25 and found[50][0] == Method.FLUSH + 1

    talk(Application(Shard(REGISTRY)), conversation)


@pytest.mark.parametrize("bad", [finalize(7, []), None])
def test_what_cannot_be_answered_ends_the_conversation_with_an_exception(bad: bytes | None) -> None:
    shard = Shard(REGISTRY)
    shard.run(1, [created("a")])

    async def conversation(clients: list[Client], server: AbciServer) -> None:
        if bad is None:
            clients[0].send(99, b"")
        else:
            clients[0].send(Method.FINALIZE_BLOCK, bad)
        kind, body = await clients[0].receive()
        assert kind == 1 and (b"height mismatch" in body or b"no method" in body)
        assert server.ended.is_set()

    talk(Application(shard), conversation)


def test_an_application_that_fails_answers_with_an_exception(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(Application):
        def answer(self, method: Method, request: bytes) -> bytes:
            raise ValueError("no such thing")

    async def conversation(clients: list[Client], server: AbciServer) -> None:
        clients[2].send(Method.QUERY)
        kind, body = await clients[2].receive()
        assert (kind, message(body, 1)) == (1, b"ValueError: no such thing")
        assert server.ended.is_set()

    talk(Failing(Shard(REGISTRY)), conversation)
    assert "no such thing" in capsys.readouterr().err


@pytest.mark.parametrize("garbage", [b"\xff" * 20, to_varint(MAX_MESSAGE + 1)])
def test_garbage_on_one_connection_leaves_the_others_alone(garbage: bytes) -> None:
    async def conversation(clients: list[Client], server: AbciServer) -> None:
        clients[0].writer.write(garbage)
        assert await asyncio.wait_for(clients[0].reader.read(), 10) == b""
        assert number(await clients[1].call(Method.INFO), 4) == 0

    talk(Application(Shard(REGISTRY)), conversation)


def test_queries_by_path_and_data_with_proofs() -> None:
    shard = Shard(REGISTRY)
    shard.run(1, [created("a"), created("b")])
    application = Application(shard)

    def ask(path: str, **more: Any) -> bytes:
        body = field_bytes(2, path.encode()) + field_bytes(1, more.get("data", b""))
        return application.answer(Method.QUERY, body + field_int(3, more.get("height", 0)) + field_int(4, more.get("prove", 0)))

    found = ask("/stream", data=space("a"), prove=1)
    assert json.loads(message(found, 7))["replicationFactor"] == 1 and number(found, 9) == 1
    op = message(message(found, 8), 1)
    proof = CommitmentProof.from_bytes(message(op, 3))
    assert proof.exist is not None and verify(shard.state_root, space("a"), proof.exist.value, proof)
    assert message(ask("/stream", data=space("a"), prove=1, height=1), 8) == message(found, 8), "the head by its number"
    assert json.loads(message(ask("/streams?limit=1&offset=1"), 7))["offset"] == 1
    assert json.loads(message(ask("/streams?limit=1&limit=7"), 7))["limit"] == 1, "of two the first counts, as in Go"
    shard.run(2, [created("c")])
    listed = json.loads(message(ask("/streams"), 7))
    assert (len(listed["streams"]), listed["count"]) == (3, 3), "a list is that of the last block"
    for path, more, code, text in [
        ("/streams?offset=-1", {}, 3, b"offset must be >= 0"),
        (f"/stream/{space('d').hex()}", {}, 5, b"stream not found"),
        *((path, {}, 3, b"unsupported query path") for path in ("/else", "//[", "//[/x]", "//\u2100.x/", "")),
        ("/streams", {"height": 7}, 3, b"only the last block"),
    ]:
        refused = ask(path, **more)
        assert number(refused, 1) == code and text in message(refused, 3) and message(refused, 10) == b"towns"


def test_a_query_that_fails_is_answered_and_ends_nothing() -> None:
    """Files of the lake may be damaged or gone: whoever asks hears of it, and the validator goes on."""
    shard = Shard(REGISTRY)
    shard.run(1, [created("a")])

    def past(height: int) -> View:
        raise OSError("the disk is gone") if height == 7 else BrokenPromise("the tree contradicts itself")

    async def conversation(clients: list[Client], server: AbciServer) -> None:
        query = clients[2]
        for height, text in ((7, b"OSError: the disk is gone"), (8, b"the tree contradicts itself")):
            refused = await query.call(Method.QUERY, field_bytes(2, b"/streams") + field_int(3, height))
            assert (number(refused, 1), message(refused, 3)) == (13, text)
        refused = await query.call(Method.QUERY, b"\xff\xff")
        assert number(refused, 1) == 3 and not server.ended.is_set()
        assert number(await query.call(Method.QUERY, field_bytes(2, b"/streams/count")), 9) == 1

    talk(Application(shard, past), conversation)


def test_blocks_do_not_wait_for_a_query_about_an_earlier_one() -> None:
    """It reads files of the lake, as many and as slow as they are, and anybody may ask."""
    shard, may_go_on = Shard(REGISTRY), threading.Event()
    shard.run(1, [created("a")])
    shard.run(2, [created("b")])

    def past(height: int) -> View:
        assert may_go_on.wait(20)
        return MemoryView(Shard(REGISTRY))

    async def conversation(clients: list[Client], server: AbciServer) -> None:
        consensus, _, query, _ = clients
        query.send(Method.QUERY, field_bytes(2, b"/streams/count") + field_int(3, 1))
        query.send(Method.QUERY, field_bytes(2, b"/streams/count"))
        await consensus.call(Method.FINALIZE_BLOCK, finalize(3, [created("c")]))
        await consensus.call(Method.COMMIT)
        may_go_on.set()
        counts = [json.loads(message((await query.receive())[1], 7))["count"] for _ in range(2)]
        assert counts == [0, 3], "answers come in the order of the questions"

    talk(Application(shard, past), conversation)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("/?&=%0x9-+ \u0663\u2100[streamcoundl"), max_size=40), st.binary(max_size=33), st.integers(-5, 5))
def test_no_path_and_no_bytes_end_the_application(path: str, data: bytes, height: int) -> None:
    shard = Shard(REGISTRY)
    shard.run(1, [created("a")])
    application = Application(shard)
    for asked in (path, f"/stream/{path}", f"/streams?{path}", f"/streams/node/{path}", "/stream"):
        body = field_bytes(1, data) + field_bytes(2, asked.encode()) + field_int(3, height) + field_int(4, 1)
        assert number(application.answer(Method.QUERY, body), 1) in (0, 3, 5)
    application.answer(Method.QUERY, data)
    assert number(application.answer(Method.CHECK_TX, field_bytes(1, data)), 1) in (0, 3)
    sent = field_bytes(2, data)
    assert messages(application.answer(Method.PREPARE_PROPOSAL, field_int(1, 99) + sent), 1) in ([], [data])


def test_a_shard_without_streams_offers_no_snapshot() -> None:
    """It would have no chunks, and a node that tells others of such a snapshot is dropped by them."""
    application = Application(Shard(REGISTRY), snapshot_every=1)
    for height, sent in ((1, []), (2, [created("a")])):
        application.answer(Method.FINALIZE_BLOCK, finalize(height, sent))
        application.answer(Method.COMMIT, b"")
        listed = messages(application.answer(Method.LIST_SNAPSHOTS, b""), 1)
        assert [number(one, 3) for one in listed] == [1] * len(sent)


def test_a_snapshot_of_nodes_that_our_registry_does_not_have_is_given_up() -> None:
    """Its root is right all the same: permanent indexes are not under it, nor nodes on which there is no stream."""
    giver = Application(Shard(REGISTRY), snapshot_every=1)
    giver.answer(Method.FINALIZE_BLOCK, finalize(1, [created("a")]))
    giver.answer(Method.COMMIT, b"")
    (snapshot,) = messages(giver.answer(Method.LIST_SNAPSHOTS, b""), 1)
    chunk = message(giver.answer(Method.LOAD_SNAPSHOT_CHUNK, field_int(1, 1) + field_int(2, 2)), 1)
    known = REGISTRY.records
    moved = [replace(one, permanent_index=one.permanent_index + 1000) for one in known]
    to_come = [*known, NodeRecord(b"\xcc" * 20, 5000, 2)]
    for records, applied in ((known[:-2], 5), (moved, 5), ([*known, NodeRecord(b"\xcc" * 20, 5000, 1)], 5), (to_come, 1)):
        taker = Application(Shard(NodeRegistry(records)))
        offer = field_bytes(1, snapshot) + field_bytes(2, giver.shard.app_hash)
        assert number(taker.answer(Method.OFFER_SNAPSHOT, offer), 1) == 1
        assert number(taker.answer(Method.APPLY_SNAPSHOT_CHUNK, field_bytes(2, chunk)), 1) == applied
        assert taker.shard.height == (1 if applied == 1 else None)
        assert taker.shard.registry.records == sorted(records, key=lambda one: one.permanent_index)


def test_a_snapshot_carries_a_shard_to_an_empty_validator() -> None:
    chain = conflicting_blocks(2, 8, transactions=15)
    giver, taker = Application(Shard(REGISTRY), snapshot_every=2), Application(Shard(REGISTRY), chain_id="c")
    for height, sent in enumerate(chain[:6], start=1):
        giver.answer(Method.FINALIZE_BLOCK, finalize(height, sent))
        giver.answer(Method.COMMIT, b"")
    listed = messages(giver.answer(Method.LIST_SNAPSHOTS, b""), 1)
    assert [number(one, 1) for one in listed] == [4, 6]
    snapshot, app_hash = listed[-1], giver.shard.app_hash

    def offer(one: bytes, trusted: bytes) -> int:
        return number(taker.answer(Method.OFFER_SNAPSHOT, field_bytes(1, one) + field_bytes(2, trusted)), 1)

    def apply(index: int, chunk: bytes) -> int:
        return number(taker.answer(Method.APPLY_SNAPSHOT_CHUNK, field_int(1, index) + field_bytes(2, chunk)), 1)

    assert apply(0, b"x") == 2, "nothing was offered"
    assert offer(snapshot, b"\x01" * 32) == 3, "a light client found another app hash"
    assert offer(field_int(1, 6) + field_int(2, 9), app_hash) == 4
    deep = b'{"format":' + b"[" * 1000 + b"]" * 1000 + b"}"
    assert offer(field_int(1, 6) + field_int(2, 2) + field_bytes(5, deep), app_hash) == 3, "and the validator lives on"
    header = parse_header(message(snapshot, 5))
    for other in (replace(header, chain_id="another"), replace(header, block={})):
        named = b"".join(field_int(place, number(snapshot, place)) for place in (1, 2, 3))
        assert offer(named + field_bytes(4, other.hash) + field_bytes(5, other.to_bytes()), app_hash) == 3
    assert offer(snapshot, app_hash) == 1
    load = field_int(1, 6) + field_int(2, 2)
    chunk = message(giver.answer(Method.LOAD_SNAPSHOT_CHUNK, load), 1)
    assert message(giver.answer(Method.LOAD_SNAPSHOT_CHUNK, field_int(1, 99) + field_int(2, 2)), 1) == b""
    assert apply(0, chunk[:-1]) == 3 and apply(0, chunk[:-1] + b"\x7f") == 3
    bad = field_bytes(2, chunk[:-1]) + field_bytes(3, b"liar")
    answered = taker.answer(Method.APPLY_SNAPSHOT_CHUNK, bad)
    assert message(answered, 2) == b"\0" and message(answered, 3) == b"liar", "CometBFT asks others from now on"
    assert apply(0, chunk) == 1
    assert (taker.shard.height, taker.shard.app_hash) == (6, app_hash)
    for height, sent in enumerate(chain[6:], start=7):
        assert taker.shard.run(height, sent) == giver.shard.run(height, sent)
