"""What a report makes of runs, and the command that makes it."""

import itertools
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from made_runs import begin, make_run, result_of, rows_of, table_of
from sgdf.bench.paper.published import Published, published
from sgdf.bench.report.findings import gather
from sgdf.bench.report.paper import deviations, fitting
from sgdf.bench.report.statistics import Sample
from sgdf.bench.report.tables import verdicts as verdicts_in_words
from sgdf.bench.report.targets import Target
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import State, Store
from sgdf.cli import app

# What is made of runs


def test_runs_are_grouped_by_problem_and_setting(filled_store):
    findings = gather(Store(filled_store).folders())
    assert [problem.name for problem in findings.problems] == ["lines", "points"]
    lines, points = findings.problems
    assert [setting.name for setting in lines.settings] == [
        f"{name} lr={lr}" for name in ("mine:Own", "sgd", "sgdf") for lr in (0.1, 1.0)
    ]
    assert len(points.settings) == 7
    assert all([run.seed for run in s.runs] == [0, 1, 2] for s in lines.settings)
    assert lines.metrics == ("accuracy", "loss")


def test_a_length_of_its_own_is_a_problem_of_its_own(tmp_path):
    for epochs in (2, 3):
        make_run(tmp_path, [0.5] * epochs, epochs=epochs)
    names = [problem.name for problem in gather(Store(tmp_path).folders()).problems]
    assert names == ["points, 2 epochs", "points, 3 epochs"]


def test_the_headline_is_chosen_on_validation_and_the_best_comes_first(filled_store):
    lines, _ = gather(Store(filled_store).folders()).problems
    assert [s.name for s in lines.headline] == ["sgdf lr=0.1", "sgd lr=0.1", "mine:Own lr=0.1"]


def test_the_headline_does_not_look_at_the_test_data(tmp_path):
    for lr, validation, test in ((0.1, 0.9, 0.5), (1.0, 0.8, 0.99)):
        folder = begin(tmp_path, table_of(lr=lr))
        rows = rows_of([validation])
        rows[0]["test"]["accuracy"] = test
        folder.finish(State.FINISHED, result_of(rows), rows)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert [setting.name for setting in problem.headline] == ["sgd lr=0.1"]


def test_what_has_no_result_yet_is_no_headline(tmp_path):
    make_run(tmp_path, [0.9], lr=0.1, seed=0)
    make_run(tmp_path, [0.1], lr=0.1, seed=1, diverged=3)
    for seed in (0, 1):
        begin(tmp_path, table_of(lr=0.2, seed=seed))
        make_run(tmp_path, [0.5], lr=0.3, seed=seed, optimizer="adam")
    make_run(tmp_path, [0.9], lr=0.4, seed=0, optimizer="adam")
    begin(tmp_path, table_of(lr=0.4, seed=1, optimizer="adam"))  # one seed that was lucky
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert {setting.name for setting in problem.headline} == {"sgd lr=0.1", "adam lr=0.3"}


def test_of_equals_the_lower_loss_is_chosen(tmp_path):
    for lr, loss in ((0.1, 0.5), (1.0, 0.4), (10.0, 0.6)):
        folder = begin(tmp_path, table_of(lr=lr))
        rows = rows_of([0.9 + 1e-15 * lr])
        rows[0]["validation"]["loss"] = loss
        folder.finish(State.FINISHED, result_of(rows), rows)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert [setting.name for setting in problem.headline] == ["sgd lr=1.0"]


def test_a_failed_run_is_a_lost_one(tmp_path):
    make_run(tmp_path, [0.99], lr=1.0, seed=0)
    begin(tmp_path, table_of(lr=1.0, seed=1)).fail("no")
    for seed in (0, 1):
        make_run(tmp_path, [0.9], lr=0.1, seed=seed)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert [setting.name for setting in problem.headline] == ["sgd lr=0.1"]


def test_every_kind_of_accuracy_is_shown_in_per_cent(tmp_path):
    make_run(tmp_path, [0.5], metric="top5_accuracy")
    report = Report.of([tmp_path])
    assert "50.00 (one seed)" in [cell.text for cell in report.document.tables[0].rows[0]]
    assert "test top5_accuracy (%)" in report.document.tables[0].columns


