"""Plots say what they show."""

import matplotlib
import matplotlib.pyplot as plt

from chainlake.plots import bar, ratios


def test_a_bar_plot_has_title_axes_and_values() -> None:
    matplotlib.use("Agg")
    bar(["main", "side"], [1200, 7], title="Blocks", ylabel="blocks")
    axes = plt.gca()
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("Blocks", "chain", "blocks")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["main", "side"]
    assert [text.get_text() for text in axes.texts] == ["1,200", "7"]
    plt.close("all")


def test_a_bar_plot_of_nothing_is_empty_not_an_error() -> None:
    matplotlib.use("Agg")
    bar([], [], title="Blocks", ylabel="blocks")
    assert not plt.gca().texts
    plt.close("all")


def test_ratios_show_both_sides_of_one() -> None:
    ratios(["rare topic", "hot address"], [12.0, 0.5], title="Queries")
    axes = plt.gca()
    assert axes.get_title() == "Queries" and axes.get_xscale() == "log"
    assert sorted(text.get_text() for text in axes.texts) == ["0.5x", "12x"]
    colors = [bar.get_facecolor() for bar in axes.patches]
    assert colors[0] != colors[1]
    plt.close("all")
