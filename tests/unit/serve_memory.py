"""A log index over a list of blocks, by the naive rule, and a gateway on it: what the tests of the protocol run against."""

import asyncio
import json
import random
import threading
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from hashlib import sha256
from io import StringIO
from typing import Any

import pyarrow as pa

from chainlake.lake.visibility import Commit, LedgerView
from chainlake.logs.filter import LogFilter, match
from chainlake.serve.access_log import AccessLog
from chainlake.serve.engine import Block, Found, Position, Snapshot, UnknownBlock
from chainlake.serve.gateway import Gateway
from chainlake.serve.http import HttpServer
from chainlake.serve.settings import Settings

Json = dict[str, Any]

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
SCHEMA = pa.schema(
    [
        ("log_id", pa.int64()),
        ("block_number", pa.int64()),
        ("block_hash", pa.binary()),
        ("block_timestamp", pa.timestamp("us", "UTC")),
        ("transaction_hash", pa.binary()),
        ("transaction_index", pa.int32()),
        ("log_index", pa.int32()),
        ("address", pa.binary()),
        *((f"topic{index}", pa.binary()) for index in range(4)),
        ("topic_count", pa.int32()),
        ("data", pa.binary()),
    ]
)


@dataclass(frozen=True)
class MemoryLog:
    """A log as decoded."""

    block_number: int
    block_hash: bytes
    seconds: int
    transaction_hash: bytes
    transaction_index: int
    log_index: int
    address: bytes
    topics: tuple[bytes, ...]
    data: bytes

    def row(self) -> Json:
        topics = {f"topic{index}": topic for index, topic in enumerate(self.topics)}
        names = ("block_number", "block_hash", "transaction_hash", "transaction_index", "log_index", "address", "data")
        row = {name: getattr(self, name) for name in names}
        time = datetime.fromtimestamp(self.seconds, timezone.utc)
        return {**row, **topics, "topic_count": len(self.topics), "block_timestamp": time, "log_id": 0}

    def to_json(self) -> Json:
        """As a node answers it."""
        return {
            "address": "0x" + self.address.hex(),
            "topics": ["0x" + topic.hex() for topic in self.topics],
            "data": "0x" + self.data.hex(),
            "blockNumber": hex(self.block_number),
            "transactionHash": "0x" + self.transaction_hash.hex(),
            "transactionIndex": hex(self.transaction_index),
            "blockHash": "0x" + self.block_hash.hex(),
            "blockTimestamp": hex(self.seconds),
            "logIndex": hex(self.log_index),
            "removed": False,
        }


@dataclass(frozen=True)
class MemoryBlock:
    """A block with its logs and the JSON that its source gave."""

    block: Block
    logs: tuple[MemoryLog, ...]
    payload: bytes


def read_line(line: str) -> MemoryBlock:
    """A block of the evm format, with `logs`."""
    value = json.loads(line)
    header = value["block"]
    block = Block(int(header["number"], 16), unhex(header["hash"]), unhex(header["parentHash"]))
    seconds = int(header["timestamp"], 16)
    logs = tuple(
        MemoryLog(
            block.number,
            block.hash,
            seconds,
            unhex(log["transactionHash"]),
            int(log["transactionIndex"], 16),
            int(log["logIndex"], 16),
            unhex(log["address"]),
            tuple(unhex(topic) for topic in log["topics"]),
            unhex(log["data"]),
        )
        for log in value["logs"]
    )
    return MemoryBlock(block, logs, json.dumps(header).encode())


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def make_blocks(count: int, first: int = 0, seed: int = 1, logs: int = 5, parent: bytes = bytes(32)) -> list[MemoryBlock]:
    """A linked chain in which few addresses and topics come up often, so that filters find something."""
    rng = random.Random(f"{seed} {first}")
    addresses = [bytes([index]) * 20 for index in range(1, 5)]
    topics = [bytes([index]) * 32 for index in range(1, 6)]
    found = []
    for number in range(first, first + count):
        block = Block(number, sha256(f"block {seed} {number}".encode()).digest(), parent)
        parent = block.hash
        seconds = 1_700_000_000 + 12 * number
        here = tuple(
            MemoryLog(
                number,
                block.hash,
                seconds,
                sha256(f"tx {seed} {number} {index // 2}".encode()).digest(),
                index // 2,
                index,
                rng.choice(addresses),
                tuple(rng.choice(topics) for _ in range(rng.randrange(5))),
                rng.randbytes(rng.choice((0, 32, 33))),
            )
            for index in range(rng.randrange(2 * logs + 1))
        )
        transactions = list(dict.fromkeys("0x" + log.transaction_hash.hex() for log in here))
        header = {**block.to_json(), "timestamp": hex(seconds), "miner": "0x" + "00" * 20, "transactions": transactions}
        header |= {"gasLimit": hex(30_000_000), "gasUsed": hex(21_000), "logsBloom": "0x" + "00" * 256, "baseFeePerGas": None}
        found.append(MemoryBlock(block, here, json.dumps(header).encode()))
    return found


