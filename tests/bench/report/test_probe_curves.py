"""The numbers of probes in a report: what is drawn, and what strange files do to it."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from made_runs import HOSTILE, make_run
from sgdf.bench.report.probe_curves import MOST_PANELS
from sgdf.bench.report.write import WRITTEN_BY_REPORTS, Report
from sgdf.bench.store import run_folder
from sgdf.present.page import page


def row(step, probe="gain", optimizer="model", **numbers):
    return {"probe": probe, "step": step, "optimizer": optimizer, **numbers}


def probed_run(store, rows, **spec):
    folder = make_run(store, [0.3, 0.6], **spec)
    folder.append_probe_rows(rows)
    return folder


def plot_of(store):
    """Return the plot of probes, None if there is none."""
    plots = [plot for plot in Report.of([store]).document.plots if plot.name == "probes-0"]
    return plots[0] if plots else None


def panels_of(store):
    return {panel.get_title(): panel for panel in plot_of(store).figure.axes}


def test_each_number_has_a_panel_with_means_and_bands(tmp_path):
    for seed, size in enumerate((1.0, 3.0)):
        rows = [row(step, mean=size * step, other=5.0) for step in (10, 20)]
        rows += [row(20, "gradient-norm", norm=7.0 * size)]
        probed_run(tmp_path, rows, seed=seed)
    probed_run(tmp_path, [row(10, mean=50.0)], seed=2, diverged=15)  # in no mean
    probed_run(tmp_path, [row(5, mean=6.0), row(10, mean=8.0)], optimizer="adam")
    plot = plot_of(tmp_path)
    assert plot.section == "points"
    panels = panels_of(tmp_path)
    assert list(panels) == ["gain: mean", "gain: other", "gradient-norm: norm"]
    assert {panel.get_xlabel() for panel in panels.values()} == {"steps"}
    lines = [line.get_xydata().tolist() for line in panels["gain: mean"].get_lines()]
    assert sorted(lines) == [[[5, 6.0], [10, 8.0]], [[10, 20.0], [20, 40.0]]]
    bands = [found.get_paths()[0].vertices for found in panels["gain: mean"].collections]
    ends = np.concatenate([band[band[:, 0] == 20.0, 1] for band in bands])
    assert (ends.min(), ends.max()) == (20.0, 60.0)
    (alone,) = panels["gradient-norm: norm"].get_lines()
    assert alone.get_xydata().tolist() == [[20, 14.0]]
    assert alone.get_marker() not in ("", "None")  # a point without a marker would not be seen
    names = [text.get_text() for text in plot.figure.legends[0].get_texts()]
    assert sorted(names) == ["adam", "sgd"]
    readings = {reading.name: reading.texts for reading in plot.figure.readings}
    assert readings["sgd"][-1] == "step 20: 14, 2 seeds"


def test_numbers_of_bundled_probes_are_in_words_and_compared_on_the_same_axis(tmp_path):
    numbers = {"cosine_raw": 0.1, "cosine_ema": 0.9, "error_raw": 80.0, "error_ema": 0.2}
    rows = [row(step, "estimate", **numbers) for step in (1, 2)]
    rows += [row(2, "estimate", error_ema=0.001), row(1, "mine:Own", first_size=1, last_size=9.0)]
    probed_run(tmp_path, rows)
    panels = plot_of(tmp_path).figure.axes
    assert [(panel.get_title(), panel.get_ylabel()) for panel in panels] == [
        ("estimate: raw gradient", "cosine with true gradient"),
        ("estimate: EMA", "cosine with true gradient"),
        ("estimate: raw gradient", "relative squared error"),
        ("estimate: EMA", "relative squared error"),
        ("Own: first_size", "first_size"),
        ("Own: last_size", "last_size"),
    ]
    limits = [panel.get_ylim() for panel in panels]
    assert limits[0] == limits[1] != limits[2] == limits[3]
    assert limits[4] != limits[5]
    assert limits[0][0] < 0.1 < 0.9 < limits[0][1]
    assert [panel.get_yscale() for panel in panels[2:4]] == ["log", "log"]


def test_a_report_without_probes_has_no_such_plot_and_reads_no_file_twice(tmp_path, monkeypatch):
    folder, opened = make_run(tmp_path, [0.3, 0.6]), []
    read = run_folder.read_rows
    monkeypatch.setattr(
        run_folder, "read_rows", lambda path, kind: opened.append(path.name) or read(path, kind)
    )
    assert plot_of(tmp_path) is None
    assert opened.count("probes.jsonl") == 1
    folder.append_probe_rows([row(1, mean=1.0)])
    assert plot_of(tmp_path) is not None


def test_an_expected_value_is_a_thin_line_in_the_panel_of_its_number(tmp_path):
    rows = [row(step, mean=0.5, mean_expected=0.25, lonely_expected=1.0) for step in (1, 2)]
    probed_run(tmp_path, rows)
    panels = panels_of(tmp_path)
    assert list(panels) == ["gain: mean", "gain: lonely_expected"]
    curve, thin = panels["gain: mean"].get_lines()
    assert curve.get_ydata().tolist() == [0.5, 0.5]
    assert thin.get_ydata().tolist() == [0.25, 0.25]
    assert thin.get_linewidth() < 0.6 * curve.get_linewidth()
    assert thin.get_color() == curve.get_color()
    readings = [(reading.name, reading.texts[0]) for reading in plot_of(tmp_path).figure.readings]
    assert ("sgd, expected", "step 1: 0.25, 1 seed") in readings


def test_steps_that_a_run_lacks_and_numbers_that_are_not_finite_are_gaps(tmp_path):
    probed_run(tmp_path, [row(1, mean=1.0), row(2, mean=2.0), row(3, mean=math.nan)], seed=0)
    probed_run(tmp_path, [row(2, mean=4.0), row(3, mean=4.0), row(4, mean=4.0)], seed=1)
    make_run(tmp_path, [0.3, 0.6], seed=2)  # which no probe has looked at
    (line,) = panels_of(tmp_path)["gain: mean"].get_lines()
    np.testing.assert_array_equal(line.get_xydata(), [[2.0, 3.0], [3.0, math.nan]])


def test_optimizers_of_one_task_have_panels_of_their_own(tmp_path):
    rows = [row(1, "update-size", name, ratio=0.1) for name in ("critic", "generator")]
    probed_run(tmp_path, rows)
    assert list(panels_of(tmp_path)) == [
        "update-size of critic: update", "update-size of generator: update"
    ]  # fmt: skip


def test_a_probe_with_many_numbers_leaves_room_for_the_others(tmp_path):
    many = {f"layer{number}.weight": 1.0 for number in range(100)}
    probed_run(tmp_path, [row(1, "layers:Largest", **many), row(1, mean=0.5, root=0.6)])
    titles = list(panels_of(tmp_path))
    assert len(titles) == MOST_PANELS
    assert titles[0] == "Largest: layer0.weight"
    assert titles[-2:] == ["gain: mean", "gain: root"]
    assert f"{MOST_PANELS} of 102 numbers are drawn" in plot_of(tmp_path).about


def test_a_long_title_keeps_its_end(tmp_path):
    probed_run(tmp_path, [row(1, "Largest", **{"layers." * 10 + "weight": 1.0})])
    (title,) = panels_of(tmp_path)
    assert [len(line) <= 40 for line in title.split("\n")] == [True, True]
    assert title.startswith("Largest: layers.")
    assert title.endswith("layers.weight")


NO_NUMBERS = [None, True, "1.0", [1.0], {}]
STRANGE = [10**400, -(10**400), 1e308, 1e-320, -1e99, 1e99, math.inf, math.nan]


def test_strange_values_are_left_out_or_drawn(tmp_path):
    values = [*STRANGE, *NO_NUMBERS]
    numbers = {f"number{index}": value for index, value in enumerate(values)}
    probed_run(tmp_path, [row(1, **numbers), row(2, **dict.fromkeys(list(numbers)[:3], 1.0))])
    assert len(panels_of(tmp_path)) == len(STRANGE)
    assert plot_of(tmp_path).svg()


@pytest.mark.parametrize(
    "strange",
    [
        {"probe": 5, "step": 1, "optimizer": "model", "mean": 1.0},
        {"probe": "gain", "step": 1, "mean": 1.0},
        {"probe": "gain", "step": 1, "optimizer": ["model"], "mean": 1.0},
        {"step": 1},
        [],
    ],
)
def test_strange_rows_are_left_out(strange, tmp_path):
    folder = make_run(tmp_path, [0.3, 0.6])
    (folder.path / "probes.jsonl").write_text(json.dumps(strange) + "\n")
    assert plot_of(tmp_path) is None


def test_names_of_a_stranger_are_escaped(tmp_path):
    rows = [row(1, name, name, **{name: 1.0}) for name in [*HOSTILE, "", "\ud800"]]
    probed_run(tmp_path, rows)
    document = Report.of([tmp_path]).document
    (plot,) = [plot for plot in document.plots if plot.name == "probes-0"]
    text = page(replace(document, plots=(plot,)))
    assert "<script>alert(1)</script>" not in text
    assert "<img src=x" not in text
    assert len(plot.figure.axes) == len(rows)


def test_a_file_that_cannot_be_read_is_no_obstacle(tmp_path):
    folder = make_run(tmp_path, [0.3, 0.6])
    (folder.path / "probes.jsonl").symlink_to("probes.jsonl")
    assert plot_of(tmp_path) is None


def test_a_later_report_knows_the_plot_as_one_that_it_may_remove(tmp_path):
    probed_run(tmp_path, [row(1, mean=1.0)])
    name = plot_of(tmp_path).name
    assert WRITTEN_BY_REPORTS.fullmatch(f"{name}.png")
