"""The raw stage of streams. Recordings are read like other files. From nodes, each pass is planned by how far raw holds each
stream, fetched side by side, and committed with the new heads: a crash leaves the old heads, and the next run asks again.

A pass is a block: its transactions are the miniblocks, its payload says whose they are. A run makes passes until every stream was
fetched to where its node stood; one that brings nothing is not written. A pass asks for `ASKED` streams at most, so that a run
over a million needs no more memory than one over some thousand.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from chainlake.errors import Unavailable
from chainlake.lake.clock import now
from chainlake.lake.runner import Timings
from chainlake.lake.stage import Output, Stage
from chainlake.raw.stages import TABLES, RawRun, unlinked
from chainlake.sources.base import ZERO_HASH, is_url
from chainlake.sources.endpoint import environment, shown
from chainlake.sources.files import PARALLEL
from chainlake.sources.json_text import canonical
from chainlake.sources.river import nodes, stream_ids
from chainlake.sync.client import ConnectClient, asking
from chainlake.sync.fetch import Base
from chainlake.sync.fetching import FETCHED, HEAD_COLUMNS, HEADS, POSTPONED, REFUSED, TAKEN, UNSETTLED, Order, head_of
from chainlake.sync.recorded import RECORDED, recorded_heads
from chainlake.sync.service import NOBODY, Refused
from chainlake.sync.settle import left_line, settle_all

HEADS_TABLE = "raw.stream_heads"
MAX_GAP_COMMIT = 20_000
ASKED = 100_000
MOST_BESIDE = 128 << 20
"""Of what came besides miniblocks, in one pass. Minipools of a hundred thousand streams take less than half of it."""
BASES = "stream_id binary, base_number bigint, base_hash binary, base_start bigint"


def raw_sync_stage() -> Stage:
    """Passes over streams, recorded or live."""
    return Stage("raw.sync", "river", (*TABLES, HEADS_TABLE), max_blocks=50_000, runner=PassRun, verify=unlinked)


class PassRun(RawRun):
    """A run over one chain of streams."""

    def prepare(self) -> None:
        (chain,) = self.summaries
        info = self.lake.chain(chain)
        self.nodes: tuple[str, ...] = ()
        if not is_url(info.source):
            super().prepare()
            return
        self.chain = chain
        self.nodes = tuple(nodes(info.source))
        self.asked = stream_ids(info.options)
        self.all_streams, self.refused, self.had = len(self.asked), 0, 0
        self.exhausted = False
        secrets = {name: value for url in self.nodes for name, value in environment(url, info.options).items()}
        self.given = {**info.options, **secrets}

    def step(self) -> bool:
        """Make one pass."""
        if not self.nodes:
            return super().step()
        if self.exhausted or not self.active() or self._is_at_end():
            return False
        timings = Timings()
        now_asked, self.asked = self.asked[:ASKED], self.asked[ASKED:]
        with timings.phase("read"):
            frames = [self._fetched(self._wanted(now_asked), len(now_asked))]
            rows: list[Any] = list(_summaries(frames[0]))
            unsettled = {bytes(row["stream_id"]): row for row in rows if row["status"] == UNSETTLED}
            if unsettled:
                again, refused = self._again(unsettled)
                frames.append(again)
                rows = [*(row for row in rows if row["status"] != UNSETTLED), *_summaries(again), *refused]
        self._commit_pass(frames, rows, len(now_asked), timings)
        return not self.exhausted

    def expected(self) -> int | None:
        return super().expected() if not self.nodes else None

    def tables(self, blocks: DataFrame) -> dict[str, DataFrame | None]:
        """Recordings, and the heads that they leave: the chain may go on from nodes."""
        passes = blocks.select("_chain", "_height", "payload", "timestamp", "transactions")
        return {**super().tables(blocks), HEADS_TABLE: passes.mapInArrow(recorded_heads, RECORDED)}

    def _is_at_end(self) -> bool:
        return self.to_height is not None and self._height() >= self.to_height

    def _height(self) -> int:
        head = self.head(self.chain)
        return head.height if head else 0

    def _heads(self) -> DataFrame:
        """How far raw holds each stream, by the ledger."""
        if self.head(self.chain) is None:
            return self.lake.spark.createDataFrame([], f"stream_id binary, {HEADS}")
        return self.snapshot().state(HEADS_TABLE, {self.chain: self._height()}).select("stream_id", *HEAD_COLUMNS)

    def _wanted(self, asked: Sequence[bytes]) -> DataFrame:
        wanted = self.lake.spark.createDataFrame([(one,) for one in asked], "stream_id binary")
        return wanted.join(self._heads(), "stream_id", "left").select(
            "*", *(F.lit(None).cast(kind).alias(name) for name, kind in _base_types())
        )

    def _fetched(self, wanted: DataFrame, streams: int) -> DataFrame:
        """What is new of the streams, asked for side by side and once: nodes may answer otherwise the next time, so what came is
        kept rather than computed again."""
        tasks = max(1, min(PARALLEL, streams))
        most = max(1, int(self.given.get("max_gap_commit", MAX_GAP_COMMIT)))
        order = Order(self.nodes, self.given, tasks, max(1, most // tasks))
        return wanted.repartition(tasks).mapInArrow(order, FETCHED).localCheckpoint()

    def _again(self, unsettled: Mapping[bytes, Row]) -> tuple[DataFrame, list[dict[str, Any]]]:
        """Streams whose answer did not follow our head, fetched from where both agree."""
        heads = {bytes(row["stream_id"]): head_of(row.asDict()) for row in self._wanted(list(unsettled)).collect()}
        client = ConnectClient(self.nodes, self.given, asking(self.given))
        places = {key: [(one["number"], bytes(one["hash"])) for one in row["shown"]] for key, row in unsettled.items()}
        known = {key: head for key, head in heads.items() if head is not None}
        bases = settle_all(client, known, places, self._held_hashes, asking(self.given).page_size)
        good = {key: base for key, base in bases.items() if isinstance(base, Base)}
        if good:
            self._warn(left_line(known, places, good))
        rows = [(key, base.number, base.hash, base.start) for key, base in good.items()]
        wanted = self._wanted(list(good)).drop(*(name for name, _ in _base_types()))
        wanted = wanted.join(self.lake.spark.createDataFrame(rows, BASES), "stream_id")
        refused = [_refused(key, base) for key, base in bases.items() if isinstance(base, Refused)]
        return self._fetched(wanted, len(good)), refused

    def _warn(self, what: str) -> None:
        """Say it in the log, and in what the run returns; it goes on."""
        self.progress.phase("warning", 0.0, chain=self.chain, what=what)
        summary = self.summaries[self.chain]
        summary.error = "; ".join(filter(None, (summary.error, what)))

    def _held_hashes(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Those of the hashes that raw holds a miniblock of."""
        asked = self.lake.spark.createDataFrame([(one,) for one in set(hashes)], "hash binary")
        held = self.snapshot().between("raw.transactions", {self.chain: (-1, self._height())}).select("hash")
        return {bytes(row[0]) for row in held.join(F.broadcast(asked), "hash", "left_semi").distinct().collect()}

    def _commit_pass(self, frames: Sequence[DataFrame], rows: Sequence[Any], asked: int, timings: Timings) -> None:
        refused = [row for row in rows if row["status"] == REFUSED]
        taken = sorted((row for row in rows if row["status"] == TAKEN), key=lambda row: bytes(row["stream_id"]))
        self.had += asked - len(refused)
        self.refused += len(refused)
        if refused:
            some = f"{self.refused} of {self.all_streams} streams could not be had now"
            self._warn(f"{some}, such as {bytes(refused[0]['stream_id']).hex()}: {refused[0]['reason']}")
        taken, postponed = _fitting(taken)
        more = [row for row in rows if row["status"] == POSTPONED] + [row for row in taken if row["more"]] + postponed
        self.asked = [bytes(row["stream_id"]) for row in more] + self.asked
        self.exhausted = not self.asked
        if not self.had and (self.exhausted or any(NOBODY in row["reason"] for row in refused)):
            raise Unavailable(f"no stream of {self.chain} can be had: {refused[0]['reason']}")
        if taken:
            self._write_pass(frames, taken, timings)

    def _write_pass(self, frames: Sequence[DataFrame], taken: Sequence[Row], timings: Timings) -> None:
        head, height = self.head(self.chain), self._height() + 1
        parent = (head.block_hash if head else None) or ZERO_HASH
        mark = hashlib.sha256(parent + b"".join(bytes(row["stream_id"]) + bytes(row["digest"]) for row in taken)).digest()
        block = {
            "_chain": self.chain,
            "_height": height,
            "hash": mark,
            "parent_hash": parent,
            "timestamp": now(),
            "payload": _payload(height, taken),
            "source": ",".join(shown(url) for url in self.nodes),
            "position": height,
        }
        kinds = "_chain string, _height bigint, hash binary, parent_hash binary, timestamp timestamp, payload binary"
        blocks = self.lake.spark.createDataFrame([block], f"{kinds}, source string, position bigint")
        places, at = [], 0
        for row in taken:
            places.append((bytes(row["stream_id"]), at))
            at += row["count"]
        first = self.lake.spark.createDataFrame(places, "stream_id binary, first_tx int")
        fetched = _union(frames).filter(F.col("status") == TAKEN).join(F.broadcast(first), "stream_id")
        miniblocks = fetched.select("first_tx", F.posexplode("miniblocks").alias("place", "miniblock")).select(
            (F.col("first_tx") + F.col("place")).alias("tx_index"), "miniblock.*"
        )
        about = blocks.select(
            "_chain", "_height", F.col("hash").alias("block_hash"), "parent_hash", "timestamp", "source", "position"
        )
        heads = fetched.select(F.lit(self.chain).alias("_chain"), F.lit(height).alias("_height"), "stream_id", *HEAD_COLUMNS)
        came = miniblocks.crossJoin(F.broadcast(about)) if at else None
        tables = {"raw.blocks": blocks, "raw.transactions": came, HEADS_TABLE: heads}
        self.write({self.chain: (height - 1, height)}, Output(tables), {self.chain: mark}, timings)