@dataclass
class MemoryEngine:
    """The engine that the gateway asks for, over a list. `blocks` may grow or be cut while it serves."""

    blocks: list[MemoryBlock]
    version: int = 1
    committed_at: datetime | None = NOW

    def advance(self, blocks: Iterable[MemoryBlock]) -> None:
        self.blocks, self.version = [*self.blocks, *blocks], self.version + 1

    def rollback(self, height: int) -> None:
        self.blocks = [one for one in self.blocks if one.block.number <= height]
        self.version += 1

    def snapshot(self) -> Snapshot | None:
        blocks = self.blocks
        if not blocks:
            return None
        return Snapshot(blocks[0].block.number, blocks[-1].block, self.version, self.committed_at, blocks)

    def query(
        self,
        snapshot: Snapshot,
        wanted: LogFilter,
        *,
        max_results: int,
        descending: bool = False,
        after: Position | None = None,
    ) -> Found:
        if wanted.block_hash is not None and self.block_by_hash(snapshot, wanted.block_hash) is None:
            raise UnknownBlock("no such block")
        found = [
            log
            for one in snapshot.token
            for log in one.logs
            if match(wanted, log, snapshot.head.number) and behind(log, after, descending)
        ]
        found = found[::-1] if descending else found
        counts = [("address", len(found))]
        return Found(table(found[:max_results]), len(found) > max_results, counts, {"plan": "scan"}, lambda: {"plan": "scan"})

    def block_by_number(self, snapshot: Snapshot, number: int) -> Block | None:
        return next((one.block for one in snapshot.token if one.block.number == number), None)

    def block_by_hash(self, snapshot: Snapshot, block_hash: bytes) -> Block | None:
        return next((one.block for one in snapshot.token if one.block.hash == block_hash), None)

    def payload(self, snapshot: Snapshot, number: int) -> bytes | None:
        return next((one.payload for one in snapshot.token if one.block.number == number), None)

    def caches(self) -> Mapping[str, Mapping[str, float]]:
        return {"chunks": {"hits": 3, "misses": 2, "evictions": 1, "entries": 4, "bytes": 100}}

    def totals(self) -> Mapping[str, float]:
        return {"chunks_read": 7}

    def logs(self) -> list[MemoryLog]:
        return [log for one in self.blocks for log in one.logs]


def behind(log: MemoryLog, after: Position | None, descending: bool) -> bool:
    place = (log.block_number, log.log_index)
    return after is None or (place < after if descending else place > after)


def table(logs: Sequence[MemoryLog]) -> pa.Table:
    return pa.Table.from_pylist([log.row() for log in logs], SCHEMA)


@dataclass
class MemoryControl:
    """Control tables as lists of rows."""

    commits: list[Commit] = field(default_factory=list)
    tables: dict[str, list[Json]] = field(default_factory=dict)

    def ledger(self) -> LedgerView:
        return LedgerView(self.commits)

    def rows(self, name: str) -> list[Json]:
        return self.tables.get(name, [])

    def files(self, table: str) -> list[tuple[int, int]]:
        return [(10, 20_000), (0, 5)] if table == "gold.log_chunks" else []


@dataclass
class Caller:
    """Calls the dispatcher of a gateway, without HTTP."""

    gateway: Gateway
    engine: MemoryEngine
    log: StringIO

    def raw(self, body: bytes) -> bytes:
        return asyncio.run(self.gateway.dispatcher.answer(body, "test"))

    def send(self, message: Any) -> Any:
        answer = self.raw(json.dumps(message).encode())
        return json.loads(answer) if answer else None

    def call(self, method: str, *params: Any) -> Json:
        answer: Json = self.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)})
        return answer

    def result(self, method: str, *params: Any) -> Any:
        answer = self.call(method, *params)
        assert "result" in answer, str(answer)[:300]
        return answer["result"]

    def error(self, method: str, *params: Any) -> tuple[int, str]:
        answer = self.call(method, *params)
        assert "error" in answer, str(answer)[:300]
        return answer["error"]["code"], answer["error"]["message"]

    def lines(self) -> list[Json]:
        """The access log."""
        self.gateway.access_log.close()
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


def make_caller(engine: MemoryEngine, control: MemoryControl | None = None, **settings: Any) -> Caller:
    log = StringIO()
    chosen = replace(Settings(port=0), **settings)
    return Caller(Gateway("test-chain", engine, control or MemoryControl(), chosen, AccessLog(True, log)), engine, log)


@contextmanager
def serving(caller: Caller) -> Iterator[tuple[str, int]]:
    """The gateway on a free port, in a thread."""
    loop = asyncio.new_event_loop()
    server = HttpServer(caller.gateway)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    address = asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    try:
        yield address
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def post(address: tuple[str, int], message: Any) -> Any:
    """One HTTP request."""
    body = json.dumps(message).encode()
    request = urllib.request.Request(f"http://{address[0]}:{address[1]}/", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())
