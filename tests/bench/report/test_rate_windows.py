"""The range of good learning rates, on curves whose widths are known."""

import math

import pytest

from made_runs import begin, make_run, table_of
from sgdf.bench.report.findings import gather
from sgdf.bench.report.rate_windows import find_window, find_windows
from sgdf.bench.report.rate_windows import windows_table as table_of_windows
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import Store

QUARTERS = [10 ** (quarter / 4) for quarter in range(-8, 5)]
"""Thirteen rates from 0.01 to 10, four in a decade."""


def tent(top, peak, slope=0.04, rates=QUARTERS):
    """Return values by rate that fall on both sides of a peak, by so much in a decade."""
    return {rate: top - slope * abs(math.log10(rate / peak)) for rate in rates}


# A curve


def test_the_ends_are_interpolated_between_the_rates():
    window = find_window(tent(0.9, peak=0.1, slope=0.03), 0.89)
    assert math.log10(window.low) == pytest.approx(-1 - 1 / 3)
    assert math.log10(window.high) == pytest.approx(-1 + 1 / 3)
    assert window.width == pytest.approx(2 / 3)
    assert not window.is_cut


def test_ends_may_differ_and_depend_on_the_neighbour_alone():
    window = find_window({0.1: 0.0, 1.0: 1.0, 10.0: 0.8}, 0.9)
    assert math.log10(window.low) == pytest.approx(-0.1)
    assert math.log10(window.high) == pytest.approx(0.5)


def test_a_rate_exactly_at_the_level_is_good():
    window = find_window({0.1: 0.5, 1.0: 0.97 - 0.01, 10.0: 0.97, 100.0: 0.1}, 0.97 - 0.01)
    assert window.low == pytest.approx(1.0)


def test_only_the_range_around_the_best_counts():
    values = {0.01: 0.9, 0.1: 0.0, 1.0: 0.95, 10.0: 0.0}
    window = find_window(values, 0.9)
    assert 0.1 < window.low < 1.0 < window.high < 10.0


def test_a_range_that_reaches_the_edge_is_at_least_so_wide():
    window = find_window({0.1: 0.9, 1.0: 0.95, 10.0: 0.0}, 0.9)
    assert window.low == 0.1
    assert (window.cut_low, window.cut_high, window.is_cut) == (True, False, True)
    whole = find_window({0.1: 0.9, 1.0: 0.95}, 0.5)
    assert (whole.low, whole.high, whole.cut_high) == (0.1, 1.0, True)


def test_no_rate_is_good():
    assert find_window({0.1: 0.5, 1.0: 0.6}, 0.7) is None
    assert find_window({}, 0.7) is None


def test_a_refused_rate_is_not_good_however_good_its_value_is():
    values = {0.1: 0.95, 1.0: 0.95, 10.0: 0.96, 100.0: 0.1}
    window = find_window(values, 0.9, refused={10.0})
    assert (window.low, window.high) == (0.1, 1.0), "no value below the level to interpolate with"
    assert not window.cut_high


# A report


def fill(store, curves, seeds=1, **spec):
    """Write the runs of curves by optimizer; a value of None is a run that diverged."""
    for optimizer, values in curves.items():
        for rate, value in values.items():
            for seed in range(seeds):
                run = {"optimizer": optimizer, "lr": rate, "seed": seed, **spec}
                if value is None:
                    make_run(store, [0.1], diverged=3, **run)
                else:
                    make_run(store, [value], **run)


def windows_table(store):
    """Return the rows of the table by problem, batch size and optimizer, each by column."""
    table = table_of_windows(find_windows(gather(Store(store).folders())), "")
    return {
        (row[0].text, row[1].text, row[2].text): dict(zip(table.columns, row, strict=True))
        for row in table.rows
    }


def width(row, level="common"):
    return row[f"width, {level} level (decades)"]


def test_the_widths_of_two_optimizers_at_both_levels(tmp_path):
    fill(tmp_path, {"sgdf": tent(0.9, 0.1), "sgd": tent(0.895, 1.0)})
    rows = windows_table(tmp_path)
    ours, other = rows["points", "64", "sgdf"], rows["points", "64", "sgd"]
    assert (width(ours).order, width(other).order) == pytest.approx((0.5, 0.25))
    assert width(ours, "own").order == pytest.approx(0.5)
    assert width(other, "own").order == pytest.approx(0.5), "within 0.01 of its own best"
    assert ours["best lr"].order == pytest.approx(0.1)
    low, high = (ours["good rates"].parts[end] for end in ("low", "high"))
    assert (math.log10(low), math.log10(high)) == pytest.approx((-1.25, -0.75))
    assert "89" in ours["good means"].text


