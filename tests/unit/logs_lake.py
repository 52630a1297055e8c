"""A lake directory of random logs, written by delta-rs and without Spark, beside the plain list of logs that it answers from.

Everything that a reader may meet can be made: many segments, merges, rollbacks of stages together and alone, attempts that never
committed, a second chain in the same tables, bronze ahead of gold, and files that mix commits after OPTIMIZE.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake

from chainlake.lake.visibility import ADVANCE, ROLLBACK, Commit
from chainlake.logs.filter import LogFilter
from chainlake.logs.seal import Sealed, Sealing, seal, seal_all
from chainlake.logs.snapshot import BRONZE, GOLD, MERGES, RAW
from chainlake.logs.streams import TOPIC_KINDS, Kind, stream_of

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
KERNEL = pa.schema([("_chain", pa.string()), ("_height", pa.int64()), ("_commit", pa.int64())])
LOGS = pa.schema(
    [
        *(("log_id", pa.int64()), ("block_number", pa.int64()), ("block_hash", pa.binary())),
        *(("block_timestamp", pa.timestamp("us", "UTC")), ("transaction_hash", pa.binary())),
        *(("transaction_index", pa.int32()), ("log_index", pa.int32()), ("address", pa.binary())),
        *((f"topic{position}", pa.binary()) for position in range(4)),
        *(("topic_count", pa.int32()), ("data", pa.binary())),
    ]
)
BLOCKS = pa.schema(
    [
        *(("block_number", pa.int64()), ("hash", pa.binary()), ("parent_hash", pa.binary())),
        *(("timestamp", pa.timestamp("us", "UTC")), ("first_log_id", pa.int64()), ("log_count", pa.int32())),
    ]
)
PAYLOADS = pa.schema([("hash", pa.binary()), ("payload", pa.binary())])
LEDGER = pa.schema(
    [
        *(("stage", pa.string()), ("lane", pa.string()), ("chain", pa.string()), ("seq", pa.int64())),
        *(("commit_id", pa.int64()), ("kind", pa.string()), ("base_height", pa.int64()), ("height", pa.int64())),
        *(("block_hash", pa.binary()), ("roots", pa.map_(pa.string(), pa.binary()))),
        *((name, pa.map_(pa.string(), pa.int64())) for name in ("inputs", "delta_versions", "rows", "checksums")),
        *(("epoch", pa.int64()), ("run_id", pa.string()), ("why", pa.string())),
        ("committed_at", pa.timestamp("us", "UTC")),
    ]
)
INPUTS = {RAW: (), BRONZE: (RAW,), GOLD: (BRONZE,), MERGES: (GOLD,)}


@dataclass(frozen=True)
class Log:
    """A log, with the number that the index gives it."""

    log_id: int
    block_number: int
    block_hash: bytes
    log_index: int
    address: bytes
    topics: tuple[bytes, ...]

    @property
    def place(self) -> tuple[int, int]:
        return self.block_number, self.log_index


@dataclass(frozen=True)
class Block:
    """A block with its logs."""

    number: int
    hash: bytes
    parent_hash: bytes
    first_log_id: int
    logs: tuple[Log, ...]


@dataclass
class Values:
    """What addresses and topics there are: a few that occur all the time, many that are rare."""

    rng: random.Random
    few: int = 3
    many: int = 60

    def address(self) -> bytes:
        return b"address-%012d" % self._number()

    def topic(self, position: int) -> bytes:
        return b"topic%d-%025d" % (position, self._number())

    def _number(self) -> int:
        return self.rng.randrange(self.few) if self.rng.random() < 0.6 else self.few + self.rng.randrange(self.many)


@dataclass
class LogsLake:
    """The lake, what it holds, and the ledger so far."""

    home: Path
    chain: str = "main"
    seed: int = 0
    first: int = 5
    """The height before the first block."""
    sealing: Sealing = field(default_factory=lambda: Sealing(entries=5))
    group_rows: int = 16
    logs_per_block: int = 8
    commits: list[Commit] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    """Of raw and bronze, which these tests move together."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.values = Values(self.rng)
        self._ids = iter(self.rng.sample(range(1, 10**9), 100_000))

    # What should be found

    def visible(self, head: int) -> list[Log]:
        """All logs up to a block."""
        return [log for block in self.blocks if block.number <= head for log in block.logs]

    def expected(self, wanted: LogFilter, head: int) -> list[Log]:
        """The logs that a filter asks for, by looking at each."""
        low = head if wanted.from_block is None else wanted.from_block
        high = head if wanted.to_block is None else wanted.to_block
        return [
            log
            for log in self.visible(head)
            if (log.block_hash == wanted.block_hash if wanted.block_hash else low <= log.block_number <= high)
            and (not wanted.addresses or log.address in wanted.addresses)
            and len(log.topics) >= len(wanted.topics)
            and all(not any_of or log.topics[i] in any_of for i, any_of in enumerate(wanted.topics))
        ]

    def head(self, stage: str) -> int:
        """Where a stage stands."""
        heights = [commit.height for commit in self.commits if commit.stage == stage]
        return heights[-1] if heights else self.first

    # What happens to it

    def advance(self, blocks: int, indexed: bool = True) -> None:
        """New blocks; indexed in one segment, unless they are to wait."""
        self.bronze(blocks)
        if indexed:
            self.gold()

    def bronze(self, blocks: int) -> None:
        """Blocks with logs, not yet indexed."""
        base = self.head(BRONZE)
        made = [self._next_block() for _ in range(blocks)]
        rows = [log for block in made for log in block.logs]
        payloads = [{"_height": b.number, "hash": b.hash, "payload": b"{%d}" % b.number} for b in made]
        raw = self._write("raw_blocks", PAYLOADS, payloads)
        self._commit(RAW, ADVANCE, base, made[-1].number, raw)
        self._write("bronze_evm_logs", LOGS, [_log_row(log) for log in rows], orphan=self.rng.random() < 0.3)
        commit = self._write("bronze_evm_logs", LOGS, [_log_row(log) for log in rows])
        self._commit(BRONZE, ADVANCE, base, made[-1].number, commit)

    def gold(self, upto: int | None = None) -> None:
        """A segment of the index, of all blocks that wait for it or up to one."""
        base, height = self.head(GOLD), upto or self.head(BRONZE)
        made = [block for block in self.blocks if base < block.number <= height]
        if self.rng.random() < 0.3:
            self._write_segment(seal(*_pairs(made), self.sealing), "", height, next(self._ids))
        commit = self._write("gold_block_meta", BLOCKS, [_block_row(block) for block in made])
        self._write_segment(seal(*_pairs(made), self.sealing), "", height, commit)
        self._commit(GOLD, ADVANCE, base, height, commit)

    def merge(self, segments: int, merged: bool = True) -> None:
        """Replace the next segments that were not merged yet by one, or pass over them."""
        base = self.head(MERGES)
        ends = [c.height for c in self._standing(GOLD) if c.base_height >= base][:segments]
        blocks = [block for block in self.blocks if base < block.number <= ends[-1]]
        commit = next(self._ids)
        if merged:
            self._write_segment(seal_all(*_pairs(blocks), self.sealing), "_merged", ends[-1], commit)
        self._commit(MERGES, ADVANCE, base, ends[-1], commit, {"merged": b"\x01"} if merged else {})

    def rollback(self, height: int, stages: Sequence[str] = (MERGES, GOLD, BRONZE, RAW)) -> None:
        """Take stages back; index stages to where a commit ended."""
        for stage in stages:
            if self.head(stage) > height:
                self._commit(stage, ROLLBACK, self.head(stage), self._reachable(stage, height), next(self._ids))
        if BRONZE in stages:
            self.blocks = [block for block in self.blocks if block.number <= height]

    def optimize(self, table: str) -> None:
        """Pack the files of a table into few."""
        DeltaTable(self._path(table)).optimize.compact(writer_properties=self._properties())

    def vacuum(self, table: str) -> None:
        """Delete the files that the table no longer has."""
        DeltaTable(self._path(table)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    # How it is written

    def write(self, table: str, rows: pa.Table) -> None:
        write_deltalake(self._path(table), rows, mode="append", writer_properties=self._properties())

    def _properties(self) -> WriterProperties:
        return WriterProperties(max_row_group_size=self.group_rows, compression="ZSTD")

    def _path(self, table: str) -> str:
        schema = "control" if table == "ledger" else "store"
        path = self.home / "warehouse" / schema / table
        path.mkdir(parents=True, exist_ok=True)
        return str(path)

    def _write(self, table: str, schema: pa.Schema, rows: Sequence[Mapping[str, Any]], orphan: bool = True) -> int:
        """Rows of a commit, whose id is returned; nothing happens if no orphan is wanted."""
        commit = next(self._ids)
        height = {"_chain": self.chain, "_commit": commit}
        full = [{"_height": row.get("_height", row.get("block_number")), **row, **height} for row in rows]
        if orphan and full:
            self.write(table, pa.Table.from_pylist(full, schema=pa.unify_schemas([KERNEL, schema])))
        return commit

    def _write_segment(self, sealed: Sealed, suffix: str, height: int, commit: int) -> None:
        for name, batch in (("tails", sealed.tails), ("manifests", sealed.manifests), ("chunks", sealed.chunks)):
            if batch.num_rows:
                ids = (self.chain, height, commit)
                kernel = [pa.array([value] * batch.num_rows, f.type) for value, f in zip(ids, KERNEL, strict=True)]
                rows = pa.table([*kernel, *batch.columns], schema=pa.schema([*KERNEL, *batch.schema]))
                self.write(f"gold_log_{name}{suffix}", rows)

    def _commit(
        self, stage: str, kind: str, base: int, height: int, commit_id: int, roots: Mapping[str, bytes] | None = None
    ) -> None:
        seq = sum(commit.stage == stage for commit in self.commits) + 1
        inputs = {name: sum(commit.stage == name for commit in self.commits) for name in INPUTS[stage]}
        row = Commit(
            *(stage, self.chain, self.chain, seq, commit_id, kind, base, height, 1),
            *(START + timedelta(minutes=len(self.commits)), None, dict(roots or {}), inputs),
        )
        self.commits.append(row)
        self.write("ledger", pa.Table.from_pylist([_ledger_row(row)], schema=LEDGER))

    def _standing(self, stage: str) -> list[Commit]:
        """Commits that no rollback has undone."""
        found: list[Commit] = []
        for commit in self.commits:
            if commit.stage == stage and commit.kind == ROLLBACK:
                found = [one for one in found if one.height <= commit.height]
            elif commit.stage == stage:
                found.append(commit)
        return found

    def _reachable(self, stage: str, height: int) -> int:
        if stage not in (GOLD, MERGES):
            return height
        return max([self.first, *(c.height for c in self._standing(stage) if c.height <= height)])

    def _next_block(self) -> Block:
        last = self.blocks[-1] if self.blocks else Block(self.first, b"parent" + bytes(26), b"", 0, ())
        number, first_log_id = last.number + 1, last.first_log_id + len(last.logs)
        block_hash = self.rng.randbytes(32)
        count = 0 if self.rng.random() < 0.2 else self.rng.randrange(1, 2 * self.logs_per_block)
        logs = tuple(self._log(first_log_id + i, number, block_hash, i) for i in range(count))
        self.blocks.append(Block(number, block_hash, last.hash, first_log_id, logs))
        return self.blocks[-1]

    def _log(self, log_id: int, number: int, block_hash: bytes, index: int) -> Log:
        topics = tuple(self.values.topic(position) for position in range(self.rng.choice((0, 1, 1, 2, 3, 3, 3, 4))))
        return Log(log_id, number, block_hash, index, self.values.address(), topics)


def _pairs(blocks: Sequence[Block]) -> tuple[np.ndarray, np.ndarray]:
    """All (stream, id) pairs of some blocks, by stream."""
    pairs = [(stream_of(Kind.BLOCK_HASH, block.hash), block.number) for block in blocks]
    for block in blocks:
        for log in block.logs:
            pairs.append((stream_of(Kind.ADDRESS, log.address), log.log_id))
            pairs.extend((stream_of(kind, topic), log.log_id) for kind, topic in zip(TOPIC_KINDS, log.topics, strict=False))
            pairs.extend((stream_of(Kind.TOPIC0_BLOCK, topic), log.block_number) for topic in log.topics[:1])
    pairs.sort(key=lambda pair: pair[0])
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


def _log_row(log: Log) -> dict[str, Any]:
    topics = {f"topic{position}": topic for position, topic in enumerate(log.topics)}
    plain = {name: value for name, value in asdict(log).items() if name != "topics"}
    more = {"transaction_hash": log.block_hash[::-1], "transaction_index": log.log_index // 2, "data": b"%d" % log.log_id}
    return {**plain, **topics, **more, "block_timestamp": _time(log.block_number), "topic_count": len(log.topics)}


def _block_row(block: Block) -> dict[str, Any]:
    named = {"block_number": block.number, "hash": block.hash, "parent_hash": block.parent_hash}
    return {**named, "timestamp": _time(block.number), "first_log_id": block.first_log_id, "log_count": len(block.logs)}


def _time(number: int) -> datetime:
    return START + timedelta(seconds=12 * number)


def _ledger_row(row: Commit) -> dict[str, Any]:
    maps = {name: list(getattr(row, name).items()) for name in ("roots", "inputs", "delta_versions", "rows", "checksums")}
    return {**asdict(replace(row, roots={}, inputs={})), **maps}
