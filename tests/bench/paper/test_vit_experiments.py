"""The experiments with vision transformers: the paper's settings, and where they are others."""

import itertools

import pytest

from sgdf.bench.paper.published import published
from sgdf.bench.paper.settings import published_settings, search_space
from sgdf.bench.search.file import read_search
from sgdf.bench.spec.read import load, load_document

NETWORKS = ("vit-b-32", "vit-l-32")
SETS = ("cifar10", "cifar100", "pets", "flowers102", "food101", "imagenet")


def problem(run):
    return run.task.options["network"], run.task.options["data"]


@pytest.mark.parametrize(("name", "tune"), [("vit", "all"), ("vit-head", "head")])
def test_two_networks_are_tuned_to_six_data_sets(name, tune):
    runs = load(name).runs
    found = {(problem(run), run.optimizer.name, run.seed) for run in runs}
    problems = set(itertools.product(NETWORKS, SETS))
    assert len(runs) == 72
    assert found == set(itertools.product(problems, ("sgdf", "sgd"), (0, 1, 2)))
    assert {run.task.options["tune"] for run in runs} == {tune}


@pytest.mark.parametrize("name", ["vit", "vit-head"])
def test_all_is_trained_as_published(name):
    for run in load(name).runs:
        train = run.train
        assert (train.epochs, train.batch_size, train.accumulate) == (10, 512, 4)
        assert (train.clip_norm, run.protocol) == (1.0, "paper")
        assert (run.schedule.name, run.schedule.every) == ("CosineAnnealingLR", "step")
        assert (run.schedule.options["eta_min"], run.schedule.warmup) == (0.0, 0)
        task = run.task.options
        assert (task["side"], task["dropout"], task["augment"]) == (384, 0.1, True)
        options = {
            key: tuple(v) if isinstance(v, list) else v for key, v in run.optimizer.options.items()
        }
        expected = published_settings(run.optimizer.name)["vit"]
        assert {key: options[key] for key in expected} == expected


def test_the_published_accuracies_are_of_these_problems():
    tables = [table for table in published() if table.label == "tab:vitresult"]
    columns = {(table.task["network"], table.task["data"]) for table in tables}
    assert len(columns) == len(tables)
    assert columns == {problem(run) for run in load("vit").runs}


def test_the_search_has_the_rates_of_the_paper(tmp_path):
    search = read_search(load_document("vit-search"), store=tmp_path, storage="")
    (arm,) = search.candidates
    assert arm.name == "sgd"
    assert sorted(arm.space["lr"].values) == sorted(search_space("sgd", "vit")["lr"])
    assert search.example.protocol == "validation"
    vit = next(run for run in load("vit").runs if run.optimizer.name == "sgd")
    for key in ("epochs", "batch_size", "accumulate", "clip_norm", "precision"):
        assert getattr(search.example.train, key) == getattr(vit.train, key)
    assert search.example.schedule == vit.schedule


def without_rate(run):
    return run.task.options, run.train, run.schedule, run.protocol, run.optimizer.name


def test_the_small_one_is_searched_as_it_is_run():
    searched, runs = load("vit-small-search").runs, load("vit-small").runs
    assert all(without_rate(run) in map(without_rate, searched) for run in runs)
    assert all(without_rate(run) in map(without_rate, runs) for run in searched)
    assert {run.seed for run in searched} == {100}
    rates = {}
    for run in searched:
        key = (run.task.options["data"], run.task.options["tune"], run.optimizer.name)
        rates.setdefault(key, set()).add(run.optimizer.options["lr"])
    assert len(rates) == 8
    assert all(len(tried) == 7 for tried in rates.values())
    for (*_, name), tried in rates.items():
        assert published_settings(name)["vit"]["lr"] in tried
        assert name != "sgd" or tried > set(search_space("sgd", "vit")["lr"])


def test_the_small_one_has_both_modes_and_keeps_features_where_it_can():
    modes = {
        (run.task.options["data"], run.task.options["tune"], run.task.options["augment"])
        for run in load("vit-small").runs
    }
    assert modes == {
        (data, tune, tune == "all")
        for data, tune in itertools.product(("cifar10", "digits"), ("all", "head"))
    }