def test_an_optimizer_that_is_nowhere_good_has_width_0_and_its_own(tmp_path):
    fill(tmp_path, {"sgdf": tent(0.9, 0.1), "sgd": tent(0.88, 1.0)})
    row = windows_table(tmp_path)["points", "64", "sgd"]
    assert (width(row).order, width(row).text) == (0.0, "0")
    assert row["good rates"].text == "none"
    assert width(row, "own").order == pytest.approx(0.5)


def test_at_least_is_said_where_the_grid_ends(tmp_path):
    fill(tmp_path, {"sgdf": tent(0.9, 0.1), "sgd": tent(0.9, 10.0)})
    row = windows_table(tmp_path)["points", "64", "sgd"]
    assert width(row).text.startswith("at least 0.25")
    assert width(row).parts["is at least"] == 1.0, "a CSV file has only numbers"
    assert "≥ 10" in row["good rates"].text


def test_a_rate_at_which_a_run_diverged_is_not_good(tmp_path):
    flat = dict.fromkeys(QUARTERS, 0.9)
    fill(tmp_path, {"sgdf": flat, "sgd": {**flat, QUARTERS[6]: None}})
    rows = windows_table(tmp_path)
    assert width(rows["points", "64", "sgdf"]).order == pytest.approx(3.0)
    # Either half is as good: the first of 1.25 decades counts, and ends at the last good rate.
    assert width(rows["points", "64", "sgd"]).order == pytest.approx(1.25, abs=0.01)
    assert width(rows["points", "64", "sgd"]).text.startswith("at least")


def test_one_seed_that_diverges_counts_as_the_worst_value(tmp_path):
    fill(tmp_path, {"sgdf": tent(0.9, 0.1)})
    fill(tmp_path, {"sgd": tent(0.9, 0.1, rates=QUARTERS[:5])}, seeds=3)
    rate = QUARTERS[5]
    for seed in range(2):
        make_run(tmp_path, [0.9], optimizer="sgd", lr=rate, seed=seed)
    make_run(tmp_path, [0.1], diverged=2, optimizer="sgd", lr=rate, seed=2)
    for other in QUARTERS[6:]:
        for seed in range(3):
            make_run(tmp_path, [0.5], optimizer="sgd", lr=other, seed=seed)
    row = windows_table(tmp_path)["points", "64", "sgd"]
    mean = (0.9 + 0.9 + 0.5) / 3
    end = -1.0 + 0.25 * 0.01 / (0.9 - mean)
    assert math.log10(row["good rates"].parts["high"]) == pytest.approx(end)


def test_a_loss_has_its_own_tolerance_and_direction(tmp_path):
    # The loss of a made run is 1 minus its value.
    curves = {"sgdf": tent(0.0, 0.1, slope=0.2), "adam": tent(-0.025, 1.0, slope=0.2)}
    fill(tmp_path, curves, metric="loss", largest=False)
    rows = windows_table(tmp_path)
    assert width(rows["points", "64", "sgdf"]).order == pytest.approx(0.5)
    assert width(rows["points", "64", "adam"]).order == pytest.approx(0.25)
    assert rows["points", "64", "sgdf"]["good means"].text == "≤ 1.05"


def test_a_metric_without_a_tolerance_has_no_table(tmp_path):
    fill(tmp_path, {"sgdf": tent(0.9, 0.1), "sgd": tent(0.9, 1.0)}, metric="energy", unit="kJ")
    assert not windows_table(tmp_path)


def test_batch_sizes_are_apart(tmp_path):
    fill(tmp_path, {"sgdf": tent(0.9, 0.1), "sgd": tent(0.9, 1.0)}, batch_size=16)
    fill(tmp_path, {"sgdf": tent(0.6, 0.1), "sgd": tent(0.595, 1.0)}, batch_size=256)
    rows = windows_table(tmp_path)
    assert width(rows["points", "16", "sgd"]).order == pytest.approx(0.5)
    assert width(rows["points", "256", "sgd"]).order == pytest.approx(0.25), "its own level"


