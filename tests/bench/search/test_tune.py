"""Searches: equal budgets, trials that are ordinary runs, and no trial lost to a kill.

Long for the many moments at which a process can die, and the many ways to write a wrong file.
"""

import contextlib
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

import optuna
import pytest
import tomli_w
from optuna.trial import TrialState

from locations import SUPPORT
from sgdf.bench.errors import SpecError, StoreError
from sgdf.bench.jobs.job import MAX_DEATHS, read_job
from sgdf.bench.jobs.local import Workers
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.jobs.run_one import run_one
from sgdf.bench.report.search import write_search
from sgdf.bench.search.file import merge_with_record, read_search, select_optimizers
from sgdf.bench.search.job import SearchJob
from sgdf.bench.search.results import OptimizerResult, SearchResult, TrialResult
from sgdf.bench.search.space import Choices, Range
from sgdf.bench.search.storage import journal_url, open_storage
from sgdf.bench.search.trials import STARTUP, Trials
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load, load_document, read
from sgdf.bench.store.run_folder import RunFolder, State, Store
from sgdf.bench.tasks import Metric
from sgdf.bench.training.ranks import Ranks

RANGE = {"lr": {"low": 0.01, "high": 10.0}}


@pytest.fixture(autouse=True)
def quiet(monkeypatch, told_at_once):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def document_of(trials=6, epochs=2, optimizer=None, search=(), **changes):
    return {
        "name": "points",
        "seed": [0, 1],
        "task": {"name": "bench_tasks:Points"},
        "train": {"epochs": epochs, "batch_size": 40, "threads": 1},
        "optimizer": optimizer or [{"name": "sgdf", "search": RANGE}, {"name": "adam"}],
        "search": {"trials": trials, **dict(search)},
        **changes,
    }


def search_of(store, storage=None, **changes):
    url = storage or journal_url(store / "search.journal")
    search = read_search(document_of(**changes), store=store, storage=url)
    SearchJob(search).prepare()
    return search


def silent(run, event):
    """Show nothing."""


def done(search, display=silent):
    SearchJob(search).work(display, threading.Event())
    return SearchResult(search)


def trials_of(tuned):
    """Return everything about the trials that is not to depend on who did them, and when."""
    return {found.candidate.name: found.trials for found in tuned.found}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"protocol": "paper"}, "holds back no data to choose by"),
        ({"task": {"name": "bench_tasks:Points", "hidden": [4, 8]}}, "task.hidden: is a list, but"),
        ({"seed": []}, r"seed = \[\]: needs an item"),
        ({"search": {"seeds": [1]}}, "must be none of those that are compared with"),
        ({"search": {"seeds": 5}}, "must be a list of different whole numbers"),
        ({"search": {"seeds": [5, 5]}}, "must be a list of different whole numbers"),
        ({"search": {"seeds": [[5]]}}, "must be a list of different whole numbers"),
        ({"search": {"sampler": "best"}}, "search.sampler = 'best': must be one of tpe"),
        ({"search": {"budget": 5}}, "search.budget = 5: no such key; allowed: .*seeds"),
        ({"trials": 0}, "search.trials = 0: must be a whole number of at least 1"),
        ({"optimizer": [{"name": "sgd"}, {"name": "sgd", "nesterov": True}]}, "more than once"),
        ({"optimizer": [{"name": "adam", "amsgrad": [True, False]}]}, "amsgrad: is a list; is it"),
        ({"optimizer": {"name": "sgd", "search": {"rate": [1.0]}}}, "rate = 1.0: no such option"),
        ({"optimizer": {"name": "sgd", "search": {"lr": [0.1, -1.0]}}}, "Invalid learning rate"),
        ({"optimizer": {"name": "sgd", "search": {"lr": [0.1, "x"]}}}, "'x': must be a number"),
        ({"optimizer": {"name": "sgd", "search": {"lr": 1}}}, "must be a list of values, or"),
        ({"optimizer": {"name": "sgd", "search": 1}}, "must be a table, .optimizer.search."),
        ({"optimizer": {"name": "nosuch"}}, "'nosuch': no such optimizer"),
        ({"optimizer": {"lr": 1.0}}, "optimizer.name = None: must be a string"),
        ({"name": "../points"}, "names a folder"),
        ({"optimizer": [{"name": "sgd", "train": {"epochs": 9}}, {"name": "adam"}]}, "the same"),
        ({"train": {"device": "cuda"}}, "'cuda': not available"),
        ({"train": 5}, "must be a table"),
    ],
)
def test_what_cannot_be_searched_is_refused(tmp_path, changes, told):
    with pytest.raises(SpecError, match=told):
        search_of(tmp_path, **changes)


