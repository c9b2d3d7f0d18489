"""Estimates of time: quick, even where an evaluation is not."""

import time

import pytest

from bench_tasks import Points, run_of
from sgdf.bench.jobs import estimate as estimate_module
from sgdf.bench.jobs.estimate import estimate
from sgdf.bench.store.run_folder import Store

DELAY = 0.02


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr("sgdf.bench.jobs.estimate.SAMPLE_SECONDS", 0.1)
    monkeypatch.setattr("sgdf.bench.jobs.estimate.EVALUATION_SECONDS", 0.2)


def estimated(run):
    """Return the estimate, how long it took, and what was said."""
    lines, begun = [], time.monotonic()
    (seconds,) = estimate([run], Store("nothing"), lines.append).values()
    return seconds, time.monotonic() - begun, lines


def test_a_long_evaluation_is_extrapolated_from_its_beginning(monkeypatch):
    """Of 120 examples, one at a time."""
    monkeypatch.setattr("sgdf.bench.tasks.supervised.EVALUATION_BATCH", 1)
    make = Points.__init__

    def slow(task, *arguments, **options):
        make(task, *arguments, **options)
        original = task.criterion

        def waiting(outputs, targets):
            if not task.model.training:
                time.sleep(DELAY)
            return original(outputs, targets)

        task.criterion = waiting

    monkeypatch.setattr(Points, "__init__", slow)
    seconds, took, lines = estimated(run_of(train={"epochs": 50}))
    expected = 50 * 120 * DELAY
    assert 0.9 * expected < seconds < 2 * expected
    assert took < 0.5 * 120 * DELAY  # not even one evaluation
    (line,) = lines
    assert line.startswith("Timing bench_tasks:Points for a few seconds")


def test_where_the_rest_is_not_known_the_estimate_is_said_to_be_too_low(monkeypatch):
    """An evaluation that does not say how many examples it has."""

    def evaluate(task, split):
        for _ in range(100):
            time.sleep(DELAY)
            task.model["critic"](task.real)
        return {"loss": 0.0}

    monkeypatch.setattr("bench_tasks.Pair.evaluate", evaluate)
    seconds, took, (_, line) = estimated(run_of("bench_tasks:Pair", train={"epochs": 50}))
    assert seconds >= 50 * 0.2
    assert took < 100 * DELAY
    assert "so the estimate is too low" in line


def test_an_evaluation_that_tells_how_far_it_is_is_extrapolated(monkeypatch):
    def evaluate(task, split):
        for done in range(1, 101):
            time.sleep(DELAY)
            task.evaluation.advance("drawing", done, 100, dict)
        return {"loss": 0.0}

    monkeypatch.setattr("bench_tasks.Pair.evaluate", evaluate)
    seconds, took, lines = estimated(run_of("bench_tasks:Pair", train={"epochs": 50}))
    expected = 50 * 100 * DELAY
    assert 0.9 * expected < seconds < 2 * expected
    assert took < 100 * DELAY
    assert len(lines) == 1


@pytest.mark.parametrize(("decides", "costly_ones"), [("evaluate", 1), ("evaluate_costly", 2)])
def test_the_first_evaluation_is_costly_if_only_those_have_the_metric(
    decides, costly_ones, monkeypatch
):
    time_evaluation, cost = estimate_module._time_evaluation, 1e6

    def dear(trainer, costly, say):
        _, metrics = time_evaluation(trainer, costly, say)
        return cost if costly else 0.0, metrics

    for name in ("evaluate", "evaluate_costly"):
        found = {"loss": 0.0} if name == decides else {}
        monkeypatch.setattr(f"bench_tasks.Pair.{name}", lambda *_, f=found: f, raising=False)
    monkeypatch.setattr(estimate_module, "_time_evaluation", dear)
    train = {"epochs": 10_000, "evaluate_every": 5_000, "costly_every": 10_000}
    still = {"name": "sgd-vanilla", "lr": 1e-12}  # so that it does not diverge
    seconds, _, _ = estimated(run_of("bench_tasks:Pair", still, train))
    assert seconds // cost == costly_ones


def test_a_short_run_is_just_done():
    seconds, _, lines = estimated(run_of("bench_tasks:Plain", train={"epochs": 1}))
    assert 0 < seconds < 1
    assert len(lines) == 1
