"""The page about gradients: its numbers, its plots, and what is refused."""

import math
import os
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest

from sgdf.analysis.conduct import measure_runs
from sgdf.analysis.gradients import analysis as analysis_module
from sgdf.analysis.gradients.analysis import GradientAnalysis
from sgdf.analysis.gradients.distribution import counts_as_text, counts_from_text
from sgdf.analysis.gradients.measure import ALL
from sgdf.analysis.page import write_analysis
from sgdf.analysis.runs import experiment_runs
from sgdf.bench.errors import SpecError
from sgdf.present.table import NOTHING

EXPERIMENT = """
seed = [0, 1]
[task]
name = "digits-mlp"
[train]
steps = 12
batch_size = 64
threads = 1
device = "cpu"
[[optimizer]]
name = ["sgd-vanilla", "sgd-ema", "sgd-cm", "sgdf"]
lr = 0.1
[[optimizer]]
name = "sgd-cm"
lr = 0.01
[[optimizer]]
name = "adam"
lr = 0.01
"""
ANALYSIS = GradientAnalysis(every=3)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with the experiment, and the records of all of its runs."""
    place = tmp_path_factory.mktemp("gradients")
    (place / "six.toml").write_text(EXPERIMENT)
    return place


def measured(place, analysis=ANALYSIS, watch=lambda run, share: None, **choice):
    runs = experiment_runs([str(place / "six.toml")], **choice)
    return measure_runs(analysis, runs, place, watch)


@pytest.fixture(scope="module")
def contents(place):
    """Return what the page shows of all runs."""
    return ANALYSIS.contents(measured(place))


def rows_of(table):
    return {row[0].text: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def table(contents, name):
    (found,) = [table for table in contents.tables if table.name == name]
    return found


def test_deviations_are_relative_to_plain_sgd_with_the_same_seed(place, contents):
    runs = measured(place)
    rows = rows_of(table(contents, "gradients-deviation"))
    relative, scaled = "deviation / sgd-vanilla", "divided by it / sgd-vanilla"
    assert rows["sgd-vanilla"][relative].order == 1.0
    assert rows["sgd-ema"][relative].order < rows["sgdf"][relative].order < 1.0
    assert rows["sgd-cm lr=0.01"]["u/(1-β)"].order == pytest.approx(10.0)
    assert rows["sgd-cm lr=0.01"][scaled].order == pytest.approx(
        rows["sgd-ema"][relative].order, rel=1e-3
    )
    assert rows["adam"][scaled].text == "–"
    assert "±" in rows["sgdf"][relative].text

    records = {(one.run.setting, one.run.run.seed): one.record["tensors"] for one in runs}
    by_seed = []
    for seed in (0, 1):
        tensors = []
        for name in records["sgdf", seed]:
            if name != ALL:
                own, plain = (
                    np.array(records[setting, seed][name]["direction"]["deviation"])
                    for setting in ("sgdf", "sgd-vanilla")
                )
                tensors.append(np.median(own / plain))
        by_seed.append(np.median(tensors))
    assert rows["sgdf"][relative].order == pytest.approx(np.mean(by_seed))
    by_tensor = rows_of(table(contents, "gradients-tensors"))
    assert set(by_tensor) == set(records["sgdf", 0])
    assert by_tensor[ALL]["sgd-vanilla"].order == 1.0


def test_the_largest_mean_is_that_of_the_records_and_sgdf_shifts_the_last_layer(place, contents):
    runs = measured(place)
    rows = table(contents, "gradients-mean").rows
    cells = {(row[0].text, row[1].text): row for row in rows}
    largest = []
    for one in runs:
        if one.run.setting == "sgdf":
            series = one.record["tensors"]["5.weight"]["direction"]
            largest.append(np.max(np.abs(series["mean"]) / np.array(series["deviation"])))
    _, _, gradient, direction, _ = cells["last layer: 5.weight", "sgdf"]
    assert gradient.text == "below 0.0001"
    assert 0.0 < gradient.order < 1e-4
    assert direction.order == pytest.approx(np.mean(largest))
    assert direction.order > 0.005
    assert cells["last layer: 5.weight", "sgd-ema"][3].order < 1e-4
    assert {name for name, _ in cells} == {
        "first layer: 1.weight",
        "last layer: 5.weight",
        "last bias: 5.bias",
    }


def test_a_panel_for_each_setting_and_a_line_for_each_step(place):
    contents = GradientAnalysis(every=3, tensors=("1.weight", "5.bias")).contents(measured(place))
    plots = {plot.name: plot for plot in contents.plots}
    views = ("gradients", "directions", "scaled")
    assert set(plots) == {
        "gradients-deviation",
        "gradients-mean",
        "gradients-loss",
        *(f"gradients-{view}-{word}" for view in views for word in ("1", "2", "all")),
    }
    for view, count in (("gradients", 6), ("directions", 6), ("scaled", 5)):
        plot = plots[f"gradients-{view}-1"]
        assert plot.title.startswith("1.weight: ")
        assert len(plot.figure.axes) == count  # adam has no scale
        for panel in plot.figure.axes:
            assert [text.get_text() for text in panel.get_yticklabels()] == ["3", "6", "9", "12"]
        assert {panel.get_xlabel() for panel in plot.figure.axes} not in ({""}, set())
        assert len({panel.get_ylim() for panel in plot.figure.axes}) == 1
        same = len({panel.get_xlim() for panel in plot.figure.axes}) == 1
        assert same == (view != "directions")


def test_a_step_with_a_high_peak_does_not_flatten_the_others(place):
    runs = measured(place, optimizers=["sgdf"], seeds=[0])
    series = runs[0].record["tensors"]["1.weight"]["gradient"]
    series["quantiles"][-1] = [value / 50.0 for value in series["quantiles"][0]]
    bins = counts_from_text(series["counts"][0])
    narrow = np.zeros_like(bins)
    for index, count in enumerate(bins):  # a fiftieth is 34 bins of a twentieth of a decade
        nearer = index - 34 if index > len(bins) // 2 else index + 34
        crosses = (nearer > len(bins) // 2) != (index > len(bins) // 2)
        narrow[len(bins) // 2 if crosses else nearer] += count
    series["counts"][-1] = counts_as_text(narrow)
    contents = GradientAnalysis(every=3, tensors=("1.weight",)).contents(runs)
    (plot,) = [plot for plot in contents.plots if plot.name == "gradients-gradients-1"]
    (panel,) = plot.figure.axes
    ridges = [line for line in panel.get_lines() if len(line.get_xdata()) > 2]
    heights = [np.ptp(line.get_ydata()) for line in ridges]
    assert all(1.5 < height < 6.0 for height in heights)  # lines are 3 steps apart


def test_an_axis_of_less_than_a_power_of_ten_has_several_numbers(place):
    runs = measured(place, optimizers=["sgd-vanilla", "sgd-ema", "sgdf"])
    plots = {plot.name: plot for plot in ANALYSIS.contents(runs).plots}
    for panel in plots["gradients-deviation"].figure.axes:
        low, high = panel.get_ylim()
        assert high < 10.0 * low
        assert sum(low <= tick <= high for tick in panel.get_yticks()) >= 2


def test_by_default_the_weights_are_drawn_whose_gradient_is_nearest_to_the_papers(place, contents):
    runs = measured(place)
    (title,) = [plot.title for plot in contents.plots if plot.name == "gradients-gradients-1"]
    sizes = {}
    for name, tensor in runs[0].record["tensors"].items():
        if len(tensor["shape"]) > 1:
            deviations = [one.record["tensors"][name]["gradient"]["deviation"] for one in runs]
            sizes[name] = abs(math.log(np.median(deviations) / 1e-4))
    assert title == f"{min(sizes, key=sizes.get)}: gradients"


def test_the_findings_name_order_shifts_and_number_of_tensors(contents):
    first, *others = contents.summary
    chain = first[first.index(": ") : first.index(". This")]
    places = [chain.index(name) for name in ("sgd-ema (", "sgdf (", "sgd-vanilla (1)", "sgd-cm")]
    assert places == sorted(places)
    assert "of 6 tensors" in first
    assert "difference in deviation is significant needs at least 3 seeds" in others[0]
    assert [line.count("5.") for line in others[1:]] == [0, 1, 1]


def test_without_plain_sgd_directions_are_held_against_their_own_gradients(place):
    contents = ANALYSIS.contents(measured(place, optimizers=["sgdf", "sgd-ema"]))
    assert "gradients-deviation" not in {plot.name for plot in contents.plots}
    columns = table(contents, "gradients-deviation").columns
    assert "deviation / own gradient" in columns
    assert "deviation / sgd-vanilla" not in columns
    about = table(contents, "gradients-deviation").about
    assert "relative to that of the setting's own gradients" in about
    assert "same step and with the same seed" not in about, "of a column that is not there"
    assert "adds each gradient with the weight u" in about
    assert "gradient of sgd-ema" in table(contents, "gradients-tensors").columns
    rows = rows_of(table(contents, "gradients-tensors"))
    assert 0.0 < rows[ALL]["sgdf"].order < 1.0


def test_the_page_has_its_files_and_another_tensor_needs_no_training(place, monkeypatch):
    folder = place / "page"
    seen = []
    measured(place)
    monkeypatch.setattr(analysis_module, "measure_run", lambda *a: seen.append(a))
    other = GradientAnalysis(every=3, tensors=("1.bias",))
    runs = measured(place, other, optimizers=["sgdf"])
    assert (len(runs), seen) == (2, [])
    write_analysis(other, runs, "sgdf analyze gradients six.toml", folder)
    assert "1.bias: gradients" in (folder / "index.html").read_text()
    names = {path.name for path in (folder / "figures").iterdir()}
    assert {"gradients-mean.png", "gradients-directions-all.pdf"} <= names


def test_each_run_is_announced_as_finished_once(place, tmp_path):
    (tmp_path / "six.toml").write_text(EXPERIMENT)
    shares = []
    measured(tmp_path, watch=lambda run, share: shares.append(share), optimizers=["sgdf"])
    assert shares.count(1.0) == 2
    assert shares.count(0.0) == 2
    assert len(shares) > 10


def test_an_unknown_tensor_is_refused_before_anything_is_trained_or_drawn(place, tmp_path):
    (tmp_path / "six.toml").write_text(EXPERIMENT)
    wrong = GradientAnalysis(every=3, tensors=("1.wieght",))
    shares = []
    with pytest.raises(SpecError, match=r"no tensor '1.wieght'.*did you mean 1.weight"):
        measured(tmp_path, wrong, watch=lambda run, share: shares.append(share))
    assert shares == [0.0]
    with pytest.raises(SpecError, match=r"no tensor '1\.wieght'"):
        wrong.contents(measured(place))


def test_runs_of_several_tasks_are_refused(tmp_path):
    path = tmp_path / "two.toml"
    both = """[[task]]
