"""The report on a grid of learning rates in every state that its runs can be in."""

import csv
import io
import itertools
import json
import math

import pytest

from made_runs import begin, result_of, rows_of, table_of
from made_states import (
    GRID,
    STATES,
    end_in_nan,
    finish,
    lose_metrics,
    make_grid,
    pause,
    start,
    wait,
)
from sgdf.bench.report.targets import Target
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import State


def report_on(store, make):
    """Write runs, each by one of the functions, and return the report and its folder."""
    make_grid(store, make)
    report = Report.of([store])
    folder = store / "report"
    report.write(folder)
    return report, folder


def table_named(report, name):
    (table,) = [table for table in report.document.tables if table.name == name]
    return table


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_all_runs_in_one_state(tmp_path, state):
    report, folder = report_on(tmp_path, [state])
    assert f"of {len(GRID)} runs finished" in (folder / "index.html").read_text()
    (problem,) = json.loads((folder / "results.json").read_text())
    with_figures = [setting for setting in problem["settings"] if setting["figures"]]
    assert len(with_figures) == (4 if state in (finish, lose_metrics) else 0)
    assert len(list(csv.DictReader(io.StringIO((folder / "runs.csv").read_text())))) == len(GRID)
    names = {plot.name for plot in report.document.plots}
    ended = state not in (wait, start, pause)
    assert ("rates-0" in names) is ended, "a figure needs something to show"
    tables = {table.name for table in report.document.tables}
    assert ("results-0" in tables) is bool(with_figures), "and so does a table"


def test_runs_in_all_states_together(tmp_path):
    report, _ = report_on(tmp_path, STATES)
    trouble = table_named(report, "trouble")
    finished = [run for run in report.findings.runs if run.chosen]
    assert len(trouble.rows) == len(GRID) - len(finished)


def test_metrics_that_only_early_epochs_have_are_known(tmp_path):
    report, folder = report_on(tmp_path, [lose_metrics])
    (problem,) = report.findings.problems
    assert problem.metrics == ("accuracy", "loss", "top5 accuracy")
    assert problem.splits[-1] == "extra"
    assert problem.units["top5 accuracy"] == (1.0, "")  # 98 is in per cent already
    (curves,) = [plot for plot in report.document.plots if plot.name == "curves-steps-0"]
    titles = [panel.get_title() for panel in curves.figure.axes]
    assert {"training loss", "test accuracy", "test loss", "extra loss"} <= set(titles)
    setting = json.loads((folder / "results.json").read_text())[0]["settings"][0]
    assert setting["means by epoch"]["test top5 accuracy"] == {"1": 98.0}


def test_one_seed(tmp_path):
    for optimizer, lr in itertools.product(("sgd", "adam"), (0.1, 1.0)):
        finish(tmp_path, optimizer=optimizer, lr=lr, seed=0)
    report = Report.of([tmp_path])
    report.write(tmp_path / "report")
    assert "rates-0" in {plot.name for plot in report.document.plots}


def test_one_optimizer_without_a_result_leaves_the_others_their_figures(tmp_path):
    for optimizer, lr, seed in GRID:
        (finish if optimizer == "sgd" else wait)(tmp_path, optimizer=optimizer, lr=lr, seed=seed)
    report = Report.of([tmp_path])
    report.write(tmp_path / "report")
    figures = {plot.name: plot.figure for plot in report.document.plots}
    (legend,) = figures["rates-0"].legends
    assert [text.get_text() for text in legend.get_texts()] == ["sgd"]
    assert "results-0" not in figures, "a row without a dot shows nothing"


# A metric that is never finite


@pytest.fixture(scope="module")
def with_nan(tmp_path_factory):
    """The report on sgd with three seeds, one of which has NaN for its metric, and on adam."""
    store = tmp_path_factory.mktemp("nan")
    for optimizer, seed in itertools.product(("sgd", "adam"), (0, 1, 2)):
        function = end_in_nan if (optimizer, seed) == ("sgd", 1) else finish
        function(store, optimizer=optimizer, lr=0.1, seed=seed)
    report = Report.of([store])
    report.write(store / "report")
    return report, store / "report"


def test_a_run_without_a_finite_value_is_finished_and_in_no_mean(with_nan):
    report, folder = with_nan
    assert "6 of 6 runs finished" in report.document.summary[0]
    assert "1 finished run has no finite value of its metric, and is in no mean." in (
        report.document.summary
    )
    results = table_named(report, "results-0")
    row = next(row for row in results.rows if row[0].text == "sgd")
    cells = dict(zip(results.columns, row, strict=True))
    assert cells["test accuracy (%)"].parts["mean"] == pytest.approx(61.0)
    assert cells["seeds"].text == "2 of 3 (1 without a finite value)"
    (trouble,) = table_named(report, "trouble").rows
    assert [cell.text for cell in trouble[3:5]] == ["finished", "no finite accuracy"]
    (problem,) = json.loads((folder / "results.json").read_text())
    by_name = {setting["optimizer"]["name"]: setting for setting in problem["settings"]}
    assert list(by_name["sgd"]["figures"]["test accuracy"]["by seed"]) == ["0", "2"]
    assert by_name["sgd"]["lost runs"] == 1


def test_a_run_without_a_finite_value_misses_every_target(with_nan):
    report, _ = with_nan
    (problem,) = report.findings.problems
    target = Target.of(problem, 0.5)
    (sgd,) = [setting for setting in problem.settings if setting.optimizer == "sgd"]
    assert [hit is not None for hit in target.hits(sgd)] == [True, False, True]


def test_a_test_value_that_is_not_finite_counts_as_none(tmp_path):
    rows = rows_of([0.5, 0.6])
    for row in rows:
        row["test"]["accuracy"] = math.nan
    begin(tmp_path, table_of()).finish(State.FINISHED, result_of(rows), rows)
    finish(tmp_path, optimizer="adam", lr=0.1, seed=0)
    report = Report.of([tmp_path])
    (problem,) = report.findings.problems
    assert [setting.optimizer for setting in problem.headline] == ["adam", "sgd"]
    assert [run.chosen is None for run in problem.runs] == [False, True]