def test_sgdf_run_leaves_aside_what_is_for_a_search_unless_it_leaves_something_open(tmp_path):
    path = tmp_path / "points.toml"

    def load_with(**changes):
        path.write_text(tomli_w.dumps({**document_of(), **changes}))
        return load(path)

    with pytest.raises(SpecError, match=r"\[search\]: is for sgdf tune"):
        load_with()
    document = document_of()
    del document["search"]
    path.write_text(tomli_w.dumps(document))
    with pytest.raises(SpecError, match=r"optimizer.search.lr: is for sgdf tune.*; or set lr too"):
        load(path)
    for optimizer in ({"name": "sgd", "lr": 0.5, "search": {"lr": [0.1, 0.2]}},):
        for tables in (optimizer, [optimizer, {"name": "adam"}]):
            path.write_text(tomli_w.dumps({**document, "optimizer": tables}))
            rates = {run.optimizer.options["lr"] for run in load(path).runs}
            assert rates <= {0.5, 0.001}


def test_a_search_survives_being_written_down(tmp_path):
    for sampler in ("tpe", "grid"):
        optimizer = [{"name": "adam", "betas": [[0.8, 0.99]], "train": {"clip_norm": 1.0}}]
        search = search_of(tmp_path, optimizer=optimizer, search={"sampler": sampler})
        assert read_job(SearchJob(search).as_json()) == SearchJob(search)
        parts = SearchJob(search).parts()
        assert [read_job(part.as_json()) for part in parts] == parts


def test_what_is_searched_takes_the_place_of_what_is_set(tmp_path):
    optimizer = [{"name": "sgd", "lr": 7.0, "momentum": 0.5}]
    search = search_of(tmp_path, optimizer=optimizer)
    (run,) = search.runs(search.candidates[0], {"lr": 0.1})
    assert (run.optimizer.options["lr"], run.optimizer.options["momentum"]) == (0.1, 0.5)
    assert run.seed == 2  # the first that is not compared with


def test_lists_of_what_is_searched_do_not_matter(tmp_path):
    optimizer = [{"name": ["sgd", "adam"], "lr": [0.1, 1.0]}, {"name": "sgdf", "gamma": [0.5, 1.0],
                 "search": {**RANGE, "gamma": [0.5, 1.0]}}]  # fmt: skip
    search = search_of(tmp_path, optimizer=optimizer)
    assert [arm.table for arm in search.candidates] == [
        {"name": "sgd"}, {"name": "adam"}, {"name": "sgdf"}
    ]  # fmt: skip


def test_only_those_asked_for_are_searched(tmp_path):
    document = document_of(
        optimizer=[{"name": ["sgd", "adam"], "weight_decay": 0.5}, {"name": "sgdf"}]
    )
    picked = select_optimizers(document, ["sgd", "lion"])
    assert picked["optimizer"] == [{"name": "sgd", "weight_decay": 0.5}, {"name": "lion"}]
    twice = document_of(optimizer=[{"name": "sgd"}, {"name": "sgd", "nesterov": True}])
    with pytest.raises(SpecError, match="more than once"):
        read_search(select_optimizers(twice, ["sgd"]), store=tmp_path, storage="")