name = "logistic"
penalty = [0.01, 0.1]
[[task]]
name = "digits-mlp\""""
    path.write_text(EXPERIMENT.replace('[task]\nname = "digits-mlp"', both))
    runs = experiment_runs([str(path)])
    with pytest.raises(SpecError) as caught:
        ANALYSIS.check(runs)
    advice = str(caught.value)
    assert "several tasks (digits-mlp, logistic penalty=0.01 and logistic penalty=0.1)" in advice
    assert "{" not in advice
    # The advice works, for each of the tasks.
    (option, task) = shlex.split(advice.partition("as with ")[2])
    assert (option, task) == ("--task", "digits-mlp")
    for task in {run.task for run in runs}:
        ANALYSIS.check(experiment_runs([str(path)], tasks=[task]))


def test_a_diverged_run_is_named_and_drawn_as_far_as_it_has_come(tmp_path):
    (tmp_path / "six.toml").write_text(EXPERIMENT)
    changes = {"optimizer.lr": 1e4, "seed": 0}
    analysis = GradientAnalysis(every=1)
    runs = measured(tmp_path, analysis, changes=changes, optimizers=["sgd-vanilla", "sgd-cm"])
    contents = analysis.contents(runs)
    assert any("sgd-cm, seed 0, diverged at step" in line for line in contents.summary)
    assert any("of all settings are of one seed" in line for line in contents.summary)
    assert "seed" not in str(table(contents, "gradients-deviation").rows)
    assert all(plot.figure.axes for plot in contents.plots)


