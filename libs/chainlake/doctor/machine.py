"""The machine: cores, memory, disk, ports."""

import os
import re
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from chainlake.doctor.finding import GIB, Finding, gib, ok, problem, warning

UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
BESIDE_SPARK = 3 * GIB // 2
"""Memory that Python workers and the system want beside Spark's own."""
LITTLE_DISK, TOO_LITTLE_DISK = 5 * GIB, 1 * GIB
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def cores() -> Finding:
    """Cores that this process may use."""
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return warning("cores", "1 core", "it works, slowly: give it 2 or more")
    return ok("cores", f"{count} cores")


def memory(total: int, environment: Mapping[str, str]) -> Finding:
    """Whether Spark's memory fits into the machine's."""
    asked = environment.get("LAKE_DRIVER_MEMORY", "4g")
    wanted = parse_memory(asked)
    if wanted is None:
        return problem("memory", f"LAKE_DRIVER_MEMORY is {asked!r}", "write it like 4g or 1500m")
    if wanted >= total:
        return problem("memory", f"{gib(total)}, and Spark may take {asked}", "set LAKE_DRIVER_MEMORY lower, e.g. 2g")
    if wanted + BESIDE_SPARK > total:
        return warning("memory", f"{gib(total)}, of which Spark may take {asked}", "set LAKE_DRIVER_MEMORY lower, e.g. 2g")
    return ok("memory", f"{gib(total)}, of which Spark may take {asked}")


def parse_memory(text: str) -> int | None:
    """Bytes of a size as Java writes it; None if it is none."""
    match = re.fullmatch(r"(\d+)([kmgt])b?", text.strip().lower())
    return int(match.group(1)) * UNITS[match.group(2)] if match else None


def total_memory() -> int:
    """Bytes of the machine, or of the container if that has fewer."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in CGROUP_LIMITS:
        try:
            total = min(total, int(Path(path).read_text()))
        except (OSError, ValueError):
            continue
    return total


def disk(subject: str, path: Path) -> Finding:
    """Free space where a folder is, or will be."""
    there = nearest(path)
    free = shutil.disk_usage(there).free
    what = f"{gib(free)} free at {there}"
    if free < TOO_LITTLE_DISK:
        return problem(subject, what, "free some space, lake gc --vacuum may help, or move it (--home, XDG_CACHE_HOME)")
    if free < LITTLE_DISK:
        return warning(subject, what, "enough for the demo; free some before you load a real chain")
    return ok(subject, what)


def nearest(path: Path) -> Path:
    """The path, or the first folder above it that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


def loopback() -> Finding:
    """Whether programs here can talk to each other, which Spark needs."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
            return ok("loopback", "127.0.0.1 takes connections")
    except OSError as error:
        reason = error.strerror or str(error)
        return problem(
            "loopback", f"127.0.0.1 takes no connections ({reason})", "allow local sockets: Spark and notebooks need them"
        )


def gateway_port(port: int) -> Finding:
    """Whether `lake serve` could listen."""
    try:
        with socket.create_server(("127.0.0.1", port)):
            return ok("gateway port", f"{port} is free")
    except OSError as error:
        return warning(
            "gateway port", f"{port}: {error.strerror or error}", "lake serve --port N takes another, 0 any that is free"
        )
