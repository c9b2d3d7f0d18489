"""Interrupted searches: stopped, killed, with a lost storage or a dead process, and resumed."""

import contextlib
import itertools
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

from searches import document_of, finish, first_trials, results_of, search_of, silent
from sgdf.bench.errors import StoreError
from sgdf.bench.jobs.job import MAX_DEATHS
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.jobs.run_one import run_one
from sgdf.bench.search.file import read_search
from sgdf.bench.search.job import SearchJob
from sgdf.bench.search.results import SearchResult
from sgdf.bench.search.space import Choices, Range
from sgdf.bench.search.storage import journal_url
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load, read
from sgdf.bench.store import lock
from sgdf.bench.store.run_folder import RunFolder, State, Store
from sgdf.bench.training.ranks import Ranks

pytestmark = pytest.mark.usefixtures("publishing_at_once")


def test_a_stopped_search_is_resumed(tmp_path, undisturbed):
    search, stop = search_of(tmp_path), threading.Event()

    def stop_in_the_second_epoch(run, event):
        if event["event"] == "progress" and event["step"] > 3:
            stop.set()

    SearchJob(search).work(stop_in_the_second_epoch, stop)
    trials = [t for optimizer in SearchResult(search).optimizers for t in optimizer.trials]
    assert [trial.has_ended for trial in trials] == [False]
    assert results_of(finish(search)) == results_of(undisturbed)


@pytest.mark.usefixtures("workers_find_the_tasks")
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_change_nothing(tmp_path, monkeypatch, undisturbed, kills):
    document, expected = document_of(), undisturbed
    if kills > 2:  # which takes minutes
        document = document_of(trials=12, epochs=6)
        expected = finish(search_of(tmp_path / "whole", trials=12, epochs=6))
    path, store = tmp_path / "points.toml", tmp_path / "store"
    path.write_text(tomli_w.dumps(document))
    journal = store / "search.journal"
    options = ["--out", str(store), "--checkpoint-every", "0.1"]
    command = [sys.executable, "-m", "sgdf", "tune", str(path), *options]
    monkeypatch.setenv("SGDF_TEST_DELAY", "0.04" if kills == 2 else "0.02")
    chance, killed = random.Random(0), 0

    def journal_bytes():
        return journal.stat().st_size if journal.exists() else 0

    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and killed < kills:
        before = journal_bytes()
        while process.poll() is None and journal_bytes() == before:
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
    result = SearchResult(read_search(document, store=store, storage=journal_url(journal)))
    assert results_of(result) == results_of(expected)
    runs = resolve_machine(load(store / "points-tuned.toml"), 1).runs
    assert {run.optimizer.name for run in runs} == {"sgdf", "adam"}
    assert not list(store.rglob(".tmp-*"))


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_a_trial_whose_process_died_while_drawing_is_resumed(tmp_path, sampler):
    searched = {"lr": {"low": 0.01, "high": 1.0}, "momentum": {"low": 0.5, "high": 0.95}}
    if sampler == "grid":
        searched = {"lr": [0.1, 0.2], "momentum": [0.5, 0.6]}
    settings = {
        "trials": 2,
        "epochs": 1,
        "optimizer": [{"name": "sgd", "search": searched}],
        "search": {"sampler": sampler},
    }
    whole = results_of(finish(search_of(tmp_path / "whole", **settings)))
    kind = Choices if sampler == "grid" else Range
    draw = kind.draw
    for options in range(3):
        search, draws = search_of(tmp_path / str(options), **settings), itertools.count()
        trials = first_trials(search)

        def die(self, trial, option, options=options, draws=draws):
            if next(draws) == options:
                raise KeyboardInterrupt
            return draw(self, trial, option)

        with mock.patch.object(kind, "draw", die), pytest.raises(KeyboardInterrupt), trials.next():
            raise KeyboardInterrupt  # with all options drawn
        (trial,) = trials.all()
        assert len(trial.params) == options
        assert results_of(finish(search)) == whole


