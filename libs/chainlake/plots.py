"""Plots of the notebooks: labelled, and readable without telling red from green."""

from collections.abc import Iterable

BLUE = "#0072B2"  # of the palette of Okabe and Ito, which colour-blind people can tell apart
CROWDED = 6


def bar(labels: Iterable[str], values: Iterable[float], title: str, ylabel: str, xlabel: str = "chain") -> None:
    """One bar per label with its value above. The figure shows where the notebook shows figures."""
    import matplotlib.pyplot as plt

    names = list(labels)
    _, axes = plt.subplots(figsize=(max(5.0, 0.9 * len(names)), 3.2), layout="constrained")
    bars = axes.bar(names, list(values), color=BLUE, width=0.6)
    axes.bar_label(bars, fmt="{:,.0f}", padding=2)
    axes.margins(y=0.15)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    if len(names) > CROWDED:
        axes.tick_params(axis="x", rotation=45)
