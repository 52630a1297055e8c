"""Places where tests kill or pause a real process: `LAKE_FAILPOINT=name`, `name:3` (third time), `pause:name`.

A failpoint that nobody asked for costs a dictionary look-up.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

_hits: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """End this process at once if asked to, as a power failure would; or wait while `$LAKE_FAILPOINT_FILE` exists."""
    asked = os.environ.get("LAKE_FAILPOINT")
    if not asked:
        return
    pause = asked.startswith("pause:")
    wanted, _, count = asked.removeprefix("pause:").partition(":")
    if wanted != name:
        return
    _hits[name] += 1
    if _hits[name] != int(count or 1):
        return
    if not pause:
        os.kill(os.getpid(), signal.SIGKILL)
    signal_file = Path(os.environ["LAKE_FAILPOINT_FILE"])
    signal_file.touch()
    while signal_file.exists():
        time.sleep(0.05)


def run_and_die(code: str, name: str) -> tuple[int, str]:
    """Run code in a process of its own that is killed at a failpoint: its exit code (-9, if it came that far) and its last
    words. Without a name it lives."""
    environment = {**os.environ, "LAKE_FAILPOINT": name}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]
