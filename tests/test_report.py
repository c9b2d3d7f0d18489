"""Reports: the statistics, what is made of runs, and that nothing in a run can break a report."""

import csv
import io
import itertools
import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from made_runs import begin, make_run, result_of, rows_of, table_of
from sgdf.bench.objects import SpecError
from sgdf.bench.published import Published, published
from sgdf.bench.report import formats
from sgdf.bench.report.beside import fitting
from sgdf.bench.report.cells import Cell, Table, figure, interval, number
from sgdf.bench.report.data import gather
from sgdf.bench.report.palette import HUES, looks
from sgdf.bench.report.statistics import Sample, compare, holm, p_value
from sgdf.bench.report.tables import verdicts as verdicts_in_words
from sgdf.bench.report.targets import Target, profiles, share_within
from sgdf.bench.report.write import Report
from sgdf.bench.store import State, Store
from sgdf.cli import app

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "مُحسِّن العربية",
    "a|b*c_d`e`[f](g)",
    "50 % & $x_1$ \\input{/etc/passwd} ~ ^ {}",
    "=cmd|' /C calc'!A0",
    "two\nlines\x07\u2028and more",
    'name: with, commas "and quotes"',
    "]]>--><!--",
    "\U0001f600 emoji",
]


# Statistics


@pytest.mark.parametrize("count", [2, 3, 5, 30])
def test_mean_sd_and_interval_are_scipys(count):
    values = np.random.default_rng(count).normal(3.0, 2.0, count)
    sample = Sample(tuple(values))
    assert sample.mean == pytest.approx(values.mean(), rel=1e-14)
    assert sample.sd == pytest.approx(values.std(ddof=1), rel=1e-14)
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert sample.interval == pytest.approx((low, high), rel=1e-12)


def test_interval_in_closed_form():
    # Student's distribution with one degree of freedom is Cauchy's: its 97.5 % quantile is
    # tan(0.475 π); with two degrees it is 0.95 √2 / √(1 - 0.95²).
    low, high = Sample((0.0, 2.0)).interval
    assert (low, high) == pytest.approx(
        (1 - math.tan(0.475 * math.pi), 1 + math.tan(0.475 * math.pi))
    )
    reach = 0.95 * math.sqrt(2.0 / (1 - 0.95**2)) / math.sqrt(3.0)
    assert Sample((-1.0, 0.0, 1.0)).interval == pytest.approx((-reach, reach))


def test_interval_covers_the_mean_as_often_as_it_says():
    # 4,000 samples of three: the share of hits has a standard deviation of 0.34 %, so a right
    # interval fails this test once in ten thousand seeds.
    rng = np.random.default_rng(0)
    samples = (Sample(tuple(rng.normal(7.0, 1.0, 3))) for _ in range(4000))
    hits = sum(low <= 7.0 <= high for low, high in (sample.interval for sample in samples))
    assert hits / 4000 == pytest.approx(0.95, abs=0.0135)


@pytest.mark.parametrize("values", [(), (1.0,), (1.0, math.nan), (math.inf, 1.0)])
def test_no_spread_is_claimed_where_there_is_none(values):
    sample = Sample(values)
    assert sample.sd is None
    assert sample.interval is None


def test_p_value_is_scipys():
    rng = np.random.default_rng(1)
    for count in (2, 3, 10):
        one, other = rng.normal(size=count), rng.normal(0.5, 1.0, count)
        expected = stats.ttest_rel(one, other).pvalue
        assert p_value(Sample(tuple(one - other))) == pytest.approx(expected, rel=1e-12)


def test_p_value_in_closed_form():
    # With one degree of freedom: p = 1 - 2 atan(t) / π.
    t = (1.0 + 2.0) / 2 * math.sqrt(2) / math.sqrt(0.5)
    assert p_value(Sample((1.0, 2.0))) == pytest.approx(1 - 2 * math.atan(t) / math.pi)