@pytest.mark.parametrize("name", ["digits", "quickstart", "characters", "convex"])
def test_bundled_experiments_can_be_searched(name, tmp_path):
    assert read_search(load_document(name), store=tmp_path, storage="").candidates


def test_every_optimizer_has_its_trials_and_they_are_runs_of_the_store(tmp_path):
    search = search_of(tmp_path, trials=7, search={"seeds": [7, 8]})
    tuned = done(search)
    assert tuned.complete
    store = Store(tmp_path)
    for found in tuned.found:
        assert [trial.number for trial in found.trials] == list(range(7))
        for trial in found.trials:
            runs = search.runs(found.candidate, trial.options)
            assert trial.runs == [run.key for run in runs]
            results = [store.folder(run.key).result() for run in runs]
            if trial.outcome == "finished":
                values = [result["selected"]["validation"]["accuracy"] for result in results]
                assert trial.value == pytest.approx(sum(values) / 2)
                assert trial.epochs == 4
    again = []
    SearchJob(search).work(lambda run, event: again.append(event), threading.Event())
    assert again == []


def test_a_smaller_budget_is_as_equal(tmp_path):
    whole = done(search_of(tmp_path, trials=4, epochs=1))
    tuned = done(search_of(tmp_path, trials=2, epochs=1))
    assert tuned.complete
    assert (tuned.spent, tuned.budget) == (4, 4)
    for found, more in zip(tuned.found, whole.found, strict=True):
        assert found.trials == more.trials[:2]
        assert found.best in found.trials


def test_a_larger_budget_goes_on_with_a_smaller_one(tmp_path):
    few, more = done(search_of(tmp_path, trials=4)), done(search_of(tmp_path, trials=7))
    for before, after in zip(few.found, more.found, strict=True):
        assert after.trials[:4] == before.trials
        assert len(after.trials) == 7
    whole = done(search_of(tmp_path / "at once", trials=7))
    assert trials_of(whole) == trials_of(more)


@pytest.mark.parametrize("sampler", ["random", pytest.param("grid", marks=pytest.mark.slow)])
def test_how_many_share_a_search_does_not_matter(tmp_path, sampler):
    optimizer = [{"name": "sgd"}, {"name": "adam", "search": {"lr": [0.1, 0.03, 0.01, 0.001]}}]
    if sampler == "random":
        optimizer[1] = {"name": "adam"}
    options = {"trials": 4, "optimizer": optimizer, "search": {"sampler": sampler, "prune": False}}
    alone = done(search_of(tmp_path / "alone", **options))
    together = search_of(tmp_path / "together", **options)
    Workers(together, 2, silent).work(threading.Event())
    assert trials_of(SearchResult(together)) == trials_of(alone)


def test_several_processes_do_not_exceed_the_budget(tmp_path):
    search = search_of(tmp_path, trials=5, epochs=1)
    Workers(search, 3, silent).work(threading.Event())
    tuned = SearchResult(search)
    assert tuned.complete
    for arm in search.candidates:
        assert len(Trials(search, arm, open_storage(search.storage)).all()) == 5


def test_a_grid_is_gone_through_once_and_filled_to_the_budget(tmp_path):
    optimizer = [
        {"name": "sgd", "search": {"lr": [1.0, 0.1], "nesterov": [True, False]}},
        {"name": "adam", "search": {"lr": [0.01, 0.001]}},
    ]
    tuned = done(search_of(tmp_path, trials=4, optimizer=optimizer, search={"sampler": "grid"}))
    sgd, adam = ([tuple(t.options.values()) for t in found.trials] for found in tuned.found)
    assert sorted(sgd) == [(0.1, False), (0.1, True), (1.0, False), (1.0, True)]
    assert sorted(adam) == [(0.001,), (0.00316,), (0.00562,), (0.01,)]


