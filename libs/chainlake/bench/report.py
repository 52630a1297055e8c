"""What a benchmark found: lines for people, MLflow for comparing runs, JSON for scripts."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainlake.cli.show import emit
from chainlake.errors import BadInput
from chainlake.paths import project_root

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """One number beside its peer's. `ratio` above 1 means that we are better; smaller values are better unless said."""

    metric: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    higher_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        if self.peer_value is None or not self.value or not self.peer_value:
            return None
        return self.value / self.peer_value if self.higher_is_better else self.peer_value / self.value

    def row(self) -> dict[str, object]:
        kept = {key: value for key, value in asdict(self).items() if key != "higher_is_better"}
        return {**kept, "ratio": round(self.ratio, 3) if self.ratio is not None else None}


def timed(work: Callable[[], object], repeat: int = 3, clock: Callable[[], float] = time.monotonic) -> float:
    """Median seconds of a piece of work. The machine is shared: one slow run must not decide."""
    taken = []
    for _ in range(repeat):
        started = clock()
        work()
        taken.append(clock() - started)
    return statistics.median(taken)


def percentile_ms(seconds: Sequence[float], percent: int) -> float:
    """Milliseconds that so many percent of some pieces of work stay below."""
    ordered = sorted(seconds)
    return 1000 * ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def timed_on_core(work: Callable[[], object], repeat: int = 3) -> float:
    """The same in seconds of processor time, for what one core does alone, without waiting for anything."""
    return timed(work, repeat, time.process_time)


def side_by_side(ours: Callable[[], object], theirs: Callable[[], object], repeat: int, warm: int = 0) -> tuple[float, float]:
    """Median seconds of two pieces of work that take turns, after `warm` turns that do not count."""
    for _ in range(warm):
        ours()
        theirs()
    turns = [(timed(ours, 1), timed(theirs, 1)) for _ in range(repeat)]
    return statistics.median(a for a, _ in turns), statistics.median(b for _, b in turns)


def show(result: Result) -> None:
    """One line, as soon as it is known."""
    beside = ""
    if result.peer_value is not None:
        ratio = f", ratio {result.ratio:.2f}" if result.ratio else ""
        beside = f"   {result.peer}: {result.peer_value:.3g} {result.unit}{ratio}"
    emit(f"{result.metric:<58} {result.value:>9.3g} {result.unit}{beside}")


def check_writable(path: Path) -> None:
    """Find out before an hour of work, not after."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}): choose another file for --json") from None


def write_json(results: Sequence[Result], path: Path) -> None:
    path.write_text(json.dumps([result.row() for result in results], indent=1) + "\n", encoding="utf-8")


def results_file(name: str, home: Path) -> Path:
    """Where the newest results of a benchmark are kept."""
    return home / "bench" / f"{name}.json"


def latest(name: str, home: Path) -> "tuple[pd.DataFrame, str]":
    """The newest results in a home, else those that the project's documentation shows; and which of the two."""
    import pandas as pd

    own, shipped = results_file(name, home), project_root() / "docs" / "benchmarks" / f"{name}.json"
    for path, where in ((own, f"measured here, {own}"), (shipped, "as documented; run lake bench to measure here")):
        if path.is_file():
            return pd.DataFrame(json.loads(path.read_text(encoding="utf-8"))), where
    raise BadInput(f"no results of benchmark {name!r}: run lake bench {name}")


def expected(name: str, home: Path) -> int | None:
    """How many results there were last time: what a bar counts up to."""
    try:
        return len(latest(name, home)[0])
    except (BadInput, ValueError):
        return None


def keep(results: Sequence[Result], name: str, quick: bool, home: Path) -> None:
    """One MLflow run in HOME/mlflow.db, and the newest results as a file."""
    import logging

    import mlflow

    newest = results_file(name, home)
    newest.parent.mkdir(exist_ok=True)
    write_json(results, newest)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    mlflow.set_tracking_uri(f"sqlite:///{home / 'mlflow.db'}")
    mlflow.set_experiment(f"bench-{name}")
    with mlflow.start_run(run_name=f"{name}{'-quick' if quick else ''}"):
        mlflow.log_param("quick", quick)
        for result in results:
            key = "".join(c if c.isalnum() or c in "_-. /" else "_" for c in result.metric)
            mlflow.log_metric(key, result.value)
            if result.ratio is not None:
                mlflow.log_metric(f"{key} ratio", result.ratio)
