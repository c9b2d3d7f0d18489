"""Regret: the optimizer itself, bounds on every sequence, and rates."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies

import sgdf
from adversaries import descents
from sgdf.theory import (
    SYMMETRIC,
    Descent,
    DiscreteNoise,
    distance_bound,
    linear_losses,
    regret,
    regret_bound,
    squared_losses,
)
from sgdf.theory.convergence.noise import Cycle

VALUES = strategies.lists(strategies.floats(-1.0, 1.0), min_size=1, max_size=30)


@given(VALUES, strategies.floats(-5.0, 5.0), strategies.floats(-5.0, 5.0))
def test_the_lemmas_that_hold_as_printed(values, one, other):
    """lem.B.4: a loss is above its tangent. lem.B.5: Σ g²/√t ≤ 2G²√T."""
    for problem in (linear_losses(), squared_losses()):
        here, there, drawn = torch.tensor([[one], [other], values[:1]], dtype=torch.float64)
        difference = problem.loss(here, drawn) - problem.loss(there, drawn)
        assert difference <= problem.gradient(here, drawn) * (here - there) + 1e-12
    squares = np.cumsum(np.square(values) / np.sqrt(np.arange(1, len(values) + 1)))
    bound = 2.0 * np.max(np.abs(values)) ** 2 * np.sqrt(np.arange(1, len(values) + 1))
    assert (squares <= bound).all()


@pytest.mark.parametrize("gamma_decay", [0.0, 0.5])
@pytest.mark.parametrize("schedule", ["step", "horizon"])
def test_it_is_the_regret_of_the_optimizer(gamma_decay, schedule):
    """sgdf.SGDF in float64 on the same slopes, with the same rates and projection."""
    steps, slopes = 200, (10.5, -1.0, -1.0, 0.3, -1.0, -1.0, -1.0)
    problem = linear_losses(Cycle(slopes))
    descent = Descent(lr=0.2, schedule=schedule, gamma_decay=gamma_decay)
    found = regret(problem, descent, steps=[steps // 2, steps], copies=1)
    theta = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = sgdf.SGDF([theta], lr=1.0, gamma=0.5, gamma_decay=gamma_decay)
    total = 0.0
    for step in range(1, steps + 1):
        slope = slopes[(step - 1) % len(slopes)]
        total += slope * (theta.item() - problem.best)
        end = theta.item()
        optimizer.param_groups[0]["lr"] = 0.2 / math.sqrt(step if schedule == "step" else steps)
        theta.grad = torch.full_like(theta, slope)
        optimizer.step()
        with torch.no_grad():
            theta.clamp_(-1.0, 1.0)
    assert found.average[-1] * steps == pytest.approx(total, rel=1e-9)
    assert found.point[-1] == pytest.approx(end, rel=1e-9)


@settings(max_examples=40)
@given(VALUES, descents(), strategies.sampled_from([-1.0, 0.25, 1.0]))
def test_no_sequence_of_linear_losses_exceeds_the_bounds(values, descent, best):
    """Pathwise, with any point of the box for the best: both bounds hold, not on average only."""
    problem = replace(linear_losses(Cycle((*values, 1.0)), start=-best), best=best)
    found = regret(problem, descent, steps=[1, 3, 40], copies=1)
    assert (found.average <= found.bound * (1.0 + 1e-9)).all()
    assert (found.average <= found.distance_bound * (1.0 + 1e-9)).all()


@settings(max_examples=30)
@given(VALUES, descents())
def test_no_sequence_of_squares_exceeds_the_bounds(values, descent):
    problem = squared_losses(Cycle(tuple(values)), box=(-1.0, 1.0), start=1.0, dimension=2)
    found = regret(problem, descent, steps=[1, 40], copies=1)
    assert (found.average <= found.bound * (1.0 + 1e-9)).all()
    assert (found.average <= found.distance_bound * (1.0 + 1e-9)).all()


def test_the_bound_is_reached_within_a_factor_by_sgd():
    """All losses pull one way: with α = 0.1 the regret is a fifth of SGD's bound or more."""
    problem = linear_losses(Cycle((1.0,)), start=1.0)
    found = regret(problem, Descent(lr=0.1, gamma=0.0), steps=[100], copies=1)
    assert 0.2 * found.distance_bound[-1] < found.average[-1] <= found.distance_bound[-1]


