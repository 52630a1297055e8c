"""How much memory a process and its children take at most while something is measured (Linux)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

EVERY_SECONDS = 0.25


@dataclass
class Peak:
    """Most resident memory seen, in MiB: all processes together, and the largest Python worker."""

    total: float = 0.0
    worker: float = 0.0


@contextmanager
def peak_memory(pid: int) -> Iterator[Peak]:
    """Look at a process and everything it started, until the block ends."""
    peak, done = Peak(), threading.Event()

    def look() -> None:
        while not done.wait(EVERY_SECONDS):
            found = _tree(pid)
            peak.total = max(peak.total, sum(size for size, _ in found))
            peak.worker = max([peak.worker, *(size for size, name in found if name.startswith("python"))])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _tree(root: int) -> list[tuple[float, str]]:
    """(MiB, name) of a process and its descendants."""
    parents: dict[int, int] = {}
    told: dict[int, tuple[float, str]] = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        except OSError:  # it has ended
            continue
        pid = int(path.parent.name)
        parents[pid] = int(lines["PPid"])
        told[pid] = (int(lines.get("VmRSS", "0 kB").split()[0]) / 1024, lines["Name"].strip())
    inside = {root}
    for pid in sorted(parents):
        above = pid
        while above in parents and above not in inside:
            above = parents[above]
        if above in inside:
            inside.add(pid)
    return [told[pid] for pid in inside if pid in told]