def test_differences_without_spread_prove_nothing():
    assert p_value(Sample((0.5, 0.5, 0.5))) is None
    assert p_value(Sample((0.4 - 0.2, 0.41 - 0.21, 0.42 - 0.22))) is None  # but for rounding
    assert p_value(Sample((0.0, 0.0, 0.0))) == 1.0
    assert p_value(Sample((0.5,))) is None


def test_holm_by_its_definition():
    # A hypothesis is rejected at a level if and only if the step-down procedure rejects it.
    rng = random.Random(0)
    for _ in range(50):
        values = [rng.random() ** 3 for _ in range(rng.randint(1, 6))]
        corrected = holm(values)
        for level in (0.01, 0.05, 0.3):
            rejected = set()
            for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
                if values[index] * (len(values) - rank) > level:
                    break
                rejected.add(index)
            assert rejected == {i for i, p in enumerate(corrected) if p <= level}


def test_comparisons_pair_by_seed():
    one, other = {0: 1.0, 1: 3.0, 2: 4.0, 9: 100.0}, {2: 1.0, 1: 2.0, 0: 0.5}
    (found,) = compare([one, other])
    assert found.difference.values == (0.5, 1.0, 3.0)
    assert found.p == pytest.approx(stats.ttest_rel([1.0, 3.0, 4.0], [0.5, 2.0, 1.0]).pvalue)
    assert found.corrected == found.p


def test_comparisons_are_corrected_for_their_number():
    rng = np.random.default_rng(3)
    settings = [dict(enumerate(rng.normal(shift, 1.0, 5))) for shift in (0.0, 1.0, 4.0)]
    found = compare(settings)
    assert [(c.first, c.second) for c in found] == list(itertools.combinations(range(3), 2))
    assert [c.corrected for c in found] == holm([c.p for c in found])


# Figures in words


@pytest.mark.parametrize(
    ("values", "scale", "text"),
    [
        ((0.9882, 0.9867, 0.9897), 100.0, "98.82 ± 0.15"),
        ((1234.0, 1250.0), 1.0, "1242 ± 11"),
        ((0.5,), 1.0, "0.5000 (one seed)"),
        ((0.0, 0.0), 1.0, "0 ± 0"),
        ((math.nan, 1.0), 1.0, "nan"),
        ((math.inf,), 1.0, "inf (one seed)"),
        ((1e-12, 2e-12), 1.0, "1.5e-12 ± 7.07e-13"),
        ((), 1.0, "–"),
    ],
)
def test_figures(values, scale, text):
    assert figure(Sample(values), scale).text == text


def test_one_seed_shows_no_plus_minus(tmp_path):
    make_run(tmp_path, [0.5, 0.9])
    make_run(tmp_path, [0.5, 0.8], optimizer="adam")
    report = Report.of([tmp_path])
    (results, *_) = report.contents.tables
    texts = [cell.text for row in results.rows for cell in row]
    assert "90.00 (one seed)" in texts
    assert not any("±" in text for text in texts)
    assert "one seed" in results.about
    assert any("one seed" in line for line in report.contents.summary)
    assert not any(table.name.startswith("comparisons") for table in report.contents.tables)


# What is made of runs


def filled(store):
    """Three optimizers with two rates on two problems, three seeds, and trouble."""
    for task, optimizer, lr, seed in itertools.product(
        ("points", "lines"), ("sgdf", "sgd", "mine:Own"), (0.1, 1.0), (0, 1, 2)
    ):
        top = (
            {"sgdf": 0.9, "sgd": 0.8, "mine:Own": 0.7}[optimizer]
            - 0.05 * (lr == 1.0)
            + 0.003 * seed
        )
        make_run(
            store, [0.3, 0.6, top, top - 0.01], optimizer=optimizer, lr=lr, seed=seed, task=task
        )
    make_run(store, [0.1], optimizer="sgd", lr=10.0, seed=0, diverged=15)
    begin(store, table_of(optimizer="sgd", lr=10.0, seed=1)).fail("RuntimeError: <b>no</b>")
    half = begin(store, table_of(optimizer="sgd", lr=10.0, seed=2))
    half.append(rows_of([0.2, 0.3]))
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def written(store, tmp_path_factory):
    report = Report.of([store])
    folder = tmp_path_factory.mktemp("report")
    report.write(folder)
    return report, folder


