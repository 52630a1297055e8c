"""Counters, histograms and quantiles in Prometheus' text format. Written from the event loop only, so without locks."""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

Labels = tuple[tuple[str, str], ...]

QUANTILES = (0.5, 0.95, 0.99)
WINDOW = 4_096
"""Quantiles are those of the last so many observations."""


@dataclass(frozen=True)
class Sample:
    """One line of the page."""

    suffix: str
    labels: Labels
    value: float


class Family(Protocol):
    """A metric with all its labels."""

    name: str
    kind: str
    help: str

    def samples(self) -> Iterator[Sample]: ...


class Values:
    """A counter or gauge: one value for each set of labels."""

    def __init__(self, name: str, kind: str, help: str) -> None:
        self.name, self.kind, self.help = name, kind, help
        self._values: dict[Labels, float] = {}

    def add(self, amount: float = 1, **labels: str) -> None:
        key = tuple(labels.items())
        self._values[key] = self._values.get(key, 0) + amount

    def set(self, value: float, **labels: str) -> None:
        self._values[tuple(labels.items())] = value

    def samples(self) -> Iterator[Sample]:
        return (Sample("", labels, value) for labels, value in self._values.items())


class Histogram:
    """How many observations were at most as large as each bound."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Iterable[float]) -> None:
        self.name, self.help = name, help
        self._bounds = [*sorted(bounds), math.inf]
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, value: float, times: int = 1, **labels: str) -> None:
        key = tuple(labels.items())
        counts = self._counts.setdefault(key, [0] * len(self._bounds))
        counts[bisect_left(self._bounds, value)] += times
        self._sums[key] = self._sums.get(key, 0.0) + value * times

    def samples(self) -> Iterator[Sample]:
        for labels, counts in self._counts.items():
            total = 0
            for bound, count in zip(self._bounds, counts, strict=True):
                total += count
                yield Sample("_bucket", (*labels, ("le", _number(bound))), total)
            yield Sample("_sum", labels, self._sums[labels])
            yield Sample("_count", labels, total)


class Quantiles:
    """p50, p95 and p99 of the last observations."""

    kind = "summary"

    def __init__(self, name: str, help: str) -> None:
        self.name, self.help = name, help
        self._last: dict[Labels, deque[float]] = {}
        self._sums: dict[Labels, float] = {}
        self._counts: dict[Labels, int] = {}

    def observe(self, value: float, **labels: str) -> None:
        key = tuple(labels.items())
        self._last.setdefault(key, deque(maxlen=WINDOW)).append(value)
        self._sums[key] = self._sums.get(key, 0.0) + value
        self._counts[key] = self._counts.get(key, 0) + 1

    def samples(self) -> Iterator[Sample]:
        for labels, last in self._last.items():
            ordered = sorted(last)
            for quantile in QUANTILES:
                place = min(len(ordered) - 1, math.ceil(quantile * len(ordered)) - 1)
                yield Sample("", (*labels, ("quantile", _number(quantile))), ordered[place])
            yield Sample("_sum", labels, self._sums[labels])
            yield Sample("_count", labels, self._counts[labels])


def counters(totals: Mapping[str, float], prefix: str, help: str) -> list[Family]:
    """One counter for each name."""
    found: list[Family] = []
    for name, value in totals.items():
        family = Values(f"{prefix}{name}_total", "counter", help)
        family.set(value)
        found.append(family)
    return found


def render(families: Iterable[Family]) -> str:
    """The page that Prometheus reads."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for sample in family.samples():
            labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
            lines.append(f"{family.name}{sample.suffix}{'{' + labels + '}' if labels else ''} {_number(sample.value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
