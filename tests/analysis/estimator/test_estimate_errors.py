"""Bias, variance and mean squared error of estimates, on cases whose answers are known."""

import pytest
import torch

from sgdf.analysis.estimator.errors import Errors, ErrorSums, Watch, measure_errors, total_errors
from sgdf.analysis.estimator.filters import Momentum, RawGradient, RunningMean
from sgdf.analysis.estimator.shadow_filter import Observation


def sums_of(estimates, target):
    sums = ErrorSums(target)
    for estimate in estimates:
        sums.add(estimate)
    return sums.errors()


@pytest.mark.parametrize("count", [2, 5, 16])
def test_the_mean_squared_error_is_squared_bias_plus_variance(count):
    """Exactly, for every set of estimates, not only in the mean."""
    torch.manual_seed(count)
    estimates, target = torch.randn(count, 7, 3) + 1, torch.randn(7, 3)
    found = sums_of(estimates, target)
    assert found.squared_bias + found.variance == pytest.approx(found.mse, rel=1e-13)
    assert found.mse == pytest.approx((estimates - target).square().sum((1, 2)).mean().item())
    assert found.variance == pytest.approx(estimates.var(0).sum().item(), rel=1e-5)


@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_the_squared_bias_is_unbiased(bias):
    """Within 4 standard errors over 3,000 sets of 4 estimates.

    Without a bias about half of the sets have one below 0.
    """
    torch.manual_seed(0)
    target, draws = torch.zeros(3), bias + torch.randn(3000, 4, 3)
    found = torch.tensor([sums_of(each, target).squared_bias for each in draws])
    error = found.std() / 3000**0.5
    assert abs(found.mean() - 3 * bias**2) < 4 * error
    assert bias or 0.4 < (found < 0).float().mean() < 0.7


def test_tensors_add_up():
    torch.manual_seed(0)
    estimates, target = torch.randn(6, 10), torch.randn(10)
    parts = [sums_of(estimates[:, part], target[part]) for part in (slice(4), slice(4, 10))]
    assert total_errors(parts) == pytest.approx(sums_of(estimates, target))
    assert Errors(1.0, 2.0, 3.0) + Errors(1.0, 1.0, 2.0) == Errors(2.0, 3.0, 5.0)


def observed(values):
    return {"w": Observation(torch.tensor([values]), torch.zeros(1))}


def test_filters_are_measured_from_the_state_before_the_step():
    """A mean of 2 after one gradient; then 0 or 4 are drawn, and the gradient really is 3."""
    watch = Watch([RawGradient(), RunningMean(0.5), Momentum(0.5)])
    watch.advance(observed(2.0))
    target, draws = {"w": torch.tensor([3.0])}, [observed(0.0), observed(4.0)]
    found = measure_errors(watch, target, draws)
    # Estimates 0 and 4: mean 2, variance 8, mean squared error (9 + 1) / 2.
    assert found["raw gradient"]["w"] == pytest.approx(Errors(1.0 - 8.0 / 2, 8.0, 5.0))
    # (0.5 · 1 + 0.5 g) / 0.75: 2/3 and 10/3.
    mean, variance = 2.0, (8 / 3) ** 2 / 2
    expected = Errors((mean - 3) ** 2 - variance / 2, variance, (49 / 9 + 1 / 9) / 2)
    assert found["EMA, β 0.5"]["w"] == pytest.approx(expected)
    assert found["CM, β 0.5"]["w"].mse == pytest.approx((4.0 + 4.0) / 2)
    assert measure_errors(watch, target, draws) == found