def test_the_papers_grid_gets_no_more_than_the_budget(tmp_path):
    tuned = done(search_of(tmp_path, trials=3, epochs=1, search={"sampler": "grid"}, optimizer=[
        {"name": "adam"}, {"name": "lion"}
    ]))  # fmt: skip
    assert [len(found.trials) for found in tuned.found] == [3, 3]
    assert {"lr", "betas"} == set(tuned.found[0].trials[0].options)
    assert {t.options["lr"] for t in tuned.found[1].trials} == {1e-3, 1e-4, 1e-5}


def test_lists_are_values_like_others(tmp_path):
    betas = [[0.9, 0.999], [0.5, 0.99]]
    optimizer = [{"name": "adam", "search": {"betas": betas}, "lr": 0.01}]
    tuned = done(search_of(tmp_path, trials=2, optimizer=optimizer, search={"sampler": "grid"}))
    assert sorted(t.options["betas"] for t in tuned.found[0].trials) == sorted(betas)
    write_search(tuned, tmp_path)
    (run, _) = load(tmp_path / "points-tuned.toml").runs
    assert list(run.optimizer.options["betas"]) in betas
    assert run.optimizer.options["lr"] == 0.01


def test_the_first_trials_are_spread_over_the_range(tmp_path):
    tuned = done(search_of(tmp_path, trials=STARTUP, epochs=1))
    for found in tuned.found:
        low, high = found.candidate.space["lr"].low, found.candidate.space["lr"].high
        parts = [math.log(t.options["lr"] / low, high / low) * STARTUP for t in found.trials]
        assert sorted(map(int, parts)) == list(range(STARTUP))


def test_bad_trials_are_given_up_and_can_be_gone_on_with(tmp_path):
    optimizer = [{"name": "sgd-vanilla", "search": {"lr": {"low": 1e-6, "high": 1.0}}}]
    search = search_of(tmp_path, trials=14, epochs=8, optimizer=optimizer)
    tuned = done(search)
    (found,) = tuned.found
    pruned = [trial for trial in found.trials if trial.outcome == "pruned"]
    assert pruned
    assert all(trial.number >= STARTUP and 2 <= trial.epochs < 8 for trial in pruned)
    worst = max(trial.options["lr"] for trial in pruned if trial.options["lr"] < 1e-3)
    assert worst < found.best.options["lr"]
    (run,) = search.runs(found.candidate, pruned[0].options)
    folder = Store(tmp_path).folder(run.key)
    assert folder.progress() is State.PAUSED
    Plan((run,), tmp_path).work(silent, threading.Event())
    assert folder.progress() is State.FINISHED


def test_without_pruning_every_trial_is_finished(tmp_path):
    optimizer = [{"name": "sgd-vanilla", "search": {"lr": {"low": 1e-6, "high": 1.0}}}]
    tuned = done(
        search_of(tmp_path, trials=10, epochs=4, optimizer=optimizer, search={"prune": False})
    )
    assert {trial.outcome for trial in tuned.found[0].trials} == {"finished"}


def test_a_trial_that_diverges_is_no_best_one(tmp_path):
    optimizer = [{"name": "sgd", "search": {"lr": [1e12, 0.1]}}]
    tuned = done(search_of(tmp_path, trials=2, optimizer=optimizer, search={"sampler": "grid"}))
    (found,) = tuned.found
    assert sorted(trial.outcome for trial in found.trials) == ["diverged", "finished"]
    assert found.best.options == {"lr": 0.1}


def test_failures_are_told_of_and_tried_again(tmp_path, monkeypatch):
    options = {
        "trials": 2,
        "task": {"name": "bench_tasks:Raising"},
        "optimizer": [{"name": "sgd", "search": {"lr": [0.1, 0.2]}}],
        "search": {"sampler": "grid"},
    }
    search = search_of(tmp_path, **options)
    tuned = done(search)
    (found,) = tuned.found
    assert (found.failed, found.best, tuned.complete) == (2, None, True)
    write_search(tuned, tmp_path)
    assert not (tmp_path / "points-tuned.toml").exists()
    monkeypatch.setenv("SGDF_TEST_CALM", "1")
    SearchJob(search).prepare(retry=True)
    SearchJob(search).prepare(retry=True)  # which changes nothing
    (found,) = done(search).found
    assert [trial.outcome for trial in found.trials] == ["failed"] * 2 + ["finished"] * 2
    assert found.failed == 0
    assert sorted(trial.options["lr"] for trial in found.trials[2:]) == [0.1, 0.2]