def test_accuracies_that_come_in_per_cent_stay_so(tmp_path):
    make_run(tmp_path, [97.5])
    report = Report.of([tmp_path], {"": 90.0})
    texts = [cell.text for cell in report.document.tables[0].rows[0]]
    assert "97.50 (one seed)" in texts


def test_step_times_are_medians(tmp_path):
    for seed, seconds in enumerate((1.0, 2.0, 9.0)):
        folder = begin(tmp_path, table_of(seed=seed))
        rows = rows_of([0.5], steps=100, seconds=seconds)
        folder.finish(State.FINISHED, result_of(rows), rows)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert problem.settings[0].milliseconds == 20.0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.jsonl", b"1\n"),
        ("metrics.jsonl", b'{"kind": "epoch"}\n'),
        ("metrics.jsonl", b'{"kind": "epoch", "epoch": 1, "step": 1, "seconds": 3}\n'),
        ("metrics.jsonl", b'{"kind": "epoch", "epoch": 1, "step": 1, "seconds": {}, "test": 1}\n'),
        ("metrics.jsonl", b"\xff\x00"),
        ("environment.json", b'["x"]'),
        ("environment.json", b"{}"),
        ("result.json", b"[]"),
        ("failure.json", b'{"error": null}'),
    ],
)
def test_a_damaged_run_is_listed_and_counts_for_nothing(tmp_path, name, content):
    folders = [make_run(tmp_path / "store", [0.5], seed=seed) for seed in (0, 1)]
    open_run = begin(tmp_path / "store", table_of(seed=2))
    for folder in (folders[0], open_run):
        (folder.path / name).write_bytes(content)
    report = Report.of([tmp_path / "store"])
    report.write(tmp_path / "report")
    finished = 1 if name in ("metrics.jsonl", "result.json") else 2
    assert f"{finished} of 3 runs finished" in report.document.summary[0]
    target = Target.of(report.findings.problems[0], 0.5)
    lost = name == "failure.json"
    assert len(target.hits(report.findings.problems[0].settings[0])) == finished + lost


def test_an_earlier_report_leaves_nothing_behind(tmp_path):
    make_run(tmp_path / "store", [0.5])
    failed = begin(tmp_path / "store", table_of(seed=1))
    failed.fail("no")
    place = tmp_path / "report"
    Report.of([tmp_path / "store"]).write(place)
    assert (place / "tables/trouble.csv").exists()
    (place / "tables/mine.csv").write_text("mine")
    failed.clear_failure()
    failed.finish(State.FINISHED, result_of(rows_of([0.6])), rows_of([0.6]))
    Report.of([tmp_path / "store"]).write(place)
    assert not (place / "tables/trouble.csv").exists()
    assert (place / "tables/mine.csv").exists()


def test_a_lost_run_outweighs_a_better_mean(tmp_path):
    make_run(tmp_path, [0.99], lr=1.0, seed=0)
    make_run(tmp_path, [0.1], lr=1.0, seed=1, diverged=3)
    for seed in (0, 1):
        make_run(tmp_path, [0.9], lr=0.1, seed=seed)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert [setting.name for setting in problem.headline] == ["sgd lr=0.1"]


def test_under_the_papers_protocol_nothing_is_chosen(tmp_path):
    for lr, seed in itertools.product((0.1, 1.0), (0, 1)):
        make_run(tmp_path, [0.5, 0.9, 0.8], lr=lr, seed=seed, protocol="paper")
    report = Report.of([tmp_path])
    (results, *_) = report.document.tables
    assert len(results.rows) == 2
    assert "best epoch on test accuracy (%)" in results.columns
    assert "last epoch on test accuracy (%)" in results.columns
    texts = [cell.text for cell in results.rows[0]]
    assert {"90.00 ± 0", "80.00 ± 0"} <= set(texts)
    assert "flatters" in results.about


