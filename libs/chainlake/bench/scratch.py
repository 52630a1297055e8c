"""A place to measure in: names and files of their own, removed afterwards whatever happens."""

import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chainlake.errors import LakeError
from chainlake.lake import Lake


@contextmanager
def scratch(home: str) -> Iterator[tuple[str, Path]]:
    """The schema prefix of a new lake in `home`, and an empty directory beside it."""
    prefix = f"bench_{secrets.token_hex(3)}_"
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=home))
    try:
        yield prefix, directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        for path in Path(home, "warehouse").glob(f"{prefix}*"):
            shutil.rmtree(path, ignore_errors=True)


def stage_seconds(lake: Lake, stage: str, chain: str, to_height: int | None = None) -> float:
    """How long a stage took to run over a chain. A run that stopped is an error, not a fast run."""
    began = time.monotonic()
    done = lake.run_stage(stage, chains=chain, to_height=to_height)
    if done["status"][0] != "ok" or done["error"][0]:
        raise LakeError(f"{stage}: {done['error'][0]}")
    return time.monotonic() - began
