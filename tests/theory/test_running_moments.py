"""Moments of the running mean and variance, against the weights that the filter itself has.

The running mean is linear in the gradients and the running variance a quadratic form of them, so
that gradients of one 1 among zeros show all weights: these tests need no random numbers.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgdf import filter_gradient
from sgdf.theory import expected_running_variance, running_mean_moments

STEPS = 12
BETA = st.floats(0.0, 0.9999)


def moments_of(gradients, betas):
    """Return the running mean and variance of the filter after each step."""
    grads = torch.tensor(gradients, dtype=torch.float64)
    mean = var = torch.zeros_like(grads[0])
    means, variances = [], []
    for step, grad in enumerate(grads, start=1):
        out = filter_gradient(grad, mean, var, step, betas=betas, eps=0.0, gamma=1.0)
        mean, var = out.mean, out.var
        means.append(mean.numpy())
        variances.append(var.numpy())
    return np.array(means), np.array(variances)


@given(BETA)
def test_the_running_mean_has_these_moments(beta1):
    weights, _ = moments_of(np.eye(STEPS), (beta1, 0.999))
    steps = np.arange(1, STEPS + 1)
    corrected = weights / (1 - beta1**steps)[:, None]
    found = running_mean_moments(beta1, steps)
    np.testing.assert_allclose(found.variance, np.square(weights).sum(1), rtol=1e-8)
    np.testing.assert_allclose(found.corrected_variance, np.square(corrected).sum(1), rtol=1e-8)
    np.testing.assert_allclose(found.covariance, np.diag(corrected), rtol=1e-8)


@given(BETA, BETA, st.floats(-10.0, 10.0), st.floats(0.0, 10.0))
def test_the_running_variance_has_this_mean(beta1, beta2, mean, variance):
    """E gᵀQg = σ² tr Q + μ² 1ᵀQ1, and the filter shows the diagonal of Q and the sum of all."""
    _, diagonals = moments_of(np.eye(STEPS), (beta1, beta2))
    _, sums = moments_of(np.ones((STEPS, 1)), (beta1, beta2))
    exact = variance * diagonals.sum(1) + mean**2 * sums[:, 0]
    found = expected_running_variance(
        (beta1, beta2), np.arange(1, STEPS + 1), mean=mean, variance=variance
    )
    np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-12 * (variance + mean**2))


@pytest.mark.parametrize("difference", [0.0, 1e-15, 1e-9, -1e-9, 1e-3])
def test_close_rates_do_not_cancel(difference):
    """Beside the sum that the quotient stands for, where beta2 is close to the square of beta1."""
    beta1, steps, mean = 0.9, 20, 5.0
    beta2 = beta1**2 + difference
    squares = [
        2 * beta1**2 / (1 + beta1) + beta1 ** (2 * i) * (mean**2 - (1 - beta1) / (1 + beta1))
        for i in range(1, steps + 1)
    ]
    exact = math.fsum(
        (1 - beta2) * beta2 ** (steps - i) * square for i, square in enumerate(squares, start=1)
    )
    found = expected_running_variance((beta1, beta2), steps, mean=mean)
    assert found == pytest.approx(exact, rel=1e-12)


def test_in_the_long_run_the_mean_is_forgotten():
    settled = 2 * 0.9**2 / 1.9
    for beta2 in (0.999, 0.81, 0.0):
        found = expected_running_variance((0.9, beta2), math.inf, mean=100.0, variance=2.0)
        assert found == pytest.approx(2 * settled)
    assert running_mean_moments(0.9).corrected_variance == pytest.approx(0.1 / 1.9)


def test_the_mean_leaks_into_the_variance():
    """About μ² q/((1−q) t) of s/(1 − β₂ᵗ), for t well below 1/(1 − β₂); here within 5 %."""
    for steps in (50, 100):
        still, moving = (
            expected_running_variance((0.9, 0.9999), steps, mean=mean) for mean in (0.0, 5.0)
        )
        leak = (moving - still) / (1 - 0.9999**steps)
        assert leak == pytest.approx(25 * 0.81 / 0.19 / steps, rel=0.05)


def test_equal_variances_are_needed():
    """Independent gradients of bounded variance are not enough for the correction factor.

    Only the last of 100 gradients has noise: the mean's variance is (1−β₁)², a fifth of the factor.
    """
    weights, _ = moments_of(np.eye(100), (0.9, 0.999))
    variances = np.zeros(100)
    variances[-1] = 1.0
    true = np.square(weights[-1]) @ variances
    assert true == pytest.approx(0.01)
    assert running_mean_moments(0.9, 100).variance == pytest.approx(0.0526, rel=1e-3)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="Invalid steps, the first is 1: 0"):
        running_mean_moments(0.9, 0)
    with pytest.raises(ValueError, match=r"Invalid beta1, not in \[0, 1\): 1"):
        running_mean_moments(1, 5)
    with pytest.raises(ValueError, match=r"Invalid betas\[1\], not in"):
        expected_running_variance((0.9, 1.0), 5)
    with pytest.raises(ValueError, match="Invalid variance, negative"):
        expected_running_variance((0.9, 0.9), 5, variance=-1.0)