def test_of_equals_the_lower_loss_is_the_best(tmp_path):
    arm = search_of(tmp_path).candidates[0]

    def tried(number, value, loss):
        return TrialResult(number, "finished", {"lr": float(number + 1)}, value, loss, 2, [])

    trials = [tried(0, 0.9, 0.1), tried(1, 0.95, 0.3), tried(2, 0.95, 0.2), tried(3, None, 0.0)]
    assert OptimizerResult(arm, trials, 0, 0, 0, Metric("accuracy")).best.number == 2
    assert OptimizerResult(arm, trials, 0, 0, 0, Metric("loss")).best.number == 0
    lost = [tried(0, 0.9, math.nan), tried(1, 0.9, 5.0), tried(2, 0.9, None)]
    assert OptimizerResult(arm, lost, 0, 0, 0, Metric("accuracy")).best.number == 1


def test_the_best_settings_are_an_experiment(tmp_path):
    optimizer = [{"name": "sgd", "momentum": 0.5, "train": {"clip_norm": 1.0}}, {"name": "adam"}]
    tuned = done(search_of(tmp_path, optimizer=optimizer))
    write_search(tuned, tmp_path)
    experiment = load(tmp_path / "points-tuned.toml")
    assert experiment.name == "points-tuned"
    assert [run.seed for run in experiment.runs] == [0, 0, 1, 1]
    sgd, adam = experiment.runs[:2]
    assert sgd.optimizer.options["momentum"] == 0.5
    assert (sgd.train.clip_norm, adam.train.clip_norm) == (1.0, math.inf)
    for run, found in zip((sgd, adam), tuned.found, strict=True):
        assert run.optimizer.options["lr"] == found.best.options["lr"]
        assert run.train.epochs == 2


def test_the_record_has_the_whole_search(tmp_path):
    tuned = done(search_of(tmp_path))
    written = write_search(tuned, tmp_path)
    assert {path.name for path in written} == {
        "search.json", "sensitivity.png", "sensitivity.pdf", "points-tuned.toml"
    }  # fmt: skip
    record = json.loads((tmp_path / "search.json").read_text())
    assert record["optimizers"]["sgdf"]["best"] == tuned.found[0].best.number
    assert [t["number"] for t in record["optimizers"]["adam"]["trials"]] == list(range(6))
    assert {"torch", "cpu", "commit"} <= record["environment"].keys()
    again = read_search(record["search"], store=tmp_path, storage=tuned.search.storage)
    assert trials_of(SearchResult(again)) == trials_of(tuned)


def test_where_the_trials_are_kept_is_in_no_file_since_it_may_hold_a_password(tmp_path):
    url = f"sqlite:///{tmp_path / 'secret.db'}"
    tuned = done(search_of(tmp_path, trials=1, storage=url))
    for path in write_search(tuned, tmp_path):
        assert b"secret" not in path.read_bytes()


def test_an_unfinished_search_has_no_experiment(tmp_path):
    search = search_of(tmp_path)
    read_job(SearchJob(search).parts()[0].as_json()).work(silent, threading.Event())
    tuned = SearchResult(search)
    assert (tuned.spent, tuned.budget, tuned.complete) == (1, 12, False)
    assert [part.search.candidates[0].name for part in SearchJob(search).parts()] == [
        "sgdf",
        "adam",
    ] * 5 + ["adam"]
    assert not any(path.suffix == ".toml" for path in write_search(tuned, tmp_path))


