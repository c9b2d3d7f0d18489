"""The tables of a report, its files, and the command that writes it."""

import itertools
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from made_runs import begin, make_run, result_of, rows_of, table_of
from sgdf.bench.report.findings import gather
from sgdf.bench.report.sample_cells import interval_cell
from sgdf.bench.report.statistics import Sample
from sgdf.bench.report.targets import Target
from sgdf.bench.report.verdict import Verdict
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import State, Store
from sgdf.cli import app


def test_every_kind_of_accuracy_is_shown_in_per_cent(tmp_path):
    make_run(tmp_path, [0.5], metric="top5_accuracy")
    report = Report.of([tmp_path])
    assert "50.00 (one seed)" in [cell.text for cell in report.document.tables[0].rows[0]]
    assert "test top5_accuracy (%)" in report.document.tables[0].columns


def test_accuracies_in_per_cent_are_not_scaled_again(tmp_path):
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


def test_under_the_papers_protocol_no_setting_is_chosen(tmp_path):
    for lr, seed in itertools.product((0.1, 1.0), (0, 1)):
        make_run(tmp_path, [0.5, 0.9, 0.8], lr=lr, seed=seed, protocol="paper")
    report = Report.of([tmp_path])
    (results, *_) = report.document.tables
    assert len(results.rows) == 2
    assert "best epoch on test accuracy (%)" in results.columns
    assert "last epoch on test accuracy (%)" in results.columns
    texts = [cell.text for cell in results.rows[0]]
    assert {"90.00 (no spread)", "80.00 (no spread)"} <= set(texts)
    assert "flatters" in results.about


def test_a_metric_can_be_better_the_smaller_it_is(tmp_path):
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
    assert Verdict(problem).lines[1].startswith("Significantly worse than it: adam (by 0.2")
    assert "for perplexity, smaller is better" in report.document.tables[0].about


def test_it_is_said_if_no_difference_is_significant(tmp_path):
    for optimizer, seed in itertools.product(("sgd", "adam", "sgdf"), (0, 1, 2)):
        shift = {"sgd": seed, "adam": -seed, "sgdf": 0}[optimizer]
        make_run(tmp_path, [0.5 + 0.1 * shift], optimizer=optimizer, seed=seed)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert Verdict(problem).lines[0] == (
        "No difference between the 3 settings is significant at 5 % "
        "(3 paired t-tests over the seeds, corrected by Holm)."
    )
    table = next(t for t in Report.of([tmp_path]).document.tables if t.name == "comparisons-0")
    assert [row[-1].text for row in table.rows] == ["not significant"] * 3
    assert "larger is better" in table.about


def test_the_results_table_has_the_numbers_of_the_runs(written):
    report, _ = written
    results = next(table for table in report.document.tables if table.name == "results-0")
    row = dict(zip(results.columns, results.rows[0], strict=True))
    expected = Sample((90.0, 90.3, 90.6))
    assert "for accuracy, larger is better" in results.about
    assert row["optimizer"].text == "sgdf lr=0.1"
    assert row["test accuracy (%)"].parts["mean"] == pytest.approx(expected.mean)
    assert row["test accuracy (%)"].parts["sd"] == pytest.approx(expected.sd)
    assert row["lr"].order == 0.1
    assert row["ms a step"].order == pytest.approx(50.0)
    assert row["state (bytes per parameter)"].order == 8.0


def test_runs_without_a_result_are_listed(written):
    report, _ = written
    (trouble,) = [table for table in report.document.tables if table.name == "trouble"]
    assert {row[3].text: row[4].text for row in trouble.rows} == {
        "diverged": "diverged at step 15",
        "failed": "RuntimeError: <b>no</b>",
        "waiting": "2 of 4 epochs",
    }
    assert "36 of 39 runs finished" in report.document.summary[0]
    assert f'lists the others under "{trouble.title}"' in report.document.summary[1]
    assert "RuntimeError" in (written[1] / "tables/trouble.csv").read_text()


def test_what_was_not_finite_first_is_listed(tmp_path):
    first = {"what": "parameter", "name": "0.weight", "step": 1200}
    result = {**result_of([], diverged=1201), "first_nonfinite": first}
    begin(tmp_path, table_of()).finish(State.DIVERGED, result, [])
    make_run(tmp_path, [0.5], optimizer="adam")
    (trouble,) = [t for t in Report.of([tmp_path]).document.tables if t.name == "trouble"]
    assert trouble.rows[0][4].text == (
        "diverged at step 1,201: the parameter 0.weight was not finite after step 1,200"
    )


def test_a_folder_without_a_spec_is_listed(tmp_path):
    make_run(tmp_path, [0.5])
    (tmp_path / "runs" / "no-run").mkdir()
    trouble = Report.of([tmp_path]).document.tables[-1]
    assert trouble.rows[0][3].text == "unreadable"
    assert trouble.rows[0][4].text.endswith("no-run/spec.toml: is missing or empty")


def test_a_store_without_a_finished_run_makes_a_report(tmp_path):
    begin(tmp_path / "store", table_of())
    page = Report.of([tmp_path / "store"]).write(tmp_path / "report")
    assert "0 of 1 run finished" in page.read_text()


def test_an_environment_outside_of_git_has_no_commit(tmp_path):
    make_run(tmp_path / "store", [0.5], environment={"commit": "", "data of test": "a of 9 rows"})
    report = Report.of([tmp_path / "store"])
    ((environment, _),) = report.document.environments
    assert "commit" not in environment
    assert "data of test" not in environment
    assert environment["cpu"] == "a CPU"


def test_every_image_has_an_alternative_text(written):
    _, folder = written
    text = (folder / "report.md").read_text()
    assert "![Every seed](figures/results-0.png)" in text
    assert "![]" not in text


def test_an_interval_has_no_negative_zero():
    assert interval_cell(Sample((1.0, 2.0, 3.0)), 1.0, (-0.01, 9.0)).text == "0.0 to 4.5"


def test_a_run_in_two_stores_counts_once(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path / name, [0.5])
    report = Report.of([tmp_path / "a", tmp_path / "b"])
    assert len(report.findings.runs) == 1


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
        f"Run the commands in the folder {Path.cwd()}" in (tmp_path / "out/index.html").read_text()
    )


def test_by_default_the_report_is_written_beside_the_runs(tmp_path):
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
