"""Benchmarks: `lake bench NAME`. Peers run in the same process, on the same data, one after the other."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

from chainlake.bench.report import Result

BENCHMARKS = ("kernel", "logs", "shards", "cage", "replica", "sync")


def run_benchmark(name: str, *, quick: bool, home: str | None, json_file: str | None, size: int | None = None) -> list[Result]:
    """Run one benchmark; print each result as it comes, then keep them in MLflow. If asked, also as JSON: all that there are so
    far, each time, so that a run that is ended early leaves what it found."""
    from chainlake.bench import report
    from chainlake.lake.home import find_home
    from chainlake.lake.progress import Progress

    place = find_home(home)
    if json_file:
        report.check_writable(Path(json_file))
    found = []
    progress = Progress(f"bench {name}", report.expected(name, place.path), unit="results")
    progress.advance(0)
    for result in _runner(name)(str(place.path), quick, size):
        progress.clear()
        report.show(result)
        found.append(result)
        if json_file:
            report.write_json(found, Path(json_file))
        progress.advance(1)
    progress.close()
    report.keep(found, name, quick, place.path)
    return found


def _runner(name: str) -> Callable[[str, bool, int | None], Iterator[Result]]:
    run: Callable[[str, bool, int | None], Iterator[Result]] = importlib.import_module(f"chainlake.bench.{name}").run
    return run
