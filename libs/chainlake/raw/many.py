"""A raw stage over many chains at once: one Spark job reads the next blocks of all of them, one commit takes them.

Each chain is read and linked as `RawRun` does it, by its own cursor and rules. Blocks are final here; chains whose blocks may be
replaced have lanes of their own. A chain that breaks a promise is degraded, a source that cannot be read is told at the end; the
others go on.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from chainlake.errors import BadInput, BrokenPromise, LakeError, Unavailable
from chainlake.lake.runner import LaneRun, Timings
from chainlake.lake.stage import Output
from chainlake.raw.rules import Advance, Broken, Header, link
from chainlake.raw.stages import HEADER, MAX_BYTES, RawRun, headers_of, other_start, settled, transactions_of
from chainlake.sources.base import Cursor
from chainlake.sources.datasource import Feed, feed_of, read_feeds, register
from chainlake.sources.files import PARALLEL

LEAST_BYTES = 1 << 20
AT_ONCE = 256
PIECES = "p_first long, p_last long, _chain string"


class ManyRawRun(LaneRun):
    """A run of a raw stage over all chains of a lane."""

    def prepare(self) -> None:
        """Find out where reading goes on for each chain: after the block at its head."""
        register(self.lake.spark)
        cursors = self._cursors()
        self.outages: dict[str, LakeError] = {}
        self.feeds: dict[str, RawRun] = {}
        for chain in self.summaries:
            feed = RawRun(self.lake, self.stage, [chain], self.lease, self.max_blocks, self.max_rows, self.to_height)
            feed.summaries, feed.view = {chain: self.summaries[chain]}, self.view
            try:
                feed.begin_at(cursors.get(chain))
            except LakeError as error:
                self.outages[chain] = error
                continue
            self.options[chain] = feed.options[chain]
            self.feeds[chain] = feed

    def has_more(self) -> bool:
        """A chain may have more as long as its source was not read to the end."""
        return bool(self._reading())

    def step(self) -> bool:
        """Read, link and commit one batch of blocks of as many chains as fit."""
        reading = self._reading()[:AT_ONCE]
        timings = Timings()
        described = self._described(reading)
        if described:
            frame = read_feeds(self.lake.spark, self.feeds[next(iter(described))].kind, list(described.values())).persist()
            try:
                with timings.phase("read"):
                    rows = frame.select(*HEADER).collect()
                self._take(frame, rows, list(described), timings)
            finally:
                frame.unpersist()
        if self._reading():
            return True
        if self.outages:
            chain, first = next(iter(self.outages.items()))
            more = f" (and {len(self.outages) - 1} more chains)" if len(self.outages) > 1 else ""
            raise (BadInput if isinstance(first, BadInput) else Unavailable)(f"{chain}: {first}{more}")
        return False

    def expected(self) -> int | None:
        """How far the sources go is known when they have been read."""
        return None

    def _reading(self) -> list[str]:
        return [chain for chain in self.active() if chain in self.feeds and self.feeds[chain].has_more()]

    def _described(self, reading: Sequence[str]) -> dict[str, dict[str, str]]:
        """What to read of each chain. A node that does not answer is left for the end."""
        found = {}
        share = max(LEAST_BYTES, MAX_BYTES // max(1, len(reading)))
        for chain in reading:
            feed = self.feeds[chain]
            feed.view = self.view
            wanted = Feed(feed.paths, feed.cursor, feed.max_blocks, share, feed.reading_options())
            try:
                found[chain] = wanted.described(feed.kind)
            except LakeError as error:
                self.outages[chain], feed.exhausted = error, True
        return found

    def _take(self, frame: DataFrame, rows: Sequence[Any], chains: Sequence[str], timings: Timings) -> None:
        """Link the blocks of each chain, and commit those of all chains together."""
        by_chain: dict[str, list[Any]] = defaultdict(list)
        for row in rows:
            by_chain[chains[feed_of(row[0])]].append(row)
        taken: dict[str, list[Advance]] = {}
        broken: dict[str, str] = {}
        for chain in chains:
            advances, reason = self._linked(chain, by_chain[chain])
            if advances:
                taken[chain] = advances
            if reason is not None:
                broken[chain] = reason
        if taken:
            self._advance(frame, taken, timings)
        for chain, reason in broken.items():
            self.degrade(BrokenPromise(reason), [chain], timings)

    def _linked(self, chain: str, rows: Sequence[Any]) -> tuple[list[Advance], str | None]:
        """What to take of the blocks that were read of a chain, and what is wrong with the next one."""
        feed = self.feeds[chain]
        feed.view = self.view
        headers, outage = headers_of(rows)
        if feed.live:
            headers, outage = settled(headers, feed.cursor, outage)
        wanted = [h for h in headers if h.error or self.to_height is None or h.height <= self.to_height]
        feed.exhausted = not headers or len(wanted) < len(headers) or outage is not None
        if outage and len(wanted) == len(headers):
            self.outages[chain] = Unavailable(outage)
        if not wanted:
            return [], None
        feed.cursor = _cursor(wanted[-1])
        first = self.view.of(self.stage.name, chain).first_height()
        advances: list[Advance] = []
        for action in link(wanted, feed.place(), feed.held(wanted), feed.window, feed.lowest_fork()):
            if isinstance(action, Broken):
                return advances, action.reason
            assert isinstance(action, Advance), "blocks that are final are not replaced"
            if not advances and feed.place() is None and first not in (None, action.base):
                return [], other_start(chain, action, first)
            advances.append(action)
        return advances, None

    def _advance(self, frame: DataFrame, taken: dict[str, list[Advance]], timings: Timings) -> None:
        """A commit has few files, however many chains there are: a thousand small ones are slow to write, and slower to read."""
        pieces = [(one.first, one.last, chain) for chain, advances in taken.items() for one in advances]
        allowed = F.broadcast(self.lake.spark.createDataFrame(pieces, PIECES))
        blocks = frame.join(allowed, F.col("place").between(F.col("p_first"), F.col("p_last")))
        blocks = blocks.withColumnRenamed("height", "_height").coalesce(PARALLEL)
        output = Output({"raw.blocks": blocks.drop("transactions"), "raw.transactions": transactions_of(blocks)})
        ranges = {chain: (advances[0].base, advances[-1].height) for chain, advances in taken.items()}
        self.write(ranges, output, {chain: advances[-1].hash for chain, advances in taken.items()}, timings)

    def _cursors(self) -> dict[str, Cursor]:
        """The block at the head of every chain that has one."""
        heads = {chain: head.height for chain in self.summaries if (head := self.head(chain)) is not None}
        if not heads:
            return {}
        rows = self.snapshot().between("raw.blocks", {chain: (height - 1, height) for chain, height in heads.items()})
        found = rows.select("_chain", "source", "position", "hash").collect()
        return {chain: Cursor(source, position, heads[chain], bytes(digest)) for chain, source, position, digest in found}


def _cursor(header: Header) -> Cursor:
    return Cursor(header.source, header.position, header.height, header.hash)