def test_the_parts_of_a_search_are_all_of_it(tmp_path):
    search = search_of(tmp_path)
    parts = SearchJob(search).parts()
    assert [part.candidates[0].name for part in parts[:3]] == ["sgdf", "adam", "sgdf"]
    for part in parts:
        part.work(silent, threading.Event())
    whole = done(search_of(tmp_path / "whole"))
    assert trials_of(SearchResult(search)) == trials_of(whole)


def test_trials_are_told_of_once_and_without_the_test_data(tmp_path):
    news = []
    search = search_of(tmp_path, search={"seeds": [5, 6, 7]})
    done(search, lambda run, event: news.append(event))
    over = [event for event in news if event["event"] == "over"]
    assert len(over) == 12
    assert all("test" not in event["line"] for event in over)
    ends = [event for event in news if event["event"] == "end"]
    assert len(ends) > 12
    assert all(event["quiet"] for event in ends)


def test_what_was_done_before_counts_too(tmp_path):
    done(search_of(tmp_path, trials=1))
    (tmp_path / "search.journal").unlink()
    news = []
    done(search_of(tmp_path, trials=1), lambda run, event: news.append(event["event"]))
    assert news == ["over", "over"]


def test_a_run_that_another_process_is_at_is_waited_for(tmp_path):
    search = search_of(tmp_path, trials=1, optimizer=[{"name": "sgd"}])
    (found,) = done(search_of(tmp_path / "other", trials=1, optimizer=[{"name": "sgd"}])).found
    (run,) = search.runs(search.candidates[0], found.trials[0].options)
    plan = Plan((run,), tmp_path)
    plan.prepare()
    at_it = threading.Event()

    def hold(key, event):
        if event["event"] == "begin":
            at_it.set()
            time.sleep(0.5)

    # A thread stands for another process: the lock is as closed to this one.
    other = threading.Thread(target=plan.work, args=(hold, threading.Event()))
    other.start()
    at_it.wait(10)
    (found,) = done(search).found
    other.join()
    assert found.trials[0].outcome == "finished"


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
@pytest.mark.parametrize("options", [0, 1, 2])
def test_a_trial_whose_process_died_while_drawing_is_taken_up(tmp_path, sampler, options):
    searched = {"lr": {"low": 0.01, "high": 1.0}, "momentum": {"low": 0.5, "high": 0.95}}
    if sampler == "grid":
        searched = {"lr": [0.1, 0.2], "momentum": [0.5, 0.6]}
    settings = {
        "trials": 2,
        "optimizer": [{"name": "sgd", "search": searched}],
        "search": {"sampler": sampler},
    }
    whole = done(search_of(tmp_path / "whole", **settings))
    search = search_of(tmp_path / "parts", **settings)
    trials = Trials(search, search.candidates[0], open_storage(search.storage))
    kind = Choices if sampler == "grid" else Range
    draw, draws = kind.draw, itertools.count()

    def die(self, trial, option):
        if next(draws) == options:
            raise KeyboardInterrupt
        return draw(self, trial, option)

    with mock.patch.object(kind, "draw", die), pytest.raises(KeyboardInterrupt), trials.next():
        raise KeyboardInterrupt  # with all options drawn
    (trial,) = trials.all()
    assert len(trial.params) == options
    assert trials_of(done(search)) == trials_of(whole)


def test_a_trial_that_ends_while_it_is_looked_at_is_not_taken_up(tmp_path):
    search = search_of(tmp_path, trials=2)
    mine, theirs = (
        Trials(search, search.candidates[0], open_storage(search.storage)) for _ in "ab"
    )
    at_it = contextlib.ExitStack()
    trial, claim = at_it.enter_context(mine.next()), theirs._claim

    def late(number, stack):
        if trial.number == number:
            mine.tell(trial, 0.5)
            at_it.close()
        return claim(number, stack)

    theirs._claim = late
    with theirs.next() as other:
        assert other.number == 1
    assert mine.all()[0].state is TrialState.COMPLETE


