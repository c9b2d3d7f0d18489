"""The results of a search: the record, the best settings, and what Optuna stores."""

import json
import math
import threading
from types import SimpleNamespace

import optuna
import pytest
from optuna.trial import TrialState

from declaring_tasks import LossOnly
from searches import finish, results_of, search_of, silent
from sgdf.bench.errors import SpecError
from sgdf.bench.jobs.job import read_job
from sgdf.bench.report.search import write_search
from sgdf.bench.search.file import merge_with_record, read_search
from sgdf.bench.search.job import SearchJob
from sgdf.bench.search.results import OptimizerResult, SearchResult, TrialResult
from sgdf.bench.search.storage import open_storage
from sgdf.bench.search.trials import STARTUP
from sgdf.bench.spec.read import load
from sgdf.bench.store.run_folder import Store
from sgdf.bench.tasks import Metric

TRIALS, SEEDS = 6, [7, 8]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished search in a database, what it showed, and the files written about it.

    Tests look at it and change nothing.
    """
    store, events = tmp_path_factory.mktemp("finished"), []
    optimizer = [{"name": "sgd", "momentum": 0.5, "train": {"clip_norm": 1.0}}, {"name": "adam"}]
    url = f"sqlite:///{store / 'secret.db'}"
    search = search_of(
        store, url, trials=TRIALS, epochs=2, optimizer=optimizer, search={"seeds": SEEDS}
    )
    result = finish(search, lambda run, event: events.append(event))
    return SimpleNamespace(
        search=search,
        result=result,
        events=events,
        store=store,
        url=url,
        written=write_search(result, store),
    )


def test_every_optimizer_has_its_trials_and_they_are_runs_of_the_store(finished):
    assert finished.result.complete
    store = Store(finished.store)
    for optimizer in finished.result.optimizers:
        assert [trial.number for trial in optimizer.trials] == list(range(TRIALS))
        for trial in optimizer.trials:
            runs = finished.search.runs(optimizer.candidate, trial.options)
            assert [run.seed for run in runs] == SEEDS
            assert trial.runs == [run.key for run in runs]
        ended = [trial for trial in optimizer.trials if trial.outcome == "finished"]
        assert len(ended) >= STARTUP
        for trial in ended:
            results = [store.folder(key).result() for key in trial.runs]
            values = [result["selected"]["validation"]["accuracy"] for result in results]
            assert trial.value == pytest.approx(sum(values) / 2)
            assert trial.epochs == 4


def test_a_finished_search_has_nothing_left_to_do(finished):
    events = []
    SearchJob(finished.search).work(lambda run, event: events.append(event), threading.Event())
    assert events == []
    assert SearchJob(finished.search).parts() == []


def test_the_first_trials_cover_the_range_evenly(finished):
    for optimizer in finished.result.optimizers:
        rates = optimizer.candidate.space["lr"]
        parts = [
            math.log(trial.options["lr"] / rates.low, rates.high / rates.low) * STARTUP
            for trial in optimizer.trials[:STARTUP]
        ]
        assert sorted(map(int, parts)) == list(range(STARTUP))


def test_the_end_of_each_trial_is_shown_once_and_without_test_data(finished):
    trial_ends = [event for event in finished.events if event["event"] == "over"]
    assert len(trial_ends) == 2 * TRIALS
    assert all("test" not in event["line"] for event in trial_ends)
    run_ends = [event for event in finished.events if event["event"] == "end"]
    assert len(run_ends) > 2 * TRIALS
    assert all(event["quiet"] for event in run_ends)


def test_the_record_has_the_whole_search(finished):
    assert {path.name for path in finished.written} == {
        "search.json", "sensitivity.png", "sensitivity.pdf", "points-tuned.toml"
    }  # fmt: skip
    record = json.loads((finished.store / "search.json").read_text())
    assert record["over"] is True
    assert record["optimizers"]["sgd"]["best"] == finished.result.optimizers[0].best.number
    assert [t["number"] for t in record["optimizers"]["adam"]["trials"]] == list(range(TRIALS))
    assert {"torch", "cpu", "commit"} <= record["environment"].keys()
    again = read_search(record["search"], store=finished.store, storage=finished.url)
    assert results_of(SearchResult(again)) == results_of(finished.result)


def test_no_file_names_the_storage_since_its_url_may_hold_a_password(finished):
    for path in finished.written:
        assert b"secret" not in path.read_bytes()


def test_the_best_settings_are_an_experiment(finished):
    experiment = load(finished.store / "points-tuned.toml")
    assert experiment.name == "points-tuned"
    assert [run.seed for run in experiment.runs] == [0, 0, 1, 1]
    sgd, adam = experiment.runs[:2]
    assert sgd.optimizer.options["momentum"] == 0.5
    assert (sgd.train.clip_norm, adam.train.clip_norm) == (1.0, math.inf)
    for run, optimizer in zip((sgd, adam), finished.result.optimizers, strict=True):
        assert run.optimizer.options["lr"] == optimizer.best.options["lr"]
        assert run.train.epochs == 2


def test_optuna_can_open_the_studies(finished):
    storage = open_storage(finished.url)
    names = optuna.get_all_study_names(storage)
    assert [name.split("/")[:2] for name in names] == [["points", "sgd"], ["points", "adam"]]
    study = optuna.load_study(storage=storage, study_name=names[0])
    assert study.direction.name == "MAXIMIZE"
    assert study.best_trial.value == finished.result.optimizers[0].best.value
    assert all(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in study.trials)


def test_lists_can_be_tried_like_other_values(tmp_path):
    betas = [[0.9, 0.999], [0.5, 0.99]]
    optimizer = [{"name": "adam", "search": {"betas": betas}, "lr": 0.01}]
    search = search_of(tmp_path, trials=2, optimizer=optimizer, search={"sampler": "grid"})
    result = finish(search)
    assert sorted(t.options["betas"] for t in result.optimizers[0].trials) == sorted(betas)
    write_search(result, tmp_path)
    (run, _) = load(tmp_path / "points-tuned.toml").runs
    assert list(run.optimizer.options["betas"]) in betas
    assert run.optimizer.options["lr"] == 0.01


def test_of_equal_trials_the_one_with_the_lower_loss_is_best(tmp_path):
    candidate = search_of(tmp_path).candidates[0]

    def trial(number, value, loss):
        return TrialResult(number, "finished", {"lr": float(number + 1)}, value, loss, 2, [])

    def best(trials, metric):
        return OptimizerResult(candidate, trials, 0, 0, 0, Metric(metric)).best.number

    trials = [trial(0, 0.9, 0.1), trial(1, 0.95, 0.3), trial(2, 0.95, 0.2), trial(3, None, 0.0)]
    assert best(trials, "accuracy") == 2
    assert best(trials, "loss") == 0
    assert best([trial(0, 0.9, math.nan), trial(1, 0.9, 5.0), trial(2, 0.9, None)], "accuracy") == 1


def test_a_diverged_trial_is_never_the_best(tmp_path):
    optimizer = [{"name": "sgd", "search": {"lr": [1e12, 0.1]}}]
    search = search_of(tmp_path, trials=2, optimizer=optimizer, search={"sampler": "grid"})
    (sgd,) = finish(search).optimizers
    assert sorted(trial.outcome for trial in sgd.trials) == ["diverged", "finished"]
    assert sgd.best.options == {"lr": 0.1}


def test_failed_trials_are_counted_and_can_be_retried(tmp_path, monkeypatch):
    search = search_of(
        tmp_path,
        trials=2,
        task={"name": "bench_tasks:Raising"},
        optimizer=[{"name": "sgd", "search": {"lr": [0.1, 0.2]}}],
        search={"sampler": "grid"},
    )
    result = finish(search)
    (sgd,) = result.optimizers
    assert (sgd.failed, sgd.best, result.complete) == (2, None, True)
    write_search(result, tmp_path)
    assert not (tmp_path / "points-tuned.toml").exists()
    monkeypatch.setenv("SGDF_TEST_CALM", "1")
    SearchJob(search).prepare(retry=True)
    SearchJob(search).prepare(retry=True)  # which changes nothing
    (sgd,) = finish(search).optimizers
    assert [trial.outcome for trial in sgd.trials] == ["failed"] * 2 + ["finished"] * 2
    assert sgd.failed == 0
    assert sorted(trial.options["lr"] for trial in sgd.trials[2:]) == [0.1, 0.2]


def test_an_unfinished_search_has_no_experiment(tmp_path):
    search = search_of(tmp_path, trials=3)
    read_job(SearchJob(search).parts()[0].as_json()).work(silent, threading.Event())
    result = SearchResult(search)
    assert (result.spent, result.budget, result.left, result.complete) == (1, 6, 5, False)
    names = [part.search.candidates[0].name for part in SearchJob(search).parts()]
    assert names == ["sgdf", "adam"] * 2 + ["adam"]
    assert not any(path.suffix == ".toml" for path in write_search(result, tmp_path))


def test_the_record_of_a_folder_has_all_optimizers_that_were_searched_there(tmp_path):
    write_search(finish(search_of(tmp_path, trials=1)), tmp_path)
    other = search_of(tmp_path, trials=1, optimizer=[{"name": "lion"}, {"name": "adam"}])
    finish(other)
    merged = SearchResult(merge_with_record(other))
    write_search(merged, tmp_path)
    record = json.loads((tmp_path / "search.json").read_text())
    assert list(record["optimizers"]) == ["lion", "adam", "sgdf"]
    assert merged.complete
    for changes in ({"search": {"seeds": [9]}}, {"epochs": 3}, {"search": {"sampler": "random"}}):
        with pytest.raises(SpecError, match=r"holds a search with another (search|train)\.\w+, "):
            merge_with_record(search_of(tmp_path, trials=1, **changes))


def test_another_storage_for_the_same_folder_is_refused(tmp_path):
    search_of(tmp_path)
    with pytest.raises(SpecError, match=r"--storage: the trials of .* are kept in another one"):
        search_of(tmp_path, storage=f"sqlite:///{tmp_path / 'trials.db'}")


def test_one_storage_can_hold_the_same_search_of_two_stores(tmp_path):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    optimizer = [{"name": "sgd"}]
    first = search_of(tmp_path / "a", trials=1, storage=url, optimizer=optimizer)
    second = search_of(tmp_path / "b", trials=1, storage=url, optimizer=optimizer)
    assert finish(first).complete
    assert SearchResult(second).spent == 0
    assert results_of(finish(second)) == results_of(SearchResult(first))


def test_a_costly_metric_can_judge_trials(tmp_path):
    """Epochs that do not have it are not reported to Optuna."""
    search = search_of(
        tmp_path, trials=2, epochs=4, task={"name": "declaring_tasks:ChosenByCostly"}
    )
    result = finish(search)
    assert {trial.outcome for one in result.optimizers for trial in one.trials} == {"finished"}


def test_a_search_judged_the_other_way_is_refused(tmp_path, monkeypatch):
    search_of(tmp_path, trials=1, task={"name": "declaring_tasks:LossOnly"})
    finish(search_of(tmp_path, trials=1, task={"name": "declaring_tasks:LossOnly"}))
    monkeypatch.setattr(LossOnly, "metric", Metric("distance", larger_is_better=True))
    with pytest.raises(SpecError, match="holds a search that did not maximize distance"):
        finish(search_of(tmp_path, trials=1, task={"name": "declaring_tasks:LossOnly"}))
