"""What a report draws: the numbers in its figures, and how optimizers are told apart."""

import itertools

import numpy as np
import pytest
from matplotlib.path import Path

from made_runs import begin, make_run, result_of, rows_of, table_of
from sgdf.bench.report.optimizer_styles import optimizer_styles
from sgdf.bench.report.targets import Target
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import State
from sgdf.present.styles import DASHES, HUES

# What is drawn


def drawn(figure_):
    """Return the points of each line by its name in the legend, panel by panel."""
    (legend,) = figure_.legends
    names = [text.get_text() for text in legend.get_texts()]
    return [
        {name: line.get_xydata() for name, line in zip(names, panel.get_lines(), strict=False)}
        for panel in figure_.axes
    ]


def plot_of(report, name):
    (plot,) = [plot for plot in report.document.plots if plot.name == name]
    return plot.figure


def bands(panel):
    """Return the vertices of each shaded band."""
    return [collection.get_paths()[0].vertices for collection in panel.collections]


def test_curves_are_means_with_bands(tmp_path):
    for seed, top in enumerate((0.6, 0.9)):
        make_run(tmp_path, [0.3, top], seed=seed)
    make_run(tmp_path, [0.1], seed=2, diverged=7)  # in no mean
    begin(tmp_path, table_of(optimizer="own")).append(rows_of([0.9]))  # nor drawn alone
    make_run(tmp_path, [0.3, 0.4], optimizer="adam")
    report = Report.of([tmp_path])
    steps = plot_of(report, "curves-steps-0")
    titles = [panel.get_title() for panel in steps.axes]
    assert titles == [
        "validation accuracy", "test accuracy", "training loss", "validation loss", "test loss"
    ]  # fmt: skip
    better = [panel.get_ylabel() for panel in steps.axes]
    assert better == ["larger is better"] * 2 + ["smaller is better"] * 3
    assert set(drawn(steps)[1]) == {"sgd", "adam"}
    np.testing.assert_allclose(drawn(steps)[1]["sgd"], [[10, 30.0], [20, 75.0]])
    np.testing.assert_allclose(drawn(steps)[2]["sgd"], [[10, 1 / 2], [20, 1 / 3]])
    vertices = bands(steps.axes[1])[list(drawn(steps)[1]).index("sgd")]
    at_the_end = vertices[np.isclose(vertices[:, 0], 20.0), 1]
    assert (at_the_end.min(), at_the_end.max()) == pytest.approx((60.0, 90.0))
    seconds = plot_of(report, "curves-seconds-0")
    titles = [panel.get_title() for panel in seconds.axes]
    assert titles == ["validation accuracy", "test accuracy", "training loss"]
    xs = drawn(seconds)[0]["sgd"][:, 0]
    np.testing.assert_allclose(xs, [0.5, 1.0])


def test_time_includes_data_and_not_evaluation(tmp_path):
    folder = begin(tmp_path, table_of())
    rows = rows_of([0.5])
    rows[0]["seconds"] = {"step": 1.0, "data": 0.25, "evaluation": 100.0}
    folder.finish(State.FINISHED, result_of(rows), rows)
    report = Report.of([tmp_path], {"": 0.5})
    assert drawn(plot_of(report, "curves-seconds-0"))[0]["sgd"][0, 0] == 1.25
    assert Target.of(report.findings.problems[0], 0.5).hit(report.findings.runs[0]).seconds == 1.25


def test_the_plot_of_learning_rates(tmp_path):
    for lr, seed in itertools.product((0.1, 1.0), (0, 1)):
        make_run(tmp_path, [lr / 2 + 0.1 * seed], lr=lr, seed=seed)
    make_run(tmp_path, [0.5], lr=10.0, seed=0)
    begin(tmp_path, table_of(lr=10.0, seed=1)).fail("no")
    make_run(tmp_path, [0.1], lr=100.0, diverged=3)
    figure_ = plot_of(Report.of([tmp_path]), "rates-0")
    (panel,) = figure_.axes
    line, crosses = panel.get_lines()
    np.testing.assert_allclose(line.get_xydata(), [[0.1, 10.0], [1.0, 55.0], [10.0, 50.0]])
    assert list(crosses.get_xdata()) == [10.0, 100.0]
    assert panel.get_xscale() == "log"
    assert panel.get_ylabel() == "validation accuracy (larger is better)"
    (vertices,) = bands(panel)
    ends = vertices[np.isclose(vertices[:, 0], 1.0), 1]
    assert (ends.min(), ends.max()) == pytest.approx((50.0, 60.0))
    assert [text.get_text() for text in figure_.legends[0].get_texts()] == ["sgd"]


