"""Plots say what they show."""

import matplotlib
import matplotlib.pyplot as plt

from chainlake.plots import PALETTE, bar, heat, lines, ratios, spans, timeline


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


def test_lines_are_told_apart_without_colour() -> None:
    lines({"one": ([1, 2], [3, 4]), "two": ([1, 2], [4, 3])}, title="Heads", xlabel="seq", ylabel="block")
    axes = plt.gca()
    first, second = axes.get_lines()
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("Heads", "seq", "block")
    assert first.get_linestyle() != second.get_linestyle() and first.get_color() in PALETTE
    assert axes.get_ylim()[0] == 0, "heights can be compared"
    plt.close("all")


def test_a_heat_map_has_both_axes_and_a_unit() -> None:
    heat(["a", "b"], ["1", "2"], [[1, 2], [3, 4]], title="Activity", xlabel="pass", ylabel="stream", unit="events")
    axes, scale = plt.gcf().axes
    assert (axes.get_xlabel(), axes.get_ylabel(), scale.get_ylabel()) == ("pass", "stream", "events")
    assert axes.images[0].get_cmap().name == "cividis", "made for those who cannot tell red from green"
    plt.close("all")


def test_spans_have_both_axes_and_say_what_the_marks_are() -> None:
    spans({"meta": [(1, 4)]}, [2], title="What waited", xlabel="delivery", ylabel="log", mark="Meta advances")
    axes = plt.gca()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("delivery", "log")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["Meta advances"]
    plt.close("all")


def test_a_timeline_has_a_line_above_and_counts_below() -> None:
    days = [f"2026-01-{day:02}" for day in range(1, 31)]
    counts = {"commits": [2] * 30, "rollbacks": [0] * 29 + [1]}
    timeline(days, range(30), counts, title="raw.cage", xlabel="day (UTC)", ylabel="head (block)", counted="how many")
    upper, lower = plt.gcf().axes
    assert (upper.get_title(), upper.get_ylabel()) == ("raw.cage", "head (block)")
    assert (lower.get_xlabel(), lower.get_ylabel()) == ("day (UTC)", "how many")
    assert [text.get_text() for text in lower.get_legend().get_texts()] == ["commits", "rollbacks"]
    assert len({bar.get_hatch() for bar in lower.patches}) == 2, "told apart without colour"
    assert 4 <= len(lower.get_xticks()) <= 11 and list(upper.get_lines()[0].get_ydata()) == list(range(30))
    plt.close("all")
