"""Landscapes of runs: measured once, resumed after a kill, compared on the same directions."""

import dataclasses
import json
import os
import signal

import numpy as np
import pytest
import torch

from bench_tasks import run_of
from kept_runs import do
from sgdf.analysis.conduct import measure_runs
from sgdf.analysis.landscape import measure
from sgdf.analysis.landscape.figures import contour_plot, surface_plot
from sgdf.analysis.landscape.findings import LandscapeFindings
from sgdf.analysis.landscape.lines import lines_between
from sgdf.analysis.landscape.measure import Landscape
from sgdf.analysis.page import write_analysis
from sgdf.analysis.runs import trained_runs
from sgdf.bench.errors import SpecError
from sgdf.bench.store.run_folder import Store

SMALL = Landscape(points=5, pairs=2, examples=40)
EVALUATIONS = SMALL.pairs * (SMALL.points**2 + 2 * 3)  # three points for each second difference


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Four trained runs: two optimizers with two seeds each."""
    store = Store(tmp_path_factory.mktemp("store"))
    for optimizer in ("sgd", "sgdf"):
        for seed in (0, 1):
            do(run_of(optimizer=optimizer, seed=seed), store)
    return trained_runs(list(store.folders()))


@pytest.fixture(scope="module")
def measured(runs, tmp_path_factory):
    """The landscape of all four, and the lines between them."""
    lines = lines_between(runs, within_settings=False)
    return measure_runs(SMALL, [*runs, *lines], tmp_path_factory.mktemp("all"), lambda *_: None)


def values_of(measured):
    return json.dumps([one.record.values for one in measured])


def test_a_landscape_has_its_planes_and_the_network_in_their_middle(runs, measured):
    one = measured[0].record
    assert np.shape(one["planes"]) == (2, 5, 5)
    task, _ = runs[0].open()
    loss = measure.mean_loss(task, measure.training_batches(task, 40))
    assert [plane[2][2] for plane in one["planes"]] == [loss, loss]
    assert one["examples"] == "40 training examples, without augmentation"
    assert len({json.dumps(each.record.get("planes")) for each in measured[:4]}) == 4


def test_killed_at_any_moment_it_resumes_to_the_same_bits(runs, tmp_path, monkeypatch, measured):
    counted, true_loss = tmp_path / "evaluations", measure.mean_loss

    def dying_after(evaluations):
        left = evaluations

        def loss(*arguments):
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            with counted.open("a") as file:
                file.write(".")
            return true_loss(*arguments)

        return loss

    kills = 0
    for evaluations in (1, 8, 13, 22, 40):
        child = os.fork()
        if not child:
            monkeypatch.setattr(measure, "mean_loss", dying_after(evaluations))
            torch.set_num_threads(1)  # the threads of the parent are not there
            measure_runs(SMALL, runs[:1], tmp_path / "killed", lambda *_: None)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        kills += os.WIFSIGNALED(status)
    assert kills >= 4
    monkeypatch.setattr(measure, "mean_loss", dying_after(-1))
    resumed = measure_runs(SMALL, runs[:1], tmp_path / "killed", lambda *_: None)
    assert values_of(resumed) == values_of(measured[:1])
    # What a kill loses is at most the row, or the curvatures, that were being measured.
    assert len(counted.read_text()) <= EVALUATIONS + kills * (SMALL.points + 1)


def test_what_is_finished_is_not_measured_again(runs, tmp_path, monkeypatch):
    first = measure_runs(SMALL, runs[:1], tmp_path, lambda *_: None)
    monkeypatch.setattr(measure, "mean_loss", None)
    again = measure_runs(dataclasses.replace(SMALL, level=2.0), runs[:1], tmp_path, lambda *_: None)
    assert values_of(again) == values_of(first)


def test_each_run_is_reported_as_finished_once(runs, tmp_path):
    seen = []
    measure_runs(SMALL, runs[:2], tmp_path, lambda run, share: seen.append((run.name, share)))
    assert [share for _, share in seen].count(1.0) == 2
    assert len({name for name, share in seen if share == 1.0}) == 2


def test_runs_share_their_random_numbers(runs, monkeypatch, tmp_path):
    drawn, true = [], measure.random_direction

    def spy(model, *arguments):
        direction = true(model, *arguments)
        drawn.append({name: part / part.norm() for name, part in direction.items() if part.any()})
        return direction

    monkeypatch.setattr(measure, "random_direction", spy)
    # A filter of one weight has its direction up to the sign: compare the signs of all.
    measure_runs(SMALL, runs[:2], tmp_path, lambda *_: None)
    half = len(drawn) // 2
    assert half == 2 * SMALL.pairs
    for one, other in zip(drawn[:half], drawn[half:], strict=True):
        assert all(torch.equal(one[name].sign(), other[name].sign()) for name in one)


def test_lines_begin_and_end_at_their_runs(runs, measured):
    lines = measured[4:]
    assert len(lines) == 6
    assert len(lines_between(runs)) == 2
    assert [line.run.name for line in lines_between_names(lines)] == [
        "sgd, seeds 0 and 1",
        "sgdf, seeds 0 and 1",
    ]
    assert all(len(one.record["line"]) == SMALL.points for one in lines)
    keys = {one.run.key for one in measured}
    assert len(keys) == 10, "a line would overwrite the numbers of a run"


def lines_between_names(lines):
    return [one for one in lines if one.run.setting == one.run.end.setting]


def test_interpolated_lines_end_at_the_losses_of_the_networks(runs, tmp_path):
    landscape = dataclasses.replace(SMALL, statistics="interpolated", pairs=1)
    (line,) = lines_between(runs[:2])
    *planes, joined = measure_runs(
        landscape, [*runs[:2], line], tmp_path / "lines", lambda *_: None
    )
    ends = [joined.record["line"][0], joined.record["line"][-1]]
    assert ends == [one.record["planes"][0][2][2] for one in planes]


def test_findings_have_a_number_for_each_seed_and_its_spread(measured):
    findings = LandscapeFindings(measured)
    assert [setting.name for setting in findings.settings] == ["sgd", "sgdf"]
    centres = [one.centre for setting in findings.settings for one in setting.planes]
    assert findings.level == max(centres) + 0.5
    for setting in findings.settings:
        shares = setting.shares(findings.level)
        assert set(shares.by_seed) == {0, 1}
        assert all(0.0 < share <= 1.0 for share in shares.by_seed.values())
        first = setting.planes[0].shares(findings.level)
        assert shares.by_seed[0] == pytest.approx(sum(first) / 2)
        assert shares.over_pairs is not None
    assert LandscapeFindings(measured, level=9.0).level == 9.0
    assert findings.same_shapes


def test_the_page_has_numbers_for_all_runs_and_lines(measured, tmp_path):
    document = write_analysis(SMALL, measured, "sgdf analyze landscape mine", tmp_path)
    assert document.origin.startswith("4 runs")
    assert [table.name for table in document.tables] == [
        "landscape",
        "landscape-planes",
        "landscape-lines",
    ]
    names = ["slices", "contours", "surfaces", "lines"]
    assert [plot.name for plot in document.plots] == [f"landscape-{name}" for name in names]
    assert all((tmp_path / "figures" / f"landscape-{name}.png").exists() for name in names)
    numbers = json.loads((tmp_path / "results.json").read_text())
    assert len(numbers["runs"]) == 10
    assert "needs at least 3 seeds" in " ".join(document.summary)
    text = (tmp_path / "report.md").read_text()
    assert "40 training examples, without augmentation" in text
    assert "computed anew at every point" in text
    assert len((tmp_path / "index.html").read_text()) < 1_000_000


def test_the_page_has_the_options_as_the_command_names_them(measured, tmp_path):
    analysis = dataclasses.replace(SMALL, seed=3, lines="all")
    document = write_analysis(analysis, measured, "sgdf analyze landscape mine", tmp_path)
    block = document.details[0].spec
    assert "direction_seed = 3" in block
    assert "\nseed" not in block
    assert 'lines = "all"' in block
    assert 'level = "0.5 above the largest loss of a network"' in block
    assert "lines" not in analysis.settings, "records of earlier versions would not be found"


def test_each_task_has_its_own_level_and_order(measured, tmp_path):
    """A loss that is low for one task says nothing about another."""
    store = Store(tmp_path / "store")
    for hidden in (4, 8):
        for optimizer in ("sgd", "sgdf"):
            task = {"name": "bench_tasks:Points", "hidden": hidden}
            do(run_of(task=task, optimizer=optimizer), store)
    runs = trained_runs(list(store.folders()))
    both = measure_runs(SMALL, runs, tmp_path, lambda *_: None)
    document = write_analysis(SMALL, both, "sgdf analyze landscape mine", tmp_path)
    tasks = [f"bench_tasks:Points hidden={hidden}" for hidden in (4, 8)]
    assert document.sections == tuple(f"Around each network: {task}" for task in tasks)
    for number, task in enumerate(tasks, start=1):
        own = [one for one in both if one.run.task == task]
        level = LandscapeFindings(own).level
        (table,) = [table for table in document.tables if table.name == f"landscape-{number}"]
        assert f"share below {level:.3g} (%)" in table.columns
        assert len(table.rows) == 2
        (line,) = [line for line in document.summary if line.startswith(f"{task}: Share")]
        assert f"below {level:.3g}" in line
        assert (tmp_path / "figures" / f"landscape-contours-{number}.png").exists()


def test_the_loss_has_the_same_name_as_on_the_page_of_the_hessian(measured, tmp_path):
    document = write_analysis(SMALL, measured, "sgdf analyze landscape mine", tmp_path)
    assert "loss on these examples" in document.tables[0].columns
    assert "raining loss" not in (tmp_path / "index.html").read_text()


def test_the_bar_of_colours_is_beside_the_first_row_and_surfaces_have_labels(measured):
    three = [
        dataclasses.replace(one, run=dataclasses.replace(one.run, setting=str(index)))
        for index, one in enumerate(measured[:3])
    ]
    findings = LandscapeFindings(three)
    for plot in (contour_plot, surface_plot):
        figure = plot(findings, SMALL.positions, "").figure
        *panels, bar = sorted(figure.axes, key=lambda axes: axes.get_position().x0)
        assert len(panels) == 3
        assert bar.get_ylabel() == "loss on these examples"
        assert {round(axes.get_position().y0, 6) for axes in figure.axes} == {
            round(bar.get_position().y0, 6)
        }
        assert bar.get_position().x1 < 1.0
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in panels)


def test_the_pixels_of_a_map_have_their_points_in_the_middle(measured):
    plot = contour_plot(LandscapeFindings(measured), SMALL.positions, "")
    panel = plot.figure.axes[0]
    (image,) = panel.get_images()
    assert image.get_extent() == [-1.25, 1.25, -1.25, 1.25]
    assert panel.get_xlim() == (-1.0, 1.0)


def test_a_run_whose_loss_is_not_finite_is_drawn_all_the_same(measured, tmp_path):
    record = measured[0].record
    planes = record["planes"]
    try:
        record.values["planes"] = [[[float("inf")] * 5] * 5, [[float("nan")] * 5] * 5]
        document = write_analysis(SMALL, measured[:2], "sgdf analyze landscape", tmp_path)
    finally:
        record.values["planes"] = planes
    assert len(document.plots) == 3


@pytest.mark.parametrize(
    ("option", "value"), [("points", 4), ("points", 1), ("span", 0.0), ("step", float("inf"))]
)
def test_settings_that_cannot_be_are_refused(option, value):
    with pytest.raises(SpecError, match=option):
        Landscape(**{option: value})
