"""Plots say what they show."""

from itertools import combinations

import matplotlib
import matplotlib.pyplot as plt

from chainlake.plots import PALETTE, bar, heat, lines, ranges, ratios, spans, timeline


def test_a_bar_plot_has_title_axes_and_values() -> None:
    matplotlib.use("Agg")
    bar(["main", "side"], [1200, 7], title="Blocks", unit="blocks")
    axes = plt.gca()
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("Blocks", "blocks", "chain")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["main", "side"]
    assert [text.get_text() for text in axes.texts] == ["1,200", "7"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the first is on top"
    plt.close("all")


def test_long_labels_of_a_bar_plot_do_not_lie_on_one_another() -> None:
    names = ["set_last_miniblocks", "unable to decode metadata tx", "update_placement", "create_stream"]
    bar(names, [17, 3, 11, 30], title="Transactions", unit="transactions", what="operation")
    figure, axes = plt.gcf(), plt.gca()
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x0 for box in boxes), "in the figure, and beside the bars"
    plt.close("all")


def test_a_bar_plot_of_nothing_and_one_of_zeros_count_from_zero() -> None:
    bar([], [], title="Blocks", unit="blocks")
    assert not plt.gca().texts
    bar(["a", "b"], [0, 0], title="Entries that wait", unit="entries")
    figure, axes = plt.gcf(), plt.gca()
    figure.draw_without_rendering()
    assert [text.get_text() for text in axes.texts] == ["0", "0"]
    assert axes.get_xlim()[0] == 0 and all(float(tick).is_integer() for tick in axes.get_xticks()), "there is no half an entry"
    plt.close("all")


def test_a_bar_plot_of_a_thousand_shards_shows_some_and_says_so() -> None:
    bar([f"shard-{number}" for number in range(1024)], range(1024), title="Blocks", unit="blocks")
    assert plt.gca().get_title() == "Blocks (30 of 1,024)" and len(plt.gca().patches) == 30
    plt.close("all")


def test_ratios_show_both_sides_of_one() -> None:
    ratios(["rare topic", "hot address"], [12.0, 0.5], title="Queries", ylabel="what, and the peer")
    axes = plt.gca()
    assert axes.get_title() == "Queries" and axes.get_xscale() == "log"
    assert axes.get_xlabel().startswith("times better") and axes.get_ylabel() == "what, and the peer"
    assert sorted(text.get_text() for text in axes.texts) == ["0.5x", "12x"]
    colors = [bar.get_facecolor() for bar in axes.patches]
    assert colors[0] != colors[1]
    plt.close("all")


def test_ratios_with_the_longest_names_that_there_are_have_room() -> None:
    """Names of real benchmarks leave a narrow plot: its numbers and the words below it still have to fit."""
    names = [f"hot address + signature, 1,000 blocks, as Python rows: p{part}, PostgreSQL" for part in (50, 95, 99)]
    ratios(names, [0.06, 123.0, 1.1], title="lake bench logs", ylabel="what was measured, and the peer")
    figure, axes = plt.gcf(), plt.gca()
    figure.draw_without_rendering()
    assert axes.xaxis.label.get_window_extent().x1 <= figure.bbox.x1, "the words below"
    assert all(axes.bbox.x0 < text.get_window_extent().x0 and text.get_window_extent().x1 < axes.bbox.x1 for text in axes.texts)
    plt.close("all")


def test_numbers_of_ratios_are_plain_and_stay_off_the_names() -> None:
    ratios(["a query with quite a long name", "another one", "a third"], [0.06, 124.4, 1.0], title="Queries", ylabel="what")
    figure, axes = plt.gcf(), plt.gca()
    figure.draw_without_rendering()
    assert sorted(text.get_text() for text in axes.texts) == ["0.06x", "124x", "1x"]
    assert all(axes.bbox.x0 < text.get_window_extent().x0 for text in axes.texts), "right of the axis"
    assert all(text.get_window_extent().x1 < axes.bbox.x1 for text in axes.texts)
    assert {"0.1", "1", "10"} <= {label.get_text() for label in axes.get_xticklabels()}
    plt.close("all")


def test_numbers_of_the_longest_names_stay_off_the_names_too() -> None:
    names = [f"current state by lake.table, 150 commits, not compacted, plain table kept by MERGE {n}" for n in range(11)]
    ratios(names, [0.097, 3.8, 6.8, *[0.3] * 7, 20], title="lake bench kernel", ylabel="what was measured, and the peer")
    figure, axes = plt.gcf(), plt.gca()
    figure.draw_without_rendering()
    assert all(axes.bbox.x0 < text.get_window_extent().x0 and text.get_window_extent().x1 < axes.bbox.x1 for text in axes.texts)
    assert axes.bbox.width > 0.25 * figure.bbox.width, "names leave room for what is drawn"
    plt.close("all")


def test_ranges_have_both_axes_and_series_that_are_told_apart_without_colour() -> None:
    rows = {"rare topic": {"Chainlake": [0.5, 0.9], "DuckDB": [9, 20]}, "hot address": {"Chainlake": [1, 2]}}
    ranges(rows, title="Queries", xlabel="milliseconds", ylabel="query")
    axes = plt.gca()
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale()) == ("milliseconds", "query", "log")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["Chainlake", "DuckDB"]
    assert {(line.get_label(), line.get_marker()) for line in axes.get_lines() if not line.get_label().startswith("_")} == {
        ("Chainlake", "o"),
        ("DuckDB", "s"),
    }
    plt.close("all")


def test_lines_are_told_apart_without_colour() -> None:
    lines({"one": ([1, 2], [3, 4]), "two": ([1, 2], [4, 3])}, title="Heads", xlabel="seq", ylabel="block")
    axes = plt.gca()
    first, second = axes.get_lines()
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("Heads", "seq", "block")
    assert first.get_linestyle() != second.get_linestyle() and first.get_color() in PALETTE
    assert axes.get_ylim()[0] == 0, "heights can be compared"
    plt.close("all")


def test_whole_numbers_have_no_ticks_in_between_and_a_legend_hides_no_line() -> None:
    lines(
        {"now": ([1, 2, 3], [0, 13, 2]), "then": ([1, 2, 3], [9, 0, 0])},
        title="What each pass did",
        xlabel="pass",
        ylabel="writes",
    )
    figure, axes = plt.gcf(), plt.gca()
    figure.draw_without_rendering()
    assert all(float(tick).is_integer() for tick in [*axes.get_xticks(), *axes.get_yticks()]), "there is no pass 1.5"
    assert axes.get_legend().get_window_extent().x0 >= axes.bbox.x1
    plt.close("all")


def test_parts_keep_their_ticks() -> None:
    lines({"a": ([0.1, 0.2], [0.5, 0.7])}, title="Load", xlabel="seconds", ylabel="share")
    plt.gcf().draw_without_rendering()
    assert any(not float(tick).is_integer() for tick in plt.gca().get_xticks())
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
    plt.gcf().draw_without_rendering()
    assert axes.get_legend().get_window_extent().x0 >= axes.bbox.x1, "beside what is drawn"
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
