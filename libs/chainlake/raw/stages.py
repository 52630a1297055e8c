"""The raw stages, one per domain: read the next blocks of a chain, link them, commit them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BrokenPromise, Unavailable
from chainlake.lake.chains import Chain
from chainlake.lake.runner import LaneRun, Timings
from chainlake.lake.stage import Output, Stage
from chainlake.lake.visibility import ROLLBACK
from chainlake.raw.rules import Advance, Broken, GoBack, Header, link
from chainlake.sources.base import Cursor, is_url
from chainlake.sources.datasource import read_blocks, register
from chainlake.sources.formats import DOMAIN_OF, format_of, left, network_of, rollback_window

if TYPE_CHECKING:
    from chainlake.lake.lake import Lake

MAX_BYTES = 192 << 20
TABLES = ("raw.blocks", "raw.transactions")
WRITE_SETTINGS = {"raft": {"parquet.block.size": str(8 << 20)}}
"""Of kinds whose files hold many blocks: they are read in parts, and none of these is smaller than a row group."""
TOGETHER = ("comet",)
"""Kinds with so many chains that all are read by one job."""


def raw_stages() -> tuple[Stage, ...]:
    """One source stage per kind of chain."""
    from chainlake.raw.many import ManyRawRun  # these build on this module
    from chainlake.sync.passes import raw_sync_stage

    stages = []
    for kind, domain in DOMAIN_OF.items():
        if kind != "river":
            together: dict[str, Any] = {"runner": ManyRawRun, "lane_of": partial(_one_lane, domain)} if kind in TOGETHER else {}
            how = {"runner": RawRun, "write_settings": WRITE_SETTINGS.get(kind, {}), **together}
            stages.append(Stage(f"raw.{domain}", kind, TABLES, max_blocks=50_000, verify=unlinked, **how))
    return (*stages, raw_sync_stage())


def _one_lane(lane: str, chain: str) -> str:
    return lane


class RawRun(LaneRun):
    """A run of a raw stage over one chain."""

    def prepare(self) -> None:
        """Find out where reading goes on: after the block at the head."""
        register(self.lake.spark)
        (self.chain,) = self.summaries
        self.begin_at(self._cursor_at_head())

    def begin_at(self, cursor: Cursor | None) -> None:
        """Read on after a block, or from the beginning."""
        (self.chain,) = self.summaries
        info = self.lake.chain(self.chain)
        self.kind = info.kind
        self.window = rollback_window(info.kind, info.options)
        self.paths = format_of(info.kind).expand(info.source)
        self.live = is_url(self.paths[0])
        self._meet_network(info)
        self.cursor = cursor
        self.ahead = left(self.kind, self.paths, self.cursor, self.reading_options())
        self.exhausted = False

    def has_more(self) -> bool:
        """A node may never stop making blocks, so a run ends with those that were there when it began."""
        caught_up = self.live and self.ahead is not None and self.summaries[self.chain].blocks >= self.ahead
        return not self.exhausted and not caught_up and bool(self.active())

    def step(self) -> bool:
        """Read, link and commit one batch of blocks."""
        if not self.has_more():
            return False
        timings = Timings()
        options = self.reading_options()
        frame = read_blocks(self.lake.spark, self.kind, self.paths, self.cursor, self.max_blocks, MAX_BYTES, options).persist()
        try:
            with timings.phase("read"):
                headers, outage = _headers(frame)
            if self.live:
                headers, outage = settled(headers, self.cursor, outage)
            wanted = [h for h in headers if h.error or self.to_height is None or h.height <= self.to_height]
            self.exhausted = not headers or len(wanted) < len(headers)
            self._take(frame, wanted, timings)
        finally:
            frame.unpersist()
        if outage and self.active() and len(wanted) == len(headers):
            raise Unavailable(outage)
        return not self.exhausted

    def expected(self) -> int | None:
        """Blocks of this run when the source is read to its end, judged by how much of it is left."""
        rest = left(self.kind, self.paths, self.cursor, self.reading_options())
        if not self.ahead or rest is None or rest >= self.ahead:
            return None
        return round(self.summaries[self.chain].blocks * self.ahead / (self.ahead - rest))

    def _take(self, frame: DataFrame, headers: list[Header], timings: Timings) -> None:
        if headers:
            last = headers[-1]
            self.cursor = Cursor(last.source, last.position, last.height, last.hash)
        first = self.view.of(self.stage.name, self.chain).first_height()
        for action in link(headers, self.place(), self.held(headers), self.window, self.lowest_fork()):
            if isinstance(action, Advance) and self.place() is None and first not in (None, action.base):
                self.degrade(BrokenPromise(other_start(self.chain, action, first)), [self.chain], timings)
                break
            if isinstance(action, GoBack):
                self.roll_back({self.chain: (action.height, action.why)})
            elif isinstance(action, Broken):
                self.degrade(BrokenPromise(action.reason), [self.chain], timings)
            else:
                self._advance(frame, action, timings)
                timings = Timings()

    def _meet_network(self, info: Chain) -> None:
        """Refuses a node of another network than before. The chain id is kept with the options of the chain."""
        told = network_of(self.kind, self.paths, info.options)
        if told is not None and told != info.options.get("chain_id"):
            met = replace(info, options={**info.options, "chain_id": told})
            self.lake.chains.add(met)
            self.options[self.chain] = met.options

    def reading_options(self) -> dict[str, str]:
        """The options of the chain. Once it has begun, `from_block` says where."""
        first = self.view.of(self.stage.name, self.chain).first_height()
        begun = {} if first is None else {"from_block": str(first + 1)}
        return {**self.options[self.chain], **begun}

    def place(self) -> tuple[int, bytes] | None:
        """The block to follow. A chain that was rolled back to before its first block starts anew."""
        head = self.head(self.chain)
        if head is None or head.height == self.view.of(self.stage.name, self.chain).first_height():
            return None
        return head.height, head.block_hash or b""

    def lowest_fork(self) -> int:
        """Blocks up to here are final: the window counts from the highest head since the last operator's rollback."""
        top = -1
        for commit in self.view.of(self.stage.name, self.chain).commits:
            by_operator = commit.kind == ROLLBACK and commit.run_id is None and commit.height < commit.base_height
            top = commit.height if by_operator else max(top, commit.height)
        return top - self.window

    def _advance(self, frame: DataFrame, action: Advance, timings: Timings) -> None:
        blocks = frame.filter(F.col("place").between(action.first, action.last))
        blocks = blocks.withColumn("_chain", F.lit(self.chain)).withColumnRenamed("height", "_height")
        output = Output(self.tables(blocks))
        self.write({self.chain: (action.base, action.height)}, output, {self.chain: action.hash}, timings)

    def tables(self, blocks: DataFrame) -> dict[str, DataFrame | None]:
        """What blocks as read become."""
        return {"raw.blocks": blocks.drop("transactions"), "raw.transactions": transactions_of(blocks)}

    def held(self, headers: list[Header]) -> Callable[[int], bytes | None]:
        """Our hash at a height, read once and only if the batch reaches back."""
        head = self.head(self.chain)
        known: dict[int, bytes] = {}
        low = min((h.height for h in headers if not h.error), default=0) - 2
        if head is not None and low + 2 <= head.height:
            rows = self.snapshot().between("raw.blocks", {self.chain: (low, head.height)}).select("_height", "hash")
            known = {height: bytes(hash_) for height, hash_ in rows.collect()}
        return known.get

    def _cursor_at_head(self) -> Cursor | None:
        head = self.head(self.chain)
        if head is None:
            return None
        rows = self.snapshot().between("raw.blocks", {self.chain: (head.height - 1, head.height)})
        for source, position, hash_ in rows.select("source", "position", "hash").collect():
            return Cursor(source, position, head.height, bytes(hash_))
        return None


