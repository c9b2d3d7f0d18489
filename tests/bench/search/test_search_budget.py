"""The budget of a search: how many trials, by whichever processes, and which are pruned."""

import threading

import pytest

from searches import finish, results_of, search_of, silent
from sgdf.bench.jobs.local import Workers
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.search.job import SearchJob
from sgdf.bench.search.results import SearchResult
from sgdf.bench.search.storage import open_storage
from sgdf.bench.search.trials import STARTUP, Trials
from sgdf.bench.store.run_folder import State, Store

VANILLA = [{"name": "sgd-vanilla", "search": {"lr": {"low": 1e-6, "high": 1.0}}}]


def test_a_smaller_budget_uses_the_first_trials_of_each_optimizer(tmp_path):
    larger = finish(search_of(tmp_path, trials=4, epochs=1))
    smaller = finish(search_of(tmp_path, trials=2, epochs=1))
    assert smaller.complete
    assert (smaller.spent, smaller.budget) == (4, 4)
    for few, all_of_them in zip(smaller.optimizers, larger.optimizers, strict=True):
        assert few.trials == all_of_them.trials[:2]
        assert few.best in few.trials


def test_a_larger_budget_continues_a_smaller_one(tmp_path, undisturbed):
    few, more = finish(search_of(tmp_path, trials=4)), finish(search_of(tmp_path))
    for before, after in zip(few.optimizers, more.optimizers, strict=True):
        assert after.trials[:4] == before.trials
        assert len(after.trials) == 6
    assert results_of(more) == results_of(undisturbed)


def test_the_parts_of_a_search_are_the_whole_search(tmp_path, undisturbed):
    search = search_of(tmp_path)
    parts = SearchJob(search).parts()
    assert [part.search.candidates[0].name for part in parts[:3]] == ["sgdf", "adam", "sgdf"]
    for part in parts:
        part.work(silent, threading.Event())
    assert results_of(SearchResult(search)) == results_of(undisturbed)


@pytest.mark.usefixtures("workers_find_the_tasks")
@pytest.mark.parametrize("sampler", ["random", pytest.param("grid", marks=pytest.mark.slow)])
def test_the_number_of_workers_does_not_change_the_results(tmp_path, sampler):
    optimizer = [{"name": "sgd"}, {"name": "adam", "search": {"lr": [0.1, 0.03, 0.01, 0.001]}}]
    if sampler == "random":
        optimizer[1] = {"name": "adam"}
    options = {"trials": 4, "optimizer": optimizer, "search": {"sampler": sampler, "prune": False}}
    alone = finish(search_of(tmp_path / "alone", **options))
    together = search_of(tmp_path / "together", **options)
    Workers(SearchJob(together), 2, silent).work(threading.Event())
    assert results_of(SearchResult(together)) == results_of(alone)


@pytest.mark.usefixtures("workers_find_the_tasks")
def test_several_processes_do_not_exceed_the_budget(tmp_path):
    search = search_of(tmp_path, trials=5, epochs=1)
    Workers(SearchJob(search), 3, silent).work(threading.Event())
    assert SearchResult(search).complete
    for candidate in search.candidates:
        assert len(Trials(search, candidate, open_storage(search.storage)).all()) == 5


def test_every_point_of_a_grid_is_tried_once_and_a_small_grid_is_filled(tmp_path):
    optimizer = [
        {"name": "sgd", "search": {"lr": [1.0, 0.1], "nesterov": [True, False]}},
        {"name": "adam", "search": {"lr": [0.01, 0.001]}},
    ]
    search = search_of(
        tmp_path, trials=4, epochs=1, optimizer=optimizer, search={"sampler": "grid"}
    )
    sgd, adam = (
        [tuple(trial.options.values()) for trial in optimizer.trials]
        for optimizer in finish(search).optimizers
    )
    assert sorted(sgd) == [(0.1, False), (0.1, True), (1.0, False), (1.0, True)]
    assert sorted(adam) == [(0.001,), (0.00316,), (0.00562,), (0.01,)]


def test_of_a_large_grid_only_the_budget_is_tried(tmp_path):
    optimizer = [{"name": "adam"}, {"name": "lion"}]
    search = search_of(
        tmp_path, trials=3, epochs=1, optimizer=optimizer, search={"sampler": "grid"}
    )
    adam, lion = finish(search).optimizers
    assert (len(adam.trials), len(lion.trials)) == (3, 3)
    assert set(adam.trials[0].options) == {"lr", "betas"}  # the paper's grid
    assert {trial.options["lr"] for trial in lion.trials} == {1e-3, 1e-4, 1e-5}


@pytest.mark.parametrize("length", [{"epochs": 8}, {"steps": 24}])
def test_bad_trials_are_pruned_and_their_runs_can_be_resumed(tmp_path, length):
    train = {**length, "batch_size": 40, "threads": 1}
    lines = []
    search = search_of(tmp_path, trials=14, train=train, optimizer=VANILLA)
    result = finish(search, lambda run, event: lines.append(event.get("line") or ""))
    (vanilla,) = result.optimizers
    pruned = [trial for trial in vanilla.trials if trial.outcome == "pruned"]
    assert pruned
    assert all(trial.number >= STARTUP and 2 <= trial.epochs < 8 for trial in pruned)
    assert sum(": pruned after " in f": {line}" for line in lines) == len(pruned)
    worst = max(trial.options["lr"] for trial in pruned if trial.options["lr"] < 1e-3)
    assert worst < vanilla.best.options["lr"]
    (run,) = search.runs(vanilla.candidate, pruned[0].options)
    folder = Store(tmp_path).folder(run.key)
    assert folder.progress() is State.PAUSED
    Plan((run,), tmp_path).work(silent, threading.Event())
    assert folder.progress() is State.FINISHED


def test_without_pruning_every_trial_is_finished(tmp_path):
    search = search_of(tmp_path, trials=10, epochs=4, optimizer=VANILLA, search={"prune": False})
    (vanilla,) = finish(search).optimizers
    assert {trial.outcome for trial in vanilla.trials} == {"finished"}


def test_runs_that_the_store_already_has_are_not_repeated(tmp_path):
    finish(search_of(tmp_path, trials=1))
    (tmp_path / "search.journal").unlink()
    events = []
    finish(search_of(tmp_path, trials=1), lambda run, event: events.append(event["event"]))
    assert events == ["over", "over"]
