"""The learning-rate range test: one run with a rising rate, and what its losses show."""

import math
import threading

import numpy as np
import pytest

from sgdf.bench.errors import SpecError
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.report.range_test import write_range_tests
from sgdf.bench.search.file import rates_only, read_search
from sgdf.bench.search.range_test import RangeTest, range_run, range_tests
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer


def search_of(tmp_path, optimizer, task="bench_tasks:Plain", length=("epochs", 1)):
    document = {
        "name": "plain",
        "task": {"name": task},
        "train": {**dict([length]), "batch_size": 8, "threads": 1},
        "optimizer": optimizer,
    }
    return read_search(document, store=tmp_path, storage="")


def do_range_tests(search, steps=300):
    runs = tuple(range_run(search, candidate, steps) for candidate in search.candidates)
    plan = Plan(runs, search.store)
    plan.prepare()
    plan.work(lambda run, event: None, threading.Event())
    return range_tests(search, runs)


def test_the_rate_rises_by_the_same_factor_from_end_to_end(tmp_path):
    search = search_of(tmp_path, {"name": "sgd", "search": {"lr": {"low": 1e-6, "high": 1e-3}}})
    (test,) = do_range_tests(search, steps=50)
    assert len(test.rates) >= 50
    assert (test.rates[0], test.rates[-1]) == pytest.approx((1e-6, 1e-3))
    assert np.ptp(np.diff(np.log(test.rates))) < 1e-9


def test_an_experiment_whose_length_is_in_steps_has_a_range_test_too(tmp_path):
    optimizer = {"name": "sgd", "search": {"lr": {"low": 1e-6, "high": 1e-3}}}
    (test,) = do_range_tests(search_of(tmp_path, optimizer, length=("steps", 7)), steps=50)
    assert len(test.rates) >= 50


def test_it_finds_the_largest_stable_rate_of_a_quadratic(tmp_path):
    # On a quadratic, gradient descent diverges beyond 2 / the largest curvature.
    search = search_of(
        tmp_path, {"name": "sgd-vanilla", "search": {"lr": {"low": 1e-4, "high": 1e3}}}
    )
    (run,) = (range_run(search, candidate) for candidate in search.candidates)
    task = Trainer(run, Ranks(alone=True)).task
    inputs = task.data["train"][0].double()
    largest = float(np.linalg.eigvalsh((2 * inputs.T @ inputs / len(inputs)).numpy()).max())
    (test,) = do_range_tests(search)
    assert test.steepest < 2 / largest
    assert test.lowest < 10 * 2 / largest
    assert test.losses[-1] > test.losses[0]  # where the run diverged and ended


def test_it_finds_where_a_known_curve_falls_fastest_and_is_lowest():
    rates = np.geomspace(1e-4, 1.0, 401)
    losses = 2.0 - np.tanh(3 * np.log10(rates / 1e-2)) + 4 * np.maximum(0, np.log10(rates / 1e-1))
    test = RangeTest("sgd", tuple(rates), tuple(losses))
    assert test.steepest == pytest.approx(1e-2, rel=0.15)
    assert test.lowest == pytest.approx(1e-1, rel=0.3)


def test_a_recovery_from_a_rise_does_not_count_as_a_fall():
    rates = np.geomspace(1e-4, 1.0, 401)
    losses = 2.0 - np.tanh(2 * np.log10(rates / 1e-2))
    losses[300:310] += 5.0  # a peak at 0.1
    assert RangeTest("sgd", tuple(rates), tuple(losses)).steepest == pytest.approx(1e-2, rel=0.2)


def test_a_loss_that_never_falls_has_no_steepest_rate():
    rates = tuple(np.geomspace(1e-4, 1.0, 50))
    assert RangeTest("sgd", rates, tuple(np.linspace(1.0, 2.0, 50))).steepest is None
    assert RangeTest("sgd", (), ()).steepest is None
    assert RangeTest("sgd", (), ()).lowest is None


def test_only_finite_losses_of_steps_are_used():
    rows = [
        {"kind": "train", "train": {"loss": 1.0}, "lr": 0.1},
        {"kind": "train", "train": {"loss": math.nan}, "lr": 0.2},
        {"kind": "epoch", "train": {"loss": 1.0}, "lr": 0.2},
        {"kind": "train", "train": {"accuracy": 1.0}, "lr": 0.3},
    ]
    assert RangeTest.of("sgd", rows) == RangeTest("sgd", (0.1,), (1.0,))


def test_only_the_learning_rate_is_varied(tmp_path):
    searched = {"lr": {"low": 0.1, "high": 1.0}, "nesterov": [True, False]}
    optimizer = [{"name": "sgd", "nesterov": True, "search": searched}]
    document = rates_only({"search": {"sampler": "grid"}, "optimizer": optimizer})
    search = search_of(tmp_path, document["optimizer"])
    run = range_run(search, search.candidates[0])
    assert run.optimizer.options["nesterov"]
    assert run.optimizer.options["lr"] == 0.1


@pytest.mark.parametrize(
    "searched", [{"lr": [0.1, 0.2]}, {"lr": {"low": 0.0, "high": 1.0, "log": False}}]
)
def test_a_list_of_rates_or_a_range_from_zero_is_refused(tmp_path, searched):
    search = search_of(tmp_path, {"name": "sgd", "search": searched})
    with pytest.raises(SpecError, match="needs a range of learning rates above 0"):
        range_run(search, search.candidates[0])


def test_a_loss_that_never_falls_can_be_drawn(tmp_path):
    rates = tuple(np.geomspace(1e-4, 1.0, 50))
    tests = [RangeTest("sgd", rates, tuple(np.linspace(1.0, 2.0, 50))), RangeTest("adam", (), ())]
    assert write_range_tests(tests, tmp_path)


def test_the_curves_of_several_optimizers_are_written(tmp_path):
    search = search_of(tmp_path, [{"name": "sgdf"}, {"name": "adam"}], "bench_tasks:Points")
    written = write_range_tests(do_range_tests(search, steps=40), tmp_path)
    assert [path.name for path in written] == ["range.json", "range.png", "range.pdf"]
    assert all(path.stat().st_size for path in written)