def test_runs_are_grouped_by_problem_and_setting(store):
    findings = gather(Store(store).folders())
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


def test_the_headline_is_chosen_on_validation_and_the_best_comes_first(store):
    lines, _ = gather(Store(store).folders()).problems
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
    assert "50.00 (one seed)" in [cell.text for cell in report.contents.tables[0].rows[0]]
    assert "test top5_accuracy (%)" in report.contents.tables[0].columns


def test_accuracies_that_come_in_per_cent_stay_so(tmp_path):
    make_run(tmp_path, [97.5])
    report = Report.of([tmp_path], {"": 90.0})
    texts = [cell.text for cell in report.contents.tables[0].rows[0]]
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
    assert f"{finished} of 3 runs finished" in report.contents.summary[0]
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
    failed.forgive()
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
    (results, *_) = report.contents.tables
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
    verdicts = next(t for t in report.contents.tables if t.name.startswith("comparisons")).rows
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
    results = next(table for table in report.contents.tables if table.name == "results-0")
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
    (trouble,) = [table for table in report.contents.tables if table.name == "trouble"]
    said = {row[3].text: row[4].text for row in trouble.rows}
    assert said == {
        "diverged": "diverged at step 15",
        "failed": "RuntimeError: <b>no</b>",
        "waiting": "2 of 4 epochs",
    }
    assert "36 of 39 runs finished" in report.contents.summary[0]
    assert "RuntimeError" in (written[1] / "tables/trouble.csv").read_text()


def test_a_folder_without_a_spec_is_listed(tmp_path):
    make_run(tmp_path, [0.5])
    (tmp_path / "runs" / "no-run").mkdir()
    trouble = Report.of([tmp_path]).contents.tables[-1]
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


# Targets and profiles


def test_a_task_stands_for_all_of_its_problems(tmp_path):
    for epochs, optimizer in itertools.product((1, 2), ("sgd", "adam")):
        make_run(tmp_path, [0.9] * epochs, epochs=epochs, optimizer=optimizer)
    wanted = {"points": 0.5, "points, 2 epochs": 0.6}
    assert [target.value for target in Report.of([tmp_path], wanted).targets] == [0.5, 0.6]


def test_intervals_of_accuracies_stay_within_what_is_possible():
    sample = Sample((0.99, 1.0, 0.97))
    assert sample.interval[1] > 1.0
    assert interval(sample, 100.0, (0.0, 100.0)).parts["high"] == 100.0
    assert interval(sample, 100.0).parts["high"] > 100.0


def test_time_to_target(store):
    lines, _ = gather(Store(store).folders()).problems
    target = Target.of(lines, 0.6)
    sgdf, _, _ = lines.headline
    hit = target.typical(sgdf)
    assert (hit.step, hit.epoch, hit.seconds) == (20, 2, 1.0)


def test_a_miss_is_a_miss(tmp_path):
    for seed, top in enumerate((0.9, 0.9, 0.7)):
        make_run(tmp_path, [0.5, top], seed=seed)
        make_run(tmp_path, [0.5, 1.6 - top], seed=seed, optimizer="adam")
    report = Report.of([tmp_path], {"": 0.85})
    (table,) = [t for t in report.contents.tables if t.name == "target-0"]
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert rows["sgd"] == ["2 of 3", "2", "20", "1"]
    assert rows["adam"] == ["1 of 3", "missed", "missed", "missed"]
    assert "as asked for" in table.about


def test_a_target_that_is_not_reached_by_half_is_missed(tmp_path):
    for seed, top in enumerate((0.9, 0.7)):
        make_run(tmp_path, [top], seed=seed)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert Target.of(problem, 0.8).typical(problem.settings[0]) is None