def test_a_trial_whose_processes_keep_dying_fails(tmp_path):
    search = search_of(tmp_path, trials=1, optimizer=[{"name": "sgd"}])
    for _ in range(MAX_DEATHS):
        trials = Trials(search, search.candidates[0], open_storage(search.storage))
        with trials.next() as trial:  # and there it ends
            (run,) = search.runs(search.candidates[0], search.candidates[0].draw(trial))
            trial.set_user_attr("runs", [run.key])
            Plan((run,), tmp_path).prepare()
    (found,) = done(search).found
    assert [trial.outcome for trial in found.trials] == ["failed"]
    assert Store(tmp_path).folder(run.key).failure() == (
        f"its process died, {MAX_DEATHS} times in a row before it could save"
    )


def test_one_that_gets_on_does_not(tmp_path):
    search = search_of(tmp_path, trials=1, epochs=8, optimizer=[{"name": "sgd"}])
    for _ in range(MAX_DEATHS):
        stop = threading.Event()

        def ask(run, event, stop=stop):
            if event["event"] == "progress" and event["row"]:
                stop.set()

        SearchJob(search).work(ask, stop)
    (found,) = done(search).found
    assert [trial.outcome for trial in found.trials] == ["finished"]


def test_nobody_takes_a_trial_that_somebody_is_at(tmp_path):
    search = search_of(tmp_path, trials=1)
    mine = Trials(search, search.candidates[0], open_storage(search.storage))
    theirs = Trials(search, search.candidates[0], open_storage(search.storage))
    with mine.next() as trial:
        assert trial is not None
        with theirs.next() as none:
            assert none is None
    with theirs.next() as again:
        assert again.number == trial.number
        assert again.params == trial.params


def test_a_stopped_search_goes_on(tmp_path):
    search, stop = search_of(tmp_path / "parts", epochs=6), threading.Event()

    def ask(run, event):
        if event["event"] == "progress" and event["step"] > 6:
            stop.set()

    SearchJob(search).work(ask, stop)
    running = [t for found in SearchResult(search).found for t in found.trials if not t.is_over]
    assert len(running) == 1
    assert trials_of(done(search)) == trials_of(done(search_of(tmp_path / "whole", epochs=6)))


@pytest.mark.parametrize(
    ("kills", "trials"),
    [(2, 6), pytest.param(20, 12, marks=pytest.mark.slow)],  # the latter takes minutes
)
def test_kills_change_nothing(tmp_path, monkeypatch, kills, trials):
    document = document_of(trials=trials, epochs=6, optimizer=[{"name": "sgdf"}, {"name": "adam"}])
    path = tmp_path / "points.toml"
    path.write_text(tomli_w.dumps(document))
    url = journal_url(tmp_path / "whole" / "search.journal")
    whole = done(read_search(document, store=tmp_path / "whole", storage=url))
    monkeypatch.setenv("SGDF_TEST_DELAY", "0.02")
    store, chance, killed = tmp_path / "parts", random.Random(0), 0
    options = ["--out", str(store), "--checkpoint-every", "0.1"]
    command = [sys.executable, "-m", "sgdf", "tune", str(path), *options]

    def begun():
        journal = store / "search.journal"
        return journal.exists() and journal.stat().st_size

    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and killed < kills:
        before = begun()
        while process.poll() is None and begun() == before:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 1.5))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            killed += 1
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert killed == kills
    url = journal_url(store / "search.journal")
    assert trials_of(SearchResult(read_search(document, store=store, storage=url))) == trials_of(
        whole
    )
    for run in resolve_machine(load(store / "points-tuned.toml"), 1).runs:
        assert run.optimizer.name in ("sgdf", "adam")
    assert not list(store.rglob(".tmp-*"))