def test_smaller_can_be_better(tmp_path):
    for optimizer, level, slope in (("sgd", 0.2, 0.01), ("adam", 0.4, 0.011)):
        for seed in (0, 1, 2):
            make_run(
                tmp_path, [0.9, level + slope * seed], optimizer=optimizer, seed=seed,
                metric="perplexity", largest=False,
            )  # fmt: skip
    report = Report.of([tmp_path])
    (problem,) = report.findings.problems
    assert [setting.optimizer for setting in problem.headline] == ["sgd", "adam"]
    verdicts = next(t for t in report.document.tables if t.name.startswith("comparisons")).rows
    assert [row[-1].text for row in verdicts] == ["sgd is better"]
    (line,) = verdicts_in_words(problem)
    assert line == "sgd and adam: sgd is better"


def test_no_difference_is_said_to_be_none(tmp_path):
    for optimizer, seed in itertools.product(("sgd", "adam", "sgdf"), (0, 1, 2)):
        shift = {"sgd": seed, "adam": -seed, "sgdf": 0}[optimizer]
        make_run(tmp_path, [0.5 + 0.1 * shift], optimizer=optimizer, seed=seed)
    (problem,) = gather(Store(tmp_path).folders()).problems
    (line,) = verdicts_in_words(problem)
    assert line.startswith("Between no two of them is a difference shown at 5 % (3 paired")


def test_results_are_what_the_runs_say(written):
    report, _ = written
    results = next(table for table in report.document.tables if table.name == "results-0")
    row = dict(zip(results.columns, results.rows[0], strict=True))
    expected = Sample((90.0, 90.3, 90.6))
    assert row["optimizer"].text == "sgdf lr=0.1"
    assert row["test accuracy (%)"].parts["mean"] == pytest.approx(expected.mean)
    assert row["test accuracy (%)"].parts["sd"] == pytest.approx(expected.sd)
    assert row["lr"].order == 0.1
    assert row["ms a step"].order == pytest.approx(50.0)
    assert row["state (bytes per parameter)"].order == 8.0


def test_trouble_is_listed(written):
    report, _ = written
    (trouble,) = [table for table in report.document.tables if table.name == "trouble"]
    said = {row[3].text: row[4].text for row in trouble.rows}
    assert said == {
        "diverged": "diverged at step 15",
        "failed": "RuntimeError: <b>no</b>",
        "waiting": "2 of 4 epochs",
    }
    assert "36 of 39 runs finished" in report.document.summary[0]
    assert "RuntimeError" in (written[1] / "tables/trouble.csv").read_text()


def test_a_folder_without_a_spec_is_listed(tmp_path):
    make_run(tmp_path, [0.5])
    (tmp_path / "runs" / "no-run").mkdir()
    trouble = Report.of([tmp_path]).document.tables[-1]
    assert trouble.rows[0][3].text == "unreadable"
    assert trouble.rows[0][4].text.endswith("no-run")


def test_a_store_without_a_finished_run_makes_a_report(tmp_path):
    begin(tmp_path / "store", table_of())
    page = Report.of([tmp_path / "store"]).write(tmp_path / "report")
    assert "0 of 1 run finished" in page.read_text()


def test_a_run_in_two_stores_counts_once(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path / name, [0.5])
    report = Report.of([tmp_path / "a", tmp_path / "b"])
    assert len(report.findings.runs) == 1


# Published results


def column(**changes):
    known = {
        "label": "tab:x", "name": "Points", "about": "Something", "metric": "accuracy",
        "unit": "%", "seeds": (0, 1, 2), "runs": 3,
        "task": {"name": "points"}, "train": {"epochs": 200, "batch_size": 64}, "note": "",
        "values": {"SGD": (91.5, 0.2), "ADAM": (90.0,)},
        "optimizers": {"SGD": "sgd", "ADAM": "adam"}, "quoted": {"ADAM": "Somebody"},
    }  # fmt: skip
    return Published(**{**known, **changes})


