"""Benchmarks: `lake bench NAME`. Peers run in the same process, on the same data, one after the other."""

from collections.abc import Callable, Iterator
from pathlib import Path

from chainlake.bench.report import Result

BENCHMARKS = ("kernel", "logs", "cage")


def run_benchmark(name: str, *, quick: bool, home: str | None, json_file: str | None, size: int | None = None) -> list[Result]:
    """Run one benchmark; print each result as it comes, then keep them in MLflow and, if asked, as JSON."""
    from chainlake.bench import report
    from chainlake.lake.home import find_home

    place = find_home(home)
    if json_file:
        report.check_writable(Path(json_file))
    found = []
    for result in _runner(name)(str(place.path), quick, size):
        report.show(result)
        found.append(result)
    report.keep(found, name, quick, place.path)
    if json_file:
        report.write_json(found, Path(json_file))
    return found


def _runner(name: str) -> Callable[[str, bool, int | None], Iterator[Result]]:
    from chainlake.bench import cage, kernel, logs

    return {"kernel": kernel.run, "logs": logs.run, "cage": cage.run}[name]
