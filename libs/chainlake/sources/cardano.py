"""Cardano blocks: `.chunk` files (CBOR `[era, block]`, one after another) and `.block` files (the hex of one).

Hashes are taken over the bytes as received. From Shelley on, a block's hash is that of its header and its height is its
block number. Byron headers are hashed with their kind in front (`[0, header]` an epoch boundary block, `[1, header]` a
main block), and the height is the difficulty, which Shelley's block numbers continue. A Byron block names its epoch and the
slot in it: epochs had 21,600 slots of 20 seconds; later slots have one second and count on from there.

An epoch boundary block (EBB) has no height of its own and no transactions. It is not a block here: the block after it
takes the EBB's parent as its own, so heights and links have no hole. Plans keep the two in one split.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chainlake.encoding import from_hex
from chainlake.errors import BadInput
from chainlake.merkle.blake import blake
from chainlake.sources import files
from chainlake.sources.base import END_OF_SECONDS, ZERO_HASH, BadBlock, Cursor, RawBlock, RawTransaction, Split
from chainlake.sources.cbor_spans import ARRAY, MAP, Truncated, children, hash32, head, skip, unsigned
from chainlake.sources.json_text import utf8

MAX_BLOCK = 4 << 20  # Byron's limit was 2 MB, later eras have less than 100 kB
MAX_TRANSACTIONS = 1 << 16
WINDOW = 1 << 20
EBB, BYRON, LAST_ERA = 0, 1, 7
NULL = 0xF6
MAX_PARTS = 64
BYRON_EPOCH, BYRON_SECONDS = 21_600, 20

Span = tuple[int, int]


@dataclass(frozen=True)
class Boundary:
    """An epoch boundary block: its hash, and what it links to."""

    hash: bytes
    parent_hash: bytes


@dataclass(frozen=True)
class Clock:
    """When slots are: the second of slot 0, and how many of the first slots were Byron's."""

    start: int
    byron_slots: int = 0

    @staticmethod
    def of(options: Mapping[str, str]) -> "Clock | None":
        """None without the option `network_start`: the chain itself has slots only."""
        return Clock(int(options["network_start"]), int(options.get("byron_slots", 0))) if "network_start" in options else None

    def micros(self, era: int, slot: int) -> int:
        """Microseconds since 1970."""
        long = slot if era == BYRON else min(slot, self.byron_slots)
        second = self.start + BYRON_SECONDS * long + slot - long
        if second >= END_OF_SECONDS:
            raise BadInput(f"slot {slot} is at second {second}: correct the options network_start and byron_slots")
        return second * 1_000_000


@dataclass(frozen=True)
class _Link:
    height: int
    slot: int
    hash: bytes
    parent_hash: bytes
    bodies: list[Span]


class CardanoFormat:
    """Chunk and block files."""

    suffixes = (".chunk", ".block")

    def expand(self, path: str) -> list[str]:
        """The files of `--from PATH`."""
        return files.expand(path, self.suffixes)

    def plan(
        self, paths: list[str], cursor: Cursor | None, max_blocks: int, max_bytes: int, options: Mapping[str, str]
    ) -> list[Split]:
        """Byte ranges of whole items."""
        there = files.still_there(paths, cursor, lambda split: self.read(split, options))
        return files.plan(paths, there, max_blocks, max_bytes, _bounds, lambda path: True)

    def read(self, split: Split, options: Mapping[str, str]) -> Iterator[RawBlock | BadBlock]:
        """The blocks of a split. Times need the option `network_start`."""
        clock = Clock.of(options)
        position, taken, boundary = split.start, 0, None
        try:
            for raw in items(split.source, split.start):
                if position >= split.end or taken >= split.max_blocks:
                    break
                if era_of(raw) == EBB:
                    boundary = _boundary(raw)
                else:
                    yield parse_block(raw, split.source, position, boundary, clock)
                    boundary, taken = None, taken + 1
                position += len(raw)
            if boundary is not None:
                raise BadInput("an epoch boundary block ends the split: it is supported only with the block after it")
        except (BadInput, *files.UNREADABLE) as error:
            yield files.bad_block(split.source, position, error)


def items(path: str, start: int) -> Iterator[bytes]:
    """The raw CBOR items from `start` on. Holds a window of the file that doubles where a block needs it."""
    if path.endswith(".block"):
        yield from [_hex_item(path)] if start == 0 else []
        return
    with open(path, "rb") as stream:
        stream.seek(start)
        data, at = b"", 0
        while True:
            try:
                end = skip(data, at, MAX_BLOCK)
            except Truncated:
                if len(data) - at >= MAX_BLOCK:
                    raise BadInput(f"an item is longer than {MAX_BLOCK} bytes: no block is so large") from None
                more = stream.read(max(WINDOW, len(data) - at))
                if not more and at == len(data):
                    return
                if not more:
                    raise
                data, at = data[at:] + more, 0
            else:
                yield data[at:end]
                at = end


def _hex_item(path: str) -> bytes:
    with open(path, "rb") as stream:
        text = stream.read(2 * MAX_BLOCK + 2)
    raw = from_hex(utf8(text).strip(), "a .block file")
    if skip(raw, 0, MAX_BLOCK) != len(raw):
        raise BadInput("something follows the block: a .block file holds the hex of one [era, block]")
    return raw


