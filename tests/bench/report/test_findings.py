"""How runs are arranged: problems, settings, and the choice of the best setting."""

from made_runs import begin, make_run, result_of, rows_of, table_of
from sgdf.bench.report.findings import gather
from sgdf.bench.store.run_folder import State, Store


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


def test_runs_of_different_length_are_different_problems(tmp_path):
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


def test_settings_with_unfinished_runs_are_not_chosen(tmp_path):
    make_run(tmp_path, [0.9], lr=0.1, seed=0)
    make_run(tmp_path, [0.1], lr=0.1, seed=1, diverged=3)
    for seed in (0, 1):
        begin(tmp_path, table_of(lr=0.2, seed=seed))
        make_run(tmp_path, [0.5], lr=0.3, seed=seed, optimizer="adam")
    make_run(tmp_path, [0.9], lr=0.4, seed=0, optimizer="adam")
    begin(tmp_path, table_of(lr=0.4, seed=1, optimizer="adam"))  # one seed that was lucky
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert {setting.name for setting in problem.headline} == {"sgd lr=0.1", "adam lr=0.3"}


def test_a_tie_is_decided_by_the_lower_loss(tmp_path):
    for lr, loss in ((0.1, 0.5), (1.0, 0.4), (10.0, 0.6)):
        folder = begin(tmp_path, table_of(lr=lr))
        rows = rows_of([0.9 + 1e-15 * lr])
        rows[0]["validation"]["loss"] = loss
        folder.finish(State.FINISHED, result_of(rows), rows)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert [setting.name for setting in problem.headline] == ["sgd lr=1.0"]


def test_a_setting_with_a_failed_run_is_not_chosen(tmp_path):
    make_run(tmp_path, [0.99], lr=1.0, seed=0)
    begin(tmp_path, table_of(lr=1.0, seed=1)).fail("no")
    for seed in (0, 1):
        make_run(tmp_path, [0.9], lr=0.1, seed=seed)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert [setting.name for setting in problem.headline] == ["sgd lr=0.1"]


def test_a_setting_with_a_diverged_run_is_not_chosen(tmp_path):
    make_run(tmp_path, [0.99], lr=1.0, seed=0)
    make_run(tmp_path, [0.1], lr=1.0, seed=1, diverged=3)
    for seed in (0, 1):
        make_run(tmp_path, [0.9], lr=0.1, seed=seed)
    (problem,) = gather(Store(tmp_path).folders()).problems
    assert [setting.name for setting in problem.headline] == ["sgd lr=0.1"]