def test_published_results_stand_beside_ours(tmp_path):
    for optimizer, seed in itertools.product(("sgd", "adam", "sgdf"), (0, 1)):
        make_run(tmp_path, [0.8 + 0.1 * seed], optimizer=optimizer, seed=seed)
    report = Report.of([tmp_path], beside=(column(), column(task={"name": "other"})))
    (table,) = [t for t in report.document.tables if t.name.startswith("paper-")]
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert rows == {
        "sgd": ["85.0 ± 7.1", "91.5 ± 0.2", "SGD", "the paper's own",
                "DIFFERS: epochs 4 instead of 200"],
        "adam": ["85.0 ± 7.1", "90", "ADAM", "quoted from Somebody",
                 "DIFFERS: epochs 4 instead of 200"],
    }  # fmt: skip
    assert "Seeds 0, 1, 2" in table.about
    assert "there on test data" in table.about


def test_a_run_at_full_size_is_not_called_reduced(tmp_path):
    make_run(tmp_path, [0.8], epochs=200)
    report = Report.of([tmp_path], beside=(column(),))
    (table,) = [t for t in report.document.tables if t.name.startswith("paper-")]
    assert table.rows[0][-1].text == "of the paper's size"


def test_the_column_that_fits_best_is_taken(tmp_path):
    make_run(tmp_path, [0.8], task={"name": "points", "network": "vgg11"})
    (problem,) = gather(Store(tmp_path).folders()).problems
    columns = [column(name=n, task={"name": "points", "network": n}) for n in ("vgg11", "resnet")]
    assert [found.name for found in fitting(problem, tuple(columns))] == ["vgg11"]
    assert fitting(problem, (column(metric="loss"),))
    assert fitting(problem, (column(metric="perplexity"),)) == []


def test_all_of_the_papers_columns_load():
    columns = published()
    cifar = next(c for c in columns if c.task == {"name": "cifar10", "network": "vgg11"})
    assert cifar.values["SGDF"] == (91.61, 0.21)
    assert cifar.optimizers["SGD"] == "sgd"
    own = {"task": {"name": "cifar10", "network": "cnn"}, "train": {}, "optimizer": {"name": "m:O"}}
    assert deviations(cifar, own) == [
        "network cnn instead of vgg11",
        "epochs not set instead of 200",
        "batch_size not set instead of 128",
    ]
    hessian = next(c for c in columns if c.label == "fig:main_hessian_spectrum")
    assert "SGD" in hessian.optimizers


# The commands


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_writes_a_report(filled_store, tmp_path):
    result = invoke("report", filled_store, "--out", tmp_path / "out", "--target", "points=0.75")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out/index.html").exists()
    assert "sgdf" in result.output
    assert str(tmp_path / "out/index.html") in result.output.replace("\n", "")
    assert "time to accuracy 75 %" in (tmp_path / "out/report.md").read_text().lower()
    assert "Time to accuracy 75 %" in result.output
    assert (
        f"The commands are for the folder {Path.cwd()}" in (tmp_path / "out/index.html").read_text()
    )


def test_by_default_it_goes_beside_the_runs(tmp_path):
    make_run(tmp_path / "mine", [0.5])
    assert invoke("report", tmp_path / "mine").exit_code == 0
    assert (tmp_path / "mine/report/index.html").exists()
    make_run(tmp_path / "other", [0.5], optimizer="adam")
    assert invoke("report", tmp_path).exit_code == 0
    assert "2 optimizers" in (tmp_path / "report/index.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such folder"),
        (["STORE", "--target", "much"], "not a number"),
        (["STORE", "--target", "circles=1"], "no task or problem 'circles'"),
        (["STORE", "--out", ""], "a folder needs a name"),
        (["STORE", "--out", "FILE/report"], "FILE"),
    ],
)
def test_wrong_input_is_explained(filled_store, tmp_path, arguments, message):
    (tmp_path / "FILE").write_text("")
    replaced = {"STORE": str(filled_store), "FILE/report": str(tmp_path / "FILE/report")}
    result = invoke("report", *(replaced.get(argument, argument) for argument in arguments))
    assert result.exit_code == 2
    assert message in re.sub(r"[\s│]+", " ", result.output)
    assert "Traceback" not in result.output


def test_a_metric_that_looks_like_markup_does_not_break_the_terminal(tmp_path):
    make_run(tmp_path, [0.5], metric="[/b]", optimizer="[red]")
    result = invoke("report", tmp_path)
    assert result.exit_code == 0, result.output
    assert "[/b]" in result.output
    assert "[red]" in result.output
