"""Runs with splits of the task's own, metrics that few epochs have, a length in steps, any unit."""

import csv
import io
import json

import numpy as np
import pytest

from made_runs import begin, make_run, result_of, rows_of, table_of
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import State


def table_named(report, name):
    (table,) = [table for table in report.document.tables if table.name == name]
    return table


def plot_named(report, name):
    (plot,) = [plot for plot in report.document.plots if plot.name == name]
    return plot.figure


def runs_csv(folder):
    """Return the rows of runs.csv."""
    return list(csv.DictReader(io.StringIO((folder / "runs.csv").read_text())))


def settings_json(folder):
    """Return the settings in results.json, of the only problem."""
    (problem,) = json.loads((folder / "results.json").read_text())
    return problem["settings"]


def titles(figure):
    return [panel.get_title() for panel in figure.axes]


# A split of the task's own choosing


@pytest.fixture(scope="module")
def with_shifted_split(tmp_path_factory):
    """The report on runs that were also evaluated on "test-shifted", and its folder."""
    place = tmp_path_factory.mktemp("shifted")
    for optimizer in ("sgd", "adam"):
        for seed in (0, 1):
            make_run(
                place / "store", [0.5, 0.6 + 0.1 * seed], optimizer=optimizer, seed=seed,
                splits=("test-shifted",),
            )  # fmt: skip
    report = Report.of([place / "store"])
    report.write(place / "report")
    return report, place / "report"


def test_an_additional_split_has_its_own_panels(with_shifted_split):
    report, _ = with_shifted_split
    steps = plot_named(report, "curves-steps-0")
    assert titles(steps) == [
        "validation accuracy", "test accuracy", "test-shifted accuracy",
        "training loss", "validation loss", "test loss", "test-shifted loss",
    ]  # fmt: skip
    line = steps.axes[2].get_lines()[0]
    np.testing.assert_allclose(line.get_xydata(), [[10, 50.0], [20, 65.0]])


def test_an_additional_split_is_in_the_files(with_shifted_split):
    _, folder = with_shifted_split
    for row in runs_csv(folder):
        assert float(row["test-shifted accuracy"]) == 0.6 + 0.1 * int(row["seed"])
        assert float(row["last test-shifted loss"]) == pytest.approx(0.4 - 0.1 * int(row["seed"]))
    for setting in settings_json(folder):
        assert setting["figures"]["test-shifted accuracy"]["mean"] == pytest.approx(0.65)
        assert list(setting["means by epoch"]["test-shifted accuracy"]) == ["1", "2"]


def test_an_additional_split_changes_no_table(with_shifted_split):
    report, _ = with_shifted_split
    columns = table_named(report, "results-0").columns
    assert columns[2:6:2] == ("test accuracy (%)", "validation accuracy (%)")
    assert not any("shifted" in title for t in report.document.tables for title in t.columns)


# A costly metric, which only some epochs have


def make_costly_run(store, judged_by, **spec):
    """Write a run of four epochs whose metric ``fid`` only epochs 2 and 4 have."""
    rows = rows_of([0.5, 0.6, 0.9, 0.7])
    for row in rows[1::2]:
        for split in ("validation", "test"):
            row[split]["fid"] = 40.0 / row["epoch"]
    folder = begin(store, table_of(**spec))
    folder.finish(State.FINISHED, result_of(rows, judged_by, judged_by == "accuracy"), rows)


def test_a_metric_that_is_missing_at_the_chosen_epoch(tmp_path):
    for seed in (0, 1):
        make_costly_run(tmp_path / "store", "accuracy", seed=seed)
    report = Report.of([tmp_path / "store"])
    report.write(tmp_path / "report")
    for row in runs_csv(tmp_path / "report"):
        assert row["epoch"] == "3"
        assert row["test fid"] == ""
        assert float(row["last test fid"]) == 10.0
    (setting,) = settings_json(tmp_path / "report")
    assert "test fid" not in setting["figures"]
    assert setting["figures of the last epoch"]["test fid"]["mean"] == 10.0
    assert setting["means by epoch"]["test fid"] == {"2": 20.0, "4": 10.0}
    row = table_named(report, "results-0").rows[0]
    assert "90.00 (no spread)" in [cell.text for cell in row]


def test_a_mean_over_fewer_seeds_says_so(tmp_path):
    make_costly_run(tmp_path / "store", "accuracy", seed=0)
    rows = rows_of([0.5, 0.9])
    for split in ("validation", "test"):
        rows[1][split]["fid"] = 20.0
    begin(tmp_path / "store", table_of(seed=1)).finish(State.FINISHED, result_of(rows), rows)
    Report.of([tmp_path / "store"]).write(tmp_path / "report")
    (setting,) = settings_json(tmp_path / "report")
    assert setting["figures"]["test fid"]["seeds"] == 1
    assert setting["figures"]["test accuracy"]["seeds"] == 2


