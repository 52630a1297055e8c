"""A small lake of its own, beside the real one, in which one may roll back, crash and damage things.

It has the raw and bronze stages of EVM chains, and its tables are in schemas with a prefix, so nothing here touches real ones.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from chainlake.demo.write import write_demo
from chainlake.lake import Lake, open_lake
from chainlake.lake.ddl import load
from chainlake.lake.home import find_home
from chainlake.lake.stage import Stage
from chainlake.paths import tables_dir

PREFIX = "rehearsal_"
STAGES = ("raw.logs", "bronze.logs")


def scratch_lake(catalog: str = "", schema_prefix: str = "") -> Lake:
    """The lake for trying things."""
    stages = _stages()
    wanted = {table for stage in stages for table in stage.tables}
    with tempfile.TemporaryDirectory() as directory:
        for name in (name for name in load(tables_dir()) if name in wanted):
            layer, table = name.split(".")
            (Path(directory) / layer).mkdir(exist_ok=True)
            shutil.copy(tables_dir() / layer / f"{table}.sql", Path(directory) / layer)
        prefix = f"{schema_prefix}{PREFIX}"
        return open_lake(catalog=catalog, schema_prefix=prefix, stages=stages, directories=[Path(directory)], standard=False)


def new_chain(lake: Lake, size: str = "tiny") -> str:
    """A demo chain under a name that was not used before, so that every rehearsal begins anew. Nothing is ingested yet."""
    (demo,) = write_demo(find_home().demo / f"rehearsal-{size}", "logs", size)
    name = f"rehearsal-{datetime.now(timezone.utc):%Y%m%d-%H%M%S-%f}"
    lake.add_chain(name, demo.kind, str(demo.path), demo.options)
    return name


def run(lake: Lake, chain: str, max_blocks: int = 0) -> None:
    """Both stages, until they have caught up."""
    for stage in STAGES:
        lake.run_stage(stage, chains=chain, max_blocks=max_blocks)


def run_and_die(lake: Lake, chain: str, stage: str = "raw.logs") -> int:
    """Start a run in a process of its own that dies after its rows are written and before they are committed.

    Returns the exit code of the process: -9, it was killed.
    """
    where = (lake.namespace.catalog, lake.namespace.prefix.removesuffix(PREFIX))
    code = f"from chainlake.rehearsal import scratch_lake; scratch_lake(*{where!r}).run_stage({stage!r}, chains={chain!r})"
    environment = {**os.environ, "LAKE_HOME": str(find_home().path), "LAKE_FAILPOINT": "after_appends"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    return done.returncode


def _stages() -> tuple[Stage, ...]:
    from chainlake.stages import all_stages

    return tuple(stage for stage in all_stages() if stage.name in STAGES)