def test_settings_of_one_optimizer_are_curves_of_their_own(tmp_path):
    fill(tmp_path, {"sgd": tent(0.9, 0.1)}, clip_norm=1.0)
    fill(tmp_path, {"sgd": tent(0.895, 1.0)}, clip_norm=2.0)
    rows = windows_table(tmp_path)
    assert sorted(width(row).order for row in rows.values()) == pytest.approx([0.25, 0.5])


@pytest.mark.parametrize("count", [4, 5])
def test_two_optimizers_need_five_rates_each(tmp_path, count):
    fill(tmp_path, {"sgdf": tent(0.9, 0.1), "sgd": tent(0.9, 0.1, rates=QUARTERS[:count])})
    assert bool(windows_table(tmp_path)) is (count == 5)


def test_the_spread_is_that_of_the_seeds_own_curves_and_differences_are_paired(tmp_path):
    """Each seed's curve of sgdf is a tent of its own height; those of sgd are all lower."""
    halves = {"sgdf": (0.5, 0.45, 0.55), "sgd": (0.25, 0.3, 0.2)}
    for optimizer, peak in (("sgdf", 0.1), ("sgd", 1.0)):
        for seed, half in enumerate(halves[optimizer]):
            # The mean over the seeds is highest for sgdf, 0.9 + 0.02 half in the middle.
            for rate, value in tent(0.9, peak, slope=0.02).items():
                top = 0.02 * (half - 0.5)
                make_run(tmp_path, [value + top], optimizer=optimizer, lr=rate, seed=seed)
    rows = windows_table(tmp_path)
    ours, other = rows["points", "64", "sgdf"], rows["points", "64", "sgd"]
    assert width(ours).order == pytest.approx(1.0), "0.01 in slopes of 0.02"
    seeds = ours["width over the seeds"]
    assert seeds.parts["mean"] == pytest.approx(1.0)
    assert seeds.parts["sd"] == pytest.approx(0.1)
    assert other["width over the seeds"].parts["mean"] == pytest.approx(0.5)
    difference = other["sgdf's width minus this one's"]
    assert difference.parts["mean"] == pytest.approx(0.5)
    assert difference.parts["sd"] == pytest.approx(0.2)
    # t = 0.5 √3 / 0.2 with two degrees of freedom.
    assert other["p, corrected"].order == pytest.approx(0.0494, abs=2e-4)
    assert ours["sgdf's width minus this one's"].text == "–"


def test_p_values_are_corrected_for_the_number_of_optimizers(tmp_path):
    for seed, shift in enumerate((0.0, 0.001, -0.002, 0.0005)):
        for optimizer, top in (("sgdf", 0.9), ("sgd", 0.896), ("adam", 0.8955)):
            for rate, value in tent(top + shift * (optimizer != "sgdf"), 0.1).items():
                make_run(tmp_path, [value], optimizer=optimizer, lr=rate, seed=seed)
    rows = windows_table(tmp_path)
    ps = sorted(rows["points", "64", name]["p, corrected"].order for name in ("sgd", "adam"))
    alone = [rows["points", "64", name]["p"].order for name in ("sgd", "adam")]
    assert ps[0] == pytest.approx(2 * min(alone))


def test_without_sgdf_there_is_no_difference_to_show(tmp_path):
    fill(tmp_path, {"adam": tent(0.9, 0.1), "sgd": tent(0.9, 1.0)})
    row = windows_table(tmp_path)["points", "64", "sgd"]
    assert "sgdf's width minus this one's" not in row


def test_unfinished_runs_leave_their_rate_out(tmp_path):
    fill(tmp_path, {"sgdf": tent(0.9, 0.1), "sgd": tent(0.9, 1.0)})
    begin(tmp_path, table_of(optimizer="sgd", lr=100.0, seed=0))
    assert width(windows_table(tmp_path)["points", "64", "sgd"]).order == pytest.approx(0.5)


def test_the_report_has_the_table(tmp_path):
    fill(tmp_path, {"sgdf": tent(0.9, 0.1), "sgd": tent(0.895, 1.0)})
    (table,) = [t for t in Report.of([tmp_path]).document.tables if t.name == "windows"]
    assert table.section == "points"
    assert "within 1 point of accuracy" in table.about


# The figure


def figures(store):
    return {plot.name: plot.figure for plot in Report.of([store]).document.plots}


