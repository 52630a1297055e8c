"""What Spark alone takes to write: frames appended to plain Delta tables, with no rules, checks, checksums and ledger."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import DataFrame


def append_seconds(frames: Mapping[Path, DataFrame]) -> float:
    """Seconds to append each frame to the table in its directory: side by side, as a commit does."""

    def append(item: tuple[Path, DataFrame]) -> None:
        directory, frame = item
        frame.write.format("delta").mode("append").save(str(directory))

    began = time.monotonic()
    with ThreadPoolExecutor(len(frames)) as pool:
        list(pool.map(append, frames.items()))
    return time.monotonic() - began
