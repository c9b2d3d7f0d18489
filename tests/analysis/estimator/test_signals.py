"""Filters on synthetic signals: against closed forms, published figures and the best estimate."""

import dataclasses

import pytest
import torch

from sgdf.analysis.estimator.filters import RawGradient, RunningMean, SGDFEstimate
from sgdf.analysis.estimator.half_batch_kalman import HalfBatchKalman
from sgdf.analysis.estimator.shadow_filter import Observation
from sgdf.analysis.estimator.signals import (
    SIGNALS,
    Signal,
    heavy_tailed,
    measure_signal,
    normal,
    rare,
)
from sgdf.theory import steady_gain

BY_NAME = {signal.name: signal for signal in SIGNALS}
LINEAR = [RawGradient(), RunningMean(0.9), HalfBatchKalman()]


@pytest.mark.parametrize("drift", [0.0, 0.05, 1.0])
def test_the_running_mean_has_the_error_of_the_closed_form(drift):
    """Within 4 standard errors, which a right one misses in 1 of 16,000 seeds."""
    beta, signal = 0.9, Signal("random walk", drift=(drift,))
    found = measure_signal(
        signal, [RunningMean(beta)], steps=250, settled=150, elements=4000, seed=1
    )
    expected = (beta**2 * drift + (1 - beta) ** 2) / (1 - beta**2)
    (name,) = found.errors
    assert abs(found.errors[name] - expected) < 4 * found.standard_errors[name]


@pytest.mark.parametrize(
    ("drift", "square_root", "whole"), [(0.0, 0.103, 0.061), (0.05, 0.250, 0.258), (1.0, 3.1, 4.0)]
)
def test_the_errors_of_sgdf_are_the_published_ones(drift, square_root, whole):
    """γ = ½ and γ = 1: within half a unit of the last digit, 4 standard errors and 1 %.

    The per cent is for the variance, which has not quite forgotten the first gradients.
    """
    shadows = [SGDFEstimate(), SGDFEstimate(gamma=1.0)]
    found = measure_signal(
        Signal("random walk", drift=(drift,)), shadows, steps=700, settled=500, elements=1500
    )
    half_unit = 0.05 if drift == 1.0 else 0.0005
    for shadow, expected in zip(shadows, (square_root, whole), strict=True):
        allowed = half_unit + 4 * found.standard_errors[shadow.name] + 0.01 * expected
        assert abs(found.errors[shadow.name] - expected) < allowed


def mean_gain(drift):
    """Return SGDF's mean gain on a random walk of this drift, with its standard error."""
    random, shadow, state = torch.Generator().manual_seed(0), SGDFEstimate(), None
    gains = torch.zeros(2000, dtype=torch.float64)
    for step, (_, observation) in enumerate(Signal("", drift=(drift,)).observe(2000, random)):
        found = shadow.filter(state, observation.grad)
        state = found.moments
        if step >= 500:
            gains += found.gain / 300
        if step == 799:
            return gains.mean().item(), gains.std().item() / 2000**0.5
    raise AssertionError


def test_the_gain_does_not_see_drift():
    """Its mean is the same without drift and with drift ten times as large as the noise.

    Within 4 standard errors and 0.003, the part of the start that is left after 500 steps.
    """
    theory, _ = steady_gain(betas=(0.9, 0.999))
    (still, still_error), (drifting, drifting_error) = mean_gain(0.0), mean_gain(10.0)
    assert abs(still - theory) < 4 * still_error + 0.003
    assert abs(drifting - still) < 4 * (still_error**2 + drifting_error**2) ** 0.5 + 0.003


@pytest.mark.parametrize(
    ("name", "bound"),
    [("random walk, slow", 1.1), ("random walk, fast", 1.05), ("oscillating", 1.15)],
)
def test_half_batch_kalman_is_close_to_the_exact_filter(name, bound):
    """At most 10, 5 and 15 % more error; seen with other seeds: 4, 2 and 8 %."""
    found = measure_signal(BY_NAME[name], LINEAR, steps=500, settled=200, elements=500)
    error = found.errors["half-batch Kalman"]
    assert found.best <= error < bound * found.best
    assert error < found.errors["EMA, β 0.9"]


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.name)
def test_no_linear_filter_is_better_than_the_best_one(signal):
    found = measure_signal(signal, LINEAR[:2], steps=300, settled=100, elements=400)
    assert all(found.best < error for error in found.errors.values())


def test_errors_are_in_units_of_the_mean_noise():
    """So that of the raw gradient is 1 for every signal."""
    for signal in SIGNALS:
        found = measure_signal(signal, [RawGradient()], steps=200, settled=0, elements=400)
        assert abs(found.errors["raw gradient"] - 1.0) < 5 * found.standard_errors["raw gradient"]


def test_the_standard_error_does_not_count_that_noise_is_unequal():
    """Of the mean of n squares of normal numbers with variances v it is √(2 Σ v²)/n."""
    noise, elements, steps = torch.tensor([0.01, 0.1, 1.0, 10.0]), 400, 50
    signal = Signal("still", start=(0.0,), noise=tuple(noise.tolist()))
    found = measure_signal(signal, [RawGradient()], steps=steps, settled=0, elements=elements)
    square = 2.0 * noise.square().mean() / noise.mean() ** 2
    expected = float((square / (elements * steps)).sqrt())
    assert found.standard_errors["raw gradient"] == pytest.approx(expected, rel=0.3)


def test_only_normal_laws_make_the_kalman_filter_the_best_of_all():
    assert {signal.name for signal in SIGNALS if not signal.is_gaussian} == {
        "jumping",
        "heavy-tailed noise",
    }


def test_every_law_has_mean_0_and_variance_1():
    """Within 6 standard errors."""
    for draw in (normal, heavy_tailed, rare):
        numbers = draw((400_000,), torch.Generator().manual_seed(0))
        squares = numbers.square()
        error = squares.std().item() / 400_000**0.5
        assert abs(numbers.mean().item()) < 6 / 400_000**0.5
        assert abs(squares.mean().item() - 1) < 6 * error
        assert (squares.square().mean() > 4).item() == (draw is not normal)  # its tails


def test_the_noise_sample_is_of_the_same_size_and_independent():
    signal = dataclasses.replace(BY_NAME["unequal noise"], drift=(0.0,))
    observed = signal.observe(400, torch.Generator().manual_seed(0))
    pairs = [next(observed) for _ in range(200)]
    noise = torch.stack([observation.grad - truth for truth, observation in pairs]).view(-1, 4)
    sample = torch.stack([observation.noise for _, observation in pairs]).view(-1, 4)
    expected = torch.tensor(signal.noise, dtype=torch.float64)
    for found in (noise, sample):
        torch.testing.assert_close(found.var(0), expected, rtol=0.05, atol=0)
    correlation = (noise * sample).mean(0) / expected
    assert (correlation.abs() < 0.04).all()  # 5.6 standard errors


def test_a_signal_without_drift_stays():
    (first, seen), (second, _) = (
        pair for pair, _ in zip(Signal("").observe(3, torch.Generator()), range(2), strict=False)
    )
    assert torch.equal(first, second)
    assert isinstance(seen, Observation)
