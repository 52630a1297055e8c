"""What the formats share about files: which ones, how lines are framed in them, and how a batch is cut into splits.

The position of a block in JSON lines is the byte offset of its line in the uncompressed data. A block belongs to the
split in which it *starts*, so any cut of a file, also one in the middle of a line, reads every block exactly once.
"""

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO, cast

from chainlake.errors import BadInput
from chainlake.sources.base import BadBlock, Cursor, RawBlock, Split, is_url

MAX_LINE = 256 << 20
MIN_SPLIT = 1 << 20
BUFFER = 1 << 18
PARALLEL = 4
MAX_FILES = 256
LINE_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz")
UNREADABLE = (OSError, EOFError, zlib.error)
_DIGITS = re.compile("([0-9]+)")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

ANEW = -1
"""The position of a cursor whose file is to be read from its beginning."""

Bounds = Callable[[str, int | None], Iterator[int]]
Read = Callable[[Split], Iterator[RawBlock | BadBlock]]


def expand(path: str, suffixes: tuple[str, ...], may_be_empty: bool = False) -> list[str]:
    """The files that `--from PATH` means: PATH itself, or those of its files that the format takes, by name."""
    if is_url(path):  # not repeated: it may hold a key
        raise BadInput("chains of this kind are not read from a URL: give a file or a directory of their blocks")
    full = os.path.abspath(path)
    if not os.path.exists(full):
        raise BadInput(f"{path} does not exist: give a file or a directory of {' '.join(suffixes)} files")
    if not os.access(full, os.R_OK):
        raise BadInput(f"{path} cannot be read: check its permissions")
    if not os.path.isdir(full):
        if not os.path.isfile(full):
            raise BadInput(f"{path} is neither a file nor a directory: blocks are read more than once, so write them to a file")
        if os.path.getsize(full) == 0 and not may_be_empty:
            raise BadInput(f"{path} is empty: it holds no block")
        return [full]
    names = sorted((name for name in os.listdir(full) if name.endswith(suffixes) and not name.startswith(".")), key=in_order)
    files = [file for file in (os.path.join(full, name) for name in names) if os.path.isfile(file)]
    if not files:
        raise BadInput(f"{path} holds no {' or '.join(suffixes)} file: nothing to read")
    if closed := [file for file in files if not os.access(file, os.R_OK)]:
        raise BadInput(f"{closed[0]} cannot be read: check its permissions")
    return files


def in_order(name: str) -> tuple[list[str | int], str]:
    """Sorts names with their numbers as numbers: what is exported as blocks-10 belongs after blocks-9, and is new after it."""
    return [int(part) if at % 2 else part for at, part in enumerate(_DIGITS.split(name))], name