def test_a_trial_that_ends_before_its_lock_is_taken_is_not_resumed(tmp_path, monkeypatch):
    search = search_of(tmp_path, trials=2)
    mine, theirs = first_trials(search), first_trials(search)
    working, hold = contextlib.ExitStack(), lock.hold
    trial = working.enter_context(mine.next())

    def end_first(path):
        if path.name == "trial-0.lock":
            mine.end(trial, 0.5)
            working.close()
        return hold(path)

    monkeypatch.setattr(lock, "hold", end_first)
    with theirs.next() as other:
        assert other.number == 1
    assert mine.all()[0].state is TrialState.COMPLETE


def test_a_trial_that_a_process_works_on_is_not_given_to_another(tmp_path):
    search = search_of(tmp_path, trials=1)
    mine, theirs = first_trials(search), first_trials(search)
    with mine.next() as trial:
        assert trial is not None
        assert theirs.at_work == 1
        with theirs.next() as none:
            assert none is None
    assert theirs.at_work == 0
    with theirs.next() as again:
        assert again.number == trial.number
        assert again.params == trial.params


def test_a_trial_whose_processes_keep_dying_fails(tmp_path):
    search = search_of(tmp_path, trials=1, optimizer=[{"name": "sgd"}])
    for _ in range(MAX_DEATHS):
        with first_trials(search).next() as trial:  # and here the process dies
            (run,) = search.runs(search.candidates[0], search.candidates[0].draw(trial))
            trial.set_user_attr("runs", [run.key])
            Plan((run,), tmp_path).prepare()
    (sgd,) = finish(search).optimizers
    assert [trial.outcome for trial in sgd.trials] == ["failed"]
    failure = Store(tmp_path).folder(run.key).failure()
    assert failure.startswith(
        f"its process died, {MAX_DEATHS} times in a row before it could save a checkpoint. "
    )
    assert "--retry tries it again" in failure


def test_a_trial_that_makes_progress_may_be_interrupted_any_number_of_times(tmp_path):
    search = search_of(tmp_path, trials=1, epochs=8, optimizer=[{"name": "sgd"}])
    for _ in range(MAX_DEATHS):
        stop = threading.Event()

        def stop_at_a_row(run, event, stop=stop):
            if event["event"] == "progress" and event["row"]:
                stop.set()

        SearchJob(search).work(stop_at_a_row, stop)
    (sgd,) = SearchResult(search).optimizers
    assert [trial.outcome for trial in sgd.trials] == ["running"]
    (sgd,) = finish(search).optimizers
    assert [trial.outcome for trial in sgd.trials] == ["finished"]


def test_a_run_that_another_process_trains_is_waited_for(tmp_path):
    options = {"trials": 1, "epochs": 1, "optimizer": [{"name": "sgd"}]}
    search = search_of(tmp_path, **options)
    (sgd,) = finish(search_of(tmp_path / "other", **options)).optimizers
    (run,) = search.runs(search.candidates[0], sgd.trials[0].options)
    plan, begun = Plan((run,), tmp_path), threading.Event()
    plan.prepare()

    def hold(key, event):
        if event["event"] == "begin":
            begun.set()
            time.sleep(0.5)

    # A thread stands for another process: locks keep threads apart as well.
    other = threading.Thread(target=plan.work, args=(hold, threading.Event()))
    other.start()
    begun.wait(10)
    (sgd,) = finish(search).optimizers
    other.join()
    assert sgd.trials[0].outcome == "finished"
    assert len(Store(tmp_path).folder(run.key).environments()) == 1  # trained once


def test_a_run_that_was_trained_to_its_end_is_not_pruned_when_it_is_resumed(tmp_path):
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


def test_an_error_of_the_storage_does_not_fail_the_run(tmp_path, monkeypatch):
    search = search_of(tmp_path, trials=1, optimizer=[{"name": "sgd"}])
    report, lines = optuna.Trial.report, []

    def fail(self, value, step):
        monkeypatch.setattr(optuna.Trial, "report", report)
        raise StoreError("the storage of the trials: gone")

    monkeypatch.setattr(optuna.Trial, "report", fail)
    SearchJob(search).work(lambda run, event: lines.append(event.get("line")), threading.Event())
    assert "the storage of the trials: gone" in lines
    (sgd,) = SearchResult(search).optimizers
    assert [trial.outcome for trial in sgd.trials] == ["running"]
    (sgd,) = finish(search).optimizers
    assert [trial.outcome for trial in sgd.trials] == ["finished"]
