"""Logs as geth prints them. Columns become lists once and rows are written as text: no dictionary and no encoder per log."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

FIXED_BYTES = 720
"""More than the JSON of a log has besides its data."""

_TOPIC_COLUMNS = ("topic0", "topic1", "topic2", "topic3")
_BETWEEN_TOPICS = '","0x'


def logs_to_json(logs: pa.Table) -> bytes:
    """The JSON array of a table of logs."""
    rows = zip(
        logs["address"].to_pylist(),
        _topics(logs),
        logs["data"].to_pylist(),
        _quantities(logs["block_number"]),
        logs["transaction_hash"].to_pylist(),
        _quantities(logs["transaction_index"]),
        logs["block_hash"].to_pylist(),
        _quantities(_seconds(logs["block_timestamp"])),
        _quantities(logs["log_index"]),
        strict=True,
    )
    texts = [
        f'{{"address":"0x{address.hex()}","topics":[{topics}],"data":"0x{data.hex()}","blockNumber":"{number}",'
        f'"transactionHash":"0x{transaction.hex()}","transactionIndex":"{index}","blockHash":"0x{block.hex()}",'
        f'"blockTimestamp":"{timestamp}","logIndex":"{position}","removed":false}}'
        for address, topics, data, number, transaction, index, block, timestamp, position in rows
    ]
    return f"[{','.join(texts)}]".encode("ascii")


def sizes(logs: pa.Table) -> npt.NDArray[np.int64]:
    """How many bytes the JSON of each log has at most."""
    return np.asarray(pc.binary_length(logs["data"]).to_numpy(), np.int64) * 2 + FIXED_BYTES


def _topics(logs: pa.Table) -> list[str]:
    """The topics that each log has, quoted."""
    rows = zip(*(logs[name].to_pylist() for name in _TOPIC_COLUMNS), strict=True)
    return [
        f'"0x{_BETWEEN_TOPICS.join([topic.hex() for topic in row if topic is not None])}"' if row[0] is not None else ""
        for row in rows
    ]


def _quantities(column: pa.ChunkedArray) -> Iterable[str]:
    """Numbers in hex with the fewest digits."""
    return map(hex, column.to_pylist())


def _seconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Unix seconds."""
    return column.cast(pa.timestamp("s", "UTC"), safe=False).cast(pa.int64())
