"""Blocks of the index: by number, by hash, and as the range of log ids that they hold (gold.block_meta)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from chainlake.encoding import short
from chainlake.errors import BrokenPromise, LakeError
from chainlake.logs.entries import Window, numbers
from chainlake.logs.index import IndexReader
from chainlake.logs.settings import Settings
from chainlake.logs.snapshot import BLOCKS, PAYLOADS, BlockRef, IndexSnapshot
from chainlake.logs.streams import Kind, Longs, streams_of
from chainlake.serve.arrays import longs, one_chunk, to_arrow
from chainlake.serve.cache import ByteCache
from chainlake.serve.row_groups import DecodedGroups, Reads, RowGroupFiles, holding
from chainlake.serve.visible import Source

COLUMNS = ("block_number", "hash", "parent_hash", "first_log_id", "log_count")
RECENT = 10_000
"""Rows that are kept one by one."""


class BlockNotFound(LakeError):
    """No block with this hash is indexed."""


@dataclass(frozen=True)
class BlockRow(BlockRef):
    """A block with the log ids that it holds."""

    first_log_id: int
    log_count: int

    @property
    def end_log_id(self) -> int:
        """The log id after its last."""
        return self.first_log_id + self.log_count

    @property
    def ref(self) -> BlockRef:
        return BlockRef(self.number, self.hash, self.parent_hash)


@dataclass(frozen=True)
class BlockGroup:
    """Blocks of a row group, by number."""

    numbers: Longs
    first_log_ids: Longs
    log_counts: Longs
    hashes: pa.Array
    parent_hashes: pa.Array

    @property
    def nbytes(self) -> int:
        arrays = (self.numbers, self.first_log_ids, self.log_counts, self.hashes, self.parent_hashes)
        return sum(int(array.nbytes) for array in arrays)

    def row(self, place: int) -> BlockRow:
        return BlockRow(
            number=int(self.numbers[place]),
            hash=self.hashes[place].as_py(),
            parent_hash=self.parent_hashes[place].as_py(),
            first_log_id=int(self.first_log_ids[place]),
            log_count=int(self.log_counts[place]),
        )


class BlockReader:
    """Lookups in gold.block_meta. For many threads."""

    def __init__(self, files: RowGroupFiles, index: IndexReader, settings: Settings) -> None:
        self._files = files
        self._index = index
        self.groups: DecodedGroups[BlockGroup] = DecodedGroups("blocks", files, settings.block_bytes, COLUMNS, _decode)
        self._recent: ByteCache[BlockRow] = ByteCache(RECENT)

    def by_number(self, snapshot: IndexSnapshot, number: int, reads: Reads) -> BlockRow | None:
        """The block at a height; None if it is not indexed."""
        if not snapshot.first <= number <= snapshot.head.number:
            return None
        return self.rows(snapshot, [number], reads)[number]

    def rows(self, snapshot: IndexSnapshot, numbers: Sequence[int], reads: Reads) -> dict[int, BlockRow]:
        """The blocks at some heights that are known to be indexed. Ends of ranges come again and again, so rows are kept too."""
        known = {number: row for number in numbers if (row := self._recent.get((snapshot.version, number))) is not None}
        missing = [number for number in numbers if number not in known]
        found = self._find(snapshot, missing, reads) if missing else {}
        for number, row in found.items():
            self._recent.put((snapshot.version, number), row, 1)
        return known | found

    def _find(self, snapshot: IndexSnapshot, numbers: Sequence[int], reads: Reads) -> dict[int, BlockRow]:
        wanted = np.unique(np.fromiter(numbers, np.int64))
        found: dict[int, BlockRow] = {}
        near = self._near(snapshot, wanted, reads)
        for group in self.groups.get(near, reads):
            places = np.searchsorted(group.numbers, wanted)
            for number, place in zip(wanted.tolist(), places.tolist(), strict=True):
                if place < len(group.numbers) and group.numbers[place] == number:
                    found[number] = group.row(place)
        for number in wanted.tolist():
            if number not in found:
                raise BrokenPromise(
                    f"block {number} of {snapshot.chain} is not above the head {snapshot.head.number} and not in gold.block_meta:"
                    " run lake verify gold.logs"
                )
        return found

    def head(self, snapshot: IndexSnapshot) -> BlockRef:
        """The last block of a snapshot, with its hashes."""
        number = snapshot.head.number
        return self.rows(snapshot, [number], Reads())[number].ref

    def by_hash(self, snapshot: IndexSnapshot, block_hash: bytes, reads: Reads) -> BlockRow | None:
        """The block with a hash. The index gives its number, gold.block_meta confirms it."""
        streams = streams_of(Kind.BLOCK_HASH, [block_hash])
        postings = self._index.postings(snapshot, streams, snapshot.first, snapshot.head.number, reads)
        found = self._index.entries(snapshot, postings, Window(snapshot.first, snapshot.head.number + 1), None, reads)
        rows = self.rows(snapshot, numbers(found).tolist(), reads).values()
        return next((row for row in rows if row.hash == block_hash), None)

    def numbers_of(self, snapshot: IndexSnapshot, log_ids: Longs, first: int, last: int, reads: Reads) -> Longs:
        """The block of each log (ascending), which are all in the blocks from `first` to `last`."""
        places = self._near(snapshot, np.array([first, last]), reads, between=True)
        groups = [group for group in self.groups.get(places, reads) if len(group.numbers)]
        blocks = np.concatenate([group.numbers for group in groups])
        starts = np.concatenate([group.first_log_ids for group in groups])
        order = np.argsort(blocks, kind="stable")
        return np.asarray(blocks[order][np.searchsorted(starts[order], log_ids, side="right") - 1], np.int64)

    def _near(self, snapshot: IndexSnapshot, keys: Longs, reads: Reads, between: bool = False) -> list[tuple[Source, int]]:
        """Row groups that may hold some block numbers, or any between the first and the last of them."""
        found: list[tuple[Source, int]] = []
        for source in snapshot.files[BLOCKS].overlapping(int(keys[0]), int(keys[-1])):
            low, high = self._files.footer(source, reads).bounds("block_number")
            groups = np.flatnonzero((low <= keys[-1]) & (high >= keys[0])) if between else holding(keys, low, high)[0]
            found.extend((source, int(group)) for group in groups)
        return found

    def payload(self, snapshot: IndexSnapshot, block: BlockRef, reads: Reads) -> bytes | None:
        """A block as its source gave it; None if the raw layer no longer has it."""
        for source in snapshot.files[PAYLOADS].overlapping(block.number, block.number):
            footer = self._files.footer(source, reads)
            groups, _, _ = holding(np.array([block.number]), *footer.bounds("_height"))
            rows = self._files.read(source, footer, groups.tolist(), ("_height", "hash", "payload"), threads=False)
            for place in np.flatnonzero(longs(rows["_height"]) == block.number).tolist():
                if rows["hash"][place].as_py() == block.hash:
                    return bytes(rows["payload"][place].as_py())
        return None


def not_found(block_hash: bytes) -> BlockNotFound:
    return BlockNotFound(f"block {short(block_hash)} is not indexed: ask for one that is, or wait until it is final")


def _decode(rows: pa.Table, source: Source) -> BlockGroup:
    keys = longs(rows["block_number"])
    if (np.diff(keys) < 0).any():
        rows = rows.take(to_arrow(np.argsort(keys, kind="stable")))
    numbers, first_log_ids, log_counts = (longs(rows[name]) for name in ("block_number", "first_log_id", "log_count"))
    return BlockGroup(numbers, first_log_ids, log_counts, one_chunk(rows["hash"]), one_chunk(rows["parent_hash"]))