def is_gzip(path: str) -> bool:
    """By its first bytes: names lie."""
    with open(path, "rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def open_stream(path: str) -> IO[bytes]:
    """The uncompressed bytes of a plain or gzip file."""
    return cast(IO[bytes], gzip.open(path, "rb")) if is_gzip(path) else open(path, "rb", buffering=BUFFER)


def reason_of(error: BaseException) -> str:
    """One line for a `BadBlock`."""
    if isinstance(error, BadInput):
        return str(error)
    return f"the file cannot be read to its end: {error or type(error).__name__}: fetch it again"


def is_cut(line: bytes) -> bool:
    """Whether a line is the last of its file, and its object does not end."""
    if not line.lstrip().startswith(b"{") or line.endswith(b"\n") or len(line) > MAX_LINE:
        return False
    bare = _STRING.sub(b"", line)
    return b'"' in bare or bare.count(b"{") + bare.count(b"[") > bare.count(b"}") + bare.count(b"]")


def bad_block(source: str, position: int, error: BaseException, cut: bool = False) -> BadBlock:
    """What stands in place of a block. A file that ends too early or cannot be read now may be whole the next time: nobody should
    have to resume a chain because its last block was still being written."""
    if cut or (isinstance(error, (EOFError, OSError)) and not isinstance(error, gzip.BadGzipFile)):
        return BadBlock(source, position, f"{source} at {position}: {reason_of(error)}", unavailable=True)
    return BadBlock(source, position, reason_of(error))


def remaining(paths: list[str], cursor: Cursor | None) -> Iterator[tuple[str, int | None]]:
    """The files still to be read, each with the position of the last block held from it, None where that is none."""
    if cursor is None or cursor.source not in paths:
        yield from ((path, None) for path in paths)
        return
    first = paths.index(cursor.source)
    yield paths[first], None if cursor.position == ANEW else cursor.position
    yield from ((path, None) for path in paths[first + 1 :])


def still_there(paths: list[str], cursor: Cursor | None, read: Read, is_hashed: bool = True) -> Cursor | None:
    """The cursor, if its file still has its block there. A file that was written anew, with other blocks or without the oldest,
    is read from its beginning: the raw stage skips what it holds. Where hashes need a parent, only heights are compared."""
    if cursor is None or cursor.source not in paths:
        return cursor
    found = next(iter(read(Split(cursor.source, cursor.position, cursor.position + 1, 1))), None)
    is_same = isinstance(found, RawBlock) and found.height == cursor.height and (found.hash == cursor.hash or not is_hashed)
    return cursor if is_same else replace(cursor, position=ANEW)


def left(paths: list[str], cursor: Cursor | None) -> int | None:
    """About how many uncompressed bytes come after the block at the cursor; None where that takes more than a look."""
    if len(paths) > MAX_FILES:
        return None
    total = 0
    for path, held in remaining(paths, cursor):
        size = os.path.getsize(path)
        with open(path, "rb") as stream:
            if not is_gzip(path):
                total += size - (0 if held is None else first_line(stream, held + 1))
                continue
            stream.seek(-4, os.SEEK_END)
            unpacked = int.from_bytes(stream.read(4), "little")
        if unpacked < size:  # a gzip file tells its size at its end, if it is one stream of less than 4 GiB
            return None
        total += unpacked - (held or 0)
    return max(0, total)


def first_line(stream: IO[bytes], start: int) -> int:
    """Moves to the first line that starts at or after `start`."""
    if start == 0:
        return 0
    position = stream.seek(start - 1)
    while piece := stream.readline(MIN_SPLIT):
        position += len(piece)
        if piece.endswith(b"\n"):
            break
    return position


def line_bounds(path: str, held: int | None) -> Iterator[int]:
    """Where the first new line starts, then where each ends. What cannot be read counts as one more line: the reader
    meets it again and reports it."""
    position, begun = 0, False
    try:
        with open_stream(path) as stream:
            position = first_line(stream, 0 if held is None else held + 1)
            begun = True
            yield position
            while line := stream.readline(MAX_LINE + 1):
                position += len(line)
                if not line.isspace():
                    yield position
    except UNREADABLE:
        yield from (position + 1,) if begun else (position, position + 1)


def read_lines(split: Split, parse: Callable[[bytes, int], RawBlock]) -> Iterator[RawBlock | BadBlock]:
    """The blocks of the lines that start in the split, up to the first that `parse` refuses with `BadInput`."""
    position, taken, line = split.start, 0, b""
    try:
        with open_stream(split.source) as stream:
            position = first_line(stream, split.start)
            while position < split.end and taken < split.max_blocks and (line := stream.readline(MAX_LINE + 1)):
                if len(line) > MAX_LINE:
                    raise BadInput(f"the line is longer than {MAX_LINE} bytes: one block a line is expected")
                if not line.isspace():
                    yield parse(line, position)
                    taken += 1
                position += len(line)
    except (BadInput, *UNREADABLE) as error:
        yield bad_block(split.source, position, error, cut=isinstance(error, BadInput) and is_cut(line))


@dataclass(frozen=True)
class Stretch:
    """What a batch takes from one file: where its first block starts, then where each block ends."""

    source: str
    bounds: list[int]

    @property
    def size(self) -> int:
        """Bytes between the first and the last bound."""
        return self.bounds[-1] - self.bounds[0]


def stretches(paths: list[str], cursor: Cursor | None, max_blocks: int, max_bytes: int, bounds: Bounds) -> Iterator[Stretch]:
    """What fits in a batch, file after file; at least one block. A file that does not fit whole is the last."""
    blocks = size = files = 0
    for path, held in remaining(paths, cursor):
        found: list[int] = []
        for bound in bounds(path, held):
            if found and (blocks >= max_blocks or (blocks and size + bound - found[0] > max_bytes)):
                if len(found) > 1:
                    yield Stretch(path, found)
                return
            blocks += 1 if found else 0
            found.append(bound)
        if len(found) > 1:
            yield Stretch(path, found)
            size += found[-1] - found[0]
            files += 1
        if blocks >= max_blocks or size >= max_bytes or files >= MAX_FILES:
            return


def cut(stretch: Stretch, target: int, max_blocks: int) -> Iterator[Split]:
    """Splits of about `target` bytes that begin and end between blocks."""
    start = stretch.bounds[0]
    for bound in stretch.bounds[1:]:
        if bound - start >= target or bound == stretch.bounds[-1]:
            yield Split(stretch.source, start, bound, max_blocks)
            start = bound


def plan(
    paths: list[str],
    cursor: Cursor | None,
    max_blocks: int,
    max_bytes: int,
    bounds: Bounds = line_bounds,
    divisible: Callable[[str], bool] = lambda path: not is_gzip(path),
) -> list[Split]:
    """The next batch in splits that can be read side by side; a file that is not divisible is one split."""
    batch = list(stretches(paths, cursor, max_blocks, max_bytes, bounds))
    target = max(MIN_SPLIT, -(-sum(item.size for item in batch) // PARALLEL))
    return [
        split
        for item in batch
        for split in cut(item, target if item.size > target and divisible(item.source) else item.size, max_blocks)
    ]