def test_a_storage_that_fails_is_no_failure_of_the_run(tmp_path, monkeypatch):
    search = search_of(tmp_path, trials=1, optimizer=[{"name": "sgd"}])
    report, lines = optuna.Trial.report, []

    def fail(self, value, step):
        monkeypatch.setattr(optuna.Trial, "report", report)
        raise StoreError("the storage of the trials: gone")

    monkeypatch.setattr(optuna.Trial, "report", fail)
    SearchJob(search).work(lambda run, event: lines.append(event.get("line")), threading.Event())
    assert "the storage of the trials: gone" in lines
    (found,) = SearchResult(search).found
    assert [trial.outcome for trial in found.trials] == ["running"]
    (found,) = done(search).found
    assert [trial.outcome for trial in found.trials] == ["finished"]


def test_another_storage_for_the_same_folder_is_refused(tmp_path):
    search_of(tmp_path)
    with pytest.raises(SpecError, match=r"--storage: the trials of .* are kept in another one"):
        search_of(tmp_path, storage=f"sqlite:///{tmp_path / 'trials.db'}")


def test_one_storage_serves_the_same_search_in_two_places(tmp_path):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    first = search_of(tmp_path / "a", trials=1, storage=url)
    second = search_of(tmp_path / "b", trials=1, storage=url)
    assert done(first).complete
    assert SearchResult(second).spent == 0
    assert trials_of(done(second)) == trials_of(SearchResult(first))


def test_a_finished_run_is_not_given_up_when_it_is_gone_on_with(tmp_path):
    document = {"task": {"name": "bench_tasks:Points"}, "optimizer": {"name": "sgd"}}
    (run,) = resolve_machine(read({**document, "train": {"epochs": 1}}), 1).runs
    plan = Plan((run,), tmp_path)
    plan.prepare()
    folder = Store(tmp_path).folder(run.key)
    with mock.patch.object(RunFolder, "finish", side_effect=StoreError("full")):
        plan.work(silent, threading.Event())
    assert folder.saved()
    run_one(run, tmp_path, 60.0, silent, threading.Event(), Ranks(alone=True), lambda rows: True)
    assert folder.progress() is State.FINISHED


def test_the_record_of_a_folder_has_all_optimizers_that_were_searched_there(tmp_path):
    first = done(search_of(tmp_path, trials=1))
    write_search(first, tmp_path)
    other = search_of(tmp_path, trials=1, optimizer=[{"name": "lion"}, {"name": "adam"}])
    done(other)
    whole = SearchResult(merge_with_record(other))
    write_search(whole, tmp_path)
    record = json.loads((tmp_path / "search.json").read_text())
    assert list(record["optimizers"]) == ["lion", "adam", "sgdf"]
    assert whole.complete
    for changes in ({"search": {"seeds": [9]}}, {"epochs": 3}, {"search": {"sampler": "random"}}):
        with pytest.raises(SpecError, match=r"holds a search with another (search|train)\.\w+, "):
            merge_with_record(search_of(tmp_path, trials=1, **changes))


def test_processes_see_the_same_studies_whatever_is_left_open(tmp_path):
    document = document_of(train={"epochs": 1})
    search = read_search(document, store=tmp_path, storage=journal_url(tmp_path / "x"))
    again = read_job(SearchJob(search).as_json()).search
    names = [
        Trials(one, one.candidates[0], open_storage(one.storage)).name for one in (search, again)
    ]
    assert names[0] == names[1]
    assert search.threads == again.threads == 1


def test_optuna_sees_the_trials_as_they_are(tmp_path):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    search = search_of(tmp_path, storage=url)
    tuned = done(search)
    names = optuna.get_all_study_names(open_storage(url))
    assert [name.split("/")[:2] for name in names] == [["points", "sgdf"], ["points", "adam"]]
    study = optuna.load_study(storage=open_storage(url), study_name=names[0])
    assert study.direction.name == "MAXIMIZE"
    assert study.best_trial.value == tuned.found[0].best.value
    assert all(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in study.trials)
