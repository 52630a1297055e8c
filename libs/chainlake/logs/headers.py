"""What the headers of blocks say, read from the blocks as received."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from chainlake.encoding import from_hex
from chainlake.errors import BadInput
from chainlake.logs.bloom import BITS
from chainlake.sources.evm_line import number_of
from chainlake.sources.json_text import parse, utf8

BLOCKS = pa.schema(
    [
        *(("_height", pa.int64()), ("hash", pa.binary()), ("parent_hash", pa.binary())),
        *(("timestamp", pa.timestamp("us", "UTC")), ("payload", pa.binary())),
    ]
)
"""What of raw.blocks headers are read from."""
KEPT = tuple(name for name in BLOCKS.names if name != "payload")
_READ = pa.schema(
    [
        *(("bloom", pa.binary()), ("miner", pa.binary()), ("gas_used", pa.int64()), ("base_fee_per_gas", pa.decimal128(38, 0))),
        *(("transaction_count", pa.int32()), ("error", pa.string())),
    ]
)
HEADERS = (
    "_height long, hash binary, parent_hash binary, timestamp timestamp, bloom binary, miner binary, gas_used long,"
    " base_fee_per_gas decimal(38, 0), transaction_count int, error string"
)


def read_headers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of raw.blocks (columns of BLOCKS) as rows of HEADERS."""
    for batch in batches:
        payloads = zip(batch.column("_height").to_pylist(), batch.column("payload").to_pylist(), strict=True)
        read = pa.RecordBatch.from_pylist([header_of(height, payload) for height, payload in payloads], schema=_READ)
        columns = [*(batch.column(name) for name in KEPT), *read.columns]
        yield pa.RecordBatch.from_arrays(columns, names=[*KEPT, *_READ.names])


def header_of(height: int, payload: bytes) -> dict[str, Any]:
    """The bloom, which must be one if it is there, and what else analysts ask for, where it is there and right."""
    try:
        block = _parsed(payload)
        bloom = _bloom(block.get("logsBloom"))
    except BadInput as wrong:
        return {"error": f"block {height}: {wrong}"}
    fee, listed = _number(block.get("baseFeePerGas"), 126), block.get("transactions")
    return {
        "bloom": bloom,
        "miner": _bytes(block.get("miner")),
        "gas_used": _number(block.get("gasUsed"), 63),
        "base_fee_per_gas": None if fee is None else Decimal(fee),
        "transaction_count": len(listed) if isinstance(listed, list) else None,
        "error": None,
    }


def _parsed(payload: bytes) -> dict[str, Any]:
    try:
        block = orjson.loads(payload)
    except ValueError:  # half a surrogate pair, for one
        block = parse(utf8(payload))
    if not isinstance(block, dict):
        raise BadInput("its header is not an object")
    return block


def _bloom(text: Any) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str) or len(text) != 2 + BITS // 4 or text[:2] not in ("0x", "0X"):
        raise BadInput(f"its logsBloom is {text!r:.40}: 0x and {BITS // 8} bytes of hex are expected")
    return from_hex(text, "its logsBloom")


def _bytes(text: Any) -> bytes | None:
    try:
        return from_hex(text) if isinstance(text, str) else None
    except BadInput:
        return None


def _number(text: Any, bits: int) -> int | None:
    try:
        return number_of(text, "number", bits)
    except BadInput:
        return None
