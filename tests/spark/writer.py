"""A real writer process for crash and race tests: `python -m tests.spark.writer HOME PREFIX ACTION …`."""

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from chainlake.errors import LakeError
from chainlake.lake import open_lake
from chainlake.lake.compaction import compact
from chainlake.lake.gc import collect
from chainlake.lake.restore import restore
from tests.spark.domain import STAGES, TABLES, test_stages

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    home, prefix, action, *rest = arguments
    lake = open_lake(home, schema_prefix=prefix, stages=test_stages(), directories=[TABLES], standard=False)
    try:
        if action == "run":
            chain, max_blocks, *stages = rest
            to_height = int(os.environ["TO_HEIGHT"]) if "TO_HEIGHT" in os.environ else None
            for stage in stages or STAGES:
                lake.run_stage(stage, chains=chain, max_blocks=int(max_blocks), to_height=to_height)
        elif action == "compact":
            compact(lake, "silver.test", rest[0])
        elif action == "gc":
            collect(lake, timedelta(0), grace=timedelta(0))
        elif action == "rollback":
            lake.rollback(rest[0], rest[1], int(rest[2]), why="asked to")
        elif action == "restore":
            restore(lake, rest[0], rest[1], int(rest[2]))
    except LakeError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 3
    return 0


def spawn(home: Path, prefix: str, *arguments: str, failpoint: str = "", **environment: str) -> "subprocess.Popen[str]":
    """Start a writer. It must not inherit a failpoint of somebody else."""
    settings = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'libs'}", **environment}
    settings.pop("LAKE_FAILPOINT", None)
    if failpoint:
        settings["LAKE_FAILPOINT"] = failpoint
    command = [sys.executable, "-m", "tests.spark.writer", str(home), prefix, *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def killed(process: "subprocess.Popen[str]") -> bool:
    """Wait for the end; True if it was SIGKILL."""
    process.communicate(timeout=180)
    return process.returncode == -signal.SIGKILL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
