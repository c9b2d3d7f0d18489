"""Moments, quantiles and histograms against scipy and numpy, and densities against known ones."""

import numpy as np
import pytest
import torch
from scipy import stats

from sgdf.analysis.gradients.distribution import (
    BINS,
    EDGES,
    QUANTILES,
    counts_as_text,
    counts_from_text,
    density,
    describe,
    robust_deviation,
)


def skewed(count=5000):
    draws = np.random.default_rng(0)
    return 1e-4 * (draws.gamma(2.0, size=count) - 1.5)


def test_moments_and_quantiles_are_those_of_scipy():
    values = skewed()
    found = describe(torch.tensor(values).reshape(50, -1))
    assert found["mean"] == pytest.approx(values.mean(), rel=1e-7)
    assert found["deviation"] == pytest.approx(values.std(), rel=1e-7)
    assert found["skew"] == pytest.approx(stats.skew(values), rel=1e-7)
    assert found["kurtosis"] == pytest.approx(stats.kurtosis(values), rel=1e-7)
    np.testing.assert_allclose(found["quantiles"], np.quantile(values, QUANTILES), rtol=1e-7)


def test_a_histogram_is_numpys_and_counts_outliers_in_its_end_bins():
    values = np.concatenate([skewed(), [0.0, -1e-12, 500.0, 1e9, -300.0, EDGES[0], EDGES[-1]]])
    counts = counts_from_text(describe(torch.tensor(values))["counts"])
    assert counts.sum() == len(values)
    assert counts[0] == 1
    assert counts[-1] == 3  # a bin begins with its lower edge
    assert counts[BINS // 2] == np.sum(np.abs(values) < 1e-10) == 2
    expected, _ = np.histogram(values, EDGES)
    expected[-1] -= 1  # numpy's last bin has its upper edge too
    np.testing.assert_array_equal(counts[1:-1], expected)


def test_the_bins_are_symmetric():
    np.testing.assert_array_equal(EDGES, -EDGES[::-1])


@pytest.mark.parametrize("filled", [{}, {0: 3}, {BINS - 1: 2}, {0: 1, BINS - 1: 1}, {7: 5, 9: 1}])
def test_counts_survive_as_text(filled):
    counts = np.zeros(BINS, int)
    for place, count in filled.items():
        counts[place] = count
    np.testing.assert_array_equal(counts_from_text(counts_as_text(counts)), counts)


def test_equal_elements_have_no_skew():
    found = describe(torch.full((4,), 0.5))
    assert (found["mean"], found["deviation"]) == (0.5, 0.0)
    assert np.isnan(found["skew"])
    assert np.isnan(found["kurtosis"])


def test_the_mean_of_equal_elements_is_not_rounded_away_from_them():
    """The sum of seven tenths is more than 0.7, and no deviation may come of it."""
    found = describe(torch.full((7,), 0.1, dtype=torch.float64))
    assert found["deviation"] == 0.0
    assert np.isnan(found["skew"])


def test_the_density_of_normal_numbers_is_that_of_a_slightly_wider_normal_distribution():
    values = 3e-4 * torch.from_numpy(np.random.default_rng(1).normal(size=200_000))
    found = describe(values)
    width = robust_deviation(found["quantiles"])
    assert width == pytest.approx(3e-4, rel=0.01)
    at = np.linspace(-2e-3, 2e-3, 401)
    estimate = density(counts_from_text(found["counts"]), 0.2 * width, at)
    expected = stats.norm.pdf(at, scale=3e-4 * np.hypot(1.0, 0.2))
    assert np.abs(estimate - expected).max() < 0.02 * expected.max()
    assert estimate.sum() * (at[1] - at[0]) == pytest.approx(1.0, abs=1e-3)