def _bounds(path: str, held: int | None) -> Iterator[int]:
    """Where the first new block starts, then where each ends, together with an EBB before it."""
    position, begun, loose = held or 0, False, False
    try:
        walk = items(path, position)
        position += len(next(walk, b"")) if held is not None else 0
        begun = True
        yield position
        for raw in walk:
            position += len(raw)
            loose = era_of(raw) == EBB
            if not loose:
                yield position
        yield from [position] if loose else []
    except (BadInput, *files.UNREADABLE):
        yield from (position + 1,) if begun else (position, position + 1)


def era_of(raw: bytes) -> int:
    """The era of an `[era, block]` item."""
    major, count, at = head(raw, 0)
    if major != ARRAY or count != 2:
        raise BadInput("the item is not [era, block]: a chunk file of Cardano's immutable database is expected")
    era = unsigned(raw, at, "the era")
    if era > LAST_ERA:
        raise BadInput(f"era {era} is not known: eras 0 (Byron) to {LAST_ERA} (Conway) are")
    return era


def parse_block(raw: bytes, source: str, position: int, boundary: Boundary | None, clock: Clock | None) -> RawBlock:
    """The block of one item. `boundary` is the EBB before it."""
    era = era_of(raw)
    header, bodies, *_ = _parts(raw, head(raw, 0)[2] + 1, 2, "block")
    link = _byron(raw, header, bodies) if era == BYRON else _shelley(raw, header, bodies)
    parent = boundary.parent_hash if boundary and boundary.hash == link.parent_hash else link.parent_hash
    micros = None if clock is None else clock.micros(era, link.slot)
    transactions = tuple(
        RawTransaction(index, blake(raw[first:end]), raw[first:end]) for index, (first, end) in enumerate(link.bodies)
    )
    return RawBlock(link.height, link.hash, parent, micros, raw, transactions, source, position)


def _shelley(raw: bytes, header: Span, bodies: Span) -> _Link:
    """header = [[number, slot, parent, …], signature]; bodies = [map, …]."""
    number, slot, parent, *_ = _parts(raw, _parts(raw, header[0], 2, "header")[0][0], 3, "header body")
    spans = children(raw, bodies[0], MAX_TRANSACTIONS)
    if any(raw[first] >> 5 != MAP for first, _ in spans):
        raise BadInput("a transaction body is not a CBOR map: the block is damaged")
    return _Link(
        height=_bounded(raw, number, 63, "the block number"),
        slot=_bounded(raw, slot, 42, "the slot"),
        hash=blake(raw[header[0] : header[1]]),
        parent_hash=ZERO_HASH if raw[parent[0]] == NULL else hash32(raw, parent[0], "the parent hash"),
        bodies=spans,
    )


def _byron(raw: bytes, header: Span, body: Span) -> _Link:
    """header = [magic, parent, proof, [slot, key, [difficulty], signature], …]; body = [[[tx, witnesses], …], …]."""
    _, parent, _, consensus, *_ = _parts(raw, header[0], 4, "Byron header")
    difficulty = _parts(raw, _parts(raw, consensus[0], 3, "Byron consensus data")[2][0], 1, "difficulty")[0]
    pairs = children(raw, _parts(raw, body[0], 1, "Byron body")[0][0], MAX_TRANSACTIONS)
    return _Link(
        height=_bounded(raw, difficulty, 63, "the difficulty"),
        slot=byron_slot(raw, header),
        hash=blake(b"\x82\x01" + raw[header[0] : header[1]]),
        parent_hash=hash32(raw, parent[0], "the parent hash"),
        bodies=[_parts(raw, first, 1, "Byron transaction")[0] for first, _ in pairs],
    )


def byron_slot(raw: bytes, header: Span) -> int:
    """The slot of a Byron block, counted from the first: its header says `[epoch, slot in it]`."""
    consensus = _parts(raw, header[0], 4, "Byron header")[3]
    epoch, slot, *_ = _parts(raw, _parts(raw, consensus[0], 1, "Byron consensus data")[0][0], 2, "Byron slot")
    within = unsigned(raw, slot[0], "the slot")
    if within >= BYRON_EPOCH:
        raise BadInput(f"the slot in the epoch is {within}: Byron epochs have {BYRON_EPOCH}")
    return BYRON_EPOCH * _bounded(raw, epoch, 27, "the epoch") + within


def _boundary(raw: bytes) -> Boundary:
    header = _parts(raw, head(raw, 0)[2] + 1, 1, "block")[0]
    parent = _parts(raw, header[0], 2, "EBB header")[1]
    return Boundary(blake(b"\x82\x00" + raw[header[0] : header[1]]), hash32(raw, parent[0], "the parent hash"))


def _parts(raw: bytes, position: int, least: int, what: str) -> list[Span]:
    spans = children(raw, position, MAX_PARTS)
    if len(spans) < least:
        raise BadInput(f"the {what} has {len(spans)} parts: at least {least} are expected")
    return spans


def _bounded(raw: bytes, span: Span, bits: int, what: str) -> int:
    value = unsigned(raw, span[0], what)
    if value >= 1 << bits:
        raise BadInput(f"{what} is {value}: numbers below 2^{bits} are expected")
    return value
