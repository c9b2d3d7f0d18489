"""What a report shows of runs that a training function of the user's trained, and what it omits."""

import itertools
import json

import pytest

from made_runs import begin, make_run, result_of, rows_of, table_of
from sgdf.bench.report.write import Report, run_rows
from sgdf.bench.store.run_folder import State

RETURNED_ONCE = (
    "The function returned its metrics once; one that yields them once for each epoch has curves."
)
LEVELS = {("sgd", 0.1): 0.7, ("sgd", 1.0): 0.8, ("adam", 0.1): 0.75}


def make_runs(store, epochs, protocol="validation", task="loop:train", levels=LEVELS):
    """Write runs of a training function that returned or yielded so many times."""
    splits = ("validation", "test") if protocol == "validation" else ("test",)
    for ((optimizer, lr), level), seed in itertools.product(levels.items(), range(3)):
        rows = rows_of([level + 0.01 * (seed + epoch) for epoch in range(epochs)], splits)
        for row in rows:
            row["train"] = {}
        table = table_of(optimizer, lr, seed, task, protocol)
        table["train"] = {"by_function": True, "threads": 1}
        result = result_of(rows, protocol=protocol)
        folder = begin(store, table)
        folder.finish(State.FINISHED, result | ({"last": rows[-1]}), rows)
    return Report.of([store])


def names(report):
    return {part.name for part in (*report.document.tables, *report.document.plots)}


def table_named(report, name):
    (table,) = [table for table in report.document.tables if table.name == name]
    return table


def test_one_that_yields_has_curves_against_steps_and_no_times(tmp_path):
    """The time of a run includes everything that the function does, such as its evaluations."""
    report = make_runs(tmp_path, epochs=2)
    assert {"curves-steps-0", "target-0", "profile"} <= names(report)
    assert "curves-seconds-0" not in names(report)
    target = table_named(report, "target-0")
    assert target.columns == ("optimizer", "seeds that reach it", "epochs", "steps")
    assert {len(row) for row in target.rows} == {4}
    assert "evaluations" not in target.about
    assert RETURNED_ONCE not in report.document.notes["loop:train"]


def test_a_class_has_times(tmp_path):
    for optimizer in ("sgd", "adam"):
        make_run(tmp_path, [0.5, 0.6], optimizer=optimizer)
    report = Report.of([tmp_path])
    assert "curves-seconds-0" in names(report)
    target = table_named(report, "target-0")
    assert target.columns[-1] == "seconds"
    assert "The time of evaluations is not counted." in target.about


def test_one_that_returns_once_has_no_curves(tmp_path):
    report = make_runs(tmp_path, epochs=1)
    assert names(report) == {"results-0", "comparisons-0", "settings-0", "rates-0"}
    assert report.targets == ()
    trained, once, *_ = report.document.notes["loop:train"]
    assert "a function that trains by itself" in trained
    assert once == RETURNED_ONCE


def test_a_class_of_one_epoch_keeps_its_curves(tmp_path):
    for optimizer in ("sgd", "adam"):
        make_run(tmp_path, [0.5], optimizer=optimizer)
    report = Report.of([tmp_path])
    assert {"curves-steps-0", "curves-seconds-0", "target-0", "profile"} <= names(report)
    assert RETURNED_ONCE not in report.document.notes["points"]


def test_no_schedule_is_stated(tmp_path):
    report = make_runs(tmp_path, epochs=2)
    head, *rows = run_rows(report.findings)
    assert {row[head.index("schedule")] for row in rows} == {None}
    for detail in report.document.details:
        assert "ConstantLR" not in detail.spec
        assert "[optimizer]" in detail.spec
    report.write(tmp_path / "report")
    assert "ConstantLR" not in (tmp_path / "report/runs.csv").read_text()
    (problem,) = json.loads((tmp_path / "report/results.json").read_text())
    assert [setting["schedule"] for setting in problem["settings"]] == [{}] * 3


def test_a_class_states_its_schedule(tmp_path):
    make_run(tmp_path, [0.5])
    report = Report.of([tmp_path])
    head, row = run_rows(report.findings)
    assert row[head.index("schedule")] == "ConstantLR"
    assert "ConstantLR" in report.document.details[0].spec


@pytest.mark.parametrize(
    ("epochs", "protocol", "said"),
    [
        (1, "validation", "The setting of each optimizer was chosen on validation data; the test "),
        (2, "validation", "The epoch of each run was chosen on validation data, and so was the "),
        (1, "last", "All settings are shown: nothing was chosen."),
        (2, "last", "The last epoch counts, and all settings are shown: nothing was chosen."),
    ],
)
def test_only_what_was_chosen_is_said_to_be(tmp_path, epochs, protocol, said):
    about = table_named(make_runs(tmp_path, epochs, protocol), "results-0").about
    assert said in about
    assert ("epoch" in about) == (epochs > 1)


def test_nothing_was_chosen_of_one_setting_for_each_optimizer(tmp_path):
    levels = {("sgd", 0.1): 0.7, ("adam", 0.1): 0.75}
    about = table_named(make_runs(tmp_path, 1, levels=levels), "results-0").about
    assert "Each optimizer has one setting, and nothing was chosen." in about
    assert "was chosen on" not in about


def test_a_training_loss_is_mentioned_where_there_is_one(tmp_path):
    without = make_runs(tmp_path / "without", epochs=2)
    make_run(tmp_path / "with", [0.5])
    with_it = Report.of([tmp_path / "with"])
    for report, has_one in ((without, False), (with_it, True)):
        for table in report.document.tables:
            if table.name in ("results-0", "settings-0"):
                assert ("training loss there" in table.columns) is has_one
        about = table_named(report, "results-0").about
        assert ("A training loss is that of the same epoch." in about) is has_one


@pytest.mark.parametrize("place", ["task", "optimizer"])
def test_what_only_a_notebook_defines_cannot_be_run_by_a_command(tmp_path, place):
    task = "__main__:train" if place == "task" else "loop:train"
    optimizer = "__main__:Own" if place == "optimizer" else "sgd"
    report = make_runs(tmp_path, 1, task=task, levels={(optimizer, 0.1): 0.5})
    (detail,) = report.document.details
    assert detail.commands == ()
    name = task if place == "task" else optimizer
    assert detail.obstacle == (
        f"No command repeats its runs: {name} was defined in a notebook or an interactive session, "
        "where no other process finds it."
    )
    report.write(tmp_path / "report")
    for file in ("index.html", "report.md"):
        text = (tmp_path / "report" / file).read_text().partition("Settings, runs and commands")[2]
        assert "spec.toml" not in text
        assert "repeats a run" not in text
        assert "Run the commands" not in text
        assert "was defined in a notebook" in text


def test_what_a_file_defines_can_be_run_by_a_command(tmp_path):
    report = make_runs(tmp_path, 1, levels={("sgd", 0.1): 0.5})
    (detail,) = report.document.details
    assert detail.obstacle == ""
    assert len(detail.commands) == 3
    report.write(tmp_path / "report")
    text = (tmp_path / "report/index.html").read_text()
    assert "A command repeats a run in another folder" in text
    assert "Run the commands in the folder" in text
