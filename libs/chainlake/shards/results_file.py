"""The file of `--option results=FILE`: answers of /block_results as a JSON array, one after another, or one a line."""

from collections.abc import Iterator
from typing import Any

import orjson

from chainlake.errors import BadInput
from chainlake.shards.compare import parse_block_results
from chainlake.sources import files
from chainlake.sources.comet import document_text, is_document
from chainlake.sources.json_text import documents, parse, utf8


def read_results(path: str, low: int, high: int) -> dict[int, str]:
    """What the chain reported of blocks in (low, high], by height, as JSON text."""
    found: dict[int, str] = {}
    try:
        for value in _values(path):
            height = parse_block_results(value).height
            if low < height <= high:
                found[height] = orjson.dumps(value).decode()
    except files.UNREADABLE as error:
        raise BadInput(f"the results {path} cannot be read: {error}: check the option results") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}: check the option results") from None
    return found


def _values(path: str) -> Iterator[Any]:
    if is_document(path):
        yield from documents(document_text(path))
        return
    with files.open_stream(path) as stream:
        for line in iter(lambda: stream.readline(files.MAX_LINE), b""):
            if not line.isspace():
                yield parse(utf8(line))
