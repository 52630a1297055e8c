"""A small lake of its own, beside the real one, in which one may roll back, crash and damage things.

It has some stages only (raw and bronze of EVM chains, if nothing else is said), and its tables are in schemas with a prefix, so
nothing here touches real ones.
"""

import shutil
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from chainlake.demo.write import write_demo
from chainlake.lake import Lake, failpoint, open_lake
from chainlake.lake.ddl import load
from chainlake.lake.home import find_home
from chainlake.paths import tables_dir
from chainlake.stages import all_stages

PREFIX = "rehearsal_"
STAGES = ("raw.logs", "bronze.logs")


def scratch_lake(catalog: str = "", schema_prefix: str = "", names: Sequence[str] = STAGES) -> Lake:
    """The lake for trying things, with the stages of these names."""
    return open_part(names, catalog=catalog, schema_prefix=f"{schema_prefix}{PREFIX}")


def open_part(names: Sequence[str], home: str | None = None, catalog: str = "", schema_prefix: str = "") -> Lake:
    """A lake that has some of the stages, and no tables but theirs: to make all of them takes a while."""
    stages = tuple(stage for stage in all_stages() if stage.name in names)
    wanted = {table for stage in stages for table in stage.tables}
    with tempfile.TemporaryDirectory() as directory:
        for name in (name for name in load(tables_dir()) if name in wanted):
            layer, table = name.split(".")
            (Path(directory) / layer).mkdir(exist_ok=True)
            shutil.copy(tables_dir() / layer / f"{table}.sql", Path(directory) / layer)
        where = {"catalog": catalog, "schema_prefix": schema_prefix}
        return open_lake(home, **where, stages=stages, directories=[Path(directory)], standard=False)


def new_chain(lake: Lake, size: str = "tiny") -> str:
    """A demo chain under a name that was not used before, so that every rehearsal begins anew. Nothing is ingested yet."""
    (demo,) = write_demo(find_home().demo / f"rehearsal-{size}", "logs", size)
    name = new_name()
    lake.add_chain(name, demo.kind, str(demo.path), demo.options)
    return name


def new_name() -> str:
    """A name that was not used before."""
    return f"rehearsal-{datetime.now(timezone.utc):%Y%m%d-%H%M%S-%f}"


def run(lake: Lake, chain: str, max_blocks: int = 0) -> None:
    """Both stages, until they have caught up."""
    for stage in STAGES:
        lake.run_stage(stage, chains=chain, max_blocks=max_blocks)


def run_and_die(lake: Lake, chain: str, stage: str = "raw.logs") -> int:
    """Start a run in a process of its own that dies after its rows are written and before they are committed.

    Returns the exit code of the process: -9, it was killed.
    """
    code, _ = failpoint.run_and_die(f"{opening(lake)}; lake.run_stage({stage!r}, chains={chain!r})", "after_appends")
    return code


def opening(lake: Lake) -> str:
    """The code that opens the same lake in another process."""
    where = (lake.namespace.catalog, lake.namespace.prefix.removesuffix(PREFIX), [stage.name for stage in lake.stages.all()])
    home = f"import os; os.environ['LAKE_HOME'] = {str(find_home().path)!r}"
    return f"{home}; from chainlake.rehearsal import scratch_lake; lake = scratch_lake(*{where!r})"