def _base_types() -> list[tuple[str, str]]:
    return [("base_number", "bigint"), ("base_hash", "binary"), ("base_start", "bigint")]


def _summaries(frame: DataFrame) -> list[Row]:
    """What was fetched of each stream, without the miniblocks."""
    columns = ("stream_id", "status", "reason", "pages", "rest", "catch_up", "whole", "digest", "more", "count", "shown")
    return frame.select(*columns).collect()


def _fitting(taken: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The streams of which what came besides miniblocks fits into the row of a pass, one at least; and the others. These are
    asked for again: their heads stay where they are."""
    ends = accumulate(len(row["rest"]) for row in taken)
    count = max(1, sum(end <= MOST_BESIDE for end in ends))
    return list(taken[:count]), list(taken[count:])


def _refused(stream_id: bytes, refusal: Refused) -> dict[str, Any]:
    return {"stream_id": stream_id, "status": REFUSED, "reason": str(refusal)}


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def _payload(height: int, taken: Sequence[Row]) -> bytes:
    """Which stream each miniblock came from, and the rest of every answer."""
    return canonical(
        {
            "pass": height,
            "live": True,
            "streams": [bytes(row["stream_id"]).hex() for row in taken],
            "miniblocks": [row["count"] for row in taken],
            "pages": [row["pages"] for row in taken],
            "rest": [base64.b64encode(row["rest"]).decode() for row in taken],
            "whole": [row["whole"] for row in taken],
            "catch_up": [row["catch_up"] for row in taken],
        }
    )