def test_by_default_three_quarters_reach_the_target_each_time(store, tmp_path):
    lines, _ = gather(Store(store).folders()).problems
    target = Target.of(lines, None)
    assert target.value == pytest.approx(0.7)
    assert all(target.typical(setting) for setting in lines.headline)
    make_run(tmp_path, [0.5])
    (alone,) = gather(Store(tmp_path).folders()).problems
    assert Target.of(alone, None) is None


def test_a_target_for_no_problem_is_refused(store):
    with pytest.raises(SpecError, match=r"no task or problem 'point'; there is 'lines', 'points'"):
        Report.of([store], {"point": 0.5})


def test_profiles(tmp_path):
    # Epochs needed: sgd 1 and 2, adam 2 and never, sgdf 4 and 2.
    for optimizer, curves in {
        "sgd": ([0.9] * 4, [0.1, 0.9, 0.9, 0.9]),
        "adam": ([0.1, 0.9, 0.9, 0.9], [0.1] * 4),
        "sgdf": ([0.1, 0.1, 0.1, 0.9], [0.1, 0.9, 0.9, 0.9]),
    }.items():
        for seed, curve in enumerate(curves):
            make_run(tmp_path, curve, optimizer=optimizer, seed=seed)
        make_run(tmp_path, [0.1], optimizer=optimizer, seed=7)  # where nobody reaches it
    make_run(tmp_path, [0.9], seed=8)  # which the others do not have
    begin(tmp_path, table_of(optimizer="adam", seed=8))
    (problem,) = gather(Store(tmp_path).folders()).problems
    ratios = profiles([Target.of(problem, 0.9)])
    assert ratios == {"adam": [2.0, math.inf], "sgd": [1.0, 1.0], "sgdf": [1.0, 4.0]}
    assert share_within(ratios, 1.0) == {"adam": 0.0, "sgd": 1.0, "sgdf": 0.5}
    assert share_within(ratios, 4.0) == {"adam": 0.5, "sgd": 1.0, "sgdf": 1.0}


def test_profiles_are_over_what_all_have(tmp_path):
    for task, optimizers in (("points", ("sgd", "adam", "own")), ("lines", ("sgd", "adam"))):
        for optimizer in optimizers:
            make_run(tmp_path, [0.9], optimizer=optimizer, task=task)
    make_run(tmp_path, [0.9], lr=0.5, task="paper", protocol="paper")
    make_run(tmp_path, [0.9], lr=0.1, task="paper", protocol="paper")  # nobody may choose
    targets = [Target.of(p, 0.9) for p in gather(Store(tmp_path).folders()).problems]
    assert profiles(targets) == {"adam": [1.0, 1.0], "sgd": [1.0, 1.0]}


def test_a_lost_run_misses_the_target_and_an_unfinished_one_does_not_count(tmp_path):
    make_run(tmp_path, [0.9], seed=0)
    make_run(tmp_path, [0.9], seed=1)
    begin(tmp_path, table_of(seed=2)).append(rows_of([0.9]))
    make_run(tmp_path, [0.9], seed=3, diverged=10)
    begin(tmp_path, table_of(seed=4)).fail("no")
    (problem,) = gather(Store(tmp_path).folders()).problems
    target = Target.of(problem, 0.9)
    hits = target.hits(problem.settings[0])
    assert [hit is not None for hit in hits].count(True) == 2
    assert len(hits) == 4


def test_the_default_target_of_a_loss(tmp_path):
    for optimizer, level in (("sgd", 0.1), ("adam", 0.2), ("sgdf", 0.3), ("own", 0.4)):
        make_run(tmp_path, [level], optimizer=optimizer, metric="error", largest=False)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert Target.of(problem, None).value == 0.3


def test_a_target_in_per_cent_is_refused(store):
    with pytest.raises(
        SpecError, match=r"target = 90: accuracy on lines is at most 1; 0\.9 is 90 %"
    ):
        Report.of([store], {"": 90.0})


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
    (plot,) = [plot for plot in report.contents.plots if plot.name == name]
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