def test_the_paper_prints_the_same_bound_with_rounded_sums():
    """Σ 1/√t ≤ 2√T is all that is between them."""
    problem, descent = linear_losses(dimension=3), Descent(lr=0.2)
    steps, variation = np.array([1, 10, 1000]), np.array([0.0, 5.0, 70.0])
    size, width, beta = 10.5, 2.0, 0.9
    printed = 3 * (width**2 / (2 * 0.2) + 0.2 * size**2 * (1 + beta) / (1 - beta)) * np.sqrt(
        steps
    ) + beta * size * width / (1 - beta) * (2 * 3 + variation)
    found = regret_bound(problem, descent, steps, variation)
    rounded = (
        0.2
        * size**2
        * (1 + beta)
        / (1 - beta)
        * 3
        * (np.sqrt(steps) - [0.5 * np.sum(1 / np.sqrt(np.arange(1, t + 1))) for t in steps])
    )
    assert found == pytest.approx(printed - rounded, rel=1e-12)
    assert (found <= printed).all()


def test_without_the_variation_it_is_the_bound_of_sgd_and_the_distance():
    problem, steps = linear_losses(dimension=3), [1, 10, 1000]
    fading = Descent(lr=0.2, gamma_decay=0.5)
    plain = regret_bound(problem, replace(fading, gamma=0.0), steps)
    sums = distance_bound(1000, 10.5, fading).cumsum()[np.array(steps) - 1]
    assert regret_bound(problem, fading, steps) == pytest.approx(plain + 3 * 2.0 * sums)
    rates = 0.2 / np.sqrt(np.arange(1, 1001))
    expected = 3 * (4.0 / (2 * rates[-1]) + 0.5 * 10.5**2 * rates.sum())
    assert plain[-1] == pytest.approx(expected)


def test_symmetric_losses_have_the_rate_of_the_theorem():
    """Slopes of ln R(T)/T in ln T of −0.57 to −0.59 for SGD, and for SGDF with either power.

    A slope has a standard error of 0.006 over seeds: the limits are 25 of them away, for the noise;
    they are for the power of T, which is −0.5 only as T → ∞.
    """
    steps = [150, 300, 600, 1200]
    for gamma, gamma_decay in ((0.0, 0.0), (0.5, 0.0), (0.5, 0.5)):
        descent = Descent(lr=1.0, gamma=gamma, gamma_decay=gamma_decay)
        found = regret(squared_losses(SYMMETRIC), descent, steps=steps, copies=256)
        slope = np.polyfit(np.log(steps), np.log(found.average), 1)[0]
        assert -0.75 < slope < -0.4


def test_a_mean_over_copies_has_its_error():
    """Two seeds agree within four standard errors of their difference, as 16,000 in 16,001 do."""
    descent = Descent(lr=1.0)
    one, other = (regret(squared_losses(), descent, steps=[300], seed=seed) for seed in (0, 1))
    difference = abs(one.average[-1] - other.average[-1])
    assert 0.0 < difference < 4.0 * math.hypot(one.error[-1], other.error[-1])
    assert math.isnan(regret(squared_losses(), descent, steps=[3], copies=1).error[-1])


def test_each_horizon_has_its_own_rate():
    """With α/√T the runs to T = 50 are those of a run that ends there."""
    problem, descent = linear_losses(Cycle((1.0, -0.5, 0.2))), Descent(lr=0.2, schedule="horizon")
    both = regret(problem, descent, steps=[50, 80], copies=1)
    assert both.average[0] == regret(problem, descent, steps=[50], copies=1).average[0]
    assert both.average[1] == regret(problem, descent, steps=[80], copies=1).average[0]


def test_infinity_is_the_running_mean():
    """γ = ∞ follows m̂, computed here by its definition."""
    slopes = (0.7, -1.0, 0.4, -0.1)
    found = regret(
        linear_losses(Cycle(slopes)), Descent(lr=0.1, gamma=math.inf), steps=[30], copies=1
    )
    theta, mean = 0.0, 0.0
    for step in range(1, 31):
        end = theta
        mean = 0.9 * mean + 0.1 * slopes[(step - 1) % 4]
        theta = min(max(theta - 0.1 / math.sqrt(step) * mean / (1 - 0.9**step), -1.0), 1.0)
    assert found.point[-1] == pytest.approx(end, rel=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: regret(linear_losses(), Descent(lr=0.2), steps=0),
        lambda: regret(linear_losses(), Descent(lr=0.2), steps=[5, 3]),
        lambda: regret(linear_losses(), Descent(lr=0.2), copies=0),
        lambda: Descent(lr=0.0),
        lambda: Descent(lr=0.1, schedule="cosine"),
        lambda: Descent(lr=0.1, betas=(1.0, 0.9)),
        lambda: DiscreteNoise((1.0, 2.0), (0.5, 0.6)),
        lambda: DiscreteNoise((1.0, 2.0), (1.0,)),
        lambda: DiscreteNoise((math.nan,), (1.0,)),
        lambda: Cycle(()),
        lambda: linear_losses(start=2.0),
        lambda: linear_losses(dimension=0),
        lambda: linear_losses(box=(-math.inf, 1.0)),
    ],
)
def test_wrong_arguments_are_refused(make):
    with pytest.raises(ValueError, match="Invalid"):
        make()