def test_a_run_that_diverged_before_any_description_is_named_and_the_others_are_shown(tmp_path):
    (tmp_path / "six.toml").write_text(EXPERIMENT.replace("lr = 0.01", "lr = 1e25"))
    analysis = GradientAnalysis(every=6)
    runs = measured(tmp_path, analysis, seeds=[0], optimizers=["sgd-vanilla", "sgd-cm"])
    contents = analysis.contents(runs)
    (line,) = [line for line in contents.summary if "diverged" in line]
    assert "sgd-cm lr=1e+25, seed 0, diverged at step" in line
    assert "nothing of it is shown" in line
    assert len(table(contents, "gradients-deviation").rows) == 2
    lost = [one for one in runs if not one.record["tensors"]]
    with pytest.raises(SpecError, match="diverged before their first description"):
        analysis.contents(lost)


def test_settings_without_a_seed_of_plain_sgd_are_shown_beside_it(place):
    plain = measured(place, optimizers=["sgd-vanilla"], seeds=[0])
    contents = ANALYSIS.contents([*plain, *measured(place, optimizers=["sgdf"], seeds=[1])])
    rows = rows_of(table(contents, "gradients-deviation"))
    assert rows["sgdf"]["deviation / sgd-vanilla"].text == NOTHING
    assert float(rows["sgdf"]["deviation / own gradient"].text) > 0.0
    assert rows["sgd-vanilla"]["deviation / sgd-vanilla"].text == "1"
    assert "sgdf (" not in contents.summary[0]
    assert all(plot.figure.axes for plot in contents.plots)


KILLED = """
import os, signal, sys
from pathlib import Path
from sgdf.analysis.conduct import measure_runs
from sgdf.analysis.gradients.analysis import GradientAnalysis
from sgdf.analysis.runs import experiment_runs

finished = []

def watch(run, share):
    finished.append(share == 1.0)
    if sum(finished) == 2 and share > 0.5 and share < 1.0:
        os.kill(os.getpid(), signal.SIGKILL)

place = Path(sys.argv[1])
runs = experiment_runs([str(place / "six.toml")])
measure_runs(GradientAnalysis(every=3), runs, place, watch)
"""


def test_a_killed_analysis_keeps_what_is_finished_and_resumes_with_the_rest(place, tmp_path):
    (tmp_path / "six.toml").write_text(EXPERIMENT)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path],
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert killed.returncode == -signal.SIGKILL
    trained = []

    def watch(run, share):
        if share == 1.0:
            trained.append(run.name)

    runs = measured(tmp_path, watch=watch)
    assert len(trained) == 10
    assert len(runs) == 12
    for one, other in zip(runs, measured(place), strict=True):
        assert one.record["tensors"] == other.record["tensors"]
