"""Plots of the notebooks: labelled, and readable without telling red from green."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")  # of Okabe and Ito: colour-blind people can tell them apart
STYLES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "^", "D", "v")
BLUE = PALETTE[0]
CROWDED = 6
MOST_BARS = 30


def bar(labels: Iterable[str], values: Iterable[float], title: str, unit: str, what: str = "chain") -> None:
    """One bar per label with its value beside it, from the top down: long labels have room. Notebooks show the figure."""
    import matplotlib.pyplot as plt

    names, numbers = list(labels), list(values)
    if len(names) > MOST_BARS:
        title = f"{title} ({MOST_BARS} of {len(names):,})"
        names, numbers = names[:MOST_BARS], numbers[:MOST_BARS]
    _, axes = plt.subplots(figsize=(8, 1.1 + 0.32 * len(names)), layout="constrained")
    bars = axes.barh(range(len(names)), numbers, color=BLUE, height=0.65)
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1, *numbers) * 1.12 if numbers else 1)
    axes.locator_params(axis="x", integer=True)
    axes.set(title=title, xlabel=unit, ylabel=what)
    axes.spines[["top", "right"]].set_visible(False)


def lines(series: Mapping[str, tuple[Iterable[Any], Iterable[float]]], title: str, xlabel: str, ylabel: str) -> None:
    """One line per name, told apart by colour and by style."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    points = {name: (list(x), list(y)) for name, (x, y) in series.items()}
    for number, (name, (x, y)) in enumerate(points.items()):
        axes.plot(x, y, label=name, color=PALETTE[number % len(PALETTE)], linestyle=STYLES[number % len(STYLES)])
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.set_ylim(bottom=0)
    if all(_is_whole(value) for x, _ in points.values() for value in x):
        axes.locator_params(axis="x", integer=True)  # there is no pass 1.5
    if all(_is_whole(value) for _, y in points.values() for value in y):
        axes.locator_params(axis="y", integer=True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        _legend_beside(axes)


def _is_whole(value: object) -> bool:
    return isinstance(value, Real) and float(value).is_integer()


def _legend_beside(axes: Any) -> None:
    """Beside what is drawn, never on it."""
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def ratios(labels: Sequence[str], values: Sequence[float], title: str, ylabel: str) -> None:
    """How many times better than a peer, on a logarithmic scale around 1: to the right we are better, to the left the peer is."""
    import matplotlib.pyplot as plt

    widest = max(map(len, labels), default=0)
    figure, axes = plt.subplots(figsize=(max(8, 4 + 0.085 * widest), 0.8 + 0.26 * len(labels)), layout="constrained")
    bars = axes.barh(list(labels), [value - 1 for value in values], left=1, color=[PALETTE[value < 1] for value in values])
    axes.bar_label(bars, labels=[f"{value:,.0f}x" if value >= 10 else f"{value:.2g}x" for value in values], padding=2)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set(title=title, xlabel="times better than the peer\n(left of 1: worse)", ylabel=ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    _make_room(figure, axes, min([1, *values]), max([1, *values]))


def _make_room(figure: Any, axes: Any, least: float, most: float) -> None:
    """A logarithmic axis so wide that the numbers beside the bars stay in it."""
    for times in (10, 30, 100, 300, 1000):
        axes.set_xlim(least / times, most * times)
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in axes.texts]
        if all(axes.bbox.x0 < box.x0 and box.x1 < axes.bbox.x1 for box in boxes):
            return


def ranges(rows: Mapping[str, Mapping[str, Sequence[float]]], title: str, xlabel: str, ylabel: str) -> None:
    """For each name and series a line from the least to the greatest of its values, on a logarithmic scale. Series have marks of
    their own at the values, so that they are told apart without colour."""
    import matplotlib.pyplot as plt

    series = list(dict.fromkeys(name for row in rows.values() for name in row))
    _, axes = plt.subplots(figsize=(8, 1.0 + 0.34 * len(rows)), layout="constrained")
    for number, name in enumerate(series):
        color, mark, label = PALETTE[number % len(PALETTE)], MARKS[number % len(MARKS)], name
        for place, row in enumerate(rows.values()):
            if name in row:
                height = [place + 0.2 * (number - (len(series) - 1) / 2)] * len(row[name])
                axes.plot(list(row[name]), height, color=color, marker=mark, markersize=4, linewidth=1.2, label=label)
                label = "_nolegend_"
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    _legend_beside(axes)


def heat(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    title: str,
    xlabel: str,
    ylabel: str,
    unit: str,
) -> None:
    """A heat map: the brighter, the more. A bar beside it says how much, in which unit."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.4 * len(rows)), layout="constrained")
    image = axes.imshow(values, aspect="auto", cmap="cividis")
    step = max(1, len(columns) // 10)
    axes.set_xticks(range(0, len(columns), step), [columns[i] for i in range(0, len(columns), step)])
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    figure.colorbar(image, ax=axes, label=unit)


def spans(
    rows: Mapping[str, Sequence[tuple[float, float]]],
    marks: Iterable[float],
    title: str,
    xlabel: str,
    ylabel: str,
    mark: str,
) -> None:
    """Stretches of time, one line of them per name, over vertical marks. A stretch without length is a dot."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(8, 0.9 + 0.3 * len(rows)), layout="constrained")
    for number, at in enumerate(marks):
        axes.axvline(at, color=PALETTE[1], linewidth=0.8, linestyle=":", zorder=0, label=mark if number == 0 else None)
    for place, stretches in enumerate(rows.values()):
        for number, (start, end) in enumerate(stretches):
            height = place + 0.6 * ((number % 7) - 3) / 7
            axes.plot([start, end], [height, height], color=BLUE, linewidth=1.4, marker="o", markersize=2.5)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        _legend_beside(axes)


def timeline(
    times: Sequence[str],
    line: Sequence[float],
    counts: Mapping[str, Sequence[int]],
    title: str,
    xlabel: str,
    ylabel: str,
    counted: str,
) -> None:
    """A line over time, and below it on the same axis how often things happened, a bar for each kind."""
    import matplotlib.pyplot as plt

    figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(8, 4.4), height_ratios=(2, 1), layout="constrained")
    places = range(len(times))
    upper.step(places, list(line), where="mid", color=BLUE, marker="o", markersize=3)
    upper.set(title=title, ylabel=ylabel)
    upper.set_ylim(bottom=0)
    width = 0.8 / max(1, len(counts))
    for number, (name, values) in enumerate(counts.items()):
        shift = (number - (len(counts) - 1) / 2) * width
        lower.bar(
            [place + shift for place in places], list(values), width, label=name, color=PALETTE[number], hatch="/" * 4 * number
        )
    step = max(1, len(times) // 8)
    lower.set_xticks(range(0, len(times), step), [times[place] for place in range(0, len(times), step)])
    lower.tick_params(axis="x", rotation=30 if len(times) > CROWDED else 0)
    lower.yaxis.get_major_locator().set_params(integer=True)
    lower.set(xlabel=xlabel, ylabel=counted)
    lower.legend(frameon=False, ncols=len(counts) or 1, loc="lower right", bbox_to_anchor=(1, 1))
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
