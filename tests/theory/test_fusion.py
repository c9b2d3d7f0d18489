"""The fusion of two sources: its gain is the best one, and what the paper's gain promises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from sgdf.theory import (
    effective_variance,
    fuse,
    mmse_gain,
    noise_response,
    running_mean_moments,
)

VARIANCE = st.floats(-3.0, 3.0).map(lambda exponent: 10.0**exponent)
MEAN = st.floats(-10.0, 10.0)
CORRELATION = st.floats(-0.99, 0.99)
GAIN = st.floats(-2.0, 3.0)


@given(MEAN, VARIANCE, MEAN, VARIANCE)
def test_independent_sources(mean_m, variance_m, mean_g, variance_g):
    """As printed: mean and variance of the linear combination, and smaller than both."""
    found = fuse(mean_m, variance_m, mean_g, variance_g)
    total = variance_m + variance_g
    expected = (variance_g * mean_m + variance_m * mean_g) / total
    assert found.mean == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert found.variance == pytest.approx(variance_m * variance_g / total)
    assert found.gain == pytest.approx(variance_m / total)
    assert found.variance < min(variance_m, variance_g)


@given(VARIANCE, VARIANCE, CORRELATION, GAIN, MEAN)
def test_no_gain_has_a_smaller_error(variance_m, variance_g, correlation, gain, bias):
    """Neither a smaller variance, nor a smaller squared error with a bias of the running mean."""
    covariance = correlation * math.sqrt(variance_m * variance_g)
    sources = (bias, variance_m, 0.0, variance_g)
    best, other = (fuse(*sources, covariance=covariance, gain=k) for k in (None, gain))
    assert best.variance <= other.variance * (1 + 1e-9)
    assert best.variance <= min(variance_m, variance_g) * (1 + 1e-9)
    weight = mmse_gain(variance_m, variance_g, bias=bias, covariance=covariance)
    found = fuse(*sources, covariance=covariance, gain=weight)
    assert found.mean**2 + found.variance <= (other.mean**2 + other.variance) * (1 + 1e-9)


@given(VARIANCE, VARIANCE, MEAN)
def test_a_bias_raises_the_best_gain(variance_m, variance_g, bias):
    unbiased, biased = mmse_gain(variance_m, variance_g, bias=[0.0, bias])
    assert biased >= unbiased
    assert biased == pytest.approx((variance_m + bias**2) / (variance_m + bias**2 + variance_g))


@given(MEAN, VARIANCE, MEAN, VARIANCE, CORRELATION)
def test_the_product_of_densities(mean_m, variance_m, mean_g, variance_g, correlation):
    """The joint density where both are x is Z times the fused one, at every x."""
    covariance = correlation * math.sqrt(variance_m * variance_g)
    found = fuse(mean_m, variance_m, mean_g, variance_g, covariance=covariance)
    joint = stats.multivariate_normal(
        [mean_m, mean_g], [[variance_m, covariance], [covariance, variance_g]]
    )
    fused = stats.norm(found.mean, math.sqrt(found.variance))
    for x in (found.mean, found.mean + 2 * math.sqrt(found.variance), mean_m, mean_g):
        expected = found.log_normaliser + fused.logpdf(x)
        assert joint.logpdf([x, x]) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_constant_has_a_minus():
    """The area under the product of N(0, 1) and N(1, 0.49): the printed sign makes it larger."""

    def product(x):
        return stats.norm.pdf(x, 0.0, 1.0) * stats.norm.pdf(x, 1.0, 0.7)

    area, _ = integrate.quad(product, -10.0, 10.0)
    found = fuse(0.0, 1.0, 1.0, 0.49)
    assert found.log_normaliser == pytest.approx(math.log(area), rel=1e-9)
    printed = -0.5 * math.log(2 * math.pi * 1.49) + 1 / (2 * 1.49)
    assert printed - found.log_normaliser == pytest.approx(1 / 1.49)


@given(st.floats(0.01, 0.9999), st.integers(2, 10_000))
def test_the_best_weight_of_the_last_gradient_is_negative(beta1, steps):
    """−(1−β₁)/(2β₁) at every step after the first: the running mean has too much of it."""
    moments = running_mean_moments(beta1, steps)
    sources = (0.0, moments.corrected_variance, 0.0, 1.0)
    found = fuse(*sources, covariance=moments.covariance)
    assert found.gain == pytest.approx(-(1 - beta1) / (2 * beta1), rel=1e-5)
    derived = fuse(*sources).gain
    true = fuse(*sources, covariance=moments.covariance, gain=derived)
    assert true.variance > moments.corrected_variance


@given(st.floats(0.01, 0.999), st.integers(2, 1000))
def test_with_the_mean_before_the_derivation_is_right(beta1, steps):
    """m̂ of the step before is independent of g, and its fusion is that with the best weight."""
    before, now = (running_mean_moments(beta1, count) for count in (steps - 1, steps))
    right = fuse(0.0, before.corrected_variance, 0.0, 1.0)
    same = fuse(0.0, now.corrected_variance, 0.0, 1.0, covariance=now.covariance)
    assert right.variance == pytest.approx(float(same.variance), rel=1e-6)
    # of the last gradient: what the mean has, and the gain's share of the rest
    assert right.gain == pytest.approx(
        float(now.covariance + same.gain * (1 - now.covariance)), rel=1e-6
    )


def test_the_filters_estimate_has_more_variance_than_its_mean():
    """On steady normal noise 0.103 (γ = ½) and 0.061 (γ = 1), where the mean has 0.053.

    1,000 series of 500 steps: a standard error is 1.5 % at most, of errors that are 16 and 95 %
    apart.
    """
    for gamma, expected in ((0.5, 0.1026), (1.0, 0.0613)):
        found = noise_response("normal", gamma=gamma)
        assert found.mean_error == pytest.approx(1 / 19, rel=0.05)
        assert found.estimate_error == pytest.approx(expected, rel=0.05)
        assert found.estimate_error > 1.1 * found.mean_error


@given(VARIANCE, VARIANCE, st.floats(0.0, 3.0))
def test_a_power_is_another_variance(variance_m, variance_g, gamma):
    found = effective_variance(variance_m, variance_g, gamma=gamma)
    gain = float(fuse(0.0, variance_m, 0.0, variance_g).gain)
    assert variance_m / (variance_m + found) == pytest.approx(gain**gamma, rel=1e-9)
    rounding = 1e-12 * variance_g
    if gamma <= 1:  # the gradient is trusted more
        assert found <= gamma * variance_g + rounding
    else:
        assert found >= gamma * variance_g - rounding


def test_arrays_are_fused_element_by_element():
    found = fuse([0.0, 1.0], 1.0, 0.0, [[1.0], [3.0]])
    assert found.mean.shape == found.log_normaliser.shape == (2, 2)
    np.testing.assert_allclose(found.gain, [[0.5], [0.25]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variance_m": -1.0}, "Invalid variance_m, not a variance: -1.0"),
        ({"variance_g": math.inf}, "Invalid variance_g, not a variance: inf"),
        ({"covariance": 2.0}, "Invalid covariance, larger than the variances allow: 2.0"),
        ({"covariance": 1.0}, "Invalid variances: the sources do not differ"),
    ],
)
def test_impossible_sources_are_refused(arguments, message):
    sources = {"mean_m": 0.0, "variance_m": 1.0, "mean_g": 0.0, "variance_g": 1.0} | arguments
    with pytest.raises(ValueError, match="Invalid") as caught:
        fuse(**sources)
    assert str(caught.value).startswith(message)


def test_a_power_needs_a_variance():
    with pytest.raises(ValueError, match="Invalid variance_m, not positive: 0"):
        effective_variance(0.0, 1.0)
    with pytest.raises(ValueError, match="Invalid gamma, negative: -1"):
        effective_variance(1.0, 1.0, gamma=-1)
