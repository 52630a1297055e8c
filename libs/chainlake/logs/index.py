"""The index as a reader uses it: from streams to the entries that they hold in a window.

A segment has up to one manifest and one tail per stream and shard, found by the statistics of files and row groups and then by
bisection. Chunks are decoded when needed; a chunk whose checksum is wrong, or that is missing, is never skipped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from chainlake.errors import LakeError
from chainlake.logs.codec import BadChunk, Chunk, decode_chunk
from chainlake.logs.entries import Entries, Postings, Refs, Wanted, Window, clipped, common, united
from chainlake.logs.index_rows import (
    CHUNK_COLUMNS,
    MANIFEST_COLUMNS,
    TAIL_COLUMNS,
    ChunkGroup,
    ManifestGroup,
    TailGroup,
    decode_chunks,
    decode_manifests,
    decode_tails,
)
from chainlake.logs.settings import Settings
from chainlake.logs.snapshot import IndexFiles, IndexSnapshot
from chainlake.logs.streams import Longs
from chainlake.serve.cache import ByteCache
from chainlake.serve.row_groups import DecodedGroups, Reads, RowGroupFiles, holding
from chainlake.serve.visible import Source

SUFFIXES = ("", "_merged")
CHUNK_OVERHEAD, POSTINGS_OVERHEAD = 512, 1024
"""Bytes of a decoded chunk besides its bitmap, and of postings besides their arrays, for each list of chunks."""


class CorruptChunk(LakeError):
    """A chunk that a manifest lists is missing or damaged. The query is refused: its answer could be incomplete."""


@dataclass(frozen=True)
class Known:
    """Postings that were looked up, and the files that they hold for."""

    index: Mapping[str, IndexFiles]
    postings: Postings


class IndexReader:
    """Lookups in the index tables, with what was read kept in bounded caches. For many threads."""

    def __init__(self, files: RowGroupFiles, settings: Settings) -> None:
        self._files = files
        self.tails: DecodedGroups[TailGroup] = DecodedGroups("tails", files, settings.tail_bytes, TAIL_COLUMNS, decode_tails)
        self.manifests: DecodedGroups[ManifestGroup] = DecodedGroups(
            "manifests", files, settings.manifest_bytes, MANIFEST_COLUMNS, decode_manifests
        )
        self.chunk_groups: DecodedGroups[ChunkGroup] = DecodedGroups(
            "chunk_groups", files, settings.chunk_group_bytes, CHUNK_COLUMNS, decode_chunks
        )
        self.chunks: ByteCache[Chunk] = ByteCache(settings.chunk_bytes)
        self.known: ByteCache[Known] = ByteCache(settings.posting_bytes)

    def postings(self, snapshot: IndexSnapshot, streams: Longs, first: int, last: int, reads: Reads) -> Postings:
        """What the segments that cover the blocks from `first` to `last` hold for some streams (ascending). It is kept as long
        as the files are the same: contracts and signatures are asked for again and again."""
        key = (snapshot.version, *snapshot.span(first, last), streams.tobytes())
        known = self.known.get(key)
        current = known is not None and known.index is snapshot.index
        reads.used("postings", int(current), int(not current))
        if known is not None and current:
            return known.postings
        found = self._found(snapshot, streams, first, last, reads).own()
        size = found.nbytes + (len(found.refs) + 1) * POSTINGS_OVERHEAD + len(key[-1])
        self.known.put(key, Known(snapshot.index, found), size)
        return found

    def _found(self, snapshot: IndexSnapshot, streams: Longs, first: int, last: int, reads: Reads) -> Postings:
        found = Postings()
        for suffix in SUFFIXES:
            self._add_tails(found, snapshot.index[f"gold.log_tails{suffix}"], streams, first, last, reads)
            manifests = snapshot.index[f"gold.log_manifests{suffix}"]
            self._add_refs(found, manifests, f"gold.log_chunks{suffix}", streams, first, last, reads)
        return found

    def entries(
        self, snapshot: IndexSnapshot, postings: Postings, window: Window, among: Entries | None, reads: Reads
    ) -> dict[int, BitMap]:
        """The entries in a window, or those among some candidates; only chunks that can matter are loaded."""
        chunks = self._load(snapshot, postings.chunks(window, among), reads)
        tails = postings.tail_values(window)
        return clipped(united(tails, chunks), window) if among is None else common(tails, chunks, among)

    def _add_tails(self, found: Postings, index: IndexFiles, streams: Longs, first: int, last: int, reads: Reads) -> None:
        wanted, slices = self._groups(index, streams, first, last, reads)
        for group, part in zip(self.tails.get(wanted, reads), slices, strict=True):
            for _, row in _rows_of(group.streams, streams[part]):
                values = group.locals[group.offsets[row] : group.offsets[row + 1]]
                found.tails.setdefault(int(group.shards[row]), []).append(values)

    def _add_refs(
        self, found: Postings, index: IndexFiles, table: str, streams: Longs, first: int, last: int, reads: Reads
    ) -> None:
        wanted, slices = self._groups(index, streams, first, last, reads)
        for group, part in zip(self.manifests.get(wanted, reads), slices, strict=True):
            for stream, row in _rows_of(group.streams, streams[part]):
                listed = slice(group.offsets[row], group.offsets[row + 1])
                arrays = (group.seqs[listed], group.low[listed], group.high[listed], group.counts[listed])
                found.refs.append(Refs(table, int(group.commits[row]), stream, int(group.shards[row]), *arrays))

    def _groups(
        self, index: IndexFiles, streams: Longs, first: int, last: int, reads: Reads
    ) -> tuple[list[tuple[Source, int]], list[slice]]:
        """Row groups that may hold some of the streams, and which of them."""
        wanted: list[tuple[Source, int]] = []
        slices: list[slice] = []
        for place in index.covering(first, last) if index.files.sources else ():
            if index.files.low[place] > streams[-1] or index.files.high[place] < streams[0]:
                continue
            source = index.files.sources[place]
            groups, starts, ends = holding(streams, *self._files.footer(source, reads).bounds("stream"))
            wanted += [(source, group) for group in groups.tolist()]
            slices += [slice(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        return wanted, slices

    def _load(self, snapshot: IndexSnapshot, wanted: Sequence[Wanted], reads: Reads) -> dict[int, list[BitMap]]:
        """The bitmaps of chunks, by shard."""
        found: dict[int, list[BitMap]] = {}
        missing: list[Wanted] = []
        for one in wanted:
            bitmaps = found.setdefault(one.refs.shard, [])
            absent = []
            for place in one.places.tolist():
                chunk = self.chunks.get(_key(one.refs, place))
                if chunk is None:
                    absent.append(place)
                else:
                    bitmaps.append(chunk.bitmap)
            reads.used("chunks", len(one.places) - len(absent), len(absent))
            if absent:
                missing.append(Wanted(one.refs, np.array(absent)))
        if missing:
            self._read(snapshot, missing, found, reads)
        return found

    def _read(self, snapshot: IndexSnapshot, missing: Sequence[Wanted], found: Mapping[int, list[BitMap]], reads: Reads) -> None:
        groups = [self._chunk_groups(snapshot.index[one.refs.table], one, reads) for one in missing]
        distinct = {(source.key, group): (source, group) for each in groups for source, group in each}
        read = dict(zip(distinct, self.chunk_groups.get(list(distinct.values()), reads), strict=True))
        for one, each in zip(missing, groups, strict=True):
            near = [read[source.key, group] for source, group in each]
            for place in one.places.tolist():
                chunk, size = _decode(one.refs, place, near)
                self.chunks.put(_key(one.refs, place), chunk, size + CHUNK_OVERHEAD)
                found[one.refs.shard].append(chunk.bitmap)

    def _chunk_groups(self, index: IndexFiles, wanted: Wanted, reads: Reads) -> list[tuple[Source, int]]:
        """Row groups that may hold some chunks of a stream."""
        refs, seqs = wanted.refs, wanted.refs.seqs[wanted.places]
        found: list[tuple[Source, int]] = []
        for place in index.of_commit.get(refs.commit, ()):
            source = index.files.sources[place]
            footer = self._files.footer(source, reads)
            low, high = footer.bounds("stream")
            near, _, _ = holding(seqs, *footer.bounds("chunk_seq"))
            found += [(source, group) for group in near.tolist() if low[group] <= refs.stream <= high[group]]
        return found


def _rows_of(sorted_streams: Longs, streams: Longs) -> Iterable[tuple[int, int]]:
    """Rows of a row group that belong to some streams, each with its stream."""
    rows, end = sorted_streams.searchsorted(streams), len(sorted_streams)
    for stream, row in zip(streams.tolist(), rows.tolist(), strict=True):
        while row < end and sorted_streams[row] == stream:
            yield stream, row
            row += 1


def _decode(refs: Refs, place: int, groups: Iterable[ChunkGroup]) -> tuple[Chunk, int]:
    """A chunk out of the row groups that may hold it, compared with what its manifest says; and the size of its bytes."""
    seq = int(refs.seqs[place])
    where = f"chunk {seq} of stream {refs.stream:#x} in {refs.table}, commit {refs.commit},"
    remedy = "run lake verify gold.logs, then lake restore gold.logs or roll it back and index again"
    data = next((data for group in groups if (data := group.find(refs.stream, seq, refs.commit)) is not None), None)
    if data is None:
        raise CorruptChunk(f"{where} is listed by its manifest and missing: {remedy}")
    try:
        chunk = decode_chunk(data)
    except BadChunk as error:
        raise CorruptChunk(f"{where} is damaged: {error}; {remedy}") from None
    if (chunk.min, chunk.max, chunk.count) != (refs.low[place], refs.high[place], refs.counts[place]):
        raise CorruptChunk(f"{where} is not the one that its manifest lists: {remedy}")
    return chunk, len(data)


def _key(refs: Refs, place: int) -> tuple[str, int, int, int]:
    return refs.table, refs.commit, refs.stream, int(refs.seqs[place])
