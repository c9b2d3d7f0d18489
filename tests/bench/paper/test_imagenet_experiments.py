"""The full-size experiments on ImageNet: the paper's settings, and what the paper lacks."""

import itertools
import math

import pytest

from sgdf.bench.paper.published import published
from sgdf.bench.paper.settings import published_settings
from sgdf.bench.report.paper import deviations
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.protocol import PROTOCOLS
from sgdf.bench.spec.read import load
from sgdf.bench.tasks.imagenet.data import PUBLISHED, TRAIN

NETWORKS = {
    *("resnet18", "resnet34", "resnet50", "vgg11_bn", "vgg13_bn"),
    *("densenet121", "densenet161"),
}
ARMS = {("sgdf", 0.5), ("sgdf", 0.9), ("sgd", None)}


def arm(run):
    return run.optimizer.name, run.optimizer.options.get("betas", (None,))[0]


def network(run):
    return run.task.options["network"]


def test_each_of_seven_networks_has_three_arms_and_seeds():
    runs = load("imagenet").runs
    assert len(runs) == 63
    cells = {(network(run), arm(run), run.seed) for run in runs}
    assert cells == set(itertools.product(NETWORKS, ARMS, (0, 1, 2)))


def test_all_is_trained_as_published():
    for run in load("imagenet").runs:
        train = run.train
        assert train.epochs == (100 if network(run) == "resnet18" else 90)
        assert (train.batch_size, train.precision, run.protocol) == (256, "float16", "paper")
        assert (run.schedule.name, run.schedule.every) == ("CosineAnnealingLR", "epoch")
        assert run.schedule.warmup == 0
        sizes = {
            key: run.task.options[key] for key in ("width", "side", "shorter_side", "official")
        }
        assert sizes == {"width": 1.0, "side": 224, "shorter_side": 256, "official": True}


def test_options_are_those_of_the_table_but_for_the_other_beta():
    for run in load("imagenet").runs:
        options = dict(run.optimizer.options)
        wanted = published_settings(run.optimizer.name)["imagenet"]
        if arm(run) == ("sgdf", 0.9):
            options["betas"] = (0.5, 0.999)
        assert {key: options[key] for key in wanted} == wanted


@pytest.mark.parametrize("name", ["SGDF", "SGD"])
def test_published_numbers_stand_beside_runs_of_the_papers_size(name):
    columns = [
        one
        for one in published()
        if one.task.get("name") == "imagenet" and one.metric == "accuracy"
    ]
    assert {one.task["network"] for one in columns} == NETWORKS
    runs = resolve_machine(load("imagenet"), threads=1).runs
    for one in columns:
        fitting = [
            run
            for run in runs
            if network(run) == one.task["network"] and arm(run) in {("sgdf", 0.5), ("sgd", None)}
        ]
        for run in fitting:
            if run.optimizer.name == one.optimizers[name]:
                assert deviations(one, name, run.as_table()) == []


def test_the_runtime_has_the_three_networks_and_optimizers_of_its_table():
    columns = [one for one in published() if one.label == "tab:runtime_100epoch"]
    optimizers = {one.optimizers[name] for one in columns for name in one.values}
    runs = load("imagenet-runtime").runs
    printed = {one.task["network"] for one in columns}
    assert {network(run) for run in runs} == printed == {"vgg13_bn", "resnet101", "densenet161"}
    assert {run.optimizer.name for run in runs} == optimizers == {"sgdf", "sgd", "adam"}
    for run in runs:
        assert {key: getattr(run.train, key) for key in columns[0].train} == columns[0].train


@pytest.mark.parametrize("name", ["imagenet", "imagenet-runtime"])
def test_an_epoch_has_the_steps_of_all_pictures(name):
    for run in load(name).runs:
        everything = PROTOCOLS[run.protocol].trains_on_validation
        held_back = 0 if everything else run.task.options["validation_images"]
        pictures = PUBLISHED[TRAIN] - held_back
        assert math.ceil(pictures / run.train.batch_size) == 5_005


def test_the_runtime_is_evaluated_once():
    for run in load("imagenet-runtime").runs:
        assert run.train.epochs == run.train.evaluate_every == 100


def test_the_rates_are_tried_on_what_the_small_experiment_has():
    """With another seed; the rates of the experiment are among those tried."""
    small, rates = load("imagenet-small").runs, load("imagenet-small-rates").runs
    assert {run.seed for run in small} == {0, 1, 2}
    assert {run.seed for run in rates} == {100}
    assert {arm(run) for run in small} == ARMS
    tried = {(network(run), *sorted_options(run)) for run in rates}
    assert len(tried) == len(rates) == 2 * 3 * 5
    for run in small:
        assert (network(run), *sorted_options(run)) in tried
    for ours, theirs in itertools.product(small, rates):
        assert (ours.train, ours.schedule, ours.protocol) == (
            theirs.train,
            theirs.schedule,
            theirs.protocol,
        )
        if network(ours) == network(theirs):
            assert ours.task == theirs.task


def sorted_options(run):
    return run.optimizer.name, *sorted((k, str(v)) for k, v in run.optimizer.options.items())
