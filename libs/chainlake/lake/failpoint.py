"""Places where tests kill or pause a real process: `LAKE_FAILPOINT=name`, `name:3` (third time), `pause:name`.

A failpoint that nobody asked for costs a dictionary look-up.
"""

import os
import signal
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