def test_the_figure_has_the_level_and_the_ranges(tmp_path):
    fill(tmp_path, {"sgdf": tent(0.9, 0.1), "sgd": tent(0.88, 1.0)})
    found = figures(tmp_path)
    assert "windows" not in found, "one problem has its own figure"
    (panel,) = found["rates-0"].axes
    flat = [line for line in panel.get_lines() if len(set(line.get_ydata())) == 1]
    levels = [line.get_ydata()[0] for line in flat if line.get_linestyle() == ":"]
    assert levels == pytest.approx([89.0])
    (bar,) = [line for line in flat if line.get_linewidth() == 3.0]
    assert [math.log10(x) for x in bar.get_xdata()] == pytest.approx([-1.25, -0.75])
    low, high = panel.get_ylim()
    assert 70.0 < low < 89.0 < 90.0 < bar.get_ydata()[0] < high
    assert max(panel.get_yticks()) <= 91.0, "no numbers beside the bars"
    said = {text for reading in found["rates-0"].readings for text in reading.texts}
    assert "good from 0.056 to 0.18: 0.50 decades" in said


def test_several_problems_share_a_figure_with_a_panel_for_each(tmp_path):
    curves = {"sgdf": tent(0.9, 0.1, rates=QUARTERS[:5]), "sgd": tent(0.9, 1.0, rates=QUARTERS[:5])}
    for task in ("points", "lines"):
        fill(tmp_path, curves, task=task)
    fill(tmp_path, curves, task="points", batch_size=8)
    found = figures(tmp_path)
    titles = [panel.get_title() for panel in found["windows"].axes]
    assert titles == ["lines, batches of 64", "points, batches of 8", "points, batches of 64"]
    assert len(found["rates-0"].axes) == 1
    assert [panel.get_title() for panel in found["rates-1"].axes] == [
        "batches of 8",
        "batches of 64",
    ]


def level_and_bars(panel):
    """Return the height of the dotted line, and the bars."""
    (level,) = [line.get_ydata()[0] for line in panel.get_lines() if line.get_linestyle() == ":"]
    return level, [line for line in panel.get_lines() if line.get_linewidth() == 3.0]


def test_the_figure_has_the_level_of_the_table_though_the_best_has_one_rate(tmp_path):
    fill(tmp_path, {"sgdf": tent(0.438, 0.1), "sgd": tent(0.43, 1.0), "adam": {0.1: 0.56}})
    assert windows_table(tmp_path)["points", "64", "sgdf"]["good rates"].text == "none"
    (panel,) = figures(tmp_path)["rates-0"].axes
    level, bars = level_and_bars(panel)
    assert level == pytest.approx(55.0)
    assert not bars
    assert panel.get_ylim()[0] < 43.0, "the best means of both curves are in the panel"


def test_the_axis_reaches_the_best_mean_of_each_curve_and_the_caption_says_it_is_cut(tmp_path):
    # The loss of a made run is 1 minus its value.
    curves = {"sgdf": tent(0.0, 0.1, slope=0.2), "adam": tent(-3.0, 1.0, slope=0.2)}
    fill(tmp_path, curves, metric="loss", largest=False)
    (plot,) = [one for one in Report.of([tmp_path]).document.plots if one.name == "rates-0"]
    (panel,) = plot.figure.axes
    low, high = panel.get_ylim()
    assert low < 1.0 < 4.0 < high
    _, (bar,) = level_and_bars(panel)
    assert (1.0 - bar.get_ydata()[0]) / (high - low) > 0.03, "apart from the curve"
    assert "Worse results are cut off" in plot.about


def test_the_bars_are_drawn_above_everything_else(tmp_path):
    fill(tmp_path, {"sgdf": tent(0.9, 0.1), "sgd": tent(0.9, 1.0)}, seeds=2)
    (panel,) = figures(tmp_path)["rates-0"].axes
    _, bars = level_and_bars(panel)
    others = [one for one in (*panel.get_lines(), *panel.collections) if one not in bars]
    assert min(bar.get_zorder() for bar in bars) > max(one.get_zorder() for one in others)


def test_a_small_loss_has_no_ranges_and_the_caption_says_why(tmp_path):
    # Mean squared errors of 0.001 and more: each would be within 0.05 of the best.
    curves = {"sgdf": tent(0.999, 0.1, slope=0.01), "adam": tent(0.998, 1.0, slope=0.01)}
    fill(tmp_path, curves, metric="loss", largest=False)
    document = Report.of([tmp_path]).document
    assert "windows" not in {table.name for table in document.tables}
    (about,) = [plot.about for plot in document.plots if plot.name == "rates-0"]
    assert "only if its best mean is 0.5 or more" in about
    assert "dotted" not in about
