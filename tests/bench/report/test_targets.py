"""Time to a target, and performance profiles."""

import itertools
import math

import pytest

from made_runs import begin, make_run, rows_of, table_of
from sgdf.bench.errors import SpecError
from sgdf.bench.report.findings import gather
from sgdf.bench.report.sample_cells import interval_cell
from sgdf.bench.report.statistics import Sample
from sgdf.bench.report.targets import Target, profiles, share_within
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import Store


def test_a_target_for_a_task_is_for_all_of_its_problems(tmp_path):
    for epochs, optimizer in itertools.product((1, 2), ("sgd", "adam")):
        make_run(tmp_path, [0.9] * epochs, epochs=epochs, optimizer=optimizer)
    wanted = {"points": 0.5, "points, 2 epochs": 0.6}
    assert [target.value for target in Report.of([tmp_path], wanted).targets] == [0.5, 0.6]


def test_intervals_of_accuracies_stay_within_what_is_possible():
    sample = Sample((0.99, 1.0, 0.97))
    assert sample.interval[1] > 1.0
    assert interval_cell(sample, 100.0, (0.0, 100.0)).parts["high"] == 100.0
    assert interval_cell(sample, 100.0).parts["high"] > 100.0


def test_time_to_target(filled_store):
    lines, _ = gather(Store(filled_store).folders()).problems
    target = Target.of(lines, 0.6)
    sgdf, _, _ = lines.headline
    hit = target.typical(sgdf)
    assert (hit.step, hit.epoch, hit.seconds) == (20, 2, 1.0)


def test_the_target_table_shows_hits_and_misses(tmp_path):
    for seed, top in enumerate((0.9, 0.9, 0.7)):
        make_run(tmp_path, [0.5, top], seed=seed)
        make_run(tmp_path, [0.5, 1.6 - top], seed=seed, optimizer="adam")
    report = Report.of([tmp_path], {"": 0.85})
    (table,) = [t for t in report.document.tables if t.name == "target-0"]
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert rows["sgd"] == ["2 of 3", "2", "20", "1"]
    assert rows["adam"] == ["1 of 3", "missed", "missed", "missed"]
    assert "as requested" in table.about
    assert "at least 85 % on validation data (larger is better)" in table.about


def test_a_target_that_is_not_reached_by_half_is_missed(tmp_path):
    for seed, top in enumerate((0.9, 0.7)):
        make_run(tmp_path, [top], seed=seed)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert Target.of(problem, 0.8).typical(problem.settings[0]) is None


def test_by_default_three_quarters_reach_the_target_each_time(filled_store, tmp_path):
    lines, _ = gather(Store(filled_store).folders()).problems
    target = Target.of(lines, None)
    assert target.value == pytest.approx(0.7)
    assert all(target.typical(setting) for setting in lines.headline)
    make_run(tmp_path, [0.5])
    (alone,) = gather(Store(tmp_path).folders()).problems
    assert Target.of(alone, None) is None


def test_a_target_for_no_problem_is_refused(filled_store):
    with pytest.raises(SpecError, match=r"no task or problem 'point'; the known ones are 'lines'"):
        Report.of([filled_store], {"point": 0.5})


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


def test_profiles_use_only_problems_and_optimizers_that_all_share(tmp_path):
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
    (table,) = [t for t in Report.of([tmp_path]).document.tables if t.name == "target-0"]
    assert "at most 0.3 on validation data (smaller is better)" in table.about


def test_a_target_in_per_cent_is_refused(filled_store):
    with pytest.raises(
        SpecError, match=r"target = 90: accuracy on lines is at most 1; 0\.9 is 90 %"
    ):
        Report.of([filled_store], {"": 90.0})