def test_what_is_long_is_thinned_from_end_to_end(tmp_path):
    make_run(tmp_path, [0.001 * i for i in range(500)], epochs=500)
    points = drawn(plot_of(Report.of([tmp_path]), "curves-steps-0"))[0]["sgd"]
    assert len(points) == 64
    assert (points[0, 0], points[-1, 0]) == (10, 5000)


def test_too_many_settings_are_neither_drawn_nor_compared(tmp_path):
    for lr, seed in itertools.product(range(1, 32), (0, 1)):
        make_run(tmp_path, [0.5 + 0.01 * seed], lr=float(lr), seed=seed, protocol="paper")
    report = Report.of([tmp_path])
    assert {plot.name for plot in report.contents.plots} == {"rates-0"}
    assert not any(table.name.startswith("comparisons") for table in report.contents.tables)
    setup, line = report.contents.notes["points"]
    assert setup == "points(), 4 epochs, batches of 64, ConstantLR."
    assert "more than 30 settings" in line


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
    (table,) = [t for t in report.contents.tables if t.name.startswith("paper-")]
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert rows == {
        "sgd": ["85.0 ± 7.1", "91.5 ± 0.2", "SGD", "the paper's own",
                "REDUCED: epochs 4 instead of 200"],
        "adam": ["85.0 ± 7.1", "90", "ADAM", "quoted from Somebody",
                 "REDUCED: epochs 4 instead of 200"],
    }  # fmt: skip
    assert "Seeds 0, 1, 2" in table.about
    assert "there on test data" in table.about


def test_a_run_at_full_size_is_not_called_reduced(tmp_path):
    make_run(tmp_path, [0.8], epochs=200)
    report = Report.of([tmp_path], beside=(column(),))
    (table,) = [t for t in report.contents.tables if t.name.startswith("paper-")]
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
    assert cifar.deviations({"task": {"name": "cifar10", "network": "cnn"}, "train": {}}) == [
        "network cnn instead of vgg11",
        "epochs not set instead of 200",
        "batch_size not set instead of 128",
    ]
    hessian = next(c for c in columns if c.label == "fig:main_hessian_spectrum")
    assert "SGD" in hessian.optimizers


# Forms


def parsed(markdown):
    """Return the rows of a Markdown table, unescaped."""
    lines = [line for line in markdown.split("\n") if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in row] for row in cells]


@pytest.mark.parametrize("name", HOSTILE)
def test_text_is_text_in_markdown_latex_and_csv(name):
    table = Table("t", "section", name, name, (name, "y"), ((Cell(name), number(-1.5)),))
    seen = formats.one_line(name)
    assert parsed(formats.markdown(table))[2] == [seen, "-1.5"]
    assert not re.search(r"(?<!\\)<", formats.markdown(table))
    latex = formats.latex(table)
    assert latex.count(r"\\" + "\n") == 2
    assert "$-$1.5" in latex
    assert not re.search(r"\\\\\s*\[", latex)
    assert len(re.findall(r"(?<!\\)[&]", latex)) == 2
    body = latex.replace("tab:t", "").replace("{!}{%", "")
    assert not re.search(r"(?<!\\)[%#_]", body)
    assert r"\input" not in latex
    (header, row) = csv.reader(io.StringIO(formats.comma_separated(table)))
    assert header[0].lstrip("'") == seen
    assert row == [f"'{seen}" if seen[0] in "=+-@" else seen, "-1.5"]


def test_csv_has_no_words_among_its_numbers():
    rows = ((number(1.0),), (Cell("missed", math.inf),))
    text = formats.comma_separated(Table("t", "", "", "", ("steps",), rows))
    assert text.splitlines() == ["steps", "1.0", '""']


