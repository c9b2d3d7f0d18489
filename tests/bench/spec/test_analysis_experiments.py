"""The experiments whose trained networks are analysed: the paper's settings, and shared runs."""

import pytest

from sgdf.bench.paper.settings import published_settings
from sgdf.bench.spec.read import load

FOUR = {"sgdf", "sgd-vanilla", "sgd-cm", "adam"}


@pytest.mark.parametrize("size", ["", "-small"])
def test_the_landscapes_are_of_runs_that_the_hessians_are_of(size):
    landscape, hessian = load(f"landscape{size}").runs, load(f"hessian{size}").runs
    assert {run.key for run in landscape} < {run.key for run in hessian}
    assert {run.optimizer.name for run in landscape} == FOUR
    assert len(landscape) == 4 * 3


def test_at_full_size_the_settings_are_the_papers():
    runs = load("hessian").runs
    others = {"sgd-ema", "radam", "adabelief", "adamw"}
    assert {run.optimizer.name for run in runs} == FOUR | others
    decoupled = [run for run in runs if run.optimizer.options.get("decoupled_weight_decay")]
    assert {run.optimizer.name for run in decoupled} == {"sgdf", "sgd-ema"}
    for run in runs:
        assert (run.task.name, run.task.options["network"]) == ("cifar100", "resnet18")
        assert (run.train.epochs, run.train.batch_size, run.protocol) == (200, 128, "paper")
        if run not in decoupled:
            for key, value in published_settings(run.optimizer.name).get("cifar100", {}).items():
                assert run.optimizer.options[key] == value