def unlinked(lake: "Lake", chain: str) -> list[str]:
    """Blocks that do not follow the one before them; checked by `lake verify`."""
    blocks = lake.table("raw.blocks", chain=chain).select("height", "hash", "parent_hash")
    before = blocks.select((F.col("height") + 1).alias("height"), F.col("hash").alias("expected"))
    first = blocks.agg(F.min("height")).collect()[0][0]
    wrong = blocks.join(before, "height", "left").filter(
        (F.col("height") > F.lit(first)) & (F.col("expected").isNull() | (F.col("expected") != F.col("parent_hash")))
    )
    doubled = blocks.groupBy("height").count().filter("count > 1")
    return [f"raw block {row[0]} of {chain} does not link to its parent" for row in wrong.select("height").limit(5).collect()] + [
        f"raw block {row[0]} of {chain} is there {row[1]} times" for row in doubled.limit(5).collect()
    ]


def other_start(chain: str, action: Advance, first: int | None) -> str:
    """A chain that was rolled back to before its first block must begin with the same one."""
    return f"{chain} starts with block {action.base + 1} here, but started after {first} before: choose a new name"


HEADER = ("place", "height", "hash", "parent_hash", "source", "position", "error", "unavailable")


def _headers(frame: DataFrame) -> tuple[list[Header], str | None]:
    return headers_of(frame.select(*HEADER).collect())


def headers_of(rows: Iterable[Any]) -> tuple[list[Header], str | None]:
    """The blocks of a chain up to the first that its source failed to give, and why it did."""
    headers: list[Header] = []
    for r in sorted(rows, key=lambda row: int(row[0])):
        if r[7]:
            return headers, r[6]
        headers.append(Header(r[0], r[1] or 0, bytes(r[2] or b""), bytes(r[3] or b""), r[4], r[5], r[6]))
    return headers, None


def settled(headers: list[Header], cursor: Cursor | None, outage: str | None) -> tuple[list[Header], str | None]:
    """The blocks of a node up to the first that does not follow what was read before it. The node has changed its mind in
    between, so it is not for the chain to judge; the next run asks again."""
    before = (cursor.height, cursor.hash) if cursor else None
    for count, header in enumerate(headers):
        if before and header.height == before[0] + 1 and header.parent_hash != before[1]:
            return headers[:count], f"{header.source} went another way at block {header.height} while it was read: run again"
        before = (header.height, header.hash)
    return headers, outage


def transactions_of(blocks: DataFrame) -> DataFrame:
    """Rows of raw.transactions, from blocks that have their transactions inside."""
    return blocks.select(
        "_chain",
        "_height",
        F.col("hash").alias("block_hash"),
        "parent_hash",
        "timestamp",
        F.explode("transactions").alias("t"),
        "source",
        "position",
    ).select("_chain", "_height", "block_hash", "parent_hash", "timestamp", "t.*", "source", "position")