def test_csv_has_the_numbers_behind_a_cell():
    cells = (Cell("a"), figure(Sample((1.0, 2.0))), interval(Sample((1.0, 2.0))))
    empty = (Cell("b"), figure(Sample(())), interval(Sample(())))
    table = Table("t", "", "", "", ("name", "loss", "95 %"), (cells, empty))
    rows = list(csv.DictReader(io.StringIO(formats.comma_separated(table))))
    assert float(rows[0]["loss sd"]) == pytest.approx(math.sqrt(0.5))
    assert float(rows[0]["95 % low"]) == pytest.approx(Sample((1.0, 2.0)).interval[0])
    assert rows[1]["loss mean"] == ""


def test_every_form_is_written(written):
    _, folder = written
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    figures = ["curves-seconds-0", "curves-steps-0", "curves-seconds-1", "curves-steps-1",
               "profile", "rates-0", "rates-1"]  # fmt: skip
    tables = ["comparisons-0", "comparisons-1", "profile", "results-0", "results-1",
              "settings-0", "settings-1", "target-0", "target-1", "trouble"]  # fmt: skip
    assert names == sorted(
        ["index.html", "report.md", "runs.csv", "tables.tex"]
        + [f"figures/{name}.{kind}" for name in figures for kind in ("png", "pdf")]
        + [f"tables/{name}.csv" for name in tables]
    )
    for figure_path in (folder / "figures").iterdir():
        kind = {".png": b"\x89PNG", ".pdf": b"%PDF"}[figure_path.suffix]
        assert figure_path.read_bytes().startswith(kind)


def test_markdown_names_only_figures_that_exist(written):
    _, folder = written
    named = re.findall(r"!\[\]\(([^)]+)\)", (folder / "report.md").read_text())
    assert len(named) == 7
    assert all((folder / path).exists() for path in named)


def test_runs_csv_has_every_run(written):
    report, folder = written
    rows = list(csv.DictReader(io.StringIO((folder / "runs.csv").read_text())))
    assert {row["run"] for row in rows} == {run.key for run in report.findings.runs}
    row = next(
        r for r in rows if r["optimizer"] == "sgdf" and r["lr"] == "0.1" and r["seed"] == "2"
    )
    assert float(row["test accuracy"]) == pytest.approx(0.906)
    assert row["epoch"] == "3"


def test_the_same_runs_make_the_same_report(store, tmp_path):
    for name in ("a", "b"):
        Report.of([store]).write(tmp_path / name)
    for path in sorted((tmp_path / "a").rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


# Looks


def test_an_optimizer_looks_the_same_in_every_report():
    assert looks(["sgdf", "sgd"])["sgd"] == looks(["a:B", "adam", "sgd"])["sgd"]
    many = looks([f"m:{i}" for i in range(20)] + ["sgd"])
    assert len(set(many.values())) == 21
    assert all(
        look.line["linestyle"] and look.marker
        for look in looks([f"{i}" for i in range(99)]).values()
    )


def test_lines_that_lie_on_each_other_can_be_told():
    several = looks(["sgdf", "sgd", "adam", "adamw", "filter-adam", "radam"])
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
def test_hues_can_be_told_apart_by_everybody(vision):
    # A difference of 10 in Lab is plain at a glance.
    for one, other in itertools.combinations(HUES, 2):
        distance = np.linalg.norm(seen(one, VISION[vision]) - seen(other, VISION[vision]))
        assert distance > 10, (vision, one, other, distance)


def test_settings_and_commands_are_in_the_markdown(written):
    _, folder = written
    text = (folder / "report.md").read_text()
    assert 'name = "sgdf"' in text
    assert text.count("/spec.toml --out again") == 39
    assert "39 runs: date 2026-11-16" in text


# The commands


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_writes_a_report(store, tmp_path):
    result = invoke("report", store, "--out", tmp_path / "out", "--target", "points=0.75")
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
def test_wrong_input_is_explained(store, tmp_path, arguments, message):
    (tmp_path / "FILE").write_text("")
    replaced = {"STORE": str(store), "FILE/report": str(tmp_path / "FILE/report")}
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