def test_the_plot_of_profiles(tmp_path):
    for optimizer, curves in {
        "sgd": ([0.9] * 2, [0.9] * 2),
        "adam": ([0.1, 0.9], [0.1, 0.1]),
    }.items():
        for seed, curve in enumerate(curves):
            make_run(tmp_path, curve, optimizer=optimizer, seed=seed)
    figure_ = plot_of(Report.of([tmp_path], {"": 0.9}), "profile")
    lines = drawn(figure_)[0]
    np.testing.assert_allclose(lines["adam"], [[1.0, 0.0], [2.0, 0.5], [2.2, 0.5]])
    np.testing.assert_allclose(lines["sgd"], [[1.0, 0.0], [1.0, 0.5], [1.0, 1.0], [2.2, 1.0]])


def edge_marks(panel):
    """Return place, row and number of chevrons of each mark at an edge."""
    lines = [line for line in panel.get_lines() if isinstance(line.get_marker(), Path)]
    return [
        (line.get_xdata()[0], line.get_ydata()[0], len(line.get_marker().vertices) // 3)
        for line in lines
    ]


def test_every_seed_is_a_dot_and_far_ones_stand_at_the_edge(tmp_path):
    for seed in range(30):
        make_run(tmp_path, [0.90 + 0.001 * seed], seed=seed)
        make_run(tmp_path, [0.80 if seed else 0.1], optimizer="adam", seed=seed)
    (panel,) = plot_of(Report.of([tmp_path]), "results-0").axes
    assert [text.get_text() for text in panel.get_yticklabels()] == ["sgd", "adam"]
    assert panel.get_xlabel() == "test accuracy (larger is better)"
    low, _ = panel.get_xlim()
    assert 60.0 < low < 80.0
    dots, mean, interval, *_ = panel.get_lines()
    np.testing.assert_allclose(dots.get_xdata(), [90.0 + 0.1 * seed for seed in range(30)])
    np.testing.assert_allclose(mean.get_xdata(), [91.45])
    assert interval.get_xdata()[0] < 91.45 < interval.get_xdata()[1]
    seeds, end = edge_marks(panel)
    assert seeds == (low, 1, 2)
    assert end == (low, 1, 1)


def test_an_interval_that_ends_beyond_the_edge_has_a_mark_there(tmp_path):
    for seed in range(2):
        make_run(tmp_path, [0.5 + 0.1 * seed], seed=seed)
        make_run(tmp_path, [0.55 + 0.001 * seed], optimizer="adam", seed=seed)
    (panel,) = plot_of(Report.of([tmp_path]), "results-0").axes
    rows = [text.get_text() for text in panel.get_yticklabels()]
    assert edge_marks(panel) == [(edge, rows.index("sgd"), 1) for edge in panel.get_xlim()]


def test_long_curves_are_thinned_and_keep_both_ends(tmp_path):
    make_run(tmp_path, [0.001 * i for i in range(500)], epochs=500)
    points = drawn(plot_of(Report.of([tmp_path]), "curves-steps-0"))[0]["sgd"]
    assert len(points) == 64
    assert (points[0, 0], points[-1, 0]) == (10, 5000)


def test_too_many_settings_are_neither_drawn_nor_compared(tmp_path):
    for lr, seed in itertools.product(range(1, 32), (0, 1)):
        make_run(tmp_path, [0.5 + 0.01 * seed], lr=float(lr), seed=seed, protocol="paper")
    report = Report.of([tmp_path])
    assert {plot.name for plot in report.document.plots} == {"rates-0"}
    assert not any(table.name.startswith("comparisons") for table in report.document.tables)
    setup, _, line = report.document.notes["points"]
    assert setup.startswith(
        "points(), 4 epochs, batches of 64, ConstantLR. Judged by accuracy (larger is better)."
    )
    assert "more than 30 settings" in line


# Looks


def test_an_optimizer_looks_the_same_in_every_report():
    assert (
        optimizer_styles(["sgdf", "sgd"])["sgd"] == optimizer_styles(["a:B", "adam", "sgd"])["sgd"]
    )
    many = optimizer_styles([f"m:{i}" for i in range(20)] + ["sgd"])
    assert len(set(many.values())) == 21
    assert all(
        look.line["linestyle"] and look.marker
        for look in optimizer_styles([f"{i}" for i in range(99)]).values()
    )


@pytest.mark.parametrize(
    "names",
    [
        ["sgdf", "sgd", "adam", "filter-adam", "adamw", "radam"],
        ["sgdf", "sgd", "adam", "adamw", "radam", "mine:Own"],
        [f"mine:Own{i}" for i in range(6)],
    ],
)
def test_six_optimizers_differ_in_hue_and_in_dash_and_marker(names):
    looks = list(optimizer_styles(names).values())
    for what in (lambda s: s.color, lambda s: str(s.line["linestyle"]), lambda s: s.marker):
        assert len(set(map(what, looks))) == 6


def test_every_figure_has_the_lines_or_markers_of_six_optimizers(tmp_path):
    names = ["sgdf", "sgd", "adam", "adamw", "radam", "mine:Own"]
    for (place, name), lr, seed in itertools.product(enumerate(names), (0.1, 1.0), (0, 1)):
        make_run(
            tmp_path, [0.3, 0.5 + 0.05 * place + 0.01 * seed], optimizer=name, lr=lr, seed=seed
        )
    report = Report.of([tmp_path], {"": 0.5})
    looks = optimizer_styles(names)
    for name in ("curves-steps-0", "curves-seconds-0", "rates-0", "profile"):
        figure = plot_of(report, name)
        (legend,) = figure.legends
        for key, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            (look,) = [looks[one] for one in names if text.get_text().split(" ")[0] == one]
            # The sample is long enough for its pattern to be seen once as a whole.
            period = key.get_linewidth() * sum(DASHES[look.dash])
            length = np.ptp(np.asarray(key.get_xdata(), float))
            assert length >= period, (name, text.get_text())
            dashes = [key.get_linewidth() * part for part in DASHES[look.dash]]
            assert (key._dash_pattern[1] or []) == dashes, (name, text.get_text())
            assert key.get_color() == look.color
    (panel,) = plot_of(report, "results-0").axes
    markers = {line.get_marker() for line in panel.get_lines()}
    markers = {marker for marker in markers if isinstance(marker, str)} - {"|", "None"}
    assert markers == {look.marker for look in looks.values()}


def test_lines_on_top_of_each_other_can_be_told_apart():
    several = optimizer_styles(["sgdf", "sgd", "adam", "adamw", "filter-adam", "radam"])
    for one, other in (("adam", "adamw"), ("adam", "filter-adam"), ("sgdf", "sgd")):
        assert several[one].dash != several[other].dash
    solid, dashed = sorted((several["adam"], several["adamw"]), key=lambda look: look.dash)
    assert solid.line["zorder"] < dashed.line["zorder"]
    assert several["sgd"].variant(1).line["alpha"] < several["sgd"].line["alpha"]


def seen(color, matrix):
    """Return a colour in CIE Lab as seen through a matrix on linear RGB."""
    srgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(matrix) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = xyz @ linear / np.array([0.9505, 1.0, 1.089])
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


# Machado, Oliveira and Fernandes (2009), severity 1.
VISION = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


@pytest.mark.parametrize("vision", VISION)
def test_hues_can_be_told_apart_with_any_colour_vision(vision):
    # A difference of 10 in Lab is plain at a glance.
    for one, other in itertools.combinations(HUES, 2):
        distance = np.linalg.norm(seen(one, VISION[vision]) - seen(other, VISION[vision]))
        assert distance > 10, (vision, one, other, distance)


# What the page shows under the pointer


def test_every_point_of_every_line_is_in_words(filled_store):
    report = Report.of([filled_store], {"": 0.85})
    names = {plot.name for plot in report.document.plots} - {"results-0", "results-1"}
    assert {"curves-steps-1", "curves-seconds-1", "rates-1", "profile"} <= names
    for name in names:
        figure = plot_of(report, name)
        texts = {reading.line: reading.texts for reading in figure.readings}
        for line in (line for panel in figure.axes for line in panel.get_lines()):
            assert len(texts[line]) == len(line.get_xdata()), name
    said = {text for reading in plot_of(report, "rates-1").readings for text in reading.texts}
    assert {"lr 0.1: 90.3 %, 3 seeds", "lr 10: 2 of 3 runs lost"} <= said


def test_every_dot_and_mean_is_in_words(filled_store):
    figure = plot_of(Report.of([filled_store]), "results-0")
    said = {(reading.name, text) for reading in figure.readings for text in reading.texts}
    dots = {("sgdf lr=0.1", f"seed {seed}: {90 + 0.3 * seed:.4g} %") for seed in range(3)}
    assert dots <= said
    assert ("sgdf lr=0.1", "mean: 90.30 ± 0.30") in said
    assert len(said) == 3 * (3 + 1)


def test_settings_and_commands_are_in_the_markdown(written):
    _, folder = written
    text = (folder / "report.md").read_text()
    assert 'name = "sgdf"' in text
    assert text.count("/spec.toml --out again") == 39
    assert "39 runs: date 2026-11-16" in text
