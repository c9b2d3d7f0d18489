"""The Fréchet distance against closed forms, scipy's root of a matrix, and torchmetrics."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch

from sgdf.bench.fidelity.frechet import frechet_distance
from sgdf.bench.fidelity.moments import Moments


def random_normal(size, rank=None, seed=0):
    """Return mean and covariance of the given rank."""
    noise = torch.Generator().manual_seed(seed)
    factor = torch.randn(size, rank or size, dtype=torch.float64, generator=noise)
    return torch.randn(size, dtype=torch.float64, generator=noise), factor @ factor.T / size


def diagonal(*variances):
    return torch.diag(torch.tensor(variances, dtype=torch.float64))


@pytest.mark.parametrize(("mean", "one", "other"), [(0.0, 1.0, 4.0), (3.0, 2.0, 2.0), (1.5, 0, 9)])
def test_in_one_dimension_it_is_that_of_means_and_deviations(mean, one, other):
    found = frechet_distance(
        torch.tensor([mean]), diagonal(one), torch.zeros(1), diagonal(float(other))
    )
    assert found == pytest.approx(mean**2 + (math.sqrt(one) - math.sqrt(other)) ** 2, abs=1e-12)


def test_independent_dimensions_add_up():
    mean = torch.tensor([1.0, -2.0, 0.5])
    one, other = diagonal(1.0, 4.0, 9.0), diagonal(16.0, 0.25, 9.0)
    found = frechet_distance(mean, one, torch.zeros(3), other)
    assert found == pytest.approx((1 + 4 + 0.25) + (3**2 + 1.5**2 + 0), rel=1e-13)


def test_covariances_with_the_same_axes_compare_deviations_along_them():
    axes = torch.linalg.qr(random_normal(4, seed=1)[1]).Q
    one, other = (
        axes @ diagonal(*variances) @ axes.T for variances in ([1, 4, 9, 16], [25, 16, 9, 4])
    )
    zero = torch.zeros(4)
    assert frechet_distance(zero, one, zero, other) == pytest.approx(16 + 4 + 0 + 4, rel=1e-12)


def test_covariances_with_other_axes_follow_the_closed_form_of_two_dimensions():
    """In two dimensions the root of a product P has the trace √(tr P + 2 √det P)."""
    one = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    other = torch.tensor([[5.0, -2.0], [-2.0, 1.0]], dtype=torch.float64)
    assert not torch.equal(one @ other, other @ one)
    trace = math.sqrt(9.0 + 2 * math.sqrt(5.0 * 1.0))
    zero = torch.zeros(2)
    assert float((one @ other).trace()) == pytest.approx(9.0)
    found = frechet_distance(zero, one, zero, other)
    assert found == pytest.approx(5.0 + 6.0 - 2 * trace, rel=1e-12)


def test_equal_distributions_have_no_distance():
    mean, covariance = random_normal(50)
    assert frechet_distance(mean, covariance, mean, covariance) < 1e-12


@pytest.mark.parametrize("rank", [1, 10, 99])
def test_covariances_without_full_rank_lose_no_digits(rank):
    mean, covariance = random_normal(100, rank)
    assert frechet_distance(mean, covariance, mean, covariance) < 1e-11
    axes = torch.linalg.qr(random_normal(100, seed=2)[1]).Q
    small = torch.zeros(100, 100, dtype=torch.float64)
    small[:rank, :rank] = random_normal(rank, seed=3)[1]
    twice = axes @ (4 * small) @ axes.T
    found = frechet_distance(mean, twice, mean, axes @ small @ axes.T)
    assert found == pytest.approx(float(small.trace()), rel=1e-10)


def test_sets_in_dimensions_of_their_own_have_nothing_in_common():
    zero = torch.zeros(3)
    found = frechet_distance(zero, diagonal(2.0, 0.0, 0.0), zero, diagonal(0.0, 3.0, 1.0))
    assert found == pytest.approx(6.0, rel=1e-13)


def test_a_rotation_of_both_changes_nothing():
    (mean_a, cov_a), (mean_b, cov_b) = (random_normal(30, seed=seed) for seed in (0, 1))
    axes = torch.linalg.qr(random_normal(30, seed=2)[1]).Q
    turned = frechet_distance(
        axes @ mean_a, axes @ cov_a @ axes.T, axes @ mean_b, axes @ cov_b @ axes.T
    )
    assert turned == pytest.approx(frechet_distance(mean_a, cov_a, mean_b, cov_b), rel=1e-11)


def test_it_is_the_same_both_ways_and_never_negative():
    for seed in range(20):
        one, other = random_normal(12, 5, seed), random_normal(12, seed=seed)
        there, back = frechet_distance(*one, *other), frechet_distance(*other, *one)
        assert there == pytest.approx(back, rel=1e-11)
        assert there > 0
        assert frechet_distance(*one, *one) >= 0


def test_it_is_that_of_the_root_of_the_product():
    (mean_a, cov_a), (mean_b, cov_b) = (random_normal(40, seed=seed) for seed in (3, 4))
    root = scipy.linalg.sqrtm((cov_a @ cov_b).numpy()).real
    difference = (mean_a - mean_b).numpy()
    expected = difference @ difference + np.trace((cov_a + cov_b).numpy() - 2 * root)
    assert frechet_distance(mean_a, cov_a, mean_b, cov_b) == pytest.approx(expected, rel=1e-9)


def test_it_is_torchmetrics_up_to_its_rounding():
    fid = pytest.importorskip("torchmetrics.image.fid", reason="torchmetrics is not installed")
    features = {True: torch.randn(300, 8), False: 1.5 * torch.randn(200, 8) + 0.3}

    class AsGiven(torch.nn.Module):
        num_features = 8

        def forward(self, features):
            return features

    theirs = fid.FrechetInceptionDistance(feature=AsGiven())
    moments = {}
    for real, given in features.items():
        theirs.update(given, real=real)
        moments[real] = Moments(8)
        moments[real].add(given)
    found = frechet_distance(*moments[True].normal, *moments[False].normal)
    assert found == pytest.approx(float(theirs.compute()), rel=1e-5)
    assert found > 1


def test_moments_that_are_not_finite_have_no_distance():
    mean, covariance = random_normal(3)
    assert math.isnan(frechet_distance(mean, covariance, mean * math.inf, covariance))
    assert math.isnan(frechet_distance(mean, covariance * math.nan, mean, covariance))


def test_other_dimensions_are_refused():
    with pytest.raises(ValueError, match="features of 3 and of 2 numbers"):
        frechet_distance(*random_normal(3), *random_normal(2))
