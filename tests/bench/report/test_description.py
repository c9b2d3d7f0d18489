"""What a report says about its runs as a whole, and which result it marks."""

import io
import itertools

from rich.console import Console

from made_runs import begin, make_run, result_of, rows_of, table_of
from sgdf.bench.report.brief import results_in_brief
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import State, Store
from sgdf.present.formats import comma_separated, markdown


def fill(store, **spec):
    """Write runs of two optimizers with two seeds; the spread of sgd is zero."""
    for optimizer, seed in itertools.product(("sgd", "adam"), (0, 1)):
        value = 0.9 if optimizer == "sgd" else 0.7 + 0.1 * seed
        make_run(store, [0.5, value], optimizer=optimizer, seed=seed, **spec)


def table_named(report, name):
    (table,) = [table for table in report.document.tables if table.name == name]
    return table


def test_the_title_and_what_the_experiment_is_about(tmp_path):
    fill(tmp_path)
    assert Report.of([tmp_path]).document.title == f"Report on {tmp_path}"
    Store(tmp_path).add_experiment("mine", "Whether <b>this</b> helps")
    document = Report.of([tmp_path]).document
    assert document.title == "Report on mine"
    assert document.about == ("Whether <b>this</b> helps",)
    Report.of([tmp_path]).write(tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    assert "Whether &lt;b&gt;this&lt;/b&gt; helps" in page
    assert "Whether \\<b\\>this\\</b\\> helps" in (tmp_path / "report/report.md").read_text()
    Store(tmp_path).add_experiment("other", "")
    document = Report.of([tmp_path]).document
    assert document.title == "Report on mine, other"
    assert document.about == ("mine: Whether <b>this</b> helps",)


def test_dates_and_sizes(tmp_path):
    fill(tmp_path)
    report = Report.of([tmp_path])
    assert "Trained on 2026-11-16. " in report.document.origin
    assert str(tmp_path) in report.document.origin
    assert report.document.notes["points"][0].endswith(
        "The model has 100 parameters. There are 1,200 training, 300 validation and 400 test "
        "examples."
    )
    late = begin(tmp_path, table_of(seed=9))
    late.add_environment({"date": "2026-11-18"})
    origin = Report.of([tmp_path]).document.origin
    assert "Trained from 2026-11-16 to 2026-11-18. " in origin


def test_the_leader_is_marked_in_words(tmp_path):
    fill(tmp_path)
    results = table_named(Report.of([tmp_path]), "results-0")
    assert [row[0].mark for row in results.rows] == ["leader", ""]
    assert 'marked as the "leader"' in results.about
    assert "| sgd (leader) |" in markdown(results)
    assert comma_separated(results).splitlines()[1].startswith("sgd,")


def in_brief(store, width=200):
    """Return what the terminal shows of a report."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for part in results_in_brief(Report.of([store]).document):
        console.print(part, markup=False, highlight=False)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_terminal_says_by_what_its_rows_are_ordered(tmp_path):
    fill(tmp_path / "chosen")
    order = "The rows are ordered by validation accuracy; the lead is by test accuracy."
    assert order in in_brief(tmp_path / "chosen")
    fill(tmp_path / "last", protocol="last")
    assert not any("ordered by" in line for line in in_brief(tmp_path / "last"))


def test_the_terminal_has_a_rate_once(tmp_path):
    fill(tmp_path / "one")
    assert in_brief(tmp_path / "one")[2].split()[:2] == ["optimizer", "lr"]
    for lr, optimizer in itertools.product((0.1, 1.0), ("sgd", "adam")):
        make_run(tmp_path / "named", [0.5 + 0.1 * lr], optimizer=optimizer, lr=lr)
    assert in_brief(tmp_path / "named")[2].split()[:2] == ["optimizer", "test"]
    assert table_named(Report.of([tmp_path / "named"]), "results-0").columns[1] == "lr"
    make_run(tmp_path / "named", [0.5], optimizer="lion")  # its name has no rate
    assert in_brief(tmp_path / "named")[2].split()[:2] == ["optimizer", "lr"]


def test_columns_that_the_terminal_has_no_room_for_are_named_clearly(tmp_path):
    fill(tmp_path)
    text = " ".join(in_brief(tmp_path, width=60))
    assert "also shows: lr, 95 % interval (test), " in text


def test_one_comparison_needs_no_correction(tmp_path):
    for seed, (number, optimizer) in itertools.product(range(3), enumerate(("sgd", "adam"))):
        make_run(tmp_path, [0.5 + 0.01 * seed * number], optimizer=optimizer, seed=seed)
    table = table_named(Report.of([tmp_path]), "comparisons-0")
    assert "p, corrected" not in table.columns
    assert "Holm" not in table.about
    for seed in range(3):
        make_run(tmp_path, [0.5], optimizer="lion", seed=seed)
    table = table_named(Report.of([tmp_path]), "comparisons-0")
    assert "p, corrected" in table.columns
    assert "corrected by Holm for the number of pairs" in table.about


def test_one_optimizer_or_no_result_has_no_leader(tmp_path):
    make_run(tmp_path / "one", [0.5])
    (row,) = table_named(Report.of([tmp_path / "one"]), "results-0").rows
    assert row[0].mark == ""


def test_the_direction_is_beside_the_metric(tmp_path):
    fill(tmp_path)
    results = table_named(Report.of([tmp_path]), "results-0")
    assert results.better == {
        "test accuracy (%)": "larger is better",
        "validation accuracy (%)": "larger is better",
    }
    assert set(results.better) <= set(results.columns)


def test_one_problem_has_no_overall_section(tmp_path):
    fill(tmp_path)
    begin(tmp_path, table_of(seed=7)).fail("no")
    report = Report.of([tmp_path], {"": 0.6})
    assert {table.name for table in report.document.tables} >= {"profile", "trouble"}
    assert report.document.sections == ("points",)
    fill(tmp_path, task="lines")
    assert Report.of([tmp_path]).document.sections == ("lines", "points", "Overall")


def test_equal_values_are_not_shown_as_precise(tmp_path):
    fill(tmp_path)
    report = Report.of([tmp_path])
    results = table_named(report, "results-0")
    row = dict(zip(results.columns, results.rows[0], strict=True))
    assert row["test accuracy (%)"].text == "90.00 (no spread)"
    assert row["test accuracy (%)"].parts["sd"] == 0.0
    assert row["95 % interval (test)"].text == "–"
    assert "one of the 400 test examples more or less would change it by 0.25 %" in results.about
    report.write(tmp_path / "report")
    for name in ("index.html", "report.md", "tables.tex"):
        assert "± 0 " not in (tmp_path / "report" / name).read_text()


def test_the_leader_is_the_one_that_the_verdict_names(tmp_path):
    for seed, optimizer in itertools.product((0, 1, 2), ("sgd", "adam")):
        folder = begin(tmp_path, table_of(optimizer=optimizer, seed=seed))
        rows = rows_of([0.8 if optimizer == "sgd" else 0.7])
        rows[0]["test"]["accuracy"] = 0.6 if optimizer == "sgd" else 0.65 + 0.001 * seed
        folder.finish(State.FINISHED, result_of(rows), rows)
    report = Report.of([tmp_path])
    results = table_named(report, "results-0")
    assert {row[0].text: row[0].mark for row in results.rows} == {"sgd": "", "adam": "leader"}
    assert report.document.notes["points"][1].startswith("adam leads")


def test_tracebacks_of_failures_are_shown_once(tmp_path):
    for seed in (0, 1):
        try:
            raise ValueError("<img src=x> ```")
        except ValueError as error:
            begin(tmp_path, table_of(seed=seed)).fail(error)
    begin(tmp_path, table_of(seed=2)).fail("OSError: another")
    report = Report.of([tmp_path])
    first, second = report.document.failures
    assert first.error.startswith("ValueError: <img src=x> ```")
    assert len(first.runs) == 2
    assert "test_description.py" in first.traceback
    assert (second.error, second.runs) == ("OSError: another", ("points: sgd, seed 2",))
    report.write(tmp_path / "report")
    text = (tmp_path / "report/report.md").read_text()
    assert text.count("Traceback (most recent call last)") == 1
    assert "- points: sgd, seed 1" in text
