"""The law of the gain against closed forms, quadrature and the filter itself."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from sgdf.theory import gain_law, noise_response, steady_gain

BETA1 = st.floats(0.0, 0.9999)
RATIO = st.floats(-3.0, 4.0).map(lambda exponent: 10.0**exponent)


@given(BETA1, RATIO)
def test_the_means_are_the_closed_forms(beta1, ratio):
    """√(πc/2) e^(c/2) erfc √(c/2) and √(c/2π) e^(c/4) K₀(c/4), to ten digits."""
    law = gain_law(beta1, variance_ratio=ratio)
    c = ratio * (1 - beta1) / (1 + beta1)
    mean = math.sqrt(math.pi * c / 2) * special.erfcx(math.sqrt(c / 2))
    root = math.sqrt(c / (2 * math.pi)) * special.k0e(c / 4)
    assert law.mean == pytest.approx(mean, rel=1e-10)
    assert law.mean_root == pytest.approx(root, rel=1e-10)
    assert law.mean_power(0.0) == pytest.approx(1.0, rel=1e-10)
    assert law.derived == pytest.approx(c / (1 + c))


@pytest.mark.parametrize(
    ("beta1", "mean", "root", "derived"),
    [(0.9, 0.2416, 0.4124, 0.05), (0.5, 0.4819, 0.6527, 0.25), (0.99, 0.084, 0.1924, 0.005)],
)
def test_the_gain_is_several_times_the_derived_one(beta1, mean, root, derived):
    law = gain_law(beta1)
    shown = [round(value, 4) for value in (law.mean, law.mean_root, law.derived)]
    assert shown == [mean, root, derived]


POWER = st.one_of(st.floats(0.0, 3.0), st.floats(0.0, 12.0).map(lambda exponent: 10.0**exponent))


@given(BETA1, POWER)
def test_a_mean_power_is_an_integral_over_the_normal_law(beta1, gamma):
    """In ln z, where the adaptive quadrature finds the peak at 0 for every beta1 and gamma."""
    law = gain_law(beta1)

    def height(y):
        square = math.exp(2 * y)
        return math.exp(y - square / 2 - gamma * math.log1p(square / law.share))

    area, error = integrate.quad(height, -40.0, 4.0, limit=400, epsabs=0.0, epsrel=1e-11)
    assert error < 1e-9 * area
    assert law.mean_power(gamma) == pytest.approx(math.sqrt(2 / math.pi) * area, rel=1e-9)


@pytest.mark.parametrize(
    ("gamma", "expected"), [(1e2, 0.016281), (1e4, 0.0016223), (1e6, 0.00016222), (math.inf, 0.0)]
)
def test_large_powers(gamma, expected):
    """They are near √(c/(c + 2γ)), where only the smallest residuals count."""
    law = gain_law(0.9)
    assert law.mean_power(gamma) == pytest.approx(expected, rel=2e-4)
    near = math.sqrt(law.share / (law.share + 2 * gamma))
    assert law.mean_power(gamma) == pytest.approx(near, rel=0.01)
    found = steady_gain(betas=(0.9, 1 - 1e-9), gamma=gamma)
    assert found.mean_power == pytest.approx(law.mean_power(gamma), rel=1e-6)


@pytest.mark.parametrize(
    ("beta2", "correction", "gamma"),
    [(0.9, "paper", 0.5), (0.9, "paper", 1e2), (0.999, "paper", 1e4), (0.5, "none", 80.0)],
)
def test_a_steady_power_is_an_integral_over_both_laws(beta2, correction, gamma):
    """Over z in ln z, and over S, chi-squared with (1 + β₂)/(1 − β₂) degrees, by quantiles."""
    weight = 19.0 if correction == "paper" else 1.0
    degrees = (1 + beta2) / (1 - beta2)
    old, new = beta2 * stats.chi2(degrees).ppf((np.arange(2000) + 0.5) / 2000) / degrees, 1 - beta2
    y = np.linspace(-20.0, 4.0, 2401)[:, None]
    square = np.exp(2 * y)
    log_gain = -np.log1p(weight * square / (old + new * square))
    area = 0.01 * np.exp(gamma * log_gain + y - square / 2).sum(0).mean()
    found = steady_gain(betas=(0.9, beta2), gamma=gamma, correction=correction)
    assert found.mean_power == pytest.approx(math.sqrt(2 / math.pi) * area, rel=1e-3)


@given(BETA1, st.floats(1e-3, 0.999))
def test_density_and_probability_are_of_one_law(beta1, gain):
    """A probability is the area under the density, here in u = √(1 − K)."""
    law = gain_law(beta1)

    def height(u):
        return float(law.density(1 - u * u)) * 2 * u

    end = math.sqrt(1 - gain)
    area, _ = integrate.quad(height, 0.0, end, epsabs=1e-13, epsrel=1e-10, limit=200)
    assert 1 - law.probability(gain) == pytest.approx(area, rel=1e-7, abs=1e-12)
    assert law.density([-0.1, 0.0, 1.1]).tolist() == [0.0, 0.0, 0.0]
    assert law.density(1.0) == math.inf
    assert law.probability([-1.0, 0.0, 1.0, 2.0]).tolist() == [0.0, 0.0, 1.0, 1.0]


@given(BETA1, st.floats(0.001, 0.999))
def test_a_quantile_has_its_probability(beta1, probability):
    law = gain_law(beta1)
    assert law.probability(law.quantile(probability)) == pytest.approx(probability, rel=1e-9)
    assert law.quantile([0.0, 1.0]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.999), (0.95, 0.99)])
def test_the_filter_has_this_law(betas):
    """The mean gain and its root on normal noise, within 5 standard errors and 0.1 %.

    1,000 series of 500 steps after the first 500. A single gain has a deviation below 0.3, and
    residuals are nearly independent: 5 standard errors are at most 0.0021, exceeded by one seed
    in a million. The 0.1 % is for what is left of the start, and for the law that is taken for s.
    """
    found = noise_response("normal", betas=betas)
    expected = steady_gain(betas=betas)
    assert found.gain == pytest.approx(expected.mean, rel=0.001, abs=0.0021)
    assert found.root_gain == pytest.approx(expected.mean_power, rel=0.001, abs=0.0021)


@settings(max_examples=20)
@given(BETA1.filter(lambda beta1: beta1 > 0.0), st.floats(0.0, 2.0))
def test_a_long_memory_is_the_limit(beta1, gamma):
    found = steady_gain(betas=(beta1, 1 - 1e-9), gamma=gamma)
    law = gain_law(beta1)
    assert found == pytest.approx((law.mean, law.mean_power(gamma)), rel=1e-6)


def test_without_memory_the_gain_is_a_constant():
    """The variance is the present square alone: K = 1/(1 + w), which is (1 − β₁)/2."""
    assert steady_gain(betas=(0.9, 0.0), gamma=0.5) == pytest.approx((0.05, 0.05**0.5))
    assert steady_gain(betas=(0.9, 0.0), correction="none").mean == pytest.approx(0.5)


def test_without_a_mean_there_is_no_gain():
    assert steady_gain(betas=(0.0, 0.999), gamma=0.5) == (0.0, 0.0)
    assert steady_gain(betas=(0.0, 0.999), gamma=0.0) == (0.0, 1.0)
    assert steady_gain(betas=(0.9, 0.999), eps=math.inf) == (0.0, 0.0)


def test_wrong_arguments_are_refused():
    for beta1 in (-0.1, 1.0, math.nan, "0.9"):
        with pytest.raises(ValueError, match="Invalid beta1, not in"):
            gain_law(beta1)
    for ratio in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="Invalid variance_ratio, not positive and finite"):
            gain_law(0.9, variance_ratio=ratio)
    with pytest.raises(ValueError, match="Invalid gamma, not at least 0: -1"):
        gain_law(0.9).mean_power(-1)
    with pytest.raises(ValueError, match="Invalid probability, not in"):
        gain_law(0.9).quantile([0.5, 1.5])
    with pytest.raises(ValueError, match="Invalid beta parameter at index 1"):
        steady_gain(betas=(0.9, 1.0))


def test_arrays_keep_their_shape():
    law = gain_law(0.9)
    grid = np.full((2, 3), 0.5)
    for function in (law.density, law.probability, law.quantile):
        assert function(grid).shape == (2, 3)
