"""The experiments on detection: the paper's settings, and reduced ones that are tuned alike."""

import itertools

import pytest

from sgdf.bench.paper.published import column
from sgdf.bench.paper.settings import published_settings
from sgdf.bench.search.file import read_search
from sgdf.bench.spec.document import load_document
from sgdf.bench.spec.read import load

FIVE = {"sgdf", "sgd", "adam", "adamw", "radam"}


@pytest.mark.parametrize("name", ["voc", "bccd"])
def test_five_optimizers_tune_three_detectors_each(name):
    runs = load(name).runs
    assert len(runs) == 15
    found = {(run.optimizer.name, run.seed) for run in runs}
    assert found == set(itertools.product(FIVE, range(3)))


@pytest.mark.parametrize("name", ["voc", "bccd"])
def test_the_last_of_four_epochs_has_a_tenth_of_the_rate(name):
    for run in load(name).runs:
        assert (run.train.epochs, run.train.batch_size, run.protocol) == (4, 2, "paper")
        assert (run.train.precision, run.train.clip_norm) == ("float32", float("inf"))
        schedule = run.schedule
        assert (schedule.name, schedule.every, schedule.warmup) == ("MultiStepLR", "epoch", 0)
        assert list(schedule.options["milestones"]) == [3]
        assert schedule.options["gamma"] == 0.1


def test_options_are_those_of_the_table():
    for run in load("voc").runs:
        options, expected = run.optimizer.options, published_settings(run.optimizer.name)["voc"]
        found = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
        assert {key: found[key] for key in expected} == expected
        assert found["weight_decay"] == 1e-4


def test_the_detector_is_that_of_the_published_column_and_of_the_published_program():
    published = column("tab:object_detection", "PASCAL VOC 2007 test")
    assert (published.metric, published.unit) == ("ap50", "%")
    for run in load("voc").runs:
        task = run.task.options
        assert {"name": run.task.name, "network": task["network"]} == dict(published.task)
        assert (task["batch_norm"], task["shorter"], task["longer"]) == ("trained", 800, 1333)


def test_the_reduced_search_has_as_many_rates_for_each_and_the_papers_among_them(tmp_path):
    search = read_search(load_document("bccd-search"), store=tmp_path, storage="")
    assert {candidate.name for candidate in search.candidates} == FIVE
    assert search.method.seeds == (100,)
    for candidate in search.candidates:
        rates = sorted(candidate.space["lr"].values)
        assert len(rates) == search.method.trials == 7
        assert published_settings(candidate.name)["voc"]["lr"] in rates
        steps = [after / before for before, after in itertools.pairwise(rates)]
        assert all(3.1 < step < 3.2 for step in steps)


def test_search_and_comparison_train_the_same_detector():
    files = [load_document(name) for name in ("bccd", "bccd-search")]
    for table in ("task", "train", "schedule"):
        assert files[0][table] == files[1][table]