def test_settings_can_be_judged_by_a_metric_that_few_epochs_have(tmp_path):
    for optimizer in ("sgd", "adam"):
        make_costly_run(tmp_path / "store", "fid", optimizer=optimizer)
    report = Report.of([tmp_path / "store"], {"": 20.0})
    report.write(tmp_path / "report")
    assert [run.chosen["epoch"] for run in report.findings.runs] == [4, 4]
    steps = plot_named(report, "curves-steps-0")
    assert titles(steps)[:2] == ["validation fid", "test fid"]
    np.testing.assert_allclose(steps.axes[1].get_lines()[0].get_xydata(), [[20, 20.0], [40, 10.0]])
    target = table_named(report, "target-0")
    assert [cell.text for cell in target.rows[0][1:]] == ["1 of 1", "2", "20", "1"]
    assert "fid of at most 20 on validation data (smaller is better)" in target.about
    assert "Judged by fid (smaller is better)." in report.document.notes["points"][0]


def test_a_metric_that_only_the_last_epoch_has_can_be_seen(tmp_path):
    make_run(tmp_path, [0.5])
    make_run(tmp_path, [0.5, 0.6], optimizer="adam")
    panel = plot_named(Report.of([tmp_path]), "curves-steps-0").axes[1]
    markers = {len(line.get_xdata()): line.get_marker() for line in panel.get_lines()}
    assert markers[1] not in ("", "None")
    assert markers[2] in ("", "None")


# A length in steps


def test_a_length_in_steps(tmp_path):
    for seed in (0, 1):
        make_run(tmp_path / "store", [0.5, 0.6], seed=seed, steps=500)
    half = begin(tmp_path / "store", table_of(seed=2, steps=500))
    half.append(rows_of([0.2, 0.3]))
    make_run(tmp_path / "store", [0.5, 0.6], epochs=2)
    report = Report.of([tmp_path / "store"])
    report.write(tmp_path / "report")
    by_name = {problem.name: problem for problem in report.findings.problems}
    assert set(by_name) == {"points, 500 steps", "points, 2 epochs"}
    assert len(by_name["points, 500 steps"].runs) == 3
    assert report.document.notes["points, 500 steps"][0].startswith(
        "points(), 500 steps, batches of 64, ConstantLR."
    )
    epochs = {row["problem"]: row["epochs"] for row in runs_csv(tmp_path / "report")}
    assert epochs == {"points, 500 steps": "", "points, 2 epochs": "2"}
    (row,) = table_named(report, "trouble").rows
    assert row[4].text == "20 of 500 steps"


# Units


def test_a_declared_unit_is_shown_and_bounds_nothing(tmp_path):
    for seed, value in enumerate((90.0, 150.0)):
        for optimizer in ("sgd", "adam"):
            make_run(
                tmp_path, [value], metric="delay", largest=False, unit="ms", seed=seed,
                optimizer=optimizer,
            )  # fmt: skip
    report = Report.of([tmp_path], {"": 120.0})
    results = table_named(report, "results-0")
    row = dict(zip(results.columns, results.rows[0], strict=True))
    assert row["test delay (ms)"].order == 120.0
    assert row["95 % interval (test)"].parts["low"] < 0.0
    assert row["95 % interval (test)"].parts["high"] > 150.0
    assert table_named(report, "target-0").title == "Time to delay 120 ms"
    (panel,) = plot_named(report, "results-0").axes
    assert panel.get_xlabel() == "test delay (ms, smaller is better)"


def test_values_that_are_in_per_cent_already_are_shown_as_such(tmp_path):
    for seed, value in enumerate((97.5, 99.9)):
        for optimizer in ("sgd", "adam"):
            make_run(tmp_path, [value], metric="hits", unit="%", seed=seed, optimizer=optimizer)
    report = Report.of([tmp_path], {"": 90.0})
    results = table_named(report, "results-0")
    row = dict(zip(results.columns, results.rows[0], strict=True))
    assert row["test hits (%)"].order == pytest.approx(98.7)
    assert row["95 % interval (test)"].parts["high"] == 100.0
    assert table_named(report, "target-0").title == "Time to hits 90 %"
    (panel,) = plot_named(report, "results-0").axes
    assert panel.xaxis.get_major_formatter()(98.0).endswith("%")
