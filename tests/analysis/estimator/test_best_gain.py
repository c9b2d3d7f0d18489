"""The gain with the smallest error, on residuals whose answer is known."""

import math

import numpy as np
import pytest
import torch

from sgdf.analysis.estimator.filters import Filtered, SGDFEstimate
from sgdf.analysis.estimator.gain import EDGES, GainSums, gain_curve
from sgdf.analysis.estimator.signals import Signal


def filtered(residual, estimate=0.0, mean_variance=1.0):
    zeros = torch.zeros_like(residual)
    return Filtered(zeros + estimate, zeros, residual, zeros, zeros + mean_variance, moments=None)


def curve(*steps):
    """Return the curve of steps, each a residual and the target that goes with it."""
    rows = []
    for residual, target in steps:
        sums = GainSums()
        sums.add(filtered(residual), target)
        rows.append(sums.rows())
    return gain_curve(rows)


def test_a_gain_that_depends_on_the_residual_is_found():
    """0.8 for small residuals, 0.1 for large ones, with noise: within 5 standard errors."""
    torch.manual_seed(0)
    steps = []
    for _ in range(10):
        residual = 5 * torch.randn(20_000, dtype=torch.float64)
        gain = torch.where(residual.abs() < 10**0.5, 0.8, 0.1)
        steps.append((residual, gain * residual + torch.randn_like(residual)))
    found = curve(*steps)
    assert sum(one.share for one in found) == pytest.approx(1.0)
    for one in found:
        expected = 0.8 if one.high < 4 else 0.1
        assert abs(one.best - expected) < 5 * one.best_error
        assert one.best_error < 0.1 or one.low < 0.5  # small residuals say little


def test_the_standard_error_is_that_of_repeated_measurements():
    """The jackknife's, against the spread of 200 whole measurements: within 20 %."""
    torch.manual_seed(0)
    bests, errors = [], []
    for _ in range(200):
        steps = [(1 + torch.rand(40), torch.randn(40) + torch.randn(1)) for _ in range(12)]
        (one,) = (each for each in curve(*steps) if each.low == 1.0)
        bests.append(one.best)
        errors.append(one.best_error)
    assert np.mean(errors) == pytest.approx(np.std(bests), rel=0.2)


def test_a_size_that_few_steps_have_has_no_standard_error():
    large, small = torch.tensor([50.0]), torch.tensor([2.0])
    found = curve((large, large), (small, small), (small, small), (small, 2 * small))
    assert [math.isnan(one.best_error) for one in found] == [False, True]


def test_residuals_beyond_the_edges_count_and_unknown_ones_do_not():
    residual = torch.tensor([1e-3, 1e4, 0.0])
    sums = GainSums()
    sums.add(filtered(residual, mean_variance=torch.tensor([1.0, 1.0, 0.0])), residual)
    counts = sums.rows()[0]
    assert (counts[0], counts[-1], sum(counts)) == (1.0, 1.0, 2.0)


def test_the_gain_of_sgdf_is_that_of_the_soft_clamp():
    """Between 1 / √(1 + z²) at the edges of each bin, from nearly 1 to nearly 0."""
    shadow, state, sums = SGDFEstimate(eps=0.0), None, GainSums()
    observed = Signal("").observe(3000, torch.Generator().manual_seed(0))
    for step, (signal, observation) in enumerate(observed):
        found = shadow.filter(state, observation.grad)
        state = found.moments
        if step > 100:
            sums.add(found, signal)
        if step > 130:
            break
    bins = [one for one in gain_curve([sums.rows()]) if one.low > EDGES[0]]
    for one in bins:
        assert 1 / math.hypot(1, one.high) <= one.used <= 1 / math.hypot(1, one.low)
    assert bins[0].used > 0.99
    assert bins[-1].used < 0.1
    # The best estimate of a constant hardly looks at the present gradient.
    assert all(one.best < 0.05 for one in bins if one.share > 0.01)
